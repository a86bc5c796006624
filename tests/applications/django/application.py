"""Django with its own packages: accounts, permissions, sessions, sites, flat pages, and models with every kind of key."""

import datetime

import pymysql

from steps import DATABASE, HOST, PORT, after_restart, run, step

pymysql.version_info = (2, 2, 1, "final", 0)  # as which PyMySQL passes for mysqlclient
pymysql.install_as_MySQLdb()

import django  # noqa: E402
from django.conf import settings  # noqa: E402

NAMES = ["admin", "auth", "contenttypes", "sessions", "messages", "sites", "redirects", "flatpages"]
WARES = ["sessions.middleware.SessionMiddleware", "messages.middleware.MessageMiddleware"]
settings.configure(
    SECRET_KEY="x", USE_TZ=True, SITE_ID=1, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=[f"django.contrib.{name}" for name in NAMES] + ["shop"],
    MIDDLEWARE=[f"django.contrib.{ware}" for ware in [*WARES, "auth.middleware.AuthenticationMiddleware"]],
    TEMPLATES=[{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.mysql", "NAME": DATABASE, "USER": "root", "HOST": HOST, "PORT": str(PORT),
    }},
    MIGRATION_MODULES={"shop": None},
)  # fmt: skip

django.setup()

from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.contenttypes.models import ContentType  # noqa: E402
from django.contrib.flatpages.models import FlatPage  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Avg, Count, Exists, F, OuterRef, Subquery, Sum, Window  # noqa: E402
from django.db.models.functions import Lower, RowNumber, TruncMonth  # noqa: E402
from shop.models import Item, Maker, Tag  # noqa: E402


@step
def migrates():
    call_command("migrate", run_syncdb=True, verbosity=0)
    return sorted(connection.introspection.table_names())


@step
def makes_users_and_groups():
    group = Group.objects.create(name="writers")
    group.permissions.set(Permission.objects.order_by("id")[:5])
    for name in ("ann", "Bob", "Çelik"):
        User.objects.create_user(name, f"{name}@example.org", "secret").groups.add(group)
    return User.objects.filter(groups__permissions__isnull=False).distinct().count()


@step
def finds_a_user_without_case():
    return [User.objects.get(username__iexact=name).username for name in ("ANN", "bob")]


@step
def finds_a_user_by_an_equal_name():
    return User.objects.filter(username="bob").count()


@step
def refuses_a_second_user_of_a_name():
    try:
        with transaction.atomic():
            User.objects.create_user("ANN")
        return "made"
    except IntegrityError as error:
        return error.args[0]


@step
def keeps_a_session():
    session = SessionStore()
    session["cart"] = [1, 2]
    session.create()
    return SessionStore(session_key=session.session_key)["cart"]


@step
def makes_items():
    acme, other = Maker.objects.create(name="acme"), Maker.objects.create(name="other")
    first = Item.objects.create(maker=acme, title="anvil", price="12.50", details={"kg": 5}, sold=datetime.date(2024, 5, 1))
    Item.objects.bulk_create([
        Item(maker=acme, title="bolt", price="0.25", parent=first, details={"kg": 0.1, "of": ["steel"]}),
        Item(maker=other, title="cog", price="3.75", parent=first, sold=datetime.date(2024, 6, 2)),
        Item(maker=other, title="dial", price="9.99", sold=datetime.date(2024, 6, 9)),
    ])  # fmt: skip
    heavy = Tag.objects.create(word="Heavy")
    first.tags.add(heavy, Tag.objects.create(word="old"))
    return Item.objects.count()


@step
def sums_by_maker():
    makers = Maker.objects.annotate(n=Count("item"), sum=Sum("item__price"), mean=Avg("item__price")).order_by("name")
    return [(maker.name, maker.n, str(maker.sum), str(maker.mean)) for maker in makers]


@step
def sums_by_month():
    months = Item.objects.filter(sold__isnull=False).annotate(month=TruncMonth("sold")).values("month")
    return [(str(one["month"]), one["n"]) for one in months.annotate(n=Count("id")).order_by("month")]


@step
def numbers_rows():
    numbered = Item.objects.annotate(n=Window(RowNumber(), partition_by="maker", order_by=F("price").desc()))
    return [(item.title, item.n) for item in numbered.order_by("title")]


@step
def filters_by_what_exists():
    children = Item.objects.filter(parent=OuterRef("pk"))
    parents = Item.objects.annotate(has=Exists(children)).filter(has=True)
    dearest = Item.objects.filter(maker=OuterRef("pk")).order_by("-price")
    titles = Maker.objects.annotate(title=Subquery(dearest.values("title")[:1])).order_by("name")
    return [[item.title for item in parents], [maker.title for maker in titles]]


@step
def looks_into_json():
    return [Item.objects.filter(details__kg=5).count(), Item.objects.filter(details__has_key="of").count()]


@step
def searches_without_case():
    return [Item.objects.filter(title__icontains="ANV").count(), Tag.objects.filter(word__istartswith="HEA").count()]


@step
def orders_without_case():
    return list(Tag.objects.order_by(Lower("word")).values_list("word", flat=True))


@step
def updates_in_place():
    return Item.objects.filter(maker__name="other").update(price=F("price") * 2)


@step
def locks_and_takes_back():
    try:
        with transaction.atomic():
            item = Item.objects.select_for_update().get(title="anvil")
            item.price = 1
            item.save()
            raise RuntimeError
    except RuntimeError:
        return str(Item.objects.get(title="anvil").price)


@step
def refuses_what_breaks_a_constraint():
    found = []
    for change in (
        lambda: Item.objects.create(maker_id=1, title="anvil"),
        lambda: Item.objects.filter(title="bolt").update(price=-1),
        lambda: Item.objects.filter(title="bolt").update(maker_id=99),
    ):
        try:
            with transaction.atomic():
                change()
            found.append("done")
        except Exception as error:  # noqa: BLE001
            found.append(error.args[0] if error.args[0] != 4025 else 3819)  # MariaDB's number of a broken CHECK
    return found


@step
def shows_its_keys():
    with connection.cursor() as cursor:
        return sorted(connection.introspection.get_relations(cursor, "shop_item").items())


@step
def changes_a_table():
    weight = models.IntegerField(default=7)
    weight.set_attributes_from_name("weight")
    with connection.schema_editor() as editor:
        editor.add_field(Item, weight)
        wider = models.CharField(max_length=200)
        wider.set_attributes_from_name("title")
        editor.alter_field(Item, Item._meta.get_field("title"), wider)
    with connection.cursor() as cursor:
        cursor.execute("SELECT SUM(weight) FROM shop_item")
        return int(cursor.fetchone()[0])


@step
def writes_pages():
    page = FlatPage.objects.create(url="/about/", title="About", content="…")
    page.sites.add(1)
    return FlatPage.objects.filter(sites__id=1).count()


@step
def deletes_a_parent():
    Item.objects.get(title="anvil").delete()
    return [Item.objects.filter(parent__isnull=False).count(), Item.tags.through.objects.count()]


@after_restart
def finds_everything_again():
    return [User.objects.count(), Item.objects.count(), ContentType.objects.count(), Permission.objects.count()]


@after_restart
def checks_a_password():
    return User.objects.get(username="ann").check_password("secret")


@after_restart
def deletes_a_maker():
    return Maker.objects.get(name="other").delete()[0]


@after_restart
def migrates_again():
    call_command("migrate", run_syncdb=True, verbosity=0)
    return True


run()
