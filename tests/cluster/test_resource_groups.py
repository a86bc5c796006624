"""Resource groups over two SQL nodes and two columnar ones: the rate of a group holds wherever its work is done, on rows and
on columns, and nobody else waits for it."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pymysql
import pytest

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until
from readers import SparkReader

INTERRUPTED, RUNAWAY, WATCHED = 1317, 8253, 8254
# What a read of one row by its key costs: a request, and a batch of one. Its bytes are less than a hundredth of that.
READ = 0.125 + 0.5
SECONDS = 5


@pytest.fixture(scope="module")
def cluster(isobar, tmp_path_factory):
    """Two SQL nodes and two columnar ones, with a user for each of two groups."""
    data = tmp_path_factory.mktemp("groups")
    base = os.environ.get("ISOBAR_PORT_BASE")
    with Cluster(isobar, data, port_base=int(base) if base else None, columnar=2, sql=2) as running:
        running.sql(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, a TEXT)",
            "INSERT INTO d.t VALUES (1, 'x')",
            "CREATE RESOURCE GROUP rg1 RU_PER_SEC = 20",
            "CREATE RESOURCE GROUP rg2 RU_PER_SEC = 40",
            *(f"CREATE USER usr{n} RESOURCE GROUP rg{n}" for n in (1, 2)),
            *(f"GRANT ALL ON d.* TO usr{n}" for n in (1, 2)),
        )
        yield running
    shutil.rmtree(data, ignore_errors=True)


def session(cluster: Cluster, user: str, node: int = 1):
    """A session of a user on one of the SQL nodes."""
    return cluster.connect(user=user, port=cluster.mysql_port + node - 1)


class Readers:
    """Sessions that read one row again and again."""

    def __init__(self, cluster: Cluster, user: str, nodes: list[int]):
        self.count = 0
        self.group = {"usr1": "rg1", "usr2": "rg2"}.get(user, "default")
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.failed: list[Exception] = []
        self.threads = [threading.Thread(target=self.read, args=(cluster, user, node)) for node in nodes]

    def read(self, cluster: Cluster, user: str, node: int) -> None:
        try:
            with session(cluster, user, node) as connection, connection.cursor() as cursor:
                while not self.ended.is_set():
                    cursor.execute("SELECT id FROM d.t WHERE id = 1")
                    with self.lock:
                        self.count += 1
        except Exception as error:  # it belongs to the test, not to the thread
            self.failed.append(error)


@contextmanager
def reading(*readers: Readers) -> Iterator[None]:
    threads = [thread for one in readers for thread in one.threads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in readers:
            one.ended.set()
        for thread in threads:
            thread.join(40)
    assert not [error for one in readers for error in one.failed]


def used(cluster: Cluster, group: str) -> int:
    return cluster.sql(f"SELECT ru FROM information_schema.resource_group_usage WHERE name = '{group}'")[0][0]


class Rates(NamedTuple):
    """Units a second: what rows that were read cost by themselves, and all that was paid, for what statements compute as well."""

    reads: float
    paid: float

    def hold(self, limit: float) -> bool:
        """Whether a group used what it may, and no more. On busy processors a node asks late for more, so "used" is two thirds."""
        return 0.4 * limit < self.reads < 1.1 * limit and 0.65 * limit < self.paid < 1.2 * limit


class Count(NamedTuple):
    """What one group's readers have read, and what it has paid, at the time of a report."""

    at: float
    reads: int
    paid: int


def counted(cluster: Cluster, one: Readers) -> Count:
    """As of the next report, so that two of them are whole reports apart."""
    known = used(cluster, one.group)
    paid = wait_until("a report comes", lambda: (now := used(cluster, one.group)) > known and now)
    return Count(time.monotonic(), one.count, paid)


def rates(cluster: Cluster, *readers: Readers) -> list[Rates]:
    """What readers, each of a group of its own, use once what was saved up is spent and shares are known."""
    with reading(*readers):
        time.sleep(3)
        begun = [counted(cluster, one) for one in readers]
        time.sleep(SECONDS)
        ended = [counted(cluster, one) for one in readers]
    pairs = [(then, now, now.at - then.at) for then, now in zip(begun, ended)]
    return [Rates((now.reads - then.reads) * READ / took, (now.paid - then.paid) / took) for then, now, took in pairs]


