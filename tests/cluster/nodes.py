"""A cluster whose nodes are processes of the test itself: nobody starts them again, and their directories can be changed
between two starts.

Every node listens on loopback. Only processes that were started here are ended, by their number.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from harness import Cluster, wait_until


class Nodes(Cluster):
    """Row, columnar and SQL nodes without a supervisor."""

    def __init__(self, isobar: Path, data: Path, row: int = 3, columnar: int = 1, sql: int = 1):
        super().__init__(isobar, data, row=row, columnar=columnar, sql=sql)
        rows = {f"row-{at}": 19 + at for at in range(1, row + 1)}
        columns = {f"columnar-{at}": 29 + at for at in range(1, columnar + 1)}
        self.ports = {**rows, **columns, **({"sql": 19} if sql else {})}
        self.nodes: dict[str, subprocess.Popen] = {}

    def names(self) -> list[str]:
        return sorted(self.ports)

    def pids(self) -> dict[str, int]:
        return {name: node.pid for name, node in self.nodes.items() if node.poll() is None}

    def running(self) -> bool:
        return bool(self.pids())

    def logs(self) -> list[Path]:
        return sorted(self.data.glob("*.log"))

    def log(self, name: str) -> str:
        path = self.data / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.port_base + self.ports[name]}"

    def start(self, *names: str) -> "Nodes":
        """Starts every node, or those named, and waits until all of the cluster are healthy if all are meant."""
        try:
            for name in names or self.ports:
                self.run(name)
            if not names:
                self.wait_healthy(90)
        except BaseException:
            self.stop()
            raise
        return self

    def settings(self, name: str, folder: Path, port: int) -> str:
        role = name.split("-")[0]
        lines = [f'role = "{role}"', f'data_dir = "{folder}"', f'rpc_address = "127.0.0.1:{port}"']
        if role == "row":
            lines += [f"node_id = {name.split('-')[1]}", f'raft_log_dir = "{self.log_dir(folder)}"']
        if role == "sql":
            lines.append(f'mysql_address = "127.0.0.1:{self.mysql_port}"')
        if role == "columnar":
            lines.append(f'flight_address = "{self.flight[int(name.split("-")[1]) - 1]}"')
        members = ", ".join(f'{{ id = {at}, address = "{address}" }}' for at, address in enumerate(self.placement, 1))
        return "\n".join([*lines, f"placement = [{members}]", ""])

    @staticmethod
    def log_dir(folder: Path) -> Path:
        """Row nodes keep their Raft log on a disk of its own."""
        return folder.with_name(folder.name + "-raft")

    def run(self, name: str, folder: Path | None = None, port: int | None = None) -> subprocess.Popen:
        """Starts a node's process, or one of a copy of its directories at another address."""
        as_itself = folder is None
        folder = folder or self.data / name
        folder.mkdir(parents=True, exist_ok=True)
        path = self.data / f"{folder.name}.toml"
        path.write_text(self.settings(name, folder, port or self.port_base + self.ports[name]))
        command = [self.isobar, "serve", "--config", path, "--parent", str(os.getpid())]
        with open(self.data / f"{folder.name}.log", "a") as log:
            node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.nodes[name if as_itself else folder.name] = node
        return node

    def kill(self, name: str) -> int:
        node = self.nodes[name]
        node.kill()
        node.wait(20)
        return node.pid

    def empty(self, name: str, data: bool = True, log: bool = True) -> None:
        """Takes everything from the disks of a node that does not run."""
        assert self.nodes[name].poll() is not None
        folder = self.data / name
        for lost in [folder] * data + [self.log_dir(folder)] * log:
            shutil.rmtree(lost, ignore_errors=True)

    def ended(self, name: str, seconds: float = 40) -> str:
        """Waits until a node ends by itself; what it said."""
        wait_until(f"{name} ends", lambda: self.nodes[name].poll() is not None, seconds)
        assert self.nodes[name].returncode not in (0, -signal.SIGKILL)
        return self.log(name)

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.poll() is None:
                node.send_signal(signal.SIGCONT)
                node.send_signal(signal.SIGTERM)
        for node in self.nodes.values():
            try:
                node.wait(15)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()

    def row_ids(self) -> dict[str, int]:
        """Numbers of the row nodes that are known now, by name."""
        found = {node["rpc_address"]: node["id"] for node in self.status()["nodes"]}
        return {name: found[self.address(name)] for name in self.ports if name[:3] == "row" and self.address(name) in found}
