"""A table dropped or recreated under a reader: the rows of its snapshot, or a typed error in time, never other rows."""

import os
import re
import sys
import threading
import time
from pathlib import Path

import pytest

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until
from readers import SparkReader

ROWS = 4000
IN_TIME = 20.0
CHANGES = {
    "dropped": ["DROP TABLE {0}"],
    "recreated": ["DROP TABLE {0}", "CREATE TABLE {0} (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO {0} VALUES (1, -1)"],
    "recreated with other columns": [
        "DROP TABLE {0}",
        "CREATE TABLE {0} (id INT PRIMARY KEY, n VARCHAR(9) NOT NULL)",
        "INSERT INTO {0} VALUES (1, 'other')",
    ],
}


def spread_table(cluster: Cluster, database: str) -> str:
    """A table with columnar replicas on both nodes."""
    table = f"{database}.t"
    cluster.sql(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL)")
    cluster.sql(f"INSERT INTO {table} VALUES " + ",".join(f"({n}, {n * 7})" for n in range(ROWS)))
    cluster.sql(f"SPLIT TABLE {table} REGIONS 4")
    wait_until("regions are cut", lambda: regions(cluster, database) >= 4)
    cluster.replicate(table)
    wait_until("both nodes hold some", lambda: len(endpoints(cluster, table)) == 2)
    return table


def regions(cluster: Cluster, database: str) -> int:
    query = f"SELECT COUNT(*) FROM information_schema.regions WHERE table_schema = '{database}'"
    return cluster.sql(query)[0][0]


def endpoints(cluster: Cluster, table: str) -> list:
    database, name = table.split(".")
    return FlightClient(cluster).info({"scan": {"database": database, "table": name, "columns": ["id", "n"]}}).endpoints


@pytest.mark.parametrize("change", CHANGES)
def test_a_querys_ticket_of_a_changed_table_is_refused_and_names_it(cluster: Cluster, change: str):
    table = spread_table(cluster, f"sql_{change.replace(' ', '_')}")
    database = table.split(".")[0]
    reader = FlightClient(cluster)
    [ticket] = reader.info({"sql": {"query": "SELECT id, n FROM t", "database": database}}).endpoints
    assert sorted(reader.get(ticket)) == [(n, n * 7) for n in range(ROWS)]
    cluster.sql(*[statement.format(table) for statement in CHANGES[change]])

    def refused() -> bool:
        try:
            # A node that does not know of the change yet may still show what was.
            assert sorted(reader.get(ticket)) == [(n, n * 7) for n in range(ROWS)]
            return False
        except FLIGHT_ERRORS as error:
            assert re.search(rf"ISOBAR-TABLE_CHANGED: .*\b{table}\b", str(error)), error
            return True

    wait_until("the ticket is refused", refused, IN_TIME)


def test_a_token_from_before_shows_nothing_of_the_new_table(cluster: Cluster):
    table = spread_table(cluster, "token")
    token = cluster.token()
    cluster.sql(*[statement.format(table) for statement in CHANGES["recreated"]])
    cluster.replicate(table)
    with pytest.raises(FLIGHT_ERRORS, match=rf"ISOBAR-(TABLE_CHANGED|NOT_FOUND): .*\b{table}\b"):
        FlightClient(cluster).scan(table, ["id", "n"], token)
    assert FlightClient(cluster).scan(table, ["id", "n"]) == [(1, -1)]


def slowly(started: Path, go_on: Path):
    """What each part of the Spark job does: the first waits, bounded, until the table was changed."""

    def part(rows):
        rows = list(rows)
        if not started.exists():
            started.touch()
            deadline = time.monotonic() + 60
            while not go_on.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        return iter(rows)

    return part


@pytest.fixture
def spark(cluster: Cluster, jar: Path):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    reader = SparkReader(jar, cluster.flight, master="local[1]")
    yield reader.spark
    reader.close()


@pytest.mark.timeout(240)
def test_a_running_spark_job_goes_on_at_its_snapshot_when_its_table_is_recreated(cluster: Cluster, spark, tmp_path: Path):
    table = spread_table(cluster, "job")
    frame = spark.table(f"isobar.{table}")
    assert sorted(tuple(row) for row in frame.collect()) == [(n, n * 7) for n in range(ROWS)]
    assert frame.rdd.getNumPartitions() >= 2
    started, go_on = tmp_path / "started", tmp_path / "go on"
    outcome: list = []

    def job() -> None:
        try:
            outcome.append(frame.rdd.mapPartitions(slowly(started, go_on)).collect())
        except Exception as error:  # whatever it is, the test judges it
            outcome.append(error)

    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    wait_until("the first part runs", started.exists, 60)
    cluster.sql(*[statement.format(table) for statement in CHANGES["recreated"]])
    go_on.touch()
    thread.join(IN_TIME)
    assert not thread.is_alive(), f"the job still runs {IN_TIME} s after its table went"
    assert not isinstance(outcome[0], Exception), str(outcome[0])[:2000]
    assert sorted(tuple(row) for row in outcome[0]) == [(n, n * 7) for n in range(ROWS)]
    cluster.replicate(table)
    assert [tuple(row) for row in spark.table(f"isobar.{table}").collect()] == [(1, -1)]
