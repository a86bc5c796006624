"""The connector's own suite, over a running cluster: every type, filter and region, as Spark itself would have it."""

import os
import subprocess
from pathlib import Path

import pytest
from harness import EVERY_TYPE, MORE_TYPES, Cluster

ROOT = Path(__file__).resolve().parents[2]
SBT_TIMEOUT = 600


@pytest.mark.timeout(SBT_TIMEOUT + 60)
def test_the_connectors_suite_passes_over_a_cluster(cluster: Cluster, tmp_path: Path):
    cluster.sql(*EVERY_TYPE)
    cluster.sql(*MORE_TYPES)
    path = tmp_path / "t.csv"
    lines = (f"{n},{n % 13 or chr(92) + 'N'},name {n % 97},{n % 1000}.{n % 100:02}\n" for n in range(5_000))
    path.write_text("".join(lines), encoding="ascii")
    cluster.sql(
        "CREATE DATABASE spread",
        "CREATE TABLE spread.t (id INT PRIMARY KEY, n INT, s VARCHAR(20), d DECIMAL(9,2) NOT NULL)",
        f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE spread.t FIELDS TERMINATED BY ','",
        "SPLIT TABLE spread.t REGIONS 4",
        "DELETE FROM spread.t WHERE id % 11 = 0",
    )
    for table in ("typed.t", "more.t", "spread.t"):
        cluster.replicate(table)
    done = subprocess.run(
        [ROOT / "project/sbt", "spark-connector/testOnly org.isobar.spark.RunningIsobarSuite"],
        cwd=ROOT,
        env={**os.environ, "ISOBAR_ENDPOINTS": ",".join(cluster.flight)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SBT_TIMEOUT,
    )
    end = done.stdout[-6_000:]
    assert done.returncode == 0, end
    assert "succeeded 2, failed 0, canceled 0" in done.stdout, end
