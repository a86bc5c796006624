"""A columnar replica that is made anew holds no version from before its sender's floor: who reads older gets an error."""

import pymysql
import pytest

from failover import Stopped
from harness import Cluster, wait_until

ROWS, LEFT = 2_000, 500
TOO_OLD = 9006


def floor(cluster: Cluster) -> tuple[int, int]:
    query = "SELECT safe_point, history_bytes FROM information_schema.garbage_collection"
    return tuple(int(value) for value in cluster.sql(query)[0])


def replicas(cluster: Cluster) -> int:
    records = [region for region in cluster.status()["regions"] if "records" in region["kind"]]
    return sum(len(region["columnar"]) for region in records)


@pytest.mark.timeout(240)
def test_a_transaction_that_was_paused_past_its_registration_misses_no_row_silently(isobar, tmp_path):
    with Cluster(isobar, tmp_path / "data", sql=2, columnar=1) as cluster:
        cluster.sql("SET GLOBAL tidb_gc_life_time = '1s'", "CREATE DATABASE a", "CREATE TABLE a.t (id INT PRIMARY KEY)")
        cluster.sql("INSERT INTO a.t VALUES " + ",".join(f"({id})" for id in range(ROWS)))
        cluster.replicate("a.t")
        paused = sorted(name for name in cluster.names() if name.startswith("sql"))[1]
        connection = pymysql.connect(
            host=cluster.host, port=cluster.mysql_port + 1, user="root", autocommit=False, read_timeout=60
        )
        with connection, connection.cursor() as cursor:
            cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cursor.execute("SELECT COUNT(*) FROM a.t")
            assert cursor.fetchone() == (ROWS,)
            with Stopped(cluster.pids()[paused]):
                cluster.sql(f"DELETE FROM a.t WHERE id >= {LEFT}")
                begun = int(cluster.sql("SELECT isobar_snapshot('1s', 'a mark')", "SELECT snapshot_ts FROM information_schema.snapshot_leases")[0][0])
                wait_until("the floor passes the paused transaction", lambda: floor(cluster)[0] > begun, 60)
                wait_until("its rows are gone", lambda: floor(cluster)[1] == 0, 60)
                cluster.sql("ALTER TABLE a.t SET COLUMNAR REPLICA 0")
                wait_until("the replica is removed", lambda: replicas(cluster) == 0, 60)
                cluster.replicate("a.t")
            with pytest.raises(pymysql.err.MySQLError) as refused:
                cursor.execute("SELECT COUNT(*) FROM a.t")
                raise AssertionError(f"{cursor.fetchone()} of {ROWS} rows, and no error")
            assert refused.value.args[0] == TOO_OLD, refused.value
        assert cluster.read("tiflash", "SELECT COUNT(*) FROM a.t") == [(LEFT,)]
