"""sysbench's OLTP mixes on Isobar, at one and at three row replicas, beside MariaDB: queries a second, 95th percentile,
processor time a transaction, and syncs a commit. Every server syncs its log before it answers a COMMIT.

It must never measure a server that it did not start, nor count syncs in a run whose times it shows: the tracer slows
what it counts.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quickstart"))
from playground import Playground, free_port_base  # noqa: E402

WORKLOADS = ["oltp_point_select", "oltp_read_only", "oltp_write_only", "oltp_read_write"]
WRITING = ["oltp_write_only", "oltp_read_write"]
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server with a database `sb`: `port`, and the process whose descendants do its work."""

    def __init__(self, name: str, port: int, process: int):
        self.name, self.port, self.process = name, port, process

    def processor_seconds(self) -> dict[str, float]:
        """Processor time of each of its processes, by name."""
        spent: dict[str, float] = {}
        for process in [self.process, *descendants(self.process)]:
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            except OSError:
                continue
            configs = [Path(word).parent.name for word in words if word.endswith(".toml")]
            name = re.sub(r"-\d+$", "s", configs[0]) if configs else Path(words[0]).name
            spent[name] = spent.get(name, 0) + (int(fields[11]) + int(fields[12])) / TICK
        return spent


def descendants(process: int) -> list[int]:
    """Processes below this one."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def traced(program: str, folder: Path, trace: Path | None) -> Path:
    """The program, or a script that runs it under a tracer of its syncs and of nothing else."""
    if trace is None:
        return Path(program)
    script = folder / f"traced-{Path(program).name}"
    words = f"strace -D -f --seccomp-bpf -e trace=fsync,fdatasync -e signal=none -ttt -o {trace}"
    script.write_text(f'#!/bin/sh\nexec {words} {program} "$@"\n')
    script.chmod(0o755)
    return script


def isobar(
    stack: ExitStack, options: argparse.Namespace, folder: Path, trace: Path | None, replicas: int, sql: int
) -> Server:
    """A playground with this many row nodes, each with a replica of every region, and no columns. Without a SQL node the
    first row node answers the clients."""
    program = traced(str(options.isobar), folder, trace)
    playground = stack.enter_context(Playground(program, folder / "data", row=replicas, columnar=0, sql=sql))
    plural, shape = "s" if replicas > 1 else "", "" if sql else ", rows and SQL together"
    return Server(f"Isobar, {replicas} replica{plural}{shape}", playground.mysql_port, playground.process.pid)


def mariadb(stack: ExitStack, options: argparse.Namespace, folder: Path, trace: Path | None) -> Server:
    """A MariaDB that syncs at every commit, with room for all the data in memory."""
    port = free_port_base()
    data = [f"--datadir={folder}/data", "--user=root"]
    install = ["mariadb-install-db", "--no-defaults", *data, "--skip-test-db", "--auth-root-authentication-method=normal"]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    words = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/s", f"--pid-file={folder}/pid"]
    words += ["--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1G", "--skip-log-bin"]
    program = traced(shutil.which("mariadbd") or "/usr/sbin/mariadbd", folder, trace)
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen([program, "--no-defaults", *data, *words], **quiet)
    stack.callback(end, process)
    return Server("MariaDB", port, process.pid)


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def sysbench(server: Server, options: argparse.Namespace, script: str, step: str, threads: int, seconds: int) -> str:
    """Output of one step of a sysbench script."""
    words = ["sysbench", script, "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}"]
    words += ["--mysql-user=root", "--mysql-db=sb", f"--tables={options.tables}", f"--table-size={options.rows}"]
    words += [f"--threads={threads}", f"--time={seconds}", "--rand-seed=7", step]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 300)
    if done.returncode != 0:
        raise SystemExit(f"sysbench {script} {step} at {server.name}: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return done.stdout


def prepare(server: Server, options: argparse.Namespace) -> None:
    """Makes the database, once the server answers, and fills its tables."""
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{server.port}", "-uroot", "-e", "CREATE DATABASE sb"]
    deadline = time.monotonic() + 60
    while (done := subprocess.run(client, capture_output=True, text=True, timeout=60)).returncode != 0:
        if time.monotonic() > deadline:
            raise SystemExit(f"{server.name} does not answer: {done.stderr}")
        time.sleep(0.2)
    sysbench(server, options, "oltp_read_write", "prepare", min(4, options.tables), 0)


def timed(server: Server, options: argparse.Namespace, workload: str, threads: int) -> dict:
    """One run whose times are shown."""
    sysbench(server, options, workload, "run", threads, 2)
    before = server.processor_seconds()
    out = sysbench(server, options, workload, "run", threads, options.seconds)
    spent = {name: seconds - before.get(name, 0) for name, seconds in server.processor_seconds().items()}
    transactions = int(re.search(r"transactions:\s+(\d+)", out)[1])
    busy = {name: round(1e3 * seconds / max(transactions, 1), 3) for name, seconds in spent.items() if seconds > 0.05}
    return {
        "server": server.name, "workload": workload, "threads": threads, "transactions": transactions,
        "qps": float(re.search(r"queries:\s+\d+\s+\(([\d.]+)", out)[1]),
        "p95_ms": float(re.search(r"95th percentile:\s+([\d.]+)", out)[1]),
        "errors": int(re.search(r"ignored errors:\s+(\d+)", out)[1]), "cpu_ms_a_transaction": busy,
    }  # fmt: skip


def synced(server: Server, options: argparse.Namespace, trace: Path, workload: str, threads: int) -> dict:
    """Syncs of the server's files for each transaction of a run that is not timed."""
    began = time.time()
    out = sysbench(server, options, workload, "run", threads, 4)
    ended = time.time()
    times = (float(line.split()[1]) for line in trace.read_text().splitlines() if "sync(" in line)
    transactions = int(re.search(r"transactions:\s+(\d+)", out)[1])
    syncs = sum(began <= at <= ended for at in times)
    return {
        "server": server.name, "workload": workload, "threads": threads,
        "syncs_a_commit": round(syncs / max(transactions, 1), 3),
    }  # fmt: skip


