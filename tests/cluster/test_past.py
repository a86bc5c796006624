"""Reads of the past, and reads by replicas that do not lead, over processes: both engines, what collection keeps, and what
the receipt of a query says."""

import re
import shutil
import threading
import time

import pymysql
import pytest

from harness import Cluster, wait_until

LIFE = 3
TOO_OLD = 9006
NODES = 3


@pytest.fixture(scope="module")
def past(isobar, tmp_path_factory):
    """Three row nodes with a MySQL port each, and a columnar node."""
    data = tmp_path_factory.mktemp("past")
    with Cluster(isobar, data, row=NODES, columnar=1, sql=0) as running:
        yield running
    shutil.rmtree(data, ignore_errors=True)


class Session:
    """A session at one of the row nodes."""

    def __init__(self, cluster: Cluster, node: int = 0):
        self.connection = cluster.connect(port=cluster.mysql_port + node)
        self.cursor = self.connection.cursor()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_) -> None:
        self.connection.close()

    def ask(self, sql: str) -> list[tuple]:
        self.cursor.execute(sql)
        return list(self.cursor.fetchall())

    def receipt(self, what: str) -> str:
        return self.ask(f"SHOW STATUS LIKE 'Isobar_last_query_{what}'")[0][1]

    def replicas(self) -> tuple[int, int]:
        """How many requests of the last query leaders answered, and followers."""
        counts = re.fullmatch(r"leader: (\d+), follower: (\d+)", self.receipt("replicas"))
        return int(counts[1]), int(counts[2])


class Updates:
    """One row after another is raised by one, so that the sum is the number of updates."""

    def __init__(self, cluster: Cluster, table: str):
        self.cluster, self.table, self.done, self.failure = cluster, table, 0, None
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            with Session(self.cluster, 0) as session:
                while not self.end.is_set():
                    session.ask(f"UPDATE {self.table} SET n = n + 1 WHERE id = {self.done % 10}")
                    self.done += 1
        except Exception as error:  # noqa: BLE001: whatever it is, the test has failed
            self.failure = error

    def __enter__(self) -> "Updates":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.end.set()
        self.thread.join(60)
        assert self.failure is None, self.failure

    def wait_for(self, more: int) -> None:
        target = self.done + more
        wait_until(f"{more} more updates", lambda: self.failure or self.done >= target)


def open_table(cluster: Cluster, database: str) -> str:
    table = f"{database}.t"
    rows = ",".join(f"({n}, 0)" for n in range(10))
    cluster.sql(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL)",
        f"INSERT INTO {table} VALUES {rows}",
    )
    return table


def floor(cluster: Cluster) -> int:
    return int(cluster.sql("SELECT safe_point FROM information_schema.garbage_collection")[0][0])


def test_followers_answer_what_leaders_would(past: Cluster):
    table = open_table(past, "followed")
    followed = leaders = asked = 0
    with Session(past) as writer, Session(past, 1) as reader:
        reader.ask("SET tidb_isolation_read_engines = 'tikv', tidb_replica_read = 'follower'")
        for n in range(1, 101):
            writer.ask(f"UPDATE {table} SET n = {n}")
            query = f"SELECT n FROM {table} WHERE id = {n % 10}" if n % 2 else f"SELECT MIN(n) FROM {table}"
            assert reader.ask(query) == [(n,)], "a follower answered what it had, not what there is"
            (by_leaders, by_followers), more = reader.replicas(), int(reader.receipt("read_indexes"))
            leaders, followed, asked = leaders + by_leaders, followed + by_followers, asked + more
        assert followed >= 90, (leaders, followed)
        assert asked >= 90, "a follower that asks nobody cannot know what is new"
        # By default nobody but leaders is asked.
        reader.ask("SET tidb_replica_read = DEFAULT")
        reader.ask(f"SELECT MIN(n) FROM {table}")
        assert (reader.receipt("replicas"), reader.receipt("read_indexes")) == ("leader", "0")


def test_the_closest_replica_is_the_one_of_the_process(past: Cluster):
    table = open_table(past, "closest")
    past.sql(f"UPDATE {table} SET n = 5")
    wait_until("three voters", past.is_whole)
    counts = []
    for node in range(NODES):
        with Session(past, node) as session:
            session.ask("SET tidb_isolation_read_engines = 'tikv', tidb_replica_read = 'closest-replicas'")
            assert session.ask(f"SELECT SUM(n) FROM {table}") == [(50,)]
            counts.append(session.replicas())
    # One of the three leads, unless that changed meanwhile.
    assert sum(followers > 0 for _, followers in counts) >= NODES - 1, counts


def test_reads_of_one_time_ask_once(past: Cluster):
    table = open_table(past, "once")
    wait_until("three voters", past.is_whole)
    with Session(past, 2) as session:
        session.ask("SET tidb_isolation_read_engines = 'tikv', tidb_replica_read = 'follower'")
        session.ask("DO SLEEP(0.2)")
        session.ask("START TRANSACTION READ ONLY AS OF TIMESTAMP NOW(3)")
        asked, followed = 0, 0
        for _ in range(10):
            assert session.ask(f"SELECT SUM(n) FROM {table}") == [(0,)]
            asked += int(session.receipt("read_indexes"))
            followed += session.replicas()[1]
        session.ask("COMMIT")
    assert followed >= 5, "followers do not answer"
    assert 1 <= asked <= NODES, "each of the followers asks once"


