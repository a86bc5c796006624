"""The reconciliation's guarded writes, without Spark: version checks, idempotence, fences, and values that do not fit."""

import sys
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pymysql
import pytest
import harness
from harness import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/reconciliation"))

import journal  # noqa: E402
import verification  # noqa: E402
from claims import Claims  # noqa: E402
from corrections import CHANGED_MEANWHILE, REFUSED, Corrections  # noqa: E402
from flight_client import FlightClient  # noqa: E402
from errors import AlreadyRunning, LeaseLost, TargetGone  # noqa: E402
from lease import Lease, release  # noqa: E402
from plan import Difference, Plan, Summary  # noqa: E402
from target import Target  # noqa: E402

COLUMNS = ("shop", "id", "price", "note")
KEY = ("shop", "id")


class Forgetful(Target):
    """A database whose first answer to COMMIT gets lost on the way."""

    forgot = False

    def _once(self, work, before_commit):
        result = super()._once(work, before_commit)
        if not self.forgot and work.__qualname__.startswith("Corrections"):
            self.forgot = True
            raise pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query")
        return result


def row(number: int, price: str | None = "1.50", note: str | None = "note") -> dict:
    return {"shop": "a", "id": number, "price": price and Decimal(price), "note": note}


def difference(number: int, lake: dict | None, live: dict | None) -> Difference:
    known = lake or live
    kind = "changed" if lake and live else "missing" if lake else "extra"
    changed = tuple(name for name in COLUMNS if lake and live and lake[name] != live[name])
    return Difference(number, kind, (known["shop"], known["id"]), changed, lake, live)


class Shop:
    """A live table, a claim on it, a lease, and corrections of it."""

    def __init__(self, cluster: Cluster, target: type[Target] = Target):
        self.cluster = cluster
        self.table = "shop.items"
        cluster.sql(
            "DROP DATABASE IF EXISTS shop",
            "CREATE DATABASE shop",
            "CREATE TABLE shop.items (shop VARCHAR(9), id INT, price DECIMAL(9,2) NOT NULL, note VARCHAR(9),"
            " PRIMARY KEY (shop, id))",
            "INSERT INTO shop.items VALUES " + ", ".join(f"('a', {n}, 1.50, 'note')" for n in range(1, 21)),
        )
        self.target = target("127.0.0.1", cluster.mysql_port, "root", "", 20)
        journal.prepare(self.target)
        self.run = uuid.uuid4().hex
        self.claims = Claims(self.target, self.run, [self.table])
        self.claims.take()
        self.client = FlightClient(cluster.flight, "root", "")
        self.token = cluster.token("60s")
        self.lease = Lease(self.client, self.token, 60)
        self.corrections = Corrections(self.target, self.claims, self.lease, self.run, self.table, KEY, COLUMNS)

    def rows(self) -> dict[int, tuple]:
        return {number: (price, note) for number, price, note in self.cluster.sql("SELECT id, price, note FROM shop.items")}

    def batches(self) -> int:
        return self.cluster.sql(f"SELECT COUNT(*) FROM reconciliation.batches WHERE run = '{self.run}'")[0][0]

    def close(self) -> None:
        self.lease.stop()
        release(self.client, self.token)
        self.claims.release()


@pytest.fixture
def shop(cluster: Cluster):
    made = Shop(cluster)
    yield made
    made.close()


BATCH = [
    difference(0, row(1, "2.00"), row(1)),  # another price
    difference(1, row(2, note=None), row(2)),  # NULL in the lake
    difference(2, None, row(3)),  # extra
    difference(3, row(100), None),  # missing
    difference(4, row(4, "2.00"), row(4)),  # changed meanwhile, in another column
    difference(5, row(5, "2.00"), row(5)),  # deleted meanwhile
    difference(6, None, row(6)),  # extra, changed meanwhile
    difference(7, row(101), None),  # missing, inserted meanwhile
    difference(8, row(7, note="far too long"), row(7)),  # does not fit
    difference(9, row(8, None), row(8)),  # may not be NULL
    difference(10, row(102, note="far too long"), None),  # does not fit either
    difference(11, row(103), None),  # missing
]
MEANWHILE = [
    "UPDATE shop.items SET note = 'newer' WHERE id IN (4, 6)",
    "DELETE FROM shop.items WHERE id = 5",
    "INSERT INTO shop.items VALUES ('a', 101, 9.99, NULL)",
]


def check_corrected(shop: Shop) -> None:
    rows = shop.rows()
    assert rows[1] == (Decimal("2.00"), "note") and rows[2] == (Decimal("1.50"), None)
    assert 3 not in rows and rows[100] == rows[103] == (Decimal("1.50"), "note")
    assert rows[4] == rows[6] == (Decimal("1.50"), "newer") and 5 not in rows and rows[101] == (Decimal("9.99"), None)
    assert rows[7] == rows[8] == (Decimal("1.50"), "note") and 102 not in rows
    assert rows[20] == (Decimal("1.50"), "note") and len(rows) == 21


def test_what_changed_meanwhile_or_does_not_fit_is_reported_and_left(shop: Shop):
    shop.cluster.sql(*MEANWHILE)
    made = shop.corrections.apply(0, BATCH)
    check_corrected(shop)
    assert (made.corrected, made.changed_meanwhile, made.refused) == (5, 4, 3)
    reported = {number: (outcome, why) for number, outcome, why in made.details}
    assert reported[4] == (CHANGED_MEANWHILE, "changed: note") and reported[5] == (CHANGED_MEANWHILE, "deleted")
    assert reported[6] == (CHANGED_MEANWHILE, "changed: note") and reported[7] == (CHANGED_MEANWHILE, "inserted")
    assert {reported[number][0] for number in (8, 9, 10)} == {REFUSED} and "note" in reported[10][1]
    assert journal.all_recorded(shop.target, shop.run, shop.table) == {0: made}


