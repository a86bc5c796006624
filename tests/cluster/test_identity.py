"""P7: a node that has lost its disk is a new node. One lost disk is one lost replica, and never a vote."""

import shutil
import time

import pytest

from harness import wait_until
from nodes import Nodes

pytestmark = pytest.mark.own_cluster


@pytest.fixture
def nodes(isobar, tmp_path):
    with Nodes(isobar, tmp_path / "nodes") as running:
        yield running


@pytest.mark.timeout(240)
def test_an_emptied_row_node_and_one_that_was_behind_elect_nobody(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)", "INSERT INTO d.t VALUES (0, 0)")
    wait_until("row-3 has everything", nodes.is_whole, 60)
    nodes.kill("row-3")
    for n in range(1, 201):
        nodes.sql(f"INSERT INTO d.t VALUES ({n}, {n})")
    nodes.sql("CREATE TABLE d.later (id INT PRIMARY KEY)", "INSERT INTO d.later VALUES (1)")
    nodes.kill("row-1")
    nodes.kill("row-2")
    nodes.empty("row-2")
    nodes.run("row-2")
    nodes.run("row-3")
    # Twelve election timeouts: on the way to the mend two of three elected a leader within four seconds.
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            leader = nodes.status()["placement_leader"]
        except Exception:  # noqa: BLE001, no answer is what is wanted
            continue
        raise AssertionError(f"node {leader} leads although only an emptied node and an old one run")
    nodes.run("row-1")
    wait_until("every row is there", lambda: nodes.sql("SELECT COUNT(*), SUM(n) FROM d.t") == [(201, 20100)], 60)
    assert nodes.sql("SELECT * FROM d.later") == [(1,)]
    nodes.sql("CREATE TABLE d.last (id INT PRIMARY KEY)")
    assert nodes.sql("SELECT * FROM d.last") == []
    wait_until("every region has three voters", nodes.is_whole, 90)


@pytest.mark.timeout(240)
def test_one_emptied_row_node_joins_anew_and_is_given_everything(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)")
    nodes.sql("INSERT INTO d.t VALUES " + ",".join(f"({n}, {n})" for n in range(500)))
    wait_until("every region has three voters", nodes.is_whole, 60)
    for name in ("row-1", "row-2", "row-3"):
        before = nodes.row_ids()[name]
        nodes.kill(name)
        nodes.empty(name)
        nodes.run(name)
        wait_until(f"{name} is a new node", lambda: nodes.row_ids().get(name, before) != before, 40)
        wait_until(f"every region has three voters after {name}", nodes.is_whole, 90)
        assert not any(node["faults"] for node in nodes.status()["nodes"])
        assert nodes.sql("SELECT COUNT(*), SUM(n) FROM d.t") == [(500, 124750)]
    # Not one of the initial members is left; and all start again as who they are now.
    now = nodes.row_ids()
    for name in ("row-1", "row-2", "row-3"):
        nodes.kill(name)
    nodes.start("row-1", "row-2", "row-3")
    wait_until("every region has three voters", nodes.is_whole, 60)
    assert nodes.row_ids() == now
    assert nodes.sql("SELECT COUNT(*) FROM d.t") == [(500,)]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("lost", ["data", "log"])
def test_one_directory_lost_is_the_identity_lost(nodes: Nodes, lost: str):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
    nodes.kill("row-2")
    nodes.empty("row-2", data=lost == "data", log=lost == "log")
    nodes.run("row-2")
    said = nodes.ended("row-2")
    assert "has lost its stamp" in said and "joins as a new node" in said
    nodes.empty("row-2")
    nodes.run("row-2")
    wait_until("every region has three voters", nodes.is_whole, 90)


@pytest.mark.timeout(180)
def test_a_copy_takes_no_part_while_the_original_lives_nor_once_it_is_older(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    original = nodes.data / "row-3"
    nodes.kill("row-3")
    copy = nodes.data / "copy-3"
    shutil.copytree(original, copy)
    shutil.copytree(nodes.log_dir(original), nodes.log_dir(copy))
    nodes.run("row-3")
    nodes.wait_healthy()
    nodes.run("row-3", copy, nodes.port_base + 32)
    said = nodes.ended("copy-3", 60)
    assert "is alive at" in said or "are an older copy" in said
    # Also when the original is gone: it went on after the copy was taken.
    nodes.kill("row-3")
    nodes.run("row-3", copy, nodes.port_base + 32)
    assert "are an older copy" in nodes.ended("copy-3", 60)
    nodes.run("row-3")
    wait_until("every region has three voters", nodes.is_whole, 60)


@pytest.mark.timeout(180)
def test_a_copy_of_a_living_node_is_refused(nodes: Nodes):
    nodes.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    original = nodes.data / "row-3"
    copy = nodes.data / "copy-3"
    shutil.copytree(original, copy)
    shutil.copytree(nodes.log_dir(original), nodes.log_dir(copy))
    nodes.run("row-3", copy, nodes.port_base + 32)
    said = nodes.ended("copy-3", 60)
    assert "is alive at" in said
    assert nodes.nodes["row-3"].poll() is None, "the original goes on"
    wait_until("every region has three voters", nodes.is_whole, 60)


@pytest.mark.timeout(120)
def test_no_cluster_is_formed_while_a_listed_member_is_away(isobar, tmp_path):
    nodes = Nodes(isobar, tmp_path / "late", columnar=0)
    try:
        nodes.start("row-1", "row-2")
        wait_until("row-1 says what it waits for", lambda: "row node 3" in nodes.log("row-1"), 30)
        # Emptied before it could agree to anything for good.
        nodes.kill("row-2")
        nodes.empty("row-2")
        nodes.start("row-2", "row-3", "sql")
        nodes.wait_healthy(60)
        assert sorted(nodes.row_ids().values()) == [1, 2, 3]
    finally:
        nodes.stop()
