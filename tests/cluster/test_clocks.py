"""A node's wall clock jumps by minutes, either way, under load: answers stay right and leases last as long as they said.
And a placement leader that was started with its clock ten minutes ahead takes nobody along.

The nodes run under libfaketime, each with a clock of its own that the test sets. Monotonic time is left alone, as it is
when somebody sets a machine's clock.
"""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pymysql
import pytest

from harness import Bank, Cluster, FlightClient, absent, wait_until

LIBRARIES = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
]
JUMPS = ["+600", "-600"]
VICTIMS = ["row-1", "row-2", "row-3", "sql", "columnar-1"]
SHORT, LONG = 3, 120  # seconds of leases


class OwnClocks(Cluster):
    """A cluster that a playground has laid out, whose processes the test runs itself."""

    def start(self) -> "OwnClocks":
        super().start()
        super().stop()
        self.nodes: dict[str, subprocess.Popen] = {}
        for name in self.names():
            self.run(name, "+0")
        self.wait_healthy(60)
        return self

    def run(self, name: str, offset: str) -> None:
        """Starts a node's process with its wall clock so many seconds off."""
        library = next((path for path in LIBRARIES if os.path.exists(path)), None)
        assert library, "libfaketime is gone"
        self.set_clock(name, offset)
        environment = {
            **os.environ,
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self.data / f"{name}.time"),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        with open(self.data / name / "isobar.log", "a") as log:
            self.nodes[name] = subprocess.Popen(
                [self.isobar, "serve", "--config", self.data / name / "isobar.toml", "--parent", str(os.getpid())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill_node(self, name: str) -> None:
        """Kills a node's process with SIGKILL."""
        self.nodes[name].kill()
        self.nodes[name].wait()

    def placement_leader(self) -> str:
        """Name of the node that leads placement."""
        status = self.status()
        leader = next(node for node in status["nodes"] if node["id"] == status["placement_leader"])
        return f"row-{self.placement.index(leader['rpc_address']) + 1}"

    def set_clock(self, name: str, offset: str) -> None:
        """Sets a node's wall clock so many seconds off; it notices within a second."""
        path = self.data / f"{name}.time"
        path.with_suffix(".new").write_text(offset + "\n")
        path.with_suffix(".new").rename(path)

    def stop(self) -> None:
        for node in reversed(list(getattr(self, "nodes", {}).values())):
            node.send_signal(signal.SIGTERM)
        for node in getattr(self, "nodes", {}).values():
            try:
                node.wait(15)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        super().stop()

    def sql_now(self) -> float:
        """What the SQL node's machine says the time is."""
        return float(self.sql("SELECT UNIX_TIMESTAMP()")[0][0])


@pytest.fixture(scope="module")
def cluster(isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    if not any(os.path.exists(path) for path in LIBRARIES):
        absent("libfaketime")
    base = os.environ.get("ISOBAR_PORT_BASE")
    with OwnClocks(isobar, tmp_path_factory.mktemp("clocks"), port_base=int(base) if base else None) as running:
        yield running


def leases(cluster: Cluster) -> dict[str, int]:
    """Owners of leases, and the milliseconds that they have left."""
    rows = cluster.sql("SELECT owner, expires_in_ms FROM information_schema.snapshot_leases")
    return {owner.split(" ", 1)[-1]: left for owner, left in rows}


def take(cluster: Cluster, seconds: int, owner: str) -> tuple[str, float]:
    """A token, and the monotonic time when it was taken."""
    began = time.monotonic()
    return cluster.sql(f"SELECT isobar_snapshot('{seconds}s', '{owner}')")[0][0], began


def timestamp(cluster: Cluster) -> int:
    """A timestamp that was handed out now."""
    token = cluster.sql("SELECT isobar_snapshot('1s', 'probe')")[0][0]
    row = "SELECT MAX(snapshot_ts) FROM information_schema.snapshot_leases WHERE owner LIKE '%probe'"
    latest = cluster.sql(row)[0][0]
    cluster.sql(f"SELECT isobar_release('{token}')")
    return int(latest or 0)


def typed(error: Exception) -> bool:
    return isinstance(error, pymysql.err.MySQLError) and isinstance(error.args[0], int) and error.args[0] > 1000


@pytest.mark.timeout(170)
def test_clocks_that_jump_change_no_answer_and_no_lease(cluster: OwnClocks):
    # The tool does what this test believes it does.
    truth = time.time()
    cluster.set_clock("sql", JUMPS[0])
    wait_until("the SQL node's clock has jumped", lambda: cluster.sql_now() - truth > 590, 5)
    cluster.set_clock("sql", "+0")
    wait_until("it is back", lambda: abs(cluster.sql_now() - time.time()) < 5, 5)

    bank = Bank(cluster, "jumps")
    bank.open()
    total = "SELECT COUNT(*), SUM(balance) FROM jumps.account"
    token, taken = take(cluster, LONG, "long")
    at_token = cluster.read("tikv", "SELECT * FROM jumps.account ORDER BY id", token)
    last = timestamp(cluster)
    with bank:
        bank.wait_for(10)
        for name in VICTIMS:
            for jump in JUMPS:
                _, short_taken = take(cluster, SHORT, f"short {name} {jump}")
                cluster.set_clock(name, jump)
                while time.monotonic() - short_taken < SHORT - 1:
                    for engine in ("tikv", "tiflash"):
                        try:
                            answer = cluster.read(engine, total)
                            assert answer == [(bank.ACCOUNTS, bank.total)], f"{name} {jump}: {engine} saw {answer}"
                        except pymysql.err.MySQLError as error:
                            assert typed(error), error
                    now = timestamp(cluster)
                    assert now == 0 or now > last, f"{name} {jump}: timestamp {now} after {last}"
                    last = max(last, now)
                    held = leases(cluster)
                    assert time.monotonic() - short_taken > SHORT - 0.5 or f"short {name} {jump}" in held, (
                        f"{name} {jump}: a lease of {SHORT} s was gone after {time.monotonic() - short_taken:.1f} s"
                    )
                    gone = 1_000 * (time.monotonic() - taken)
                    assert abs(held["long"] - (1_000 * LONG - gone)) < 4_000, f"{name} {jump}: {held} after {gone} ms"
                wait_until(
                    f"{name} {jump}: a lease ends when it said",
                    lambda owner=f"short {name} {jump}": owner not in leases(cluster),
                    short_taken + SHORT + 3 - time.monotonic(),
                )
            cluster.set_clock(name, "+0")
        bank.wait_for(10)
    for engine in ("tikv", "tiflash"):
        assert cluster.read(engine, "SELECT * FROM jumps.account ORDER BY id", token) == at_token
    assert sorted(FlightClient(cluster).scan("jumps.account", ["id"], token)) == [(row[0],) for row in at_token]
    bank.check()


def lead_placement(cluster: OwnClocks, name: str) -> None:
    """Makes a row node the leader of placement: it is the one that has waited longest when the others come back."""
    led = []
    for _ in range(12):
        leader = wait_until("placement has a leader", cluster.placement_leader, 30)
        if leader == name:
            return
        led.append(leader)
        others = [other for other in ("row-1", "row-2", "row-3") if other != name]
        for other in others:
            cluster.kill_node(other)
        for other in others:
            cluster.run(other, "+0")
        cluster.wait_healthy(60)
    pytest.fail(f"{name} was never elected, but {', '.join(led)}\n{cluster.story(lines=80)}")


def physical_ms(cluster: Cluster) -> int:
    """Physical part of a timestamp that was handed out now."""
    return wait_until("a timestamp", lambda: timestamp(cluster), 20) >> 18


@pytest.mark.timeout(240)
def test_a_placement_leader_with_its_clock_ahead_takes_nobody_along(cluster: OwnClocks):
    rows, clients = 300, 12
    cluster.sql("CREATE DATABASE ahead", "CREATE TABLE ahead.t (id INT PRIMARY KEY, v INT NOT NULL)")
    values = ",".join(f"({number},0)" for number in range(rows))
    cluster.sql(f"INSERT INTO ahead.t VALUES {values}", "SPLIT TABLE ahead.t REGIONS 3")

    wrong = "row-3" if cluster.placement_leader() != "row-3" else "row-2"
    cluster.kill_node(wrong)
    cluster.run(wrong, JUMPS[0])
    cluster.wait_healthy(60)
    lead_placement(cluster, wrong)
    off = physical_ms(cluster) - 1_000 * time.time()
    assert abs(off) < 20_000, f"timestamps are {off} ms ahead of the clocks of a majority"
    shown = wait_until(
        "status names the wrong clock",
        lambda: [clock for clock in cluster.status()["timestamps"]["clocks"] if clock["ahead_ms"] > 500_000],
        20,
    )
    assert len(shown) == 1, shown

    # The SQL node dies amid the commits of many clients, each to two regions, and the leader with it.
    commits = [0] * clients

    def change(client: int) -> None:
        try:
            with cluster.connect() as connection, connection.cursor() as cursor:
                while True:
                    cursor.execute(f"UPDATE ahead.t SET v = v + 1 WHERE id IN ({client}, {rows - 1 - client})")
                    commits[client] += 1
        except pymysql.err.MySQLError:
            pass

    threads = [threading.Thread(target=change, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    wait_until("every client commits", lambda: min(commits) >= 3, 60)
    cluster.kill_node("sql")
    cluster.kill_node(wrong)
    for thread in threads:
        thread.join(60)
    cluster.run("sql", "+0")
    # What they had locked is free within a few times the life of a lock, which is three seconds.
    began = time.monotonic()
    read, write = "SELECT SUM(v) FROM ahead.t", "UPDATE ahead.t SET v = v + 2"
    total = wait_until("rows that a dead SQL node has locked can be read", lambda: cluster.sql(read), 45)[0][0]
    assert total % 2 == 0 and total >= 2 * sum(commits), f"{total} after {sum(commits)} commits"
    wait_until("they can be written", lambda: cluster.sql(write) is not None, 30)
    print(f"free after {time.monotonic() - began:.1f} s")
    # Time goes on under the successor.
    one, began = physical_ms(cluster), time.monotonic()
    wait_until("time goes on", lambda: physical_ms(cluster) >= one + 1_000, 15)
    assert physical_ms(cluster) - one < 1_000 * (time.monotonic() - began) + 10_000
    cluster.run(wrong, "+0")
    cluster.wait_healthy(60)
