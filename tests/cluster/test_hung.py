"""A process that is stopped keeps its connections and answers nothing: it must not be waited for, and nothing may be lost.

The bounds are generous, for a busy machine; the times are printed.
"""

import time

import pymysql
import pytest

from failover import Load, Stopped, victim
from harness import Cluster, wait_until

pytestmark = pytest.mark.own_cluster

FIRST, LATER = 5.0, 2.0  # seconds that the first answer may take, and each later one
QUERY = "SELECT n, COUNT(*), SUM(id) FROM h.t GROUP BY n ORDER BY n"


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster) -> None:
    rows = ",".join(f"({id},{id % 7})" for id in range(2_000))
    cluster.sql("CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY, n INT NOT NULL)", f"INSERT INTO h.t VALUES {rows}")
    cluster.sql("SPLIT TABLE h.t REGIONS 4", "ALTER TABLE h.t SET COLUMNAR REPLICA 2")
    wait_until("h.t is split", lambda: cluster.replica("h.t")["regions"] >= 4)
    wait_both(cluster)


def wait_both(cluster: Cluster) -> None:
    records = lambda: [region for region in cluster.status()["regions"] if "records" in region["kind"]]  # noqa: E731
    wait_until("both columnar nodes hold all of it", lambda: all(len(one["columnar"]) == 2 for one in records()), 90)


def timed(work) -> tuple[float, object]:
    began = time.monotonic()
    answer = work()
    return time.monotonic() - began, answer


def settled(cluster: Cluster) -> None:
    cluster.wait_healthy()
    wait_both(cluster)


@pytest.mark.timeout(240)
def test_a_stopped_leader_of_regions_is_left_within_seconds(cluster: Cluster):
    # Its own regions, whichever they are, and every later statement: the first of each kind pays for all.
    name = victim(cluster, "leaders")
    with cluster.connect() as reader, cluster.connect() as writer, reader.cursor() as read, writer.cursor() as write:
        read.execute("SELECT COUNT(*) FROM h.t FORCE INDEX (PRIMARY) WHERE id < 2000")
        write.execute("UPDATE h.t SET n = n WHERE id = 0")
        with Stopped(cluster.pids()[name]):
            reads, writes = [], []
            for id in (3, 503, 1003, 1503) * 3:
                reads.append(timed(lambda: read.execute(f"SELECT n FROM h.t WHERE id = {id}"))[0])
                assert read.fetchone() == (id % 7,)
                writes.append(timed(lambda: write.execute(f"INSERT INTO h.t VALUES ({id + 10_000 + len(writes) * 7}, 0)"))[0])
    print(f"{name} stopped: reads {show(reads)}, writes {show(writes)}")
    assert max(reads[:4]) < FIRST and max(writes[:4]) < FIRST
    assert max(reads[4:]) < LATER and max(writes[4:]) < LATER
    settled(cluster)
    assert cluster.sql("SELECT COUNT(*) FROM h.t WHERE id >= 10000") == [(12,)]
    cluster.sql("DELETE FROM h.t WHERE id >= 10000")


@pytest.mark.timeout(240)
def test_a_stopped_leader_of_placement_is_left_within_seconds(cluster: Cluster):
    name = victim(cluster, "placement")
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM h.t WHERE id = 1")
        with Stopped(cluster.pids()[name]):
            took = [timed(lambda: cursor.execute("SELECT n FROM h.t WHERE id = 1"))[0] for _ in range(8)]
    print(f"{name} stopped: {show(took)}")
    assert took[0] < FIRST and max(took[1:]) < LATER
    settled(cluster)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["columnar-1", "columnar-2"])
def test_a_stopped_columnar_node_is_left_out_while_another_holds_its_regions(cluster: Cluster, name: str):
    right = cluster.read("tikv", QUERY)
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
        cursor.execute(QUERY)
        assert list(cursor.fetchall()) == right
        with Stopped(cluster.pids()[name]):
            took = []
            for _ in range(8):
                took.append(timed(lambda: cursor.execute(QUERY))[0])
                assert list(cursor.fetchall()) == right
        print(f"{name} stopped: {show(took)}")
        assert took[0] < FIRST and max(took[1:]) < LATER
        settled(cluster)
        cursor.execute(QUERY)
        assert list(cursor.fetchall()) == right


@pytest.mark.timeout(180)
def test_no_columnar_node_that_answers_is_a_typed_error_and_soon(cluster: Cluster):
    pids = cluster.pids()
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
        cursor.execute(QUERY)
        with Stopped(pids["columnar-1"]), Stopped(pids["columnar-2"]):
            took = []
            for _ in range(3):
                began = time.monotonic()
                with pytest.raises(pymysql.err.MySQLError) as failed:
                    cursor.execute(QUERY)
                took.append(time.monotonic() - began)
                assert failed.value.args[0] in (9012, 9013), failed.value
    print(f"both stopped: {show(took)}")
    assert took[0] < 15 and max(took[1:]) < FIRST
    settled(cluster)


@pytest.mark.timeout(300)
def test_inserts_under_pauses_are_neither_lost_nor_doubled(cluster: Cluster):
    load = Load(cluster, "paused")
    load.open()
    with load:
        for of in ("leaders", "placement", "leaders"):
            before = len(load.inserted)
            with Stopped(cluster.pids()[victim(cluster, of)]):
                wait_until("inserts go on", lambda: len(load.inserted) > before + 20, 30)
            cluster.wait_healthy()
    assert load.judge() == []
    assert len(load.inserted) > 60


def show(seconds: list[float]) -> str:
    return " ".join(f"{one:.2f}" for one in seconds)
