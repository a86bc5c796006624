"""Garbage collection at work: what a lease or a living transaction protects stays, the rest goes and is not missed."""

import threading
import time

import pymysql
import pytest
from pymysql.cursors import SSCursor

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster

ROWS = 3000
LIFE = 3
TOO_OLD, FLIGHT_TOO_OLD = 9006, "ISOBAR-SNAPSHOT_TOO_OLD"
QUERY = "SELECT COUNT(*), SUM(id), SUM(n), MIN(n), MAX(LENGTH(pad)) FROM {0}"


@pytest.fixture(scope="module", autouse=True)
def short_life(cluster: Cluster):
    cluster.sql(f"SET GLOBAL tidb_gc_life_time = '{LIFE}s'")


class Updates:
    """A writer that changes every row again and again, and deletes and inserts some."""

    def __init__(self, cluster: Cluster, table: str):
        self.cluster, self.table = cluster, table
        self.rounds = 0
        self.failure: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Updates":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with self.cluster.connect() as connection, connection.cursor() as cursor:
                while not self._end.is_set():
                    for part in range(6):
                        cursor.execute(f"UPDATE {self.table} SET n = n + 1 WHERE id % 6 = {part}")
                    low = self.rounds * 7 % ROWS
                    cursor.execute(f"DELETE FROM {self.table} WHERE id BETWEEN {low} AND {low + 2}")
                    rows = ",".join(f"({id}, {self.rounds}, REPEAT('x', 200))" for id in range(low, min(low + 3, ROWS)))
                    cursor.execute(f"INSERT INTO {self.table} VALUES {rows}")
                    self.rounds += 1
        except BaseException as error:  # noqa: BLE001 — raised to the test
            self.failure = error

    def wait_for(self, more: int, seconds: float = 120) -> None:
        target = self.rounds + more
        wait_until(f"{more} more rounds", lambda: self.failure or self.rounds >= target, seconds)


def open_table(cluster: Cluster, database: str) -> str:
    table = f"{database}.t"
    cluster.sql(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(300) NOT NULL)",
        f"INSERT INTO {table} VALUES " + ",".join(f"({n}, {n * 7}, REPEAT('x', 200))" for n in range(ROWS)),
    )
    cluster.replicate(table)
    return table


def safe_point(cluster: Cluster) -> tuple[int, int, int]:
    """The floor, what is settled, and bytes of history."""
    query = "SELECT safe_point, settled, history_bytes FROM information_schema.garbage_collection"
    return tuple(int(value) for value in cluster.sql(query)[0])


def lease_of(cluster: Cluster, owner: str) -> tuple | None:
    query = "SELECT lease_id, snapshot_ts, holds_back FROM information_schema.snapshot_leases"
    found = cluster.sql(f"{query} WHERE owner LIKE '%{owner}'")
    return found[0] if found else None


def test_a_lease_keeps_its_rows_for_every_reader_and_their_end_is_typed(cluster: Cluster):
    table = open_table(cluster, "leased")
    token = cluster.sql("SELECT isobar_snapshot('5m', 'a long job')")[0][0]
    client = FlightClient(cluster)
    before = cluster.read("tikv", QUERY.format(table), token)
    full = sorted(client.scan(table, ["id", "n"], token))
    assert len(full) == ROWS
    with Updates(cluster, table) as updates:
        updates.wait_for(3)
        # The floor comes up to the lease and stays there, however long it is held.
        _, ts, _ = wait_until(
            "the lease is all that holds the floor", lambda: (found := lease_of(cluster, "a long job"))[2] and found
        )
        wait_until("the floor comes up to the lease", lambda: safe_point(cluster)[0] == int(ts))
        for _ in range(3):
            updates.wait_for(2)
            assert safe_point(cluster)[0] == int(ts)
            assert cluster.read("tikv", QUERY.format(table), token) == before
            assert cluster.read("tiflash", QUERY.format(table), token) == before
            assert sorted(client.scan(table, ["id", "n"], token)) == full
        held = safe_point(cluster)[2]
        assert held > 3 * ROWS * 200, "history of several rounds is kept for the lease"
        assert cluster.sql(f"SELECT isobar_renew('{token}', '6m') > 0") == [(1,)]
        assert cluster.sql(f"SELECT isobar_release('{token}')") == [(1,)]
        wait_until("the floor moves on", lambda: safe_point(cluster)[0] > int(ts))
        code, text = wait_until("rows refuse the token", lambda: refused(cluster, "tikv", table, token))
        assert code == TOO_OLD or "lease" in text, (code, text)
    # Only without a writer: a fast one supersedes as much within the time that history lives as the lease held.
    wait_until("history goes", lambda: safe_point(cluster)[2] == 0, 60)
    with pytest.raises(pymysql.err.MySQLError):
        cluster.sql(f"SELECT isobar_renew('{token}', '1m')")
    with pytest.raises(FLIGHT_ERRORS) as lost:
        client.scan(table, ["id", "n"], token)
    assert "ISOBAR-LEASE_LOST" in str(lost.value) or FLIGHT_TOO_OLD in str(lost.value)


