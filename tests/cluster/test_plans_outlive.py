"""Whatever happens to a table once a scan was planned: its tasks and tickets give the rows of the snapshot."""

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until
from readers import SparkReader

pytestmark = [pytest.mark.own_cluster, pytest.mark.timeout(240)]

ROWS = 3000
WANTED = [(n, n * 7) for n in range(ROWS)]
CHANGES = {
    "split": ["SPLIT TABLE {0} REGIONS 8"],
    "an added column": ["ALTER TABLE {0} ADD COLUMN extra INT DEFAULT 5", "INSERT INTO {0} (id, n) VALUES (100001, 1)"],
    "an unread column dropped": ["ALTER TABLE {0} DROP COLUMN pad", "INSERT INTO {0} (id, n) VALUES (100001, 1)"],
    "a read column dropped": ["ALTER TABLE {0} DROP COLUMN n", "INSERT INTO {0} (id) VALUES (100001)"],
    "a wider column": [
        "ALTER TABLE {0} MODIFY n BIGINT NOT NULL",
        "INSERT INTO {0} (id, n) VALUES (100001, 9000000000)",
    ],
    "another type": ["ALTER TABLE {0} MODIFY n VARCHAR(20) NOT NULL", "INSERT INTO {0} (id, n) VALUES (100001, 'x')"],
    "an index": ["CREATE INDEX by_n ON {0} (n)"],
    "a comment": ["ALTER TABLE {0} COMMENT = 'for nobody'"],
    "a new name": ["RENAME TABLE {0} TO {0}_renamed"],
    "dropped": ["DROP TABLE {0}"],
    "truncated": ["TRUNCATE TABLE {0}", "INSERT INTO {0} (id, n) VALUES (1, -1)"],
    "recreated": [
        "DROP TABLE {0}",
        "CREATE TABLE {0} (id INT PRIMARY KEY, n VARCHAR(9))",
        "INSERT INTO {0} VALUES (1, 'x')",
    ],
}
# Seen at no snapshot of before.
LATER = [
    "UPDATE {0} SET n = -n WHERE id % 3 = 0",
    "DELETE FROM {0} WHERE id % 7 = 0",
    "INSERT INTO {0} (id, n) VALUES (100000, 1)",
]


def made(cluster: Cluster, name: str, replicas: int = 1) -> str:
    """A table of four regions with columns on both nodes."""
    table = f"outlive.{re.sub('[^a-z]+', '_', name)}"
    cluster.sql("CREATE DATABASE IF NOT EXISTS outlive", f"DROP TABLE IF EXISTS {table}")
    cluster.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL, pad VARCHAR(20) DEFAULT 'pad')")
    cluster.sql(f"INSERT INTO {table} (id, n) VALUES " + ",".join(f"({n}, {n * 7})" for n in range(ROWS)))
    cluster.sql(f"SPLIT TABLE {table} REGIONS 4")
    wait_until("regions are cut", lambda: regions(cluster, table) >= 4)
    cluster.sql(f"ALTER TABLE {table} SET COLUMNAR REPLICA {replicas}")
    cluster.wait_available(table)
    wait_until("columns are on both nodes", lambda: len(FlightClient(cluster).info(scan(table)).endpoints) == 2)
    if replicas > 1:
        wait_until("each region is on both nodes", lambda: set(holders(cluster, table)) == {replicas})
    return table


def scan(table: str) -> dict:
    database, name = table.split(".")
    return {"scan": {"database": database, "table": name, "columns": ["id", "n"]}}


def of_regions(cluster: Cluster, table: str, column: str) -> list:
    database, name = table.split(".")
    where = f"table_schema = '{database}' AND table_name = '{name}' AND index_name IS NULL"
    return [row[0] for row in cluster.sql(f"SELECT {column} FROM information_schema.regions WHERE {where}")]


def regions(cluster: Cluster, table: str) -> int:
    return len(of_regions(cluster, table, "ready_learners"))


def holders(cluster: Cluster, table: str) -> list[int]:
    """How many nodes have each region's columns."""
    return [len(learners.split(",")) if learners else 0 for learners in of_regions(cluster, table, "ready_learners")]


