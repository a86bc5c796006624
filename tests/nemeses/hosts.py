"""A cluster whose nodes each live in a network namespace of their own, on a bridge that only they and the test are on.

Links between nodes are cut by routes that swallow packets, in one direction or both. It needs the right to make
namespaces (root), touches none that it did not make, and leaves none behind.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pymysql
from pymysql.connections import Connection

import disk
from harness import Cluster, wait_until

LIBFAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
RPC, MYSQL, FLIGHT = 4020, 4000, 4040


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True, timeout=20)


def may_make_namespaces() -> bool:
    name = f"isobar-probe-{os.getpid()}"
    made = shutil.which("ip") and ip("netns", "add", name, check=False).returncode == 0
    if made:
        ip("netns", "delete", name)
    return bool(made)


class Hosts(Cluster):
    """Row, columnar and SQL nodes, each a process on a host of its own. `number` keeps clusters of one machine apart."""

    def __init__(self, isobar: Path, data: Path, number: int = 0, row: int = 3, columnar: int = 2, sql: int = 2):
        super().__init__(isobar, data, port_base=1, row=row, columnar=columnar, sql=sql)
        roles = [("row", row), ("columnar", columnar), ("sql", sql)]
        self.roles = {f"{role}-{at}": role for role, count in roles for at in range(1, count + 1)}
        self.address = {name: f"10.213.{number}.{at}" for at, name in enumerate(self.roles, 10)}
        self.bridge, self.gateway = f"isobar{number}", f"10.213.{number}.1"
        self.nodes: dict[str, subprocess.Popen] = {}
        self.paused: set[str] = set()
        self.copies: dict[str, Path] = {}
        self.running_copies: list[subprocess.Popen] = []

    # What the harness asks of a playground.
    @property
    def mysql_port(self) -> int:
        return MYSQL

    @property
    def host(self) -> str:
        return self.address["sql-1"]

    @property
    def flight(self) -> list[str]:
        return [f"{self.address[name]}:{FLIGHT}" for name, role in self.roles.items() if role == "columnar"]

    @property
    def placement(self) -> list[str]:
        return [f"{self.address[f'row-{at}']}:{RPC}" for at in range(1, min(self.row, 3) + 1)]

    def names(self) -> list[str]:
        return sorted(self.roles)

    def pids(self) -> dict[str, int]:
        return {name: node.pid for name, node in self.nodes.items() if node.poll() is None}

    def connect_to(self, name: str, **more) -> Connection:
        """A session of one SQL node; every wait of it is bounded."""
        options = dict(user="root", autocommit=True, connect_timeout=5, read_timeout=30, write_timeout=30)
        return pymysql.connect(host=self.address[name], port=MYSQL, **{**options, **more})

    def start(self) -> "Hosts":
        self.remove_network()
        self.preloaded = [str(library) for library in (LIBFAKETIME, disk.build(self.data)) if library]
        try:
            ip("link", "add", self.bridge, "type", "bridge")
            ip("addr", "add", f"{self.gateway}/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for at, (name, role) in enumerate(self.roles.items()):
                self.plug_in(at, name)
                self.lay_out(name, role)
                self.run(name)
            wait_until("the test's account is made", self.admit, 90)
            self.wait_healthy(90)
        except BaseException:
            self.stop()
            raise
        return self

    def admit(self) -> bool:
        """Lets this network in: at first, root is let in from its node's loopback alone."""
        program = (
            "import pymysql; c = pymysql.connect(host='127.0.0.1', port=%d, user='root', connect_timeout=5).cursor();"
            "c.execute(\"CREATE USER IF NOT EXISTS 'root'@'%%'\");"
            "c.execute(\"GRANT ALL PRIVILEGES ON *.* TO 'root'@'%%' WITH GRANT OPTION\")" % MYSQL
        )
        command = ["ip", "netns", "exec", self.space("sql-1"), sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, timeout=20).returncode == 0

    def space(self, name: str) -> str:
        return f"{self.bridge}-{name}"

    def plug_in(self, at: int, name: str) -> None:
        """A namespace with one end of a cable, the other end on the bridge."""
        space, cable = self.space(name), f"{self.bridge}v{at}"
        ip("netns", "add", space)
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", cable, "master", self.bridge, "up")
        ip("-n", space, "addr", "add", f"{self.address[name]}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")

    def lay_out(self, name: str, role: str) -> None:
        folder = self.data / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f'role = "{role}"', f'data_dir = "{folder}"', f'rpc_address = "{self.address[name]}:{RPC}"']
        if role == "row":
            lines.append(f"node_id = {name.split('-')[1]}")
        if role == "sql":
            lines.append(f'mysql_address = "0.0.0.0:{MYSQL}"')
        if role == "columnar":
            lines.append(f'flight_address = "{self.address[name]}:{FLIGHT}"')
        members = ", ".join(f'{{ id = {at}, address = "{address}" }}' for at, address in enumerate(self.placement, 1))
        (folder / "isobar.toml").write_text("\n".join([*lines, f"placement = [{members}]", ""]))
        self.set_clock(name, "+0")

    def run(self, name: str) -> None:
        """Starts a node's process."""
        self.nodes[name] = self.spawn(name, self.data / name)

    def spawn(self, name: str, folder: Path) -> subprocess.Popen:
        """A process on a node's host, under a clock that can be set, on a disk that can lose what is not synced."""
        environment = {**os.environ, "LD_PRELOAD": ":".join(self.preloaded)}
        environment |= disk.environment(folder, self.data / f"{folder.name}.disk")
        if LIBFAKETIME:
            environment |= {
                "FAKETIME_TIMESTAMP_FILE": str(self.data / f"{name}.time"),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        command = [self.isobar, "serve", "--config", folder / "isobar.toml", "--parent", str(os.getpid())]
        with open(self.data / f"{folder.name}.log", "a") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.space(name), *command],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )

    def disk(self, name: str) -> Path:
        """The folder of what a node has written and not synced."""
        return self.data / f"{name}.disk"

    def logs(self) -> list[Path]:
        return sorted(self.data.glob("*.log"))

    # What can be done to it.
    def set_clock(self, name: str, offset: str) -> None:
        """Sets a node's wall clock so many seconds off; it notices within a second."""
        path = self.data / f"{name}.time"
        path.with_suffix(".new").write_text(offset + "\n")
        path.with_suffix(".new").rename(path)

    def kill(self, name: str) -> int:
        node = self.nodes[name]
        node.kill()
        node.wait(20)
        return node.pid

    def pause(self, name: str) -> None:
        self.nodes[name].send_signal(signal.SIGSTOP)
        self.paused.add(name)

    def empty(self, name: str) -> None:
        """Kills a node and takes everything from its disk but its settings."""
        self.kill(name)
        for path in (self.data / name).iterdir():
            if path.name != "isobar.toml":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.disk(name))

    def copy(self, name: str) -> Path:
        """Kills a node, copies its directory, and starts it again; where the copy is."""
        self.kill(name)
        copy = self.data / f"{name}-copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data / name, copy)
        self.run(name)
        return copy

    def put_back_later(self, name: str) -> None:
        """`heal` will put a copy of now in the place of what the node has by then."""
        self.copies[name] = self.copy(name)

    def run_copy(self, name: str) -> None:
        """Starts a second process from a copy of a node's directory, at another port of the same host."""
        log = self.data / f"{name}.log"
        seen = log.stat().st_size
        copy = self.copy(name)
        # Whoever comes first is the node: this must be the original.
        wait_until(f"{name} is back", lambda: b"is listening" in log.read_bytes()[seen:], 60)
        settings = (copy / "isobar.toml").read_text()
        own = f'rpc_address = "{self.address[name]}:{RPC}"'
        settings = settings.replace(own, own.replace(str(RPC), str(RPC + 1))).replace(f"{self.data / name}", f"{copy}")
        (copy / "isobar.toml").write_text(settings)
        self.running_copies.append(self.spawn(name, copy))

    def refused(self, process: subprocess.Popen, what: str) -> None:
        """Waits until a process has ended by itself, with an error."""
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"{what} was not refused") from None
        assert code > 0, f"{what} ended with {code}"

    def refuse_copies(self) -> None:
        """Nothing that runs on a copy may take part; who was replaced by one begins anew, as the refusal says."""
        running, self.running_copies = self.running_copies, []
        for process in running:
            self.refused(process, "a copy beside the original")
        copies, self.copies = self.copies, {}
        for name, copy in copies.items():
            self.kill(name)
            shutil.rmtree(self.data / name)
            copy.rename(self.data / name)
            shutil.rmtree(self.disk(name))
            self.run(name)
            self.refused(self.nodes[name], f"an older copy of {name}")
            self.empty(name)

    def lose_power(self, name: str, chance: random.Random) -> str:
        """Kills a node, and takes from its disk what was not synced."""
        self.kill(name)
        return disk.lose(self.data / name, self.disk(name), chance)

    def set_disk(self, name: str, state: str) -> None:
        """Makes a node's disk `full` or `slow`."""
        (self.disk(name) / state).touch()

    def cut(self, one: str, other: str) -> None:
        """What `one` sends to `other` is lost from now on; the other direction stays."""
        ip("-n", self.space(one), "route", "replace", "blackhole", f"{self.address[other]}/32")

    def isolate(self, name: str) -> None:
        for other in self.roles:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def heal(self) -> None:
        """Links, clocks, disks and processes as at first."""
        self.refuse_copies()
        for name in self.roles:
            ip("-n", self.space(name), "route", "flush", "type", "blackhole", check=False)
            self.set_clock(name, "+0")
            for state in ("full", "slow"):
                (self.disk(name) / state).unlink(missing_ok=True)
            if name in self.paused:
                self.nodes[name].send_signal(signal.SIGCONT)
            if self.nodes[name].poll() is not None:
                self.run(name)
        self.paused.clear()

    def leader_of_most(self) -> str:
        """The row node that leads most regions."""
        status = self.status()
        counts = Counter(region["leader"] for region in status["regions"] if region["leader"])
        hosts = {node["id"]: node["rpc_address"].split(":")[0] for node in status["nodes"]}
        best = hosts[counts.most_common(1)[0][0]]
        return next(name for name, address in self.address.items() if address == best)

    def stop(self) -> None:
        for name in self.paused:
            self.nodes[name].send_signal(signal.SIGCONT)
        processes = [*self.nodes.values(), *self.running_copies]
        for node in processes:
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        for node in processes:
            try:
                node.wait(15)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self.remove_network()

    def remove_network(self) -> None:
        for name in self.roles:
            ip("netns", "delete", self.space(name), check=False)
        ip("link", "delete", self.bridge, check=False)

    def running(self) -> bool:
        return bool(self.pids())

    def wait_replicas(self, *tables: str, seconds: float = 120) -> None:
        for table in tables:
            wait_until(f"{table} has columns", lambda: (self.replica(table) or {}).get("available"), seconds)
