"""A full disk under a running cluster: a fault that is reported, no answer that is wrong, no commit lost.

Most nodes have a small file system of their own; a test fills some of them up and empties them again.
"""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql
import pytest

from harness import Bank, Cluster, wait_until

ROWS = ["row-1", "row-2", "row-3"]
COLUMNS = "columnar-1"
SIZE = "256m"


@pytest.fixture(scope="module")
def cluster(isobar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose nodes keep data, Raft log and log file on a tmpfs each."""
    data = tmp_path_factory.mktemp("full")
    mounted = []
    try:
        for name in [*ROWS, COLUMNS]:
            path = data / name
            path.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            if done.returncode != 0:
                pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
            mounted.append(path)
        with Cluster(isobar, data) as running:
            yield running
    finally:
        for path in mounted:
            subprocess.run(["umount", str(path)], check=True, timeout=30)
        shutil.rmtree(data, ignore_errors=True)


@contextmanager
def full(cluster: Cluster, names: list[str]) -> Iterator[None]:
    """Leaves no byte free on these nodes' disks, which no process may die of."""
    ballast = [cluster.data / name / "ballast" for name in names]
    before = cluster.pids()
    try:
        for path in ballast:
            fill(path)
        yield
        assert cluster.pids() == before, "a process died of a full disk"
    finally:
        for path in ballast:
            path.unlink(missing_ok=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            piece = b"\xaa" * size
            try:
                while file.write(piece) == size:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC


def node(cluster: Cluster, name: str) -> dict:
    """A node's line of the status."""
    port = cluster.port_base + (30 if name == COLUMNS else 20) + number(name) - 1
    return next(node for node in cluster.status()["nodes"] if node["rpc_address"].endswith(f":{port}"))


def number(name: str) -> int:
    return int(name.rsplit("-", 1)[1])


def leader_of(cluster: Cluster, table: str) -> str:
    """The row node that leads a table's first region."""
    database, name = table.split(".")
    rows = cluster.sql(
        "SELECT leader_node FROM information_schema.regions"
        f" WHERE table_schema = '{database}' AND table_name = '{name}' AND index_name IS NULL"
    )
    return f"row-{rows[0][0]}"


def committed(cluster: Cluster) -> dict[int, int]:
    """What the leader of each region has committed."""
    found = {}
    for region in cluster.status()["regions"]:
        leader = [peer for peer in region["peers"] if peer["node"] == region["leader"]]
        found[region["id"]] = leader[0]["committed"] if leader else 0
    return found


def wait_caught_up(cluster: Cluster, name: str) -> None:
    """Waits until a row node has no fault and has applied what the leaders have committed by now: while writes go on,
    reports of different times never agree."""
    wanted, this = committed(cluster), number(name)

    def caught_up() -> bool:
        status = cluster.status()
        if next(node for node in status["nodes"] if node["id"] == this)["faults"]:
            return False
        applied = {
            region["id"]: peer["applied"]
            for region in status["regions"]
            for peer in region["peers"]
            if peer["node"] == this
        }
        return all(applied.get(region, -1) >= index for region, index in wanted.items())

    wait_until(f"{name} has caught up", caught_up, 60)


def restart(cluster: Cluster, name: str) -> None:
    """Has a node start anew and waits until it is as good as the others."""
    cluster.wait_restarted(name, cluster.kill(name))
    wait_caught_up(cluster, name)


@contextmanager
def frozen(cluster: Cluster, name: str) -> Iterator[None]:
    """Stops a node's process without ending it, so that nobody starts it again."""
    pid = cluster.pids()[name]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(300)
def test_writes_go_on_while_the_leaders_disk_is_full_and_it_catches_up(cluster: Cluster, bank: Bank):
    victim = leader_of(cluster, f"{bank.database}.account")
    others = [name for name in ROWS if name != victim]
    with bank:
        bank.wait_for(20)
        with full(cluster, [victim]):
            bank.wait_for(40, 60)
            faults = wait_until(f"{victim} reports its fault", lambda: node(cluster, victim)["faults"])
            assert any("space" in fault.lower() for fault in faults), faults
            assert all(not node(cluster, name)["faults"] for name in others)
            bank.check()
        # It goes on without a hand: where its rows could not be written, it has begun again in its own place.
        wait_caught_up(cluster, victim)
        # The node counts again: with another one frozen, no majority is without it.
        with frozen(cluster, others[0]):
            bank.wait_for(20, 60)
        for name in ROWS:
            wait_caught_up(cluster, name)
    bank.check()


@pytest.mark.timeout(300)
def test_without_a_majority_writes_fail_in_time_and_nothing_acknowledged_is_lost(cluster: Cluster, bank: Bank):
    with bank:
        bank.wait_for(20)
    bank.check()
    with cluster.connect(database=bank.database, read_timeout=60) as connection, connection.cursor() as cursor:
        with full(cluster, ROWS[:2]):
            # Some writes still find room in blocks that are already taken.
            def refused() -> pymysql.err.MySQLError | None:
                try:
                    cursor.execute("UPDATE account SET note = REPEAT('x', 40)")
                except pymysql.err.MySQLError as error:
                    return error
                return None

            error = wait_until("a write is refused", refused, 60)
            # What commits in one entry may yet take effect: then nobody knows.
            assert error.args[0] in (1205, 8501, 9002, 9005), error
    for name in ROWS[:2]:
        restart(cluster, name)
    again = Bank(cluster, bank.database)
    again.acknowledged, again._next = bank.acknowledged, bank._next
    with again:
        again.wait_for(20, 60)
    again.check()


@pytest.mark.timeout(300)
def test_a_full_disk_under_columns_holds_no_write_back_and_shows_nothing_old(cluster: Cluster):
    table = table_on(cluster, COLUMNS)
    insert = f"INSERT INTO {table} VALUES (%s, REPEAT('x', 4000))"
    count = f"SELECT COUNT(*) FROM {table}"
    with cluster.connect() as connection, connection.cursor() as cursor:
        with full(cluster, [COLUMNS]):
            refused = None
            for number in range(60):
                began = time.monotonic()
                cursor.execute(insert, (number,))
                assert time.monotonic() - began < 5, "a write waited for a learner"
                try:
                    if refused is None:
                        assert cluster.read("tiflash", count) == [(number + 1,)], "columns are behind and do not say so"
                except pymysql.err.MySQLError as error:
                    refused = error.args[0]
            assert refused in (9012, 9013), refused
            wait_until(f"{COLUMNS} reports its fault", lambda: node(cluster, COLUMNS)["faults"])
            assert cluster.sql("SET isobar_fallback = 'rows'", count) == [(60,)], "rows do not answer where they may"
        # Without a hand.
        wait_until("columns are back", lambda: cluster.read("tiflash", count) == [(60,)], 60)
        wait_until("the fault is gone", lambda: not node(cluster, COLUMNS)["faults"])


def table_on(cluster: Cluster, name: str) -> str:
    """A new table whose one region has its columns on this node."""
    cluster.sql("CREATE DATABASE late")
    wanted = str(node(cluster, name)["id"])
    for attempt in range(6):
        table = f"t{attempt}"
        cluster.sql(f"CREATE TABLE late.{table} (id INT PRIMARY KEY, pad VARCHAR(4000) NOT NULL)")
        cluster.replicate(f"late.{table}")
        rows = cluster.sql(
            "SELECT ready_learners FROM information_schema.regions"
            f" WHERE table_schema = 'late' AND table_name = '{table}' AND index_name IS NULL"
        )
        if rows == [(wanted,)]:
            return f"late.{table}"
    raise AssertionError(f"none of six tables has its columns on {name}")
