"""Two models. Foreign keys are not enforced by the database: it refuses them by name."""

from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=50, db_index=True)
    born = models.DateField(null=True)
    active = models.BooleanField(default=True)


class Book(models.Model):
    author = models.ForeignKey(Author, models.CASCADE, db_constraint=False, related_name="books")
    title = models.CharField(max_length=100)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    at = models.DateTimeField()
