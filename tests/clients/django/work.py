"""What a Django project does with a server: one line of JSON for each thing, and whether it worked."""

import datetime
import io
import json
import os
import sys
from decimal import Decimal

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
sys.path.insert(0, os.environ["ISOBAR_PROJECT"])

import django  # noqa: E402

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import transaction  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, Sum  # noqa: E402
from shop.models import Author, Book  # noqa: E402


def step(did, work):
    try:
        work()
        error = ""
    except Exception as problem:  # noqa: BLE001: whatever it is, it is the outcome
        error = repr(problem)
    print(json.dumps({"did": did, "error": error}))


def same(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def inspect():
    out = io.StringIO()
    call_command("inspectdb", stdout=out)
    same(sorted(line.split()[1] for line in out.getvalue().splitlines() if line.startswith("class Shop")),
         ["ShopAuthor(models.Model):", "ShopBook(models.Model):"])


def write():
    at = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    with transaction.atomic():
        ann = Author.objects.create(name="ann", born=datetime.date(1970, 1, 2))
        Author.objects.create(name="bob", active=False)
        Book.objects.bulk_create(Book(author=ann, title=t, price=p, at=at) for t, p in (("x", "1.50"), ("y", "2.50")))
        try:
            with transaction.atomic():  # a savepoint
                Author.objects.create(name="cid")
                raise KeyError
        except KeyError:
            pass
    same(Author.objects.count(), 2)
    Book.objects.filter(title="x").update(price=F("price") + 1)
    same(Book.objects.get(title="x").price, Decimal("2.50"))


def read():
    same(Book.objects.filter(at__year=2020, author__name__startswith="a").count(), 2)
    same(Book.objects.select_related("author").get(title="y").author.active, True)
    same(Book.objects.aggregate(Avg("price"))["price__avg"], Decimal("2.5"))
    same(Book.objects.get(title="y").at.microsecond, 6)
    same(Author.objects.filter(Exists(Book.objects.filter(author=OuterRef("pk")))).count(), 1)
    same([a.name for a in Author.objects.order_by("-name")[:1]], ["bob"])


def group():
    rows = Author.objects.annotate(n=Count("books"), s=Sum("books__price")).order_by("name")
    same([(row.name, row.n, row.s) for row in rows], [("ann", 2, Decimal("5.00")), ("bob", 0, None)])


def lock():
    with transaction.atomic():
        same(Author.objects.select_for_update().get(name="ann").name, "ann")


def delete():
    Author.objects.filter(name="ann").delete()
    same(Book.objects.count(), 0)


step("makemigrations", lambda: call_command("makemigrations", "shop", verbosity=0))
step("migrate", lambda: call_command("migrate", "shop", verbosity=0))
step("inspectdb", inspect)
step("ORM: write, savepoint, update", write)
step("ORM: filter, join, aggregate, exists", read)
step("ORM: group by a model", group)
step("ORM: select_for_update", lock)
step("ORM: delete with its dependants", delete)
