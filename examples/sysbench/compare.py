"""sysbench's OLTP mixes on Isobar, at one and at three row replicas, beside MariaDB: queries a second, 95th percentile,
processor time a transaction, syncs and Raft entries a commit. Every server syncs its log before it answers a COMMIT.

Times are taken by turns, since the speed of a machine changes: all servers are up, in each round each of them runs once,
and what is compared is the ratio of a round. It must never measure a server that it did not start, nor count syncs in a
run whose times it shows: the tracer slows what it counts.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quickstart"))
from playground import Playground, free_port_base  # noqa: E402

WORKLOADS = ["oltp_point_select", "oltp_read_only", "oltp_write_only", "oltp_read_write"]
WRITING = ["oltp_write_only", "oltp_read_write"]
PEER = "MariaDB"
PEER_SETTINGS = [
    "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1", "--innodb-buffer-pool-size=1G", "--binlog-format=ROW"
]  # fmt: skip
# Row nodes, and SQL nodes of their own; without these the first row node answers the clients. Then regions of a table that
# nobody uses.
SHAPES = {"1 replica": (1, 0, 0), "1 replica, SQL apart": (1, 1, 0), "3 replicas": (3, 0, 0)}
MANY = {f"{name}, 1,000 regions": (*SHAPES[name][:2], 1_000) for name in ("1 replica", "3 replicas")}
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server with a database `sb`: `port`, and the process whose descendants do its work; `entries` counts those of its
    Raft logs, `runs` those of sysbench."""

    def __init__(self, name: str, port: int, process: int, entries: Callable[[], int] | None = None):
        self.name, self.port, self.process, self.entries = name, port, process, entries
        self.runs = 0

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


def isobar(stack: ExitStack, options: argparse.Namespace, folder: Path, trace: Path | None, name: str) -> Server:
    """A playground of a shape, each of its row nodes with a replica of every region, and no columns."""
    row, sql, _ = (SHAPES | MANY)[name]
    program = traced(str(options.isobar), folder, trace)
    playground = stack.enter_context(Playground(program, folder / "data", row=row, columnar=0, sql=sql))
    status = [options.isobar, "ctl", "status", "--json", "--placement", f"127.0.0.1:{playground.port_base + 20}"]

    def reported() -> int:
        shown = subprocess.run(status, check=True, capture_output=True, text=True, timeout=60)
        regions = json.loads(shown.stdout)["regions"]
        return sum(max((peer["applied"] for peer in region["peers"]), default=0) for region in regions)

    return Server(name, playground.mysql_port, playground.process.pid, lambda: settled(reported))


def settled(count: Callable[[], int]) -> int:
    """A count that nodes report once a second, when it has stopped growing."""
    last, now = -1, count()
    deadline = time.monotonic() + 10
    while last < now and time.monotonic() < deadline:
        time.sleep(1.2)
        last, now = now, count()
    return now