def test_groups_are_held_to_their_rates_side_by_side(cluster: Cluster):
    one, two = rates(cluster, Readers(cluster, "usr1", [1] * 4), Readers(cluster, "usr2", [1] * 4))
    assert one.hold(20) and two.hold(40), (one, two)


def test_a_group_has_one_rate_over_several_nodes(cluster: Cluster):
    (both,) = rates(cluster, Readers(cluster, "usr2", [1] * 4 + [2] * 4))
    assert both.hold(40), both
    # One of them has nearly all of it where the other has nothing to do.
    (alone,) = rates(cluster, Readers(cluster, "usr2", [2] * 4))
    assert alone.hold(40), alone


def test_a_burstable_group_and_everybody_else_are_not_held(cluster: Cluster):
    cluster.sql("ALTER RESOURCE GROUP rg1 BURSTABLE")
    one, root, two = rates(cluster, *(Readers(cluster, user, [1]) for user in ("usr1", "root", "usr2")))
    cluster.sql("ALTER RESOURCE GROUP rg1 BURSTABLE = FALSE")
    assert one.reads > 60 and root.reads > 60, (one, root)
    assert two.hold(40), two


def waiting(cluster: Cluster, number: int) -> bool:
    shown = cluster.sql(f"SELECT info FROM information_schema.processlist WHERE id = {number}")
    return bool(shown) and "FROM d.t" in (shown[0][0] or "")


def test_a_commit_does_not_wait_and_what_follows_does_until_the_group_may_use_more(cluster: Cluster):
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 1")
    with session(cluster, "usr1") as connection, connection.cursor() as cursor:
        begun = time.monotonic()
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO d.t VALUES (2, REPEAT('x', 20000))")
        cursor.execute("COMMIT")
        assert time.monotonic() - begun < 10
        number = connection.thread_id()
        done = threading.Event()
        rows: list[tuple] = []

        def read() -> None:
            cursor.execute("SELECT COUNT(*) FROM d.t")
            rows.extend(cursor.fetchall())
            done.set()

        reader = threading.Thread(target=read)
        reader.start()
        # It owes what would come in in more than half a minute; nobody else waits.
        wait_until("the statement waits", lambda: waiting(cluster, number))
        assert cluster.sql("SELECT COUNT(*) FROM d.t") == [(2,)]
        assert not done.is_set()
        cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 100000")
        reader.join(20)
        assert rows == [(2,)]


def test_a_statement_that_waits_can_be_killed(cluster: Cluster):
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 1")
    with session(cluster, "usr1") as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO d.t VALUES (3, REPEAT('x', 20000))")
        errors: list[int] = []

        def read() -> None:
            try:
                cursor.execute("SELECT COUNT(*) FROM d.t")
            except pymysql.err.MySQLError as error:
                errors.append(error.args[0])

        reader = threading.Thread(target=read)
        reader.start()
        wait_until("the statement waits", lambda: waiting(cluster, connection.thread_id()))
        cluster.sql(f"KILL QUERY {connection.thread_id()}")
        reader.join(20)
        assert errors == [INTERRUPTED]
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


# Rows of a table on columns, and what the bytes of its texts alone cost.
WIDE, TEXT = 32_768, 200
SCAN = WIDE * TEXT / 65_536


@pytest.fixture(scope="module")
def wide(cluster: Cluster) -> str:
    """A table of several regions that both columnar nodes have a part of."""
    cluster.sql(
        f"CREATE TABLE d.wide (id INT PRIMARY KEY AUTO_INCREMENT, a CHAR({TEXT}))",
        f"INSERT INTO d.wide (a) VALUES (REPEAT('x', {TEXT}))",
        *["INSERT INTO d.wide (a) SELECT a FROM d.wide"] * 15,
        "SPLIT TABLE d.wide REGIONS 4",
    )
    cluster.replicate("d.wide")
    return "SELECT MAX(LENGTH(a)) FROM d.wide"


