"""`isobar ctl recover-unsafe`: with most disks lost, what a survivor holds goes on, and nothing lost comes back."""

import itertools
import os
import signal
import subprocess
from pathlib import Path

import pymysql
import pytest

from harness import wait_until
from nodes import Nodes

pytestmark = pytest.mark.own_cluster

ROWS = 100
TOO_OLD = 9006


@pytest.fixture
def nodes(isobar, tmp_path):
    with Nodes(isobar, tmp_path / "nodes") as running:
        yield running


def recover(nodes: Nodes, *arguments: str | Path) -> subprocess.CompletedProcess:
    command = [nodes.isobar, "ctl", "recover-unsafe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def recovered(nodes: Nodes, *arguments: str | Path) -> str:
    done = recover(nodes, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(nodes: Nodes, *arguments: str | Path) -> str:
    done = recover(nodes, *arguments)
    assert done.returncode == 1, done.stdout
    return done.stderr


def tables(nodes: Nodes) -> dict[int, str]:
    """Numbers of the tables that have regions, with the region of each."""
    kinds = [region["kind"] for region in nodes.status()["regions"]]
    return {int(kind.split()[-1]): kind for kind in kinds if "records" in kind}


def numbers(nodes: Nodes) -> set[int]:
    status = nodes.status()
    return {region["id"] for region in status["regions"]} | {node["id"] for node in status["nodes"]}


def level(nodes: Nodes) -> bool:
    """Whether every row node has applied what the others have."""
    rows = {node["id"] for node in nodes.status()["nodes"] if node["role"] == "row"}
    peers = [[one["applied"] for one in region["peers"] if one["node"] in rows] for region in nodes.status()["regions"]]
    return all(len(applied) == 3 and len(set(applied)) == 1 for applied in peers)


def pause(pid: int) -> None:
    """Stops a process; on a busy machine its threads go on for a while after the signal."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    still = lambda: all(") T " in thread.read_text() for thread in threads.glob("*/stat"))  # noqa: E731
    wait_until("every thread stands still", still, 20)


@pytest.mark.timeout(240)
def test_the_last_row_node_goes_on_with_what_it_holds(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)")
    nodes.sql("INSERT INTO d.t VALUES " + ",".join(f"({n}, {n})" for n in range(ROWS)))
    nodes.replicate("d.t")
    token = nodes.token()
    wait_until("every region has three voters", nodes.is_whole, 60)
    wait_until("row-3 has everything", lambda: level(nodes), 30)
    settings = ("--config", nodes.data / "row-3.toml")
    assert "stop the node first" in refused(nodes, *settings)

    pause(nodes.nodes["row-3"].pid)
    wait_until("the others go on", lambda: nodes.sql("UPDATE d.t SET n = n + 1 WHERE id = 0") == [], 60)
    nodes.sql(*(f"INSERT INTO d.t VALUES ({n}, {n})" for n in range(ROWS, ROWS + 200)))
    nodes.sql("CREATE TABLE d.later (id INT PRIMARY KEY)", "INSERT INTO d.later VALUES (1), (2)")
    nodes.replicate("d.later")
    highest_table, highest_number = max(tables(nodes)), max(numbers(nodes))
    for name in nodes.names():
        nodes.kill(name)
    nodes.empty("row-2")  # the disk of row-1 turns up again later

    said = recovered(nodes, *settings)
    assert "never come back under their numbers: row node 1 (" in said and "row node 2 (" in said
    assert "rows and indexes of d.t" in said and "Nothing was changed" in said
    assert "Nothing was changed" in recovered(nodes, *settings), "it changed something"
    assert "Done." in recovered(nodes, *settings, "--yes")
    assert "a quorum is left" in refused(nodes, *settings, "--yes")

    nodes.start("row-3", "columnar-1", "sql")
    wait_until("SQL answers", lambda: nodes.sql("SELECT COUNT(*), SUM(n) FROM d.t") == [(ROWS, sum(range(ROWS)))], 60)
    assert nodes.sql("SHOW TABLES FROM d") == [("t",)]
    nodes.sql(f"INSERT INTO d.t VALUES ({ROWS}, -1)")
    with pytest.raises(pymysql.err.MySQLError) as too_old:
        nodes.read("tikv", "SELECT COUNT(*) FROM d.t", token)
    assert too_old.value.args[0] == TOO_OLD
    nodes.sql("CREATE TABLE d.later (id INT PRIMARY KEY)")
    assert max(tables(nodes)) > highest_table + 1_000
    assert nodes.sql("SELECT * FROM d.later") == []
    nodes.sql("INSERT INTO d.later VALUES (3)")
    nodes.replicate("d.later")
    assert nodes.read("tiflash", "SELECT * FROM d.later") == [(3,)]
    nodes.wait_available("d.t")
    query = "SELECT id, n FROM d.t ORDER BY id"
    rows = nodes.read("tikv", query)
    assert rows == [*((n, n) for n in range(ROWS)), (ROWS, -1)]
    assert nodes.read("tiflash", query) == rows

    nodes.run("row-1")
    assert "was replaced" in nodes.ended("row-1")
    nodes.empty("row-1")
    nodes.start("row-1", "row-2")
    wait_until("every region has three voters again", nodes.is_whole, 90)
    assert min(id for name, id in nodes.row_ids().items() if name != "row-3") > highest_number
    # Any of them may go now, the survivor, too.
    nodes.kill("row-3")
    wait_until("it goes on without the survivor", lambda: nodes.read("tikv", query) == rows, 60)
    nodes.sql("INSERT INTO d.later VALUES (4)")


@pytest.mark.timeout(60)
def test_what_is_no_row_node_is_refused(nodes: Nodes, tmp_path: Path):
    for name in nodes.names():
        nodes.kill(name)
    assert "is not the data directory of a row node" in refused(nodes, "--data-dir", tmp_path)
    assert "columnar" in refused(nodes, "--config", nodes.data / "columnar-1.toml")
    row = nodes.data / "row-1"
    foreign = nodes.log_dir(nodes.data / "row-2")
    said = refused(nodes, "--data-dir", row, "--raft-log-dir", foreign)
    assert "they belong to different nodes" in said
    report = tmp_path / "row-2.held"
    assert "Row node 2 holds" in recovered(nodes, "--config", nodes.data / "row-2.toml", "--report", report)
    said = refused(nodes, "--config", nodes.data / "row-1.toml", "--with", report, "--yes")
    assert "a quorum is left" in said, "two of three are a quorum"
    report.write_bytes(b"something else")
    assert "is no report" in refused(nodes, "--config", nodes.data / "row-1.toml", "--with", report)


@pytest.mark.timeout(240)
def test_two_of_five_row_nodes_go_on_with_what_each_of_them_holds(isobar, tmp_path):
    with Nodes(isobar, tmp_path / "five", row=5, columnar=0) as nodes:
        nodes.sql("CREATE DATABASE d")
        for table in range(6):
            nodes.sql(f"CREATE TABLE d.t{table} (id INT PRIMARY KEY)", f"INSERT INTO d.t{table} VALUES (1), (2), (3)")
        ids = nodes.row_ids()
        holders = [{peer["node"] for peer in region["peers"]} for region in nodes.status()["regions"]]
        # One of placement's three and one that is none of them, without whom some table is lost altogether.
        pairs = itertools.product(("row-1", "row-2", "row-3"), ("row-4", "row-5"))
        home, other = next(pair for pair in pairs if any(not one & {ids[name] for name in pair} for one in holders))
        lost = sorted(set(ids) - {home, other})
        for name in nodes.names():
            nodes.kill(name)
        for name in lost:
            nodes.empty(name)
        reports = {name: tmp_path / f"{name}.held" for name in (home, other)}
        for name, report in reports.items():
            recovered(nodes, "--config", nodes.data / f"{name}.toml", "--report", report)
        alone = refused(nodes, "--config", nodes.data / f"{other}.toml")
        assert "none of these nodes holds placement's group" in alone
        for name, beside in ((home, other), (other, home)):
            said = recovered(nodes, "--config", nodes.data / f"{name}.toml", "--with", reports[beside], "--yes")
            assert f"Survivors: row node {ids[home]}, {ids[other]}." in said
        nodes.start(home, other, "sql")
        every_row = lambda: [nodes.sql(f"SELECT COUNT(*) FROM d.t{table}")[0][0] for table in range(6)]  # noqa: E731
        counts = wait_until("every table is there", every_row, 60)
        # Those of which neither had a peer are there and empty, all others are whole.
        assert set(counts) == {0, 3}, counts
        nodes.start(lost[0])
        voters = lambda: {len(region["voters"]) for region in nodes.status()["regions"]}  # noqa: E731
        wait_until("every region has three voters", lambda: voters() == {3}, 90)
        assert every_row() == counts
