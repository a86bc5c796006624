"""What was dropped takes nothing of others along: their rows stay readable and writable."""

import contextlib
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
        cluster.sql(f"SELECT v FROM {table}", read_timeout=0.5)
    except pymysql.err.OperationalError:
        return True
    return False


def dies_while_it_commits(cluster: Cluster, first: str, other: str, stopped: str) -> bool:
    """Kills the SQL node of a transaction that has locked the other table, and not the first, whose leader is stopped.
    False if that failed: another node leads soon, and a commit that is fast enough takes place."""
    session = cluster.connect(autocommit=False)
    with session.cursor() as cursor:
        cursor.execute(f"UPDATE {first} SET v = 2")
        cursor.execute(f"UPDATE {other} SET v = 2")

    def commit() -> None:
        with contextlib.suppress(pymysql.err.MySQLError):
            session.commit()

    pid = cluster.pids()[stopped]
    os.kill(pid, signal.SIGSTOP)
    try:
        committing = threading.Thread(target=commit, daemon=True)
        committing.start()
        wait_until("locks or an end", lambda: is_locked(cluster, other) or not committing.is_alive())
        sql = cluster.kill("sql")
        committing.join(20)
        assert not committing.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.wait_restarted("sql", sql)
    # The other table is not read here: that would take its lock away.
    return cluster.sql(f"SELECT v FROM {first}") == [(1,)]


@pytest.mark.timeout(300)
def test_rows_locked_by_a_dead_transaction_outlive_the_table_that_decides_on_it(cluster: Cluster):
    cluster.sql("CREATE DATABASE gone")
    for attempt in range(5):
        # The lower table holds the primary: the first key written decides.
        first, other, stopped = apart(cluster, [f"gone.t{attempt}_{number}" for number in range(6)])
        if dies_while_it_commits(cluster, first, other, stopped):
            break
    else:
        pytest.fail("every commit took place before its client was killed")
    cluster.sql(f"DROP TABLE {first}")
    assert cluster.sql(f"SELECT v FROM {other}") == [(1,)]
    cluster.sql(f"UPDATE {other} SET v = 3")
    assert cluster.sql(f"SELECT v FROM {other}") == [(3,)]
