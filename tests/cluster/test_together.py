"""Row nodes that answer MySQL clients themselves promise what SQL nodes do."""

import shutil
import time

import pytest

from harness import Bank, Cluster, wait_until

LIFE = 3


@pytest.fixture(scope="module")
def together(isobar, tmp_path_factory):
    """Three row nodes with a MySQL port each, a columnar node, and no SQL node."""
    data = tmp_path_factory.mktemp("together")
    with Cluster(isobar, data, row=3, columnar=1, sql=0) as running:
        yield running
    shutil.rmtree(data, ignore_errors=True)


def ask(cluster: Cluster, node: int, sql: str) -> list[tuple]:
    """Rows of a statement at a row node, of which the first is 0."""
    with cluster.connect(port=cluster.mysql_port + node) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_each_row_node_sees_what_was_written_at_another(together: Cluster):
    together.sql("CREATE DATABASE seen", "CREATE TABLE seen.t (id INT PRIMARY KEY, node INT NOT NULL, KEY (node))")
    for node in range(3):
        ask(together, node, f"INSERT INTO seen.t VALUES ({node}, {node * 7})")
        for other in range(3):
            assert ask(together, other, f"SELECT node FROM seen.t WHERE id = {node}") == [(node * 7,)]
            assert ask(together, other, f"SELECT id FROM seen.t WHERE node = {node * 7}") == [(node,)]
    together.replicate("seen.t")
    for engine in ("tikv", "tiflash"):
        assert together.read(engine, "SELECT COUNT(*), SUM(node) FROM seen.t") == [(3, 21)]
    shown = together.sql("SELECT type, COUNT(*) FROM information_schema.cluster_info GROUP BY type ORDER BY type")
    assert shown == [("columnar", 1), ("row", 3)]


def test_a_transaction_at_a_row_node_keeps_its_versions(together: Cluster):
    # Before any test that holds a snapshot's lease.
    def floor() -> int:
        return int(together.sql("SELECT safe_point FROM information_schema.garbage_collection")[0][0])

    together.sql(
        "CREATE DATABASE kept",
        "CREATE TABLE kept.t (id INT PRIMARY KEY, n INT NOT NULL)",
        "INSERT INTO kept.t VALUES (1, 0), (2, 0)",
        f"SET GLOBAL tidb_gc_life_time = '{LIFE}s'",
    )
    with together.connect(port=together.mysql_port + 1, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT SUM(n) FROM kept.t")
        before, first = cursor.fetchall(), floor()
        until = time.monotonic() + 3 * LIFE
        while time.monotonic() < until:
            ask(together, 0, "UPDATE kept.t SET n = n + 1")
            cursor.execute("SELECT SUM(n) FROM kept.t")
            assert cursor.fetchall() == before
        held = floor()
        assert held > first, "collection goes on, up to the transaction"
        connection.rollback()
    wait_until("the floor passes the ended transaction", lambda: floor() > held)


def test_transfers_outlive_the_node_of_their_clients(together: Cluster):
    bank = Bank(together, "bank")
    bank.open()
    with bank:
        bank.wait_for(20)
        for name in ("row-2", "row-1"):
            old = together.kill(name)
            together.wait_restarted(name, old)
            bank.wait_for(20)
    together.wait_healthy()
    bank.check()