def seconds(work: Callable[[], object], times: int) -> float:
    begun = time.monotonic()
    for _ in range(times):
        work()
    return time.monotonic() - begun


def test_columns_are_paid_for_by_the_group_of_the_statement(cluster: Cluster, wide: str):
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 80")
    with session(cluster, "usr1") as connection, connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")

        def read() -> None:
            cursor.execute(wide)
            assert cursor.fetchall() == ((TEXT,),)

        # The first one runs into debt, which the others wait for.
        limited = seconds(read, 3)
        assert limited > 2 * SCAN / 80 * 0.8, limited
        cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = UNLIMITED")
        wait_until("the limit is gone", lambda: seconds(read, 3) < limited / 2)
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


def test_flight_clients_are_of_their_users_group_or_of_one_that_they_may_name(cluster: Cluster, wide: str):
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 80")
    client = FlightClient(cluster, user="usr1")
    limited = seconds(lambda: client.scan("d.wide", ["a"]), 3)
    assert limited > 2 * SCAN / 80 * 0.8, limited
    scan = {"database": "d", "table": "wide", "columns": ["a"], "resource_group": "default"}
    with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-DENIED.*RESOURCE_GROUP_USER"):
        client.rows({"scan": scan})
    with pytest.raises(FLIGHT_ERRORS, match="Unknown resource group 'nothing'"):
        client.rows({"scan": {**scan, "resource_group": "nothing"}})
    cluster.sql("GRANT RESOURCE_GROUP_USER ON *.* TO usr1")
    assert seconds(lambda: client.rows({"scan": scan}), 3) < limited / 2
    cluster.sql("REVOKE RESOURCE_GROUP_USER ON *.* FROM usr1", "ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


def test_spark_reads_for_the_group_that_it_names(cluster: Cluster, wide: str, jar: Path):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 25")
    reader = SparkReader(jar, cluster.flight, master="local[2]")
    try:
        spark = reader.spark
        for option, value in {"": "org.isobar.spark.IsobarCatalog", ".endpoints": ",".join(cluster.flight)}.items():
            spark.conf.set(f"spark.sql.catalog.batch{option}", value)
        spark.conf.set("spark.sql.catalog.batch.resourceGroup", "rg1")

        def read(catalog: str) -> None:
            assert spark.sql(f"SELECT MAX(LENGTH(a)) FROM {catalog}.d.wide").collect()[0][0] == TEXT

        read("isobar")
        free, held = (seconds(lambda: read(catalog), 3) for catalog in ("isobar", "batch"))
        # The first one runs into debt, which the others wait for.
        assert held > 2 * SCAN / 25 * 0.8 and free < held / 2, (free, held)
    finally:
        reader.close()
        cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


# Takes a minute, wherever it runs: every pair of rows is compared.
SLOW = "SELECT COUNT(*) FROM d.wide a JOIN d.wide b ON CONCAT(a.a, a.id) < CONCAT(b.a, b.id)"


@contextmanager
def limited(cluster: Cluster, limit: str) -> Iterator[pymysql.cursors.Cursor]:
    """A statement of rg1, which has this QUERY_LIMIT and no other limit meanwhile."""
    cluster.sql(f"ALTER RESOURCE GROUP rg1 RU_PER_SEC = UNLIMITED QUERY_LIMIT = ({limit})")
    with session(cluster, "usr1") as connection, connection.cursor() as cursor:
        yield cursor
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20 QUERY_LIMIT = NULL")


def runaways(cluster: Cluster, action: str) -> int:
    """How many are in the SQL node's log."""
    lines = (cluster.data / "sql" / "isobar.log").read_text().splitlines()
    return sum("a runaway query" in line and f"action={action}" in line for line in lines)


@pytest.mark.parametrize("engine", ["tikv", "tiflash"])
def test_a_runaway_is_killed_and_its_session_goes_on(cluster: Cluster, wide: str, engine: str):
    known = runaways(cluster, "KILL")
    with limited(cluster, "EXEC_ELAPSED = '1s', ACTION = KILL") as cursor:
        cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
        begun = time.monotonic()
        with pytest.raises(pymysql.err.MySQLError) as error:
            cursor.execute(SLOW)
        assert error.value.args[0] == RUNAWAY
        assert 1 <= time.monotonic() - begun < 20
        cursor.execute(wide)
        assert cursor.fetchall() == ((TEXT,),)
    assert runaways(cluster, "KILL") == known + 1


def test_what_a_query_computes_is_paid_for_too(cluster: Cluster, wide: str):
    # Its rows cost a third of that; they are joined by tasks of their own.
    with limited(cluster, "RU = 600, ACTION = KILL") as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tikv'")
        with pytest.raises(pymysql.err.MySQLError) as error:
            cursor.execute(SLOW)
        assert error.value.args[0] == RUNAWAY


def test_what_joins_on_columns_compute_is_paid_for(cluster: Cluster, wide: str):
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = UNLIMITED")
    with session(cluster, "usr1") as connection, connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
        before = used(cluster, "rg1")
        # Pairs of what is half a scan to read, both times together.
        cursor.execute(f"{SLOW} WHERE a.id < 8000 AND b.id < 8000")
        wait_until("it is known who paid", lambda: used(cluster, "rg1") - before > 2 * SCAN)
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


@pytest.mark.parametrize("engine, limit", [("tikv", "RU = 100"), ("tiflash", "EXEC_ELAPSED = '1ms'")])
def test_a_runaway_is_switched_and_the_next_statement_is_not(cluster: Cluster, wide: str, engine: str, limit: str):
    scans = " UNION ALL ".join([wide] * 20)
    with limited(cluster, f"{limit}, ACTION = SWITCH_GROUP(default)") as cursor:
        before, moved = used(cluster, "default"), runaways(cluster, "SWITCH_GROUP(default)")
        cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
        cursor.execute(scans)
        assert cursor.fetchall() == ((TEXT,),) * 20
        # All but the first of it was paid for by the other group.
        wait_until("it is known who paid", lambda: used(cluster, "default") - before > 10 * SCAN)
        assert runaways(cluster, "SWITCH_GROUP(default)") == moved + 1
        known = used(cluster, "rg1")
        cluster.sql("ALTER RESOURCE GROUP rg1 QUERY_LIMIT = (EXEC_ELAPSED = '1h', ACTION = SWITCH_GROUP(default))")
        cursor.execute("SELECT MAX(LENGTH(a)) FROM d.wide WHERE id < 10000")
        wait_until("its own group pays", lambda: used(cluster, "rg1") > known)


def test_a_limit_holds_on_columns_as_soon_as_it_is_set(cluster: Cluster, wide: str):
    cluster.sql("CREATE RESOURCE GROUP spare RU_PER_SEC = UNLIMITED")
    for _ in range(5):
        known = used(cluster, "spare")
        with limited(cluster, "EXEC_ELAPSED = '1ms', ACTION = SWITCH_GROUP(spare)") as cursor:
            cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
            cursor.execute(" UNION ALL ".join([wide] * 20))
        # Which takes as long as nodes need to know that the limit is gone.
        wait_until("it is known who paid", lambda known=known: used(cluster, "spare") - known > 18 * SCAN)
    cluster.sql("DROP RESOURCE GROUP spare")


@pytest.mark.parametrize("engine", ["tikv", "tiflash"])
def test_a_runaway_cools_down_and_ends_well(cluster: Cluster, wide: str, engine: str):
    with limited(cluster, "EXEC_ELAPSED = '10ms', ACTION = COOLDOWN") as cursor:
        cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
        cursor.execute(wide)
        assert cursor.fetchall() == ((TEXT,),)
    assert runaways(cluster, "COOLDOWN") >= 1


def fails_with(cursor: pymysql.cursors.Cursor, statement: str) -> int:
    with pytest.raises(pymysql.err.MySQLError) as error:
        cursor.execute(statement)
    return error.value.args[0]


def watches(cluster: Cluster) -> list[tuple]:
    return list(cluster.sql("SELECT id, watch, action FROM information_schema.runaway_watches"))


def test_what_is_like_a_runaway_is_ended_before_it_begins_on_every_node(cluster: Cluster, wide: str):
    with limited(cluster, "EXEC_ELAPSED = '1s', ACTION = KILL, WATCH = SIMILAR DURATION = '10m'") as cursor:
        assert fails_with(cursor, SLOW) == RUNAWAY
        begun = time.monotonic()
        assert fails_with(cursor, f"{SLOW.lower()} -- once more") == WATCHED
        assert time.monotonic() - begun < 1
        wait_until("placement knows of it", lambda: [row[1:] for row in watches(cluster)] == [("SIMILAR", "KILL")])
        with session(cluster, "usr1", 2) as connection, connection.cursor() as elsewhere:
            wait_until("the other node knows of it", lambda: fails_with(elsewhere, SLOW) == WATCHED)
            elsewhere.execute(wide)
        # Who is of another group is not meant.
        with session(cluster, "usr2") as connection, connection.cursor() as other:
            other.execute("SELECT COUNT(*) FROM d.t")

    def kept(how: str) -> bool:
        shown = "SELECT resource_group_name, match_type, action, original_sql FROM mysql.tidb_runaway_queries"
        return ("rg1", how, "KILL", SLOW) in cluster.sql(shown)

    for how in ("identify", "watch"):
        wait_until(f"it is kept by {how}", lambda how=how: kept(how))
    for number, _, _ in watches(cluster):
        cluster.sql(f"QUERY WATCH REMOVE {number}")
    assert watches(cluster) == []


def test_queries_are_watched_by_hand_and_no_more_once_that_is_taken_back(cluster: Cluster, wide: str):
    watched = "SELECT COUNT(*) FROM d.t WHERE id > 1"
    number = cluster.sql(f"QUERY WATCH ADD RESOURCE GROUP rg2 ACTION KILL SQL TEXT EXACT TO '{watched}'")[0][0]
    with session(cluster, "usr2") as connection, connection.cursor() as cursor:
        assert fails_with(cursor, watched) == WATCHED
        cursor.execute("SELECT COUNT(*) FROM d.t WHERE id > 2")
        cluster.sql(f"QUERY WATCH REMOVE {number}")

        def runs() -> bool:
            try:
                cursor.execute(watched)
                return True
            except pymysql.err.MySQLError:
                return False

        wait_until("it is not watched any more", runs)
    with session(cluster, "usr2") as connection, connection.cursor() as cursor:
        assert fails_with(cursor, f"QUERY WATCH ADD ACTION KILL SQL TEXT EXACT TO '{watched}'") == 1227
    with cluster.connect() as connection, connection.cursor() as cursor:
        assert fails_with(cursor, "QUERY WATCH ADD RESOURCE GROUP nothing ACTION KILL SQL DIGEST 'a'") == 8249


def test_an_import_keeps_to_the_rate_of_its_group(cluster: Cluster, isobar: Path, tmp_path: Path):
    rows, width, rate = 100_000, 200, 10_000
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{number},{'x' * width}\n" for number in range(rows)), encoding="ascii")
    cluster.sql(
        f"CREATE TABLE d.imported (id INT PRIMARY KEY, a CHAR({width}))",
        f"ALTER RESOURCE GROUP rg1 RU_PER_SEC = {rate}",
    )
    before, cost = used(cluster, "rg1"), 3 * rows * width / 1024
    command = [isobar, "import", "--target", f"127.0.0.1:{cluster.mysql_port}", "--database", "d", "--table", "imported"]
    command += ["--resource-group", "rg1", path]
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True}
    took = seconds(lambda: subprocess.run(command, check=True, timeout=120, **quiet), 1)
    assert took > cost / rate * 0.7, took
    wait_until("it is known who paid", lambda: used(cluster, "rg1") - before > cost)
    assert cluster.sql("SELECT COUNT(*) FROM d.imported") == [(rows,)]
    cluster.sql("ALTER RESOURCE GROUP rg1 RU_PER_SEC = 20")


