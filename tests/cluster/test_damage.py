"""P4: a damaged block is found, never answered with, and its replica is made anew while queries go on."""

from pathlib import Path

import pymysql
import pytest

from harness import Cluster, wait_until

pytestmark = pytest.mark.own_cluster

ROWS = 60_000
QUESTION = "SELECT COUNT(*), SUM(n), MIN(text), MAX(text) FROM damaged.t"


def segments(cluster: Cluster) -> dict[str, list[Path]]:
    """Files with columns, by node."""
    nodes = [name for name in cluster.names() if name.startswith("columnar")]
    return {name: sorted((cluster.data / name / "columns").rglob("*.parquet")) for name in nodes}


def flip(path: Path) -> None:
    """Changes a byte in the midst of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0x10]))


def test_a_damaged_replica_is_made_anew_and_no_answer_is_wrong(cluster: Cluster, tmp_path):
    cluster.sql("CREATE DATABASE damaged", "CREATE TABLE damaged.t (id INT PRIMARY KEY, n INT, text VARCHAR(40))")
    path = tmp_path / "t.csv"
    path.write_text("".join(f"{n},{n * 7 % 1000},text {n * 31 % ROWS}\n" for n in range(ROWS)), encoding="ascii")
    cluster.sql(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE damaged.t FIELDS TERMINATED BY ','")
    cluster.replicate("damaged.t")
    right = cluster.read("tikv", QUESTION)
    assert right[0][0] == ROWS and cluster.read("tiflash", QUESTION) == right

    files = wait_until("columns are in files", lambda: {n: f for n, f in segments(cluster).items() if f})
    [name] = files
    for file in files[name]:
        flip(file)
    # What it has read before it may keep in memory: it starts anew.
    cluster.wait_restarted(name, cluster.kill(name))

    # The only replica is damaged: an error, or the right answer, and rows only where the session wants them.
    try:
        assert cluster.sql(QUESTION) == right
    except pymysql.err.MySQLError as error:
        assert error.args[0] in (9012, 9013), error
    assert cluster.sql("SET isobar_fallback = 'rows'", QUESTION) == right
    assert "quarantined" in (cluster.data / name / "isobar.log").read_text(), "the damage was not met"
    wait_until("columns answer again", lambda: cluster.read("tiflash", QUESTION) == right, 60)
    wait_until("no fault is left", lambda: not any(node["faults"] for node in cluster.status()["nodes"]), 30)
    cluster.sql("INSERT INTO damaged.t VALUES (-1, 5, 'a')")
    assert cluster.read("tiflash", QUESTION)[0][0] == ROWS + 1