def refused(cluster: Cluster, engine: str, table: str, token: str) -> tuple | None:
    """The error of a read at a token; none while it answers."""
    try:
        cluster.read(engine, QUERY.format(table), token)
    except pymysql.err.MySQLError as error:
        return error.args
    return None


def test_a_session_at_a_lost_token_gets_an_error_and_never_other_rows(cluster: Cluster):
    table = open_table(cluster, "lost")
    token = cluster.token("5m")
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tikv'")
        cursor.execute("SET isobar_snapshot = %s", (token,))
        cursor.execute(QUERY.format(table))
        before = cursor.fetchall()
        cluster.sql(f"SELECT isobar_release('{token}')")
        with Updates(cluster, table):
            deadline = time.monotonic() + 60
            while True:
                assert time.monotonic() < deadline, "the token can be read for ever"
                try:
                    cursor.execute(QUERY.format(table))
                    assert cursor.fetchall() == before
                except pymysql.err.MySQLError as error:
                    assert error.args[0] == TOO_OLD, error
                    break


def test_an_open_transaction_reads_the_same_rows_for_longer_than_versions_live(cluster: Cluster):
    table = open_table(cluster, "retried")
    with cluster.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SET tidb_isolation_read_engines = 'tikv'")
        cursor.execute(QUERY.format(table))
        before = cursor.fetchall()
        with Updates(cluster, table) as updates:
            until = time.monotonic() + 3 * LIFE
            while time.monotonic() < until:
                updates.wait_for(1)
                cursor.execute(QUERY.format(table))
                assert cursor.fetchall() == before
        floor = safe_point(cluster)[0]
        connection.rollback()
    wait_until("the floor passes the ended transaction", lambda: safe_point(cluster)[0] > floor)


def test_a_query_on_columns_keeps_its_snapshot_until_its_last_row(cluster: Cluster):
    table = open_table(cluster, "streamed")
    connection = cluster.connect(cursorclass=SSCursor)
    try:
        cursor = connection.cursor()
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
        # More rows than what is under way takes: the query runs for as long as nobody reads them.
        cursor.execute(f"SELECT a.id, b.pad FROM {table} a, {table} b")
        assert cursor.fetchone() is not None
        token = cluster.sql("SELECT isobar_snapshot('5m', 'a later one')")[0][0]
        later = int(lease_of(cluster, "a later one")[1])
        cluster.sql(f"SELECT isobar_release('{token}')")
        with Updates(cluster, table) as updates:
            until = time.monotonic() + 3 * LIFE
            while time.monotonic() < until:
                updates.wait_for(1)
                assert safe_point(cluster)[0] < later
        cluster.sql(f"KILL QUERY {connection.thread_id()}")
        with pytest.raises(pymysql.err.MySQLError):
            while cursor.fetchone() is not None:
                pass
    finally:
        connection.close()
    wait_until("the floor passes the killed query", lambda: safe_point(cluster)[0] > later)


def test_disk_stays_bounded_under_steady_updates(cluster: Cluster):
    table = open_table(cluster, "steady")
    with Updates(cluster, table) as updates:
        most = 0

        def bounded() -> bool:
            nonlocal most
            most = max(most, safe_point(cluster)[2])
            return updates.rounds >= 30 and most < updates.rounds * ROWS * 200 / 2

        # A round writes every row. History is that of a few lives, however many rounds go into them on this machine;
        # without collection it would be all that was written.
        wait_until("history falls behind what is written", bounded, 90)
    floor, _, _ = safe_point(cluster)
    wait_until("what was in flight is settled", lambda: safe_point(cluster)[1] > floor)
    wait_until("no history is left", lambda: safe_point(cluster)[2] == 0, 60)
    assert cluster.sql(f"SELECT COUNT(*) FROM {table}") == [(ROWS,)]


def test_nodes_killed_amid_collection_keep_every_row(cluster: Cluster):
    table = open_table(cluster, "killed")
    token = cluster.token("5m")
    before = cluster.read("tikv", QUERY.format(table), token)
    with Updates(cluster, table) as updates:
        updates.wait_for(4)
    for name in [name for name in cluster.names() if name.startswith("row")]:
        pid = cluster.kill(name)
        cluster.wait_restarted(name, pid)
        assert wait_until("rows answer", lambda: cluster.read("tikv", QUERY.format(table), token)) == before
    now = cluster.sql(QUERY.format(table))
    cluster.sql(f"SELECT isobar_release('{token}')")
    wait_until("history goes", lambda: safe_point(cluster)[2] == 0, 90)
    assert cluster.sql(QUERY.format(table)) == now
    assert cluster.read("tiflash", QUERY.format(table)) == now


def test_life_has_bounds(cluster: Cluster):
    for text in ("0s", "900ms", "a while", "9000h"):
        with pytest.raises(pymysql.err.MySQLError):
            cluster.sql(f"SET GLOBAL tidb_gc_life_time = '{text}'")
    assert cluster.sql("SELECT life_ms FROM information_schema.garbage_collection") == [(LIFE * 1000,)]
