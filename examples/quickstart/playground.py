"""A playground as a child process: started on free ports, watched, and stopped whatever happens.

It must never leave a process behind, nor touch one that it did not start.
"""

import ctypes
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

START_TIMEOUT = 120.0
STOP_TIMEOUT = 30.0
OFFSETS = [0, 1, 18, 19, *range(20, 23), *range(30, 33), *range(40, 43)]
READY = "Ctrl-C stops everything."


class PlaygroundError(Exception):
    """The playground did not do what was asked; the text says what and shows the end of its logs."""


def free_port_base() -> int:
    """A base whose ports are all free now, below the range that outgoing connections use."""
    for _ in range(200):
        base = random.randrange(10_000, 30_000, 100)
        if all(is_free(base + offset) for offset in OFFSETS):
            return base
    raise PlaygroundError("no hundred free ports between 10000 and 30000")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _end_with_parent() -> None:
    """Asks Linux to end this process when the one that started it is gone."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Playground:
    """One running cluster. `data` is kept: whoever made it removes it."""

    def __init__(
        self, isobar: Path, data: Path, port_base: int | None = None, row: int = 3, columnar: int = 2, sql: int = 1
    ):
        self.isobar = Path(isobar)
        self.data = Path(data)
        self.port_base = port_base or free_port_base()
        self.row = row
        self.columnar = columnar
        self.sql_nodes = sql
        self.process: subprocess.Popen | None = None
        self.output: deque[str] = deque(maxlen=200)
        self._ready = threading.Event()
        self._ended = threading.Event()

    @property
    def mysql_port(self) -> int:
        return self.port_base

    @property
    def flight(self) -> list[str]:
        """Addresses of the Flight servers."""
        return [f"127.0.0.1:{self.port_base + 40 + n}" for n in range(self.columnar)]

    @property
    def placement(self) -> list[str]:
        """Internal addresses of the row nodes that form placement."""
        return [f"127.0.0.1:{self.port_base + 20 + n}" for n in range(min(self.row, 3))]

    def start(self) -> "Playground":
        """Starts it and waits until it says that it is healthy."""
        command = [self.isobar, "playground", "--data", self.data, "--port-base", str(self.port_base)]
        command += ["--row", str(self.row), "--columnar", str(self.columnar), "--sql", str(self.sql_nodes)]
        self._ready.clear()
        self._ended.clear()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        threading.Thread(target=self._drain, args=(self.process,), daemon=True).start()
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready.wait(0.05):
            if self._ended.is_set() or time.monotonic() > deadline:
                self.stop()
                raise PlaygroundError(f"the playground did not come up:\n{self.story()}")
        return self

    def _drain(self, process: subprocess.Popen) -> None:
        for line in process.stdout:
            self.output.append(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r⠀-⣿]", "", line).rstrip())
            if READY in line:
                self._ready.set()
        self._ended.set()

    def running(self) -> bool:
        """Whether the supervising process is alive."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Stops everything; a node that does not obey is killed with its supervisor."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._ended.wait(5)

    def logs(self) -> list[Path]:
        """The nodes' log files."""
        return sorted(self.data.glob("*/isobar.log"))

    def story(self, lines: int = 12) -> str:
        """What the playground printed, and the end of each log, for a failure's report."""
        parts = ["\n".join(self.output)]
        for path in self.logs():
            tail = path.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {path.relative_to(self.data)}", *tail]))
        return "\n".join(part for part in parts if part)

    def __enter__(self) -> "Playground":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