def test_a_replica_is_built_at_the_rate_of_the_group_that_does_so_in_the_background(cluster: Cluster, wide: str):
    rate = 25
    cluster.sql(
        f"CREATE RESOURCE GROUP builder RU_PER_SEC = {rate} BACKGROUND = (TASK_TYPES = 'replica')",
        "ALTER TABLE d.wide SET COLUMNAR REPLICA 0",
    )
    wait_until("the replica is gone", lambda: cluster.replica("d.wide") is None)
    took = seconds(lambda: cluster.replicate("d.wide"), 1)
    assert took > SCAN / rate / 2, took
    wait_until("it is known who paid", lambda: used(cluster, "builder") > SCAN)
    # Without a limit it comes as fast as it can, and is paid for all the same.
    cluster.sql("ALTER RESOURCE GROUP builder RU_PER_SEC = UNLIMITED", "ALTER TABLE d.wide SET COLUMNAR REPLICA 0")
    wait_until("the replica is gone again", lambda: cluster.replica("d.wide") is None)
    assert seconds(lambda: cluster.replicate("d.wide"), 1) < took
    wait_until("it is known who paid again", lambda: used(cluster, "builder") > 2 * SCAN)
    cluster.sql("DROP RESOURCE GROUP builder")
    assert cluster.read("tiflash", wide) == [(TEXT,)]


