"""An index comes into being while clients write: afterwards it leads to the rows that a scan finds."""

import random
import threading
from collections import Counter

import pymysql

from harness import Cluster

ROWS, VALUES, WRITERS = 4_000, 23, 4
# Errors that a writer may get: the row is there already, or another writer was first.
EXPECTED = {1062, 1213}


def write(cluster: Cluster, seed: int, stop: threading.Event, outcomes: Counter):
    """Changes three random rows at a time, in a transaction or one by one, until it is stopped."""
    chance = random.Random(seed)
    with cluster.connect(database="busy") as connection, connection.cursor() as cursor:
        while not stop.is_set():
            try:
                if seed % 2:
                    cursor.execute("BEGIN")
                for _ in range(3):
                    row, value = chance.randrange(ROWS + 200), chance.randrange(VALUES)
                    statement = chance.choice(
                        (
                            f"DELETE FROM rows_of_it WHERE id = {row}",
                            f"INSERT INTO rows_of_it VALUES ({row}, {value})",
                            f"UPDATE rows_of_it SET v = {value} WHERE id = {row}",
                        )
                    )
                    cursor.execute(statement)
                cursor.execute("COMMIT")
                outcomes["done"] += 1
            except pymysql.err.MySQLError as error:
                outcomes[error.args[0]] += 1
                cursor.execute("ROLLBACK")


def test_an_index_made_under_writers_misses_nothing(cluster: Cluster):
    cluster.sql("CREATE DATABASE busy", "CREATE TABLE busy.rows_of_it (id INT PRIMARY KEY, v INT)")
    values = ",".join(f"({row}, {row % VALUES})" for row in range(ROWS))
    cluster.sql(f"INSERT INTO busy.rows_of_it VALUES {values}", "SPLIT TABLE busy.rows_of_it REGIONS 3")
    stop, outcomes = threading.Event(), Counter()
    writers = [threading.Thread(target=write, args=(cluster, seed, stop, outcomes)) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(2):
            cluster.sql("CREATE INDEX by_v ON busy.rows_of_it (v)")
            with cluster.connect(database="busy") as connection, connection.cursor() as cursor:
                cursor.execute("EXPLAIN SELECT id FROM rows_of_it WHERE v = 3")
                assert "by_v" in str(cursor.fetchall())
                cursor.execute("BEGIN")
                cursor.execute("SELECT id, v FROM rows_of_it")
                scanned = sorted(cursor.fetchall())
                found = []
                for value in range(VALUES):
                    cursor.execute(f"SELECT id, v FROM rows_of_it WHERE v = {value}")
                    found += cursor.fetchall()
            assert sorted(found) == scanned
            cluster.sql("DROP INDEX by_v ON busy.rows_of_it")
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert not any(writer.is_alive() for writer in writers)
    assert outcomes["done"] > 0 and set(outcomes) - {"done"} <= EXPECTED, outcomes