def mariadb(stack: ExitStack, options: argparse.Namespace, folder: Path, trace: Path | None, name: str) -> Server:
    """A MariaDB that syncs its log and its binary log at every commit, with room for all the data in memory."""
    port = free_port_base()
    folder.mkdir(parents=True, exist_ok=True)
    data = [f"--datadir={folder}/data", "--user=root"]
    install = ["mariadb-install-db", "--no-defaults", *data, "--skip-test-db", "--auth-root-authentication-method=normal"]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    words = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder}/s", f"--pid-file={folder}/pid"]
    words += [f"--log-bin={folder}/binlog", *PEER_SETTINGS]
    program = traced(shutil.which("mariadbd") or "/usr/sbin/mariadbd", folder, trace)
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen([program, "--no-defaults", *data, *words], **quiet)
    stack.callback(end, process)
    return Server(name, port, process.pid)


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
    # What an earlier run has written already would not be written again.
    server.runs += 1
    words += [f"--threads={threads}", f"--time={seconds}", f"--rand-seed={server.runs}", step]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 300)
    if done.returncode != 0:
        raise SystemExit(f"sysbench {script} {step} at {server.name}: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return done.stdout


def create(server: Server, database: str) -> list[str]:
    """Makes a database, once the server answers; a client's command but for the statements."""
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{server.port}", "-uroot", "-e"]
    deadline = time.monotonic() + 60
    statement = f"CREATE DATABASE {database}"
    while (done := subprocess.run([*client, statement], capture_output=True, text=True, timeout=60)).returncode:
        if time.monotonic() > deadline:
            raise SystemExit(f"{server.name} does not answer: {done.stderr}")
        time.sleep(0.2)
    return client


def prepare(server: Server, options: argparse.Namespace) -> None:
    """Makes the database and fills its tables."""
    client = create(server, "sb")
    sysbench(server, options, "oltp_read_write", "prepare", min(4, options.tables), 0)
    if regions := (SHAPES | MANY).get(server.name, (0, 0, 0))[2]:
        rows = ",".join(f"({row})" for row in range(8 * regions))
        idle = f"CREATE TABLE sb.idle (id BIGINT PRIMARY KEY); INSERT INTO sb.idle VALUES {rows};"
        idle += f"SPLIT TABLE sb.idle REGIONS {regions}; SHOW WARNINGS"
        done = subprocess.run([*client, idle], capture_output=True, text=True, timeout=600)
        if done.returncode or done.stdout:
            raise SystemExit(f"{server.name} has no {regions:,} regions: {done.stdout}{done.stderr}")


def timed(server: Server, options: argparse.Namespace, workload: str, threads: int) -> dict:
    """One run whose times are shown."""
    sysbench(server, options, workload, "run", threads, 2)
    before, entries = server.processor_seconds(), server.entries and server.entries()
    out = sysbench(server, options, workload, "run", threads, options.seconds)
    spent = {name: seconds - before.get(name, 0) for name, seconds in server.processor_seconds().items()}
    transactions = max(int(re.search(r"transactions:\s+(\d+)", out)[1]), 1)
    busy = {name: round(1e6 * seconds / transactions, 1) for name, seconds in spent.items() if seconds > 0.05}
    run = {
        "server": server.name, "workload": workload, "threads": threads, "transactions": transactions,
        "qps": float(re.search(r"queries:\s+\d+\s+\(([\d.]+)", out)[1]),
        "p95_ms": float(re.search(r"95th percentile:\s+([\d.]+)", out)[1]),
        "errors": int(re.search(r"ignored errors:\s+(\d+)", out)[1]), "cpu_us_a_transaction": busy,
    }  # fmt: skip
    if server.entries:
        run["entries_a_transaction"] = round((server.entries() - entries) / transactions, 3)
    return run


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


def start(stack: ExitStack, options: argparse.Namespace, name: str, trace: bool) -> tuple[Server, Path]:
    """A server with its data, and where its syncs are noted, if they are."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isobar-sysbench-")))
    begin = mariadb if name == PEER else isobar
    server = begin(stack, options, folder, folder / "syncs" if trace else None, name)
    prepare(server, options)
    return server, folder / "syncs"


def measure(options: argparse.Namespace) -> list[dict]:
    """All runs, each shown when it has ended."""
    found = []

    def note(run: dict) -> None:
        found.append(run)
        print(json.dumps(run), file=sys.stderr, flush=True)

    with ExitStack() as stack:
        servers = [start(stack, options, name, trace=False)[0] for name in options.servers]
        for threads in options.threads:
            for workload in options.workloads:
                for turn in range(options.rounds):
                    # Nobody always comes behind the same one.
                    for server in servers[turn % len(servers) :] + servers[: turn % len(servers)]:
                        note(timed(server, options, workload, threads) | {"round": turn})
    for name in [] if options.no_syncs else options.servers:
        with ExitStack() as stack:
            server, trace = start(stack, options, name, trace=True)
            for threads in options.threads:
                for workload in WRITING:
                    note(synced(server, options, trace, workload, threads))
    return found


def median_of(runs: list[dict], value: str) -> float:
    return statistics.median(run[value] for run in runs)


def cell(runs: list[dict], peers: dict[int, dict]) -> str:
    """What the runs of one server show: medians, and the median of the ratios to its peer's run of the same round."""
    timed = [run for run in runs if "qps" in run]
    shown = [f"{median_of(timed, 'qps'):,.0f}", f"{median_of(timed, 'p95_ms'):.1f}"]
    others = [run for run in timed if run["round"] in peers and run is not peers[run["round"]]]
    ratios = [run["qps"] / peers[run["round"]]["qps"] for run in others]
    shown.append(f"{statistics.median(ratios):.2f}" if ratios else "-")
    shown.append(f"{statistics.median(sum(run['cpu_us_a_transaction'].values()) for run in timed):,.0f}")
    for counted in ("syncs_a_commit", "entries_a_transaction"):
        values = [run[counted] for run in runs if counted in run]
        shown.append(f"{statistics.median(values):.2f}" if values else "-")
    return ", ".join(shown)


def show(found: list[dict], options: argparse.Namespace) -> None:
    """A table of every workload and number of threads, servers beside each other."""
    print(f"{PEER}: {' '.join(['--log-bin', *PEER_SETTINGS])}; {options.tables} tables of {options.rows} rows; medians of")
    first = options.servers[0]
    print(f"{options.rounds} rounds of {options.seconds} s. QPS, p95 ms, ratio of QPS to {first}'s in the same round, us of")
    print("processor a transaction, syncs and Raft entries a transaction:\n")
    print("| workload | threads | " + " | ".join(options.servers) + " |")
    print("|---|---|" + "---|" * len(options.servers))
    for threads in options.threads:
        for workload in options.workloads:
            runs = [run for run in found if (run["workload"], run["threads"]) == (workload, threads)]
            peers = {run["round"]: run for run in runs if run["server"] == first and "round" in run}
            cells = [cell([run for run in runs if run["server"] == name], peers) for name in options.servers]
            print(f"| {workload.removeprefix('oltp_')} | {threads} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--threads", type=int, nargs="+", default=[1, 8, 32], help="connections (1 8 32)")
    add("--seconds", type=int, default=20, help="length of each timed run (20)")
    add("--rounds", type=int, default=3, help="timed runs of each server (3)")
    add("--tables", type=int, default=4, help="tables (4)")
    add("--rows", type=int, default=10_000, help="rows in each (10000)")
    add("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS, metavar="MIX", help="of sysbench (all four)")
    usual = [PEER, *SHAPES]
    named = f"which, compared with the first ({'; '.join(usual)}); also {'; '.join(MANY)}"
    add("--servers", nargs="+", default=usual, choices=[*usual, *MANY], metavar="SERVER", help=named)
    add("--json", type=Path, help="where to keep the results")
    add("--no-syncs", action="store_true", help="leave out the counted runs")
    options = parser.parse_args()
    for tool in ("sysbench", "mariadb", "mariadb-install-db", "strace"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed: apt-get install sysbench mariadb-client mariadb-server strace")
    found = measure(options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    show(found, options)


if __name__ == "__main__":
    main()
