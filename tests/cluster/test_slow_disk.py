"""A row node whose disk takes a second for each sync: it gives away what it leads, others write on, and nothing is lost.

The disk is slow by a preloaded library (`nemeses/disk.c`), and so are all syncs of that node and of no other.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import disk
from harness import Cluster, wait_until

pytestmark = pytest.mark.own_cluster
SLOW = "row-1"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(isobar: Path, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("cluster")
    library = disk.build(tmp_path_factory.mktemp("library"))
    preloaded = {"LD_PRELOAD": str(library), **disk.environment(data / SLOW, logs)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in preloaded.items():
            patch.setenv(name, value)
        running = Cluster(isobar, data, columnar=1).start()
    try:
        yield running
    finally:
        running.stop()
    shutil.rmtree(data, ignore_errors=True)


class Writers:
    """Sessions that add to rows of their own, one statement after the other, until they are asked to end."""

    def __init__(self, cluster: Cluster, sessions: int):
        self.ending, self.errors, self.written = threading.Event(), [], [0] * sessions
        self.threads = [threading.Thread(target=self._run, args=(cluster, n), daemon=True) for n in range(sessions)]
        for thread in self.threads:
            thread.start()

    def _run(self, cluster: Cluster, number: int) -> None:
        try:
            with cluster.connect() as session, session.cursor() as cursor:
                while not self.ending.is_set():
                    id = (self.written[number] * 70 + number) % 2_000
                    cursor.execute(f"UPDATE p.t SET n = n + 1 WHERE id = {id}")
                    self.written[number] += 1
        except Exception as error:  # noqa: BLE001
            self.errors.append(error)

    def end(self) -> int:
        self.ending.set()
        for thread in self.threads:
            thread.join(60)
        assert not self.errors
        return sum(self.written)


@pytest.mark.timeout(240)
def test_others_lead_and_write_while_a_disk_takes_a_second_for_each_sync(cluster: Cluster, logs: Path):
    rows = ",".join(f"({id},0)" for id in range(2_000))
    cluster.sql("CREATE DATABASE p", "CREATE TABLE p.t (id INT PRIMARY KEY, n INT NOT NULL)", f"INSERT INTO p.t VALUES {rows}")
    cluster.sql("ALTER TABLE p.t SET COLUMNAR REPLICA 1", "SPLIT TABLE p.t REGIONS 9")
    wait_until("every replica is whole", cluster.is_whole, 120)
    wait_until(f"{SLOW} leads something", lambda: cluster.led(SLOW) >= 2, 60)
    writers = Writers(cluster, 4)
    wait_until("rows are written", lambda: sum(writers.written) > 100)
    (logs / "slow").write_text("1000")
    wait_until("it is shown", lambda: any("disk is slow" in fault for fault in cluster.node(SLOW)["faults"]))
    wait_until("others lead everything", lambda: cluster.led(SLOW) == 0)
    seen = sum(writers.written)
    # Had it kept a third of the regions, each of their rows would take a second and more.
    wait_until("rows are written without it", lambda: sum(writers.written) > seen + 1_000, 20)
    count = cluster.read("tiflash", "SELECT COUNT(*) FROM p.t")
    assert count == [(2_000,)] and cluster.led(SLOW) == 0
    (logs / "slow").unlink()
    written = writers.end()
    assert cluster.sql("SELECT CAST(SUM(n) AS UNSIGNED) FROM p.t") == [(written,)]
