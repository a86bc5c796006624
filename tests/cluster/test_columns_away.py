"""Columnar nodes that are dead or have lost their disk: another replica answers, or an error does, and rows are not scanned.

How long a node without its disk is missed is printed; only a wide bound of it is tested.
"""

import threading
import time

import pymysql
import pytest

from harness import Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster

ROWS = 40_000
BOTH = ("columnar-1", "columnar-2")
SUM = "SELECT COUNT(*), SUM(n), SUM(id) FROM {}"
RIGHT = [(ROWS, sum(n % 7 for n in range(ROWS)), sum(range(ROWS)))]
AWAY = (9012, 9013)  # a typed error of the columnar tier


def fill(cluster: Cluster, table: str, replicas: int) -> None:
    """A table of a few regions, with its columnar replicas."""
    database, name = table.split(".")
    cluster.sql(f"CREATE DATABASE IF NOT EXISTS {database}", f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL)")
    for start in range(0, ROWS, 10_000):
        cluster.sql(f"INSERT INTO {table} VALUES " + ",".join(f"({n},{n % 7})" for n in range(start, start + 10_000)))
    cluster.sql(f"SPLIT TABLE {table} REGIONS 4", f"ALTER TABLE {table} SET COLUMNAR REPLICA {replicas}")
    wait_until(f"{table} has its replicas", lambda: all(len(nodes) == replicas for nodes in learners(cluster, table)), 90)
    cluster.wait_available(table)
    assert cluster.read("tiflash", SUM.format(table)) == cluster.read("tikv", SUM.format(table)) == RIGHT


def learners(cluster: Cluster, table: str) -> list[list[int]]:
    """Nodes of learners that hold data, for each region."""
    database, name = table.split(".")
    rows = cluster.sql(
        "SELECT ready_learners FROM information_schema.regions"
        f" WHERE table_schema = '{database}' AND table_name = '{name}' AND index_name IS NULL"
    )
    assert len(rows) >= 3, rows
    return [[int(node) for node in row[0].split(",") if node] for row in rows]


def columnar_nodes(cluster: Cluster) -> dict[str, int]:
    """Columnar nodes that placement knows, by internal address; an address is listed once."""
    nodes = [node for node in cluster.status()["nodes"] if node["role"] == "columnar"]
    found = {node["rpc_address"]: node["id"] for node in nodes}
    assert len(found) == len(nodes), f"an address has two numbers: {nodes}"
    return found


def refused(cluster: Cluster, *statements: str) -> tuple[int, str, float]:
    """Number and text of the error that the last statement must be, and the seconds it took."""
    began = time.monotonic()
    with pytest.raises(pymysql.err.MySQLError) as raised:
        cluster.sql(*statements)
    return *raised.value.args, time.monotonic() - began


@pytest.mark.timeout(240)
def test_without_columnar_nodes_a_full_scan_is_an_error_and_rows_answer_by_key(cluster: Cluster):
    fill(cluster, "away.t", 1)
    query = SUM.format("away.t")
    with cluster.down(*BOTH):
        for _ in range(3):
            code, text, seconds = refused(cluster, query)
            assert code in AWAY and "isobar_fallback" in text, (code, text)
            assert seconds < 10, f"the error took {seconds:.1f} s"
        explained = [row[0] for row in cluster.sql(f"EXPLAIN {query}")]
        assert any("columns fail with" in line for line in explained), explained
        assert not any("RowsExec" in line or "Scan" in line for line in explained), explained
        assert cluster.sql("SELECT n FROM away.t WHERE id = 13") == [(6,)]
        assert cluster.sql("SELECT COUNT(*) FROM away.t WHERE id BETWEEN 100 AND 199") == [(100,)]
        assert cluster.sql("SET isobar_fallback = 'rows'", query) == RIGHT
        assert cluster.sql("SELECT /*+ READ_FROM_STORAGE(ROWS[t]) */ SUM(n) FROM away.t") == [RIGHT[0][1:2]]
        assert refused(cluster, "SET isobar_fallback = 'rows'", "SET isobar_read_engines = 'columns'", query)[0] in AWAY
        # The next leader of placement knows no columnar node, but knows that there were columns.
        leader = f"row-{cluster.status()['placement_leader']}"
        pid = cluster.kill(leader)
        wait_until(f"{leader} runs again", lambda: cluster.pids().get(leader) not in (None, pid))
        wait_until("SQL answers", lambda: cluster.sql("SELECT n FROM away.t WHERE id = 13") == [(6,)])
        code, text, _ = refused(cluster, query)
        assert code in AWAY and "isobar_fallback" in text, (code, text)
        assert cluster.sql("SET isobar_fallback = 'rows'", query) == RIGHT
    cluster.wait_healthy()
    wait_until("columns answer again", lambda: cluster.sql(query) == RIGHT, 60)


@pytest.mark.timeout(240)
def test_of_two_replicas_the_other_one_answers(cluster: Cluster):
    fill(cluster, "pair.t", 2)
    query = SUM.format("pair.t")
    for name in BOTH:
        with cluster.down(name):
            for _ in range(4):
                assert cluster.read("tiflash", query) == RIGHT
                assert cluster.sql(query) == RIGHT
        # A node counts as up for some seconds after it was killed: what it says itself shows that it is back.
        counted = lambda at=BOTH.index(name): (  # noqa: E731
            FlightClient(cluster, at).sql("SELECT COUNT(*) FROM t", "pair") == [(ROWS,)]
        )
        wait_until(f"{name} answers", counted, 60)


@pytest.mark.timeout(300)
def test_a_columnar_node_without_its_disk_is_another_one_and_is_filled_at_once(cluster: Cluster):
    fill(cluster, "one.t", 1)
    fill(cluster, "two.t", 2)
    before = columnar_nodes(cluster)
    address = f"127.0.0.1:{cluster.port_base + 30}"
    old = before[address]
    assert any(old in nodes for nodes in learners(cluster, "one.t")), "the node holds nothing of the table"
    answers: dict[str, list[object]] = {"one.t": [], "two.t": []}
    end = threading.Event()

    def query(table: str) -> None:
        while not end.is_set():
            try:
                answers[table].append(cluster.sql(SUM.format(table)))
            except pymysql.err.MySQLError as error:
                answers[table].append(error)

    threads = [threading.Thread(target=query, args=(table,), daemon=True) for table in answers]
    for thread in threads:
        thread.start()
    try:
        with cluster.down("columnar-1"):
            cluster.empty("columnar-1")
        began = time.monotonic()
        filled = lambda: cluster.read("tiflash", SUM.format("one.t")) == RIGHT  # noqa: E731
        wait_until("columns answer again", filled, 90)
        seconds = time.monotonic() - began
    finally:
        end.set()
        for thread in threads:
            thread.join(70)
    print(f"columns of {ROWS} rows were back {seconds:.1f} s after the node was let start without its disk")
    after = columnar_nodes(cluster)
    assert after.keys() == before.keys() and after[address] != old
    gone = lambda: all(old not in nodes for table in answers for nodes in learners(cluster, table))  # noqa: E731
    wait_until("the old number is gone from the routes", gone, 30)
    replicas = lambda: all(len(nodes) == 2 for nodes in learners(cluster, "two.t"))  # noqa: E731
    wait_until("both replicas are there again", replicas, 90)
    for table, given in answers.items():
        errors = [answer for answer in given if isinstance(answer, Exception)]
        assert given and all(answer == RIGHT for answer in given if answer not in errors), table
        assert all(error.args[0] in AWAY and "fault" not in error.args[1] for error in errors), errors
    assert any(answer == RIGHT for answer in answers["two.t"])
