"""INSERT … ON DUPLICATE KEY UPDATE and its kin by many at once, over a whole cluster: nothing is lost, nothing fails."""

import threading

import pymysql
import pytest

from harness import Cluster

SESSIONS, ROUNDS, KEYS = 6, 40, 3


@pytest.fixture(scope="module", autouse=True)
def database(cluster: Cluster):
    cluster.sql("CREATE DATABASE u")


def at_once(cluster: Cluster, work) -> None:
    """Runs `work(cursor, number)` in as many sessions at one time; the first error of any is raised."""
    barrier, errors = threading.Barrier(SESSIONS, timeout=30), []

    def one(number: int) -> None:
        try:
            connection = cluster.connect(database="u", autocommit=True)
            with connection, connection.cursor() as cursor:
                barrier.wait()
                work(cursor, number)
        except Exception as error:  # raised by the main thread
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=one, args=(number,)) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a session hangs"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("key", ["PRIMARY KEY", "NOT NULL UNIQUE"])
def test_no_increment_is_lost(cluster: Cluster, key: str):
    cluster.sql("DROP TABLE IF EXISTS u.counts", f"CREATE TABLE u.counts (k INT {key}, n BIGINT NOT NULL, who INT)")
    cluster.sql("SPLIT TABLE u.counts REGIONS 2")

    def work(cursor: pymysql.cursors.Cursor, number: int) -> None:
        for turn in range(ROUNDS):
            # Both orders of keys, so that sessions meet head-on.
            keys = range(KEYS) if (turn + number) % 2 else reversed(range(KEYS))
            rows = ",".join(f"({k}, 1, {number})" for k in keys)
            cursor.execute(f"INSERT INTO counts VALUES {rows} ON DUPLICATE KEY UPDATE n = n + VALUES(n), who = VALUES(who)")

    at_once(cluster, work)
    assert cluster.sql("SELECT k, n FROM u.counts ORDER BY k") == [(k, SESSIONS * ROUNDS) for k in range(KEYS)]


def test_within_transactions_too(cluster: Cluster):
    cluster.sql("CREATE TABLE u.sums (k INT PRIMARY KEY, n BIGINT NOT NULL)")

    def work(cursor: pymysql.cursors.Cursor, _: int) -> None:
        for _ in range(ROUNDS):
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO sums VALUES (1, 1) ON DUPLICATE KEY UPDATE n = n + 1")
            cursor.execute("INSERT INTO sums VALUES (1, 1) ON DUPLICATE KEY UPDATE n = n + 1")
            cursor.execute("COMMIT")

    at_once(cluster, work)
    assert cluster.sql("SELECT n FROM u.sums") == [(2 * SESSIONS * ROUNDS,)]


def test_one_of_many_inserts_a_row_and_the_others_are_warned(cluster: Cluster):
    cluster.sql("CREATE TABLE u.firsts (k INT PRIMARY KEY, who INT NOT NULL)")
    added = [0] * SESSIONS

    def work(cursor: pymysql.cursors.Cursor, number: int) -> None:
        for k in range(ROUNDS):
            added[number] += cursor.execute(f"INSERT IGNORE INTO firsts VALUES ({k}, {number})")

    at_once(cluster, work)
    assert sum(added) == ROUNDS
    counts = dict(cluster.sql("SELECT who, COUNT(*) FROM u.firsts GROUP BY who"))
    assert [counts.get(number, 0) for number in range(SESSIONS)] == added


def test_replacing_leaves_one_row_and_no_stale_entry(cluster: Cluster):
    cluster.sql("CREATE TABLE u.places (id INT PRIMARY KEY, code INT NOT NULL UNIQUE, n INT NOT NULL, KEY (n))")

    def work(cursor: pymysql.cursors.Cursor, number: int) -> None:
        for turn in range(ROUNDS):
            cursor.execute(f"REPLACE INTO places VALUES ({(turn + number) % 4}, {turn % 3}, {number})")

    at_once(cluster, work)
    rows = cluster.sql("SELECT id, code, n FROM u.places ORDER BY id")
    assert len({code for _, code, _ in rows}) == len(rows) <= 3
    # By either index the same rows are found.
    for code in range(3):
        found = cluster.sql(f"SELECT id, code, n FROM u.places WHERE code = {code}")
        assert found == [row for row in rows if row[1] == code]
    for n in range(SESSIONS):
        found = cluster.sql(f"SELECT id, code, n FROM u.places WHERE n = {n} ORDER BY id")
        assert found == [row for row in rows if row[2] == n]