def test_a_commit_whose_answer_was_lost_is_not_repeated(cluster: Cluster):
    shop = Shop(cluster, Forgetful)
    try:
        shop.cluster.sql(*MEANWHILE)
        made = shop.corrections.apply(0, BATCH)
        assert shop.target.forgot and shop.target.reconnects == 1
        assert (made.corrected, made.changed_meanwhile, made.refused) == (5, 4, 3)
        check_corrected(shop)
        # Nor is it when the job is started again, even if rows have changed back since.
        shop.cluster.sql("UPDATE shop.items SET price = 1.50 WHERE id = 1")
        assert shop.corrections.apply(0, BATCH) == made
        assert shop.rows()[1] == (Decimal("1.50"), "note") and shop.batches() == 1
    finally:
        shop.close()


def test_nothing_is_written_once_the_lease_is_lost(shop: Shop):
    shop.corrections.apply(0, BATCH[:1])
    harness.FlightClient(shop.cluster).action("snapshot.release", {"snapshot": shop.token})
    for _ in range(2):
        with pytest.raises(LeaseLost, match="lease"):
            shop.corrections.apply(1, BATCH[1:3])
    assert shop.rows()[2] == (Decimal("1.50"), "note") and 3 in shop.rows() and shop.batches() == 1


def test_a_run_that_was_taken_over_writes_nothing_more(shop: Shop):
    with pytest.raises(AlreadyRunning, match=f"being reconciled by run {shop.run}"):
        Claims(shop.target, "f" * 32, [shop.table]).take()
    shop.claims._end.set()  # its heart stops
    shop.claims._thread.join()
    shop.cluster.sql("UPDATE reconciliation.beats SET beat = NOW(6) - INTERVAL 60 SECOND")
    other = Claims(shop.target, "f" * 32, [shop.table])
    other.take()
    try:
        with pytest.raises(AlreadyRunning, match="was taken over by run ffff"):
            shop.corrections.apply(0, BATCH)
        assert shop.rows()[1] == (Decimal("1.50"), "note") and shop.batches() == 0
    finally:
        other.release()
    assert shop.cluster.sql("SELECT COUNT(*) FROM reconciliation.claims") == [(0,)]


def test_a_table_does_not_change_hands_amid_a_batch(shop: Shop):
    refused = []

    def take_over() -> None:
        try:
            take = "UPDATE reconciliation.claims SET owner = 'another', run = 'ffff'"
            shop.cluster.sql("SET innodb_lock_wait_timeout = 1", take)
        except pymysql.err.OperationalError as error:
            refused.append(error.args[0])

    require = shop.lease.require
    shop.lease.require = lambda seconds: (require(seconds), take_over())
    made = shop.corrections.apply(0, BATCH[:3])
    assert refused == [1205], "the claim was not held until COMMIT"
    assert made.corrected == 3 and shop.batches() == 1
    shop.cluster.sql("UPDATE reconciliation.claims SET owner = 'another', run = 'ffff'")
    with pytest.raises(AlreadyRunning, match="was taken over by run ffff"):
        shop.corrections.apply(1, BATCH[3:])
    assert 100 not in shop.rows() and shop.batches() == 1
    shop.cluster.sql("DELETE FROM reconciliation.claims")


def test_a_database_that_is_gone_is_waited_for_within_bounds():
    with pytest.raises(TargetGone, match="did not answer for 1 s"):
        Target("127.0.0.1", 1, "root", "", 1).query("SELECT 1")


def test_verification_distinguishes_an_undone_correction_from_a_later_change(tmp_path: Path):
    def plan(name: str, rows: list[Difference]) -> Plan:
        made = Plan(tmp_path, name)
        made.folder.mkdir(parents=True)
        fields = ("kind", "changed", "lake", "live")
        lines = [{field: list(getattr(one, field)) if field == "changed" else getattr(one, field) for field in fields} for one in rows]
        side = pyarrow.struct([("shop", "string"), ("id", "int64"), ("price", pyarrow.decimal128(9, 2)), ("note", "string")])
        schema = pyarrow.schema([("kind", "string"), ("changed", pyarrow.list_(pyarrow.string())), ("lake", side), ("live", side)])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines, schema), made.folder / "part.parquet")
        return made

    first = plan("t", BATCH[:6])
    found = {0: journal.BatchRecord("", 5, 1, 0, ((4, CHANGED_MEANWHILE, "changed: note"),))}
    left = plan(
        "t.left",
        [
            BATCH[0],  # exactly as before it was corrected
            difference(1, row(2, note=None), row(2, "7.00")),  # corrected, and changed later
            BATCH[3],  # was inserted, and is missing again
            difference(3, row(4, "2.00"), row(4, note="newer")),  # was reported
            difference(4, row(9, "2.00"), row(9)),  # did not differ before
        ],
    )
    summary = Summary("t", KEY, COLUMNS, 20, 20, {}, 1.0, ())
    remaining = verification.explain(first, summary, 500, found, left)
    assert remaining.counts == {verification.SKIPPED: 1, verification.LATER: 2, verification.UNDONE: 2}
    assert remaining.undone == ["('a', 1)", "('a', 100)"]
