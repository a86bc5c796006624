"""Row nodes that answer MySQL clients themselves promise what SQL nodes do."""

import shutil
import threading
import time
from collections import Counter

import pymysql
import pytest

from harness import Bank, Cluster, wait_until

LIFE = 3
CLIENTS, TIMES = 32, 8  # of one row
GIVES_WAY = {1205, 1213}  # errors after which nothing of the transaction has taken place
COM_QUERY = 3


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


def raise_hot(cluster: Cluster, client: int, outcomes: Counter, slowest: list[float]) -> None:
    """Raises one row by one again and again: odd clients by a statement of its own, even ones in a transaction."""
    with cluster.connect(port=cluster.mysql_port + client % 3) as connection, connection.cursor() as cursor:
        for _ in range(TIMES):
            began = time.monotonic()
            try:
                if client % 2:
                    cursor.execute("UPDATE hot.t SET n = n + 1 WHERE id = 1")
                else:
                    cursor.execute("BEGIN")
                    cursor.execute("SELECT n FROM hot.t WHERE id = 1 FOR UPDATE")
                    ((n,),) = cursor.fetchall()
                    cursor.execute(f"UPDATE hot.t SET n = {n + 1} WHERE id = 1")
                    cursor.execute("COMMIT")
                outcomes["done"] += 1
            except pymysql.err.MySQLError as error:
                outcomes[error.args[0]] += 1
                connection.rollback()
            slowest.append(time.monotonic() - began)


def test_no_increment_of_a_hot_row_is_lost_or_doubled(together: Cluster):
    together.sql("CREATE DATABASE hot", "CREATE TABLE hot.t (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO hot.t VALUES (1, 0)")
    outcomes, times = Counter(), []
    clients = [threading.Thread(target=raise_hot, args=(together, n, outcomes, times)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(120)
    print(f"{dict(outcomes)}, the slowest after {max(times):.2f} s")
    assert outcomes.total() == CLIENTS * TIMES, "every client has come to its end"
    assert set(outcomes) - {"done"} <= GIVES_WAY, outcomes
    assert together.sql("SELECT n FROM hot.t") == [(outcomes["done"],)]


def test_a_client_that_leaves_amid_its_commit_leaves_all_or_nothing(together: Cluster):
    """Of transactions over two tables, which two regions hold."""
    together.sql("CREATE DATABASE torn", *(f"CREATE TABLE torn.{name} (id INT PRIMARY KEY, n INT NOT NULL)" for name in "ab"))
    answered = []
    for id in range(120):
        connection = together.connect(port=together.mysql_port + id % 3)
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        for table in "ab":
            cursor.execute(f"INSERT INTO torn.{table} VALUES ({id}, 0)")
        connection._execute_command(COM_QUERY, "COMMIT")
        if id % 4 == 3:
            connection._read_query_result()
            answered.append(id)
        else:
            # Now, or while it is being carried out.
            time.sleep(id % 8 / 2_000)
        connection._force_close()
    # Whoever left has left no lock either.
    for table in "ab":
        together.sql(f"UPDATE torn.{table} SET n = n + 1")
    a, b = ([id for (id,) in together.sql(f"SELECT id FROM torn.{table} ORDER BY id")] for table in "ab")
    print(f"{len(answered)} answered, {len(a)} committed")
    assert a == b and set(answered) <= set(a)