def measure(start, options: argparse.Namespace) -> list[dict]:
    """All measurements of one server: a server for the times, then one under the tracer for the syncs."""
    found = []
    for tracing in (False,) if options.no_syncs else (False, True):
        with tempfile.TemporaryDirectory(prefix="isobar-sysbench-") as name, ExitStack() as stack:
            folder = Path(name)
            trace = folder / "syncs" if tracing else None
            server = start(stack, options, folder, trace)
            prepare(server, options)
            for workload in WRITING if tracing else WORKLOADS:
                for threads in options.threads:
                    run = synced(server, options, trace, workload, threads) if tracing else timed(
                        server, options, workload, threads
                    )
                    found.append(run)
                    print(json.dumps(run), file=sys.stderr)
    return found


def show(found: list[dict], options: argparse.Namespace) -> None:
    """A table of every workload and number of threads, servers beside each other."""
    servers = list(dict.fromkeys(run["server"] for run in found))
    print("| workload | threads | " + " | ".join(f"{name}: QPS, p95 ms, syncs/commit" for name in servers) + " |")
    print("|---|---|" + "---|" * len(servers))
    for workload in WORKLOADS:
        for threads in options.threads:
            cells = []
            for name in servers:
                run: dict = {}
                for other in found:
                    if (other["server"], other["workload"], other["threads"]) == (name, workload, threads):
                        run |= other
                syncs = f", {run['syncs_a_commit']:.2f}" if "syncs_a_commit" in run else ""
                cells.append(f"{run['qps']:,.0f}, {run['p95_ms']:.1f}{syncs}")
            print(f"| {workload.removeprefix('oltp_')} | {threads} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isobar", type=Path, required=True, help="the binary")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8, 32], help="connections (1 8 32)")
    parser.add_argument("--seconds", type=int, default=10, help="length of each timed run (10)")
    parser.add_argument("--tables", type=int, default=4, help="tables (4)")
    parser.add_argument("--rows", type=int, default=25_000, help="rows in each (25000)")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    parser.add_argument("--no-syncs", action="store_true", help="leave out the counted runs")
    options = parser.parse_args()
    for tool in ("sysbench", "mariadb", "mariadb-install-db", "strace"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed: apt-get install sysbench mariadb-client mariadb-server strace")
    found = measure(mariadb, options)
    for replicas in (1, 3):
        for sql in (1, 0):
            shape = dict(replicas=replicas, sql=sql)
            found += measure(lambda *given, shape=shape: isobar(*given, **shape), options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    show(found, options)


if __name__ == "__main__":
    main()
