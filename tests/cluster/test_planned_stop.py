"""A row node that is asked to stop hands over what it leads before it ends: nobody has to notice that it is gone, and elect.

What counts is what each node knew of its own regions when it ended; it says so in its log, which is read here.
"""

import re
import signal
import threading

import pytest

from failover import victim
from harness import Cluster, gone, wait_until

pytestmark = pytest.mark.own_cluster

SAID = re.compile(r"handed over what this node led led=(\d+) left=(\d+) millis=(\d+) in_time=(true|false)")


def said(cluster: Cluster, name: str) -> list[tuple[int, int, bool]]:
    """Of each stop of a node: what it led before, what it led in the end, and whether it was done in time."""
    text = (cluster.data / name / "isobar.log").read_text()
    return [(int(led), int(left), in_time == "true") for led, left, _, in_time in SAID.findall(text)]


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster) -> None:
    rows = ",".join(f"({id},0)" for id in range(2_000))
    cluster.sql("CREATE DATABASE p", "CREATE TABLE p.t (id INT PRIMARY KEY, n INT NOT NULL)", f"INSERT INTO p.t VALUES {rows}")
    cluster.sql("SPLIT TABLE p.t REGIONS 9")


class Writer(threading.Thread):
    """Writes one row after the other until it is asked to end; errors end it."""

    def __init__(self, cluster: Cluster):
        super().__init__(daemon=True)
        self.cluster, self.ending, self.written, self.error = cluster, threading.Event(), 0, None

    def run(self) -> None:
        try:
            with self.cluster.connect() as session, session.cursor() as cursor:
                while not self.ending.is_set():
                    cursor.execute(f"UPDATE p.t SET n = n + 1 WHERE id = {self.written * 7 % 2_000}")
                    self.written += 1
        except Exception as error:  # noqa: BLE001
            self.error = error


@pytest.mark.timeout(240)
@pytest.mark.parametrize("of", ["leaders", "placement"])
def test_a_node_that_is_asked_to_stop_leads_nothing_when_it_ends(cluster: Cluster, of: str):
    wait_until("every replica is whole", cluster.is_whole, 120)
    name = victim(cluster, of)
    # Leaders are still spread over the nodes.
    wait_until(f"{name} leads something", lambda: cluster.led(name) >= 2, 60)
    before = cluster.sql("SELECT CAST(SUM(n) AS UNSIGNED) FROM p.t")[0][0]
    writer = Writer(cluster)
    writer.start()
    wait_until("rows are written", lambda: writer.written > 20)
    stops = len(said(cluster, name))
    with cluster.down(name, how=signal.SIGTERM):
        had, left, in_time = said(cluster, name)[stops]
        assert had >= 2 and (left, in_time) == (0, True), (had, left, in_time)
        seen = writer.written
        wait_until("rows are written without it", lambda: writer.written > seen + 20)
        wait_until("all is led by others", lambda: cluster.led(name) == 0)
    writer.ending.set()
    writer.join(60)
    assert writer.error is None
    assert cluster.sql("SELECT CAST(SUM(n) AS UNSIGNED) FROM p.t")[0][0] == before + writer.written
    cluster.wait_healthy()


@pytest.mark.timeout(120)
def test_a_single_node_has_nobody_to_hand_over_to_and_ends(isobar, tmp_path):
    cluster = Cluster(isobar, tmp_path / "data", row=1, columnar=0).start()
    try:
        cluster.sql("CREATE DATABASE p", "CREATE TABLE p.t (id INT PRIMARY KEY)")
    finally:
        cluster.stop()
    ((had, left, in_time),) = said(cluster, "row-1")
    assert had >= 2 and left == had and in_time


@pytest.mark.timeout(120)
def test_nodes_that_stop_together_hand_nothing_to_each_other(cluster: Cluster):
    wait_until("every replica is whole", cluster.is_whole, 120)
    rows = [name for name in cluster.names() if name.startswith("row-")]
    stops, pids = {name: len(said(cluster, name)) for name in rows}, cluster.pids()
    cluster.process.send_signal(signal.SIGTERM)
    cluster.process.wait(60)
    assert gone(pids)
    ends = {name: said(cluster, name)[stops[name] :] for name in rows}
    assert all(len(end) == 1 and end[0][2] for end in ends.values()), ends
