"""What was dropped takes nothing of others along: their rows stay readable and writable."""

import os
import signal
import threading

import pymysql
import pytest

from harness import Cluster, wait_until

pytestmark = pytest.mark.own_cluster


def apart(cluster: Cluster, tables: list[str]) -> tuple[str, str, str]:
    """Makes tables, and waits until two of them have different leaders: these two, the lower first, and the row
    node that leads the first."""
    before = {region["id"] for region in cluster.status()["regions"]}
    for table in tables:
        cluster.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {table} VALUES (1, 1)")

    def found() -> tuple[str, str, str] | None:
        regions = [region for region in cluster.status()["regions"] if region["id"] not in before]
        leaders = [region["leader"] for region in sorted(regions, key=lambda region: region["id"])]
        for number, leader in enumerate(leaders):
            if leader is not None and leader != leaders[0] and leaders[0] is not None:
                return tables[0], tables[number], f"row-{leaders[0]}"
        return None

    return wait_until("leadership is spread", found, 60)


def is_locked(cluster: Cluster, table: str) -> bool:
    """Whether a reader waits for a transaction under way."""
    try:
        cluster.sql(f"SELECT v FROM {table}", read_timeout=1)
    except pymysql.err.OperationalError:
        return True
    return False


@pytest.mark.timeout(150)
def test_rows_locked_by_a_dead_transaction_outlive_the_table_that_decides_on_it(cluster: Cluster):
    cluster.sql("CREATE DATABASE gone")
    # The lower table holds the primary: the first key written decides.
    first, other, stopped = apart(cluster, [f"gone.t{number}" for number in range(6)])
    session = cluster.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute(f"UPDATE {first} SET v = 2")
        cursor.execute(f"UPDATE {other} SET v = 2")
    pid = cluster.pids()[stopped]
    # The first table cannot be locked, the other is: then the transaction's client dies.
    os.kill(pid, signal.SIGSTOP)
    try:
        commit = threading.Thread(target=lambda: pytest.raises(pymysql.err.MySQLError, session.commit), daemon=True)
        commit.start()
        wait_until(f"{other} is locked", lambda: is_locked(cluster, other))
        sql = cluster.kill("sql")
        commit.join(20)
        assert not commit.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.wait_restarted("sql", sql)
    cluster.sql(f"DROP TABLE {first}")
    assert cluster.sql(f"SELECT v FROM {other}") == [(1,)]
    cluster.sql(f"UPDATE {other} SET v = 3")
    assert cluster.sql(f"SELECT v FROM {other}") == [(3,)]