def test_both_engines_read_the_same_past(past: Cluster):
    table = open_table(past, "same")
    past.replicate(table)
    with Updates(past, table) as updates, Session(past, 1) as session:
        for _ in range(5):
            updates.wait_for(20)
            (at,) = session.ask("SELECT NOW(3)")[0]
            updates.wait_for(20)
            seen = set()
            for engine in ("tikv", "tiflash"):
                for replicas in ("leader", "follower"):
                    session.ask(f"SET tidb_isolation_read_engines = '{engine}', tidb_replica_read = '{replicas}'")
                    seen.update(session.ask(f"SELECT SUM(n), COUNT(*) FROM {table} AS OF TIMESTAMP '{at}'"))
                    assert session.receipt("engine") == ("rows" if engine == "tikv" else "columns")
            assert len(seen) == 1, seen
        session.ask("SET tidb_isolation_read_engines = 'tikv', tidb_read_staleness = '-1'")
        before = updates.done
        session.ask("DO SLEEP(1.1)")
        (stale,) = session.ask(f"SELECT SUM(n) FROM {table}")[0]
        assert before - 1 <= stale <= updates.done
        assert 1000 <= int(session.receipt("staleness_ms")) < 5000


def test_reads_at_low_resolution_go_by_a_timestamp_of_before(past: Cluster):
    table = open_table(past, "lately")
    total = f"SELECT SUM(n) FROM {table}"
    past.sql("SET GLOBAL tidb_low_resolution_tso_update_interval = 60000")
    try:
        with Session(past, 1) as session, Session(past, 2) as other:
            session.ask("SET tidb_low_resolution_tso = ON")
            before = session.ask(total)
            other.ask(f"UPDATE {table} SET n = n + 1")
            assert session.ask(total) == before != other.ask(total)
            session.ask("DO SLEEP(0.1)")
            assert session.ask(total) == before
            assert 100 <= int(session.receipt("staleness_ms")) < 60000
            # Who writes, and who reads within a transaction, reads the present.
            session.ask("BEGIN")
            assert session.ask(total) == other.ask(total)
            session.ask("COMMIT")
            # Once its node has heard of a definition, it sees that and what was written before it.
            other.ask(f"ALTER TABLE {table} ADD COLUMN later INT DEFAULT 7")
            columns = f"SELECT * FROM {table} LIMIT 1"
            wait_until("the new column is seen", lambda: len(session.ask(columns)[0]) == 3)
            assert session.ask(f"SELECT SUM(n), MAX(later) FROM {table}") == [(other.ask(total)[0][0], 7)]
            session.ask("SET tidb_low_resolution_tso = OFF")
            other.ask(f"UPDATE {table} SET n = n + 1")
            assert session.ask(total) == other.ask(total)
    finally:
        past.sql("SET GLOBAL tidb_low_resolution_tso_update_interval = DEFAULT")


def test_collection_spares_a_transaction_of_the_past(past: Cluster):
    table = open_table(past, "kept")
    past.replicate(table)
    past.sql(f"SET GLOBAL tidb_gc_life_time = '{LIFE}s'")
    try:
        with Updates(past, table) as updates, Session(past, 1) as session:
            updates.wait_for(20)
            session.ask("DO SLEEP(1)")
            # Versions of that age may be collected soon.
            session.ask(f"START TRANSACTION READ ONLY AS OF TIMESTAMP NOW(3) - INTERVAL {LIFE - 2} SECOND")
            query = f"SELECT SUM(n) FROM {table}"
            before = session.ask(query)
            ts = int(session.receipt("snapshot"))
            until = time.monotonic() + 4 * LIFE
            while time.monotonic() < until:
                updates.wait_for(5)
                for engine in ("tikv", "tiflash"):
                    session.ask(f"SET tidb_isolation_read_engines = '{engine}'")
                    assert session.ask(query) == before
                assert floor(past) <= ts
            session.ask("COMMIT")
            wait_until("the floor passes the ended transaction", lambda: floor(past) > ts)
            with pytest.raises(pymysql.err.MySQLError) as old:
                session.ask(f"SELECT SUM(n) FROM {table} AS OF TIMESTAMP NOW(3) - INTERVAL {10 * LIFE} SECOND")
            assert old.value.args[0] in (TOO_OLD, 1412), old.value
    finally:
        past.sql("SET GLOBAL tidb_gc_life_time = DEFAULT")


def test_the_leader_answers_while_a_follower_is_down(past: Cluster):
    table = open_table(past, "down")
    past.sql(f"UPDATE {table} SET n = 1")
    with past.down("row-3"), Session(past) as session:
        session.ask("SET tidb_isolation_read_engines = 'tikv', tidb_replica_read = 'follower'")
        for n in range(2, 30):
            session.ask(f"UPDATE {table} SET n = {n}")
            assert session.ask(f"SELECT MIN(n) FROM {table}") == [(n,)]
    past.wait_healthy()