def snapshot_of(info) -> str:
    return json.loads(info.app_metadata)["snapshot"]


@pytest.fixture(scope="module")
def spark(cluster: Cluster, jar: Path):
    os.environ["PYSPARK_PYTHON"] = sys.executable
    reader = SparkReader(jar, cluster.flight, master="local[2]")
    yield reader.spark
    reader.close()


def planned(spark, table: str):
    """A job whose partitions are made, tickets and all, and none of whose tasks has begun."""
    rows = spark.table(f"isobar.{table}").select("id", "n").rdd
    assert rows.getNumPartitions() == 2
    return rows


def rows_of(job) -> list[tuple]:
    return sorted(tuple(row) for row in job.collect())


@pytest.mark.parametrize("change", CHANGES)
def test_tickets_and_tasks_of_before_give_the_rows_of_before(cluster: Cluster, spark, change: str):
    table = made(cluster, change)
    info, job = FlightClient(cluster).info(scan(table)), planned(spark, table)
    cluster.sql(*[statement.format(table) for statement in LATER + CHANGES[change]])
    if change == "split":
        wait_until("regions are cut", lambda: regions(cluster, table) >= 8)
    for node in range(2):
        # Every node serves every ticket, also of regions that it has not.
        reader = FlightClient(cluster, node)
        answers = [reader.client.do_get(endpoint.ticket, reader.options).read_all() for endpoint in info.endpoints]
        found = sorted(tuple(row.values()) for answer in answers for row in answer.to_pylist())
        assert found == WANTED, f"{len(found)} rows from node {node}"
    assert rows_of(job) == WANTED


def test_columns_that_were_made_anew_elsewhere_are_found(cluster: Cluster, spark):
    table = made(cluster, "moved")
    info, job = FlightClient(cluster).info(scan(table)), planned(spark, table)
    cluster.sql(f"ALTER TABLE {table} SET COLUMNAR REPLICA 0")
    wait_until("no columns are left", lambda: not any(holders(cluster, table)))
    reader = FlightClient(cluster)
    with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-UNAVAILABLE"):
        reader.get(info.endpoints[0])
    cluster.sql(*[statement.format(table) for statement in LATER])
    cluster.replicate(table)
    assert sorted(row for endpoint in info.endpoints for row in reader.get(endpoint)) == WANTED
    assert rows_of(job) == WANTED


def test_a_columnar_node_that_is_gone_when_tasks_begin_is_passed_over(cluster: Cluster, spark):
    table = made(cluster, "killed", replicas=2)
    info, job = FlightClient(cluster).info(scan(table)), planned(spark, table)
    assert all(len(endpoint.locations) == 2 for endpoint in info.endpoints), "each part names both nodes"
    name = next(name for name in cluster.names() if name.startswith("columnar"))
    # Held, the supervisor does not start it again.
    os.kill(cluster.process.pid, signal.SIGSTOP)
    try:
        old = cluster.kill(name)
        assert rows_of(job) == WANTED
    finally:
        os.kill(cluster.process.pid, signal.SIGCONT)
    cluster.wait_restarted(name, old)
    assert rows_of(job) == WANTED


def test_a_lease_that_is_over_ends_tickets_and_tasks_by_name(cluster: Cluster, spark):
    table = made(cluster, "released")
    info = FlightClient(cluster).info(scan(table))
    token = cluster.token()
    frame = spark.read.option("snapshot", token).table(f"isobar.{table}").select("id", "n")
    job = frame.rdd
    assert job.getNumPartitions() == 2
    reader = FlightClient(cluster)
    for snapshot in (snapshot_of(info), token):
        reader.action("snapshot.release", {"snapshot": snapshot})

    def refused(endpoint) -> bool:
        try:
            assert reader.get(endpoint)  # a node believes for half a second what it knew of a lease
            return False
        except FLIGHT_ERRORS as error:
            assert "ISOBAR-LEASE_LOST" in str(error), error
            return True

    for endpoint in info.endpoints:
        wait_until("the ticket is refused", lambda: refused(endpoint), 10)  # noqa: B023 — waited for here
    with pytest.raises(Exception, match="ISOBAR-(LEASE_LOST|TICKET_EXPIRED)"):
        job.collect()
