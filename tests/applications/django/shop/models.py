"""Its models."""

from django.db import models
from django.db.models import Q


class Maker(models.Model):
    name = models.CharField(max_length=40, unique=True)


class Tag(models.Model):
    word = models.CharField(max_length=20)


class Item(models.Model):
    maker = models.ForeignKey(Maker, on_delete=models.CASCADE)
    parent = models.ForeignKey("self", null=True, on_delete=models.SET_NULL)
    title = models.CharField(max_length=80)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    details = models.JSONField(default=dict)
    sold = models.DateField(null=True)
    tags = models.ManyToManyField(Tag)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["maker", "title"], name="one_title_of_a_maker"),
            models.CheckConstraint(condition=Q(price__gte=0), name="no_negative_price"),
        ]
