"""Columnar replicas as an operator sees them: made, routed to, explained, dropped."""

import pymysql
import pytest

from harness import Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster


def columnar_nodes(cluster: Cluster) -> set[int]:
    return {node["id"] for node in cluster.status()["nodes"] if node["role"] == "columnar"}


def learners(cluster: Cluster) -> int:
    """Replicas of regions that columnar nodes report."""
    nodes = columnar_nodes(cluster)
    return sum(peer["node"] in nodes for region in cluster.status()["regions"] for peer in region["peers"])


def test_replica_zero_drops_learners_and_reads_go_to_rows(cluster: Cluster):
    cluster.sql("CREATE DATABASE rep", "CREATE TABLE rep.t (id INT PRIMARY KEY, n INT)")
    cluster.sql("INSERT INTO rep.t VALUES " + ",".join(f"({n}, {n % 5})" for n in range(2000)))
    cluster.replicate("rep.t")
    query = "SELECT n, COUNT(*) FROM rep.t GROUP BY n ORDER BY n"
    expected = [(n, 400) for n in range(5)]
    assert cluster.read("tiflash", query) == expected
    wait_until("learners are reported", lambda: learners(cluster) > 0)
    cluster.sql("ALTER TABLE rep.t SET TIFLASH REPLICA 0")
    wait_until("learners are gone", lambda: learners(cluster) == 0)
    assert cluster.replica("rep.t") is None
    assert cluster.sql(query) == expected
    with pytest.raises(pymysql.err.MySQLError) as raised:
        cluster.read("tiflash", query)
    assert "rep.t" in raised.value.args[1]
    cluster.replicate("rep.t")
    assert cluster.read("tiflash", query) == expected


def test_replica_one_spreads_regions_over_both_nodes(cluster: Cluster):
    cluster.sql("CREATE DATABASE spread", "CREATE TABLE spread.t (id INT PRIMARY KEY, n INT)")
    cluster.sql("INSERT INTO spread.t VALUES " + ",".join(f"({n}, {n})" for n in range(4000)))
    cluster.sql("SPLIT TABLE spread.t REGIONS 4")
    wait_until("regions are cut", lambda: len(regions(cluster, "spread", "t")) >= 4)
    cluster.replicate("spread.t")
    wait_until(
        "both nodes hold some", lambda: len({node for row in regions(cluster, "spread", "t") for node in row}) == 2
    )
    cluster.wait_available("spread.t")
    info = FlightClient(cluster).info({"scan": {"database": "spread", "table": "t", "columns": ["id"]}})
    locations = {endpoint.locations[0].uri for endpoint in info.endpoints}
    assert len(locations) == 2, "each node serves its own regions"
    assert sorted(FlightClient(cluster).scan("spread.t", ["id"])) == [(n,) for n in range(4000)]


def regions(cluster: Cluster, database: str, table: str) -> list[list[str]]:
    """Nodes with a ready learner, for each region of a table."""
    rows = cluster.sql(
        "SELECT ready_learners FROM information_schema.regions"
        f" WHERE table_schema = '{database}' AND table_name = '{table}' AND index_name IS NULL"
    )
    return [[node for node in row[0].split(",") if node] for row in rows]


def test_explain_names_the_engine_and_hints_are_followed(cluster: Cluster):
    cluster.sql("CREATE DATABASE ex", "CREATE TABLE ex.t (id INT PRIMARY KEY, n INT)", "INSERT INTO ex.t VALUES (1, 1)")

    def explained(query: str) -> str:
        return " ".join(str(value) for row in cluster.sql(f"EXPLAIN {query}") for value in row)

    assert "no columnar replica" in explained("SELECT SUM(n) FROM ex.t")
    cluster.replicate("ex.t")
    assert "columns" in explained("SELECT SUM(n) FROM ex.t")
    assert "hint" in explained("SELECT /*+ READ_FROM_STORAGE(TIKV[t]) */ SUM(n) FROM ex.t")
    assert "hint" in explained("SELECT /*+ READ_FROM_STORAGE(TIFLASH[t]) */ SUM(n) FROM ex.t")
    with cluster.connect(database="ex") as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET n = 41 WHERE id = 1")
        cursor.execute("SELECT SUM(n) FROM t")
        assert cursor.fetchone()[0] == 41, "a transaction sees its own writes"
        cursor.execute("ROLLBACK")
        cursor.execute("SELECT SUM(n) FROM t")
        assert cursor.fetchone()[0] == 1


def test_status_and_lag_are_shown(cluster: Cluster):
    status = cluster.status()
    roles = sorted(node["role"] for node in status["nodes"])
    assert roles == ["columnar", "columnar", "row", "row", "row", "sql"]
    assert all(node["up"] and not node["faults"] for node in status["nodes"])
    cluster.sql("CREATE DATABASE lagged", "CREATE TABLE lagged.t (id INT PRIMARY KEY)", "INSERT INTO lagged.t VALUES (1)")
    cluster.replicate("lagged.t")
    # A lag is that of a commit which the replica took from the log: there is none before.
    cluster.sql("INSERT INTO lagged.t VALUES (2)")
    known = lambda: [lag for lag in [cluster.replica("lagged.t")["lag_ms"]] if lag is not None]  # noqa: E731
    assert 0 <= wait_until("lag is reported", known)[0] < 10_000