def test_a_quota_is_known_by_hardware_and_not_by_a_time_without_load(cluster: Cluster):
    quotas = {load: cluster.sql(f"CALIBRATE RESOURCE WORKLOAD {load}")[0][0] for load in ("TPCC", "OLTP_READ_ONLY")}
    assert all(quota > 100 for quota in quotas.values()), quotas
    assert cluster.sql("CALIBRATE RESOURCE") == [(quotas["TPCC"],)]
    with cluster.connect() as connection, connection.cursor() as cursor:
        for times, why in (
            ("START_TIME NOW() - INTERVAL 10 SECOND", "at least 20 seconds"),
            ("START_TIME '2020-01-01' DURATION '10m'", "nothing was noted"),
            ("START_TIME 'soon'", "soon"),
        ):
            with pytest.raises(pymysql.err.MySQLError, match=why):
                cursor.execute(f"CALIBRATE RESOURCE {times}")
    with session(cluster, "usr2") as connection, connection.cursor() as cursor:
        assert fails_with(cursor, "CALIBRATE RESOURCE") == 1227


def test_without_resource_control_nobody_pays_or_waits(cluster: Cluster, wide: str):
    cluster.sql("ALTER RESOURCE GROUP rg2 RU_PER_SEC = 1")
    with session(cluster, "usr2") as connection, connection.cursor() as cursor:
        known = used(cluster, "rg2")
        cursor.execute("INSERT INTO d.t VALUES (9, REPEAT('x', 20000))")
        wait_until("it is known who paid", lambda: used(cluster, "rg2") - known > 50)
        cluster.sql("SET GLOBAL tidb_enable_resource_control = OFF")
        # It owes what would come in in a minute.
        for engine in ("tikv", "tiflash"):
            cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
            cursor.execute(wide)
            assert cursor.fetchall() == ((TEXT,),)
        assert fails_with(cursor, "SET RESOURCE GROUP rg2") == 8250
    with cluster.connect() as connection, connection.cursor() as cursor:
        assert fails_with(cursor, "ALTER RESOURCE GROUP rg2 RU_PER_SEC = 40") == 8250
        before = used(cluster, "rg2")
        cursor.execute("SET GLOBAL tidb_enable_resource_control = ON")
        cursor.execute("ALTER RESOURCE GROUP rg2 RU_PER_SEC = 40")
    with session(cluster, "usr2") as connection, connection.cursor() as cursor:
        for _ in range(5):  # a unit and a half at least: whole ones are shown
            cursor.execute("SELECT id FROM d.t WHERE id = 1")
    wait_until("it is paid for again", lambda: used(cluster, "rg2") > before)
    assert used(cluster, "rg2") - before < SCAN / 2, "what was read meanwhile was nobody's"
