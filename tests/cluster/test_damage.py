"""P4: a damaged block is found, never answered with, and its replica is made anew while queries go on."""

from pathlib import Path

import pymysql
import pytest

from harness import Cluster, wait_until
from nodes import Nodes

pytestmark = pytest.mark.own_cluster

ROWS = 60_000
QUERY = "SELECT COUNT(*), SUM(n), MIN(text), MAX(text) FROM damaged.t"


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
    right = cluster.read("tikv", QUERY)
    assert right[0][0] == ROWS and cluster.read("tiflash", QUERY) == right

    files = wait_until("columns are in files", lambda: {n: f for n, f in segments(cluster).items() if f})
    [name] = files
    for file in files[name]:
        flip(file)
    # What it has read before it may keep in memory: it starts anew.
    cluster.wait_restarted(name, cluster.kill(name))

    # The only replica is damaged: an error, or the right answer, and rows only where the session wants them.
    try:
        assert cluster.sql(QUERY) == right
    except pymysql.err.MySQLError as error:
        assert error.args[0] in (9012, 9013), error
    assert cluster.sql("SET isobar_fallback = 'rows'", QUERY) == right
    assert "quarantined" in (cluster.data / name / "isobar.log").read_text(), "the damage was not met"
    wait_until("columns answer again", lambda: cluster.read("tiflash", QUERY) == right, 60)
    wait_until("no fault is left", lambda: not any(node["faults"] for node in cluster.status()["nodes"]), 30)
    cluster.sql("INSERT INTO damaged.t VALUES (-1, 5, 'a')")
    assert cluster.read("tiflash", QUERY)[0][0] == ROWS + 1



@pytest.fixture
def nodes(isobar, tmp_path):
    with Nodes(isobar, tmp_path / "nodes", columnar=1) as running:
        yield running


def written(path: Path) -> int:
    """Where a file ends, without the zeros that a file of the Raft log goes on with."""
    return len(path.read_bytes().rstrip(b"\0"))


def flip_at(path: Path, share: float) -> None:
    """Changes a byte at a share of what is written of a file."""
    length = written(path)
    with path.open("r+b") as file:
        file.seek(min(length - 1, int(length * share)))
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0x10]))


def zero(path: Path) -> None:
    """Empties the first page."""
    with path.open("r+b") as file:
        file.write(bytes(4096))


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(written(path) // 2)


@pytest.mark.timeout(300)
def test_damage_on_a_row_node_costs_its_replicas_and_they_are_replaced_without_a_hand(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)")
    nodes.sql("INSERT INTO d.t VALUES " + ",".join(f"({n}, {n})" for n in range(2_000)))
    nodes.replicate("d.t")
    wait_until("every region has three voters", nodes.is_whole, 60)
    right = [(2_000, 1_999_000)]
    query = "SELECT COUNT(*), SUM(n) FROM d.t"

    def log_files() -> list[Path]:
        return sorted(nodes.log_dir(nodes.data / "row-2").glob("*.raftlog"))

    def tables() -> list[Path]:
        return sorted((nodes.data / "row-2" / "rows" / "fjall").glob("keyspaces/*/tables/*"))

    before = nodes.row_ids()
    damages = {
        "the Raft log's first page": lambda: zero(log_files()[-1]),
        "the Raft log's middle": lambda: flip_at(log_files()[-1], 0.5),
        "the Raft log cut in half": lambda: cut(log_files()[-1]),
        "a table's middle": lambda: [flip_at(path, 0.5) for path in tables()],
        "a table cut in half": lambda: [cut(path) for path in tables()],
    }
    for what, damage in damages.items():
        nodes.kill("row-2")
        damage()
        seen = len(nodes.log("row-2"))
        nodes.run("row-2")
        wait_until(f"rows answer beside {what}", lambda: nodes.sql(query) == right, 60)
        wait_until(f"the damage is met: {what}", lambda: "damaged" in nodes.log("row-2")[seen:], 30)
        wait_until(f"every region has three voters after {what}", nodes.is_whole, 60)
        wait_until(f"no fault is left after {what}", lambda: not any(n["faults"] for n in nodes.status()["nodes"]), 30)
        assert nodes.row_ids() == before, f"{what} is no reason to be another node"
        assert nodes.read("tikv", query) == right, what
    # What was replaced votes: it and one other are enough.
    nodes.kill("row-1")
    wait_until("rows are written", lambda: nodes.sql("REPLACE INTO d.t VALUES (-1, 1)", "SELECT 1"), 60)
    assert nodes.read("tikv", query) == nodes.read("tiflash", query) == [(2_001, 1_999_001)]


@pytest.mark.timeout(180)
def test_a_damaged_manifest_costs_the_columns_and_they_are_sent_again(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)")
    nodes.sql("INSERT INTO d.t VALUES " + ",".join(f"({n}, {n})" for n in range(2_000)))
    nodes.replicate("d.t")
    query = "SELECT COUNT(*), SUM(n) FROM d.t"
    right = nodes.read("tiflash", query)
    nodes.kill("columnar-1")
    flip_at(nodes.data / "columnar-1" / "columns" / "manifest", 0.1)
    nodes.run("columnar-1")
    wait_until("columns answer again", lambda: nodes.read("tiflash", query) == right == [(2_000, 1_999_000)], 60)
    assert "begins anew" in nodes.log("columnar-1")
    wait_until("no fault is left", lambda: not any(node["faults"] for node in nodes.status()["nodes"]), 30)
