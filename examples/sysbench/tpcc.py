"""TPC-C on Isobar, at one and at three row replicas, beside MariaDB: orders a minute, and the 95th percentile of a transaction.

All servers are up and run by turns, as in compare.py; after each run TPC-C's conditions are checked, and a run after which
they do not hold ends all. It must never measure a server that it did not start.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from compare import PEER, PEER_SETTINGS, SHAPES, Server, create, isobar, mariadb, median_of


def tpcc(server: Server, options: argparse.Namespace, *more: str) -> dict:
    """One run; without a time, the tables alone."""
    with tempfile.NamedTemporaryFile(suffix=".json") as shown:
        command = [options.isobar, "bench", "online", "--target", f"mysql://root@127.0.0.1:{server.port}/tpcc"]
        command += ["--workload", "tpcc", "--warehouses", str(options.warehouses), "--threads", str(options.threads)]
        done = subprocess.run([*command, "--json", shown.name, *more], capture_output=True, text=True, timeout=1_800)
        if done.returncode:
            raise SystemExit(f"TPC-C at {server.name}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return json.loads(Path(shown.name).read_text())


def measured(server: Server, options: argparse.Namespace, turn: int) -> dict:
    # Its seed is its own: what an earlier run has written already would not be written again.
    phase = tpcc(server, options, "--time", str(options.seconds), "--seed", str(turn + 2))["phase"]
    return {
        "server": server.name,
        "round": turn,
        "tpm": 60 * phase["kinds"]["new-order"]["transactions"] / phase["seconds"],
        "p95_ms": phase["latency_ms"]["p95"],
        "errors": sum(phase["errors"].values()),
    }


def measure(options: argparse.Namespace) -> list[dict]:
    """All runs, each shown when it has ended."""
    found = []
    with ExitStack() as stack:
        servers = []
        for name in options.servers:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isobar-tpcc-")))
            begin = mariadb if name == PEER else isobar
            servers.append(begin(stack, options, folder, None, name))
            create(servers[-1], "tpcc")
            tpcc(servers[-1], options, "--prepare", "--time", "0")
        for turn in range(options.rounds):
            for server in servers[turn % len(servers) :] + servers[: turn % len(servers)]:
                found.append(measured(server, options, turn))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--warehouses", type=int, default=2, help="of TPC-C (2)")
    add("--threads", type=int, default=8, help="connections (8)")
    add("--seconds", type=int, default=30, help="length of each run (30)")
    add("--rounds", type=int, default=3, help="runs of each server (3)")
    usual = [PEER, *SHAPES]
    add("--servers", nargs="+", default=usual, choices=usual, metavar="SERVER", help="which, compared with the first")
    options = parser.parse_args()
    found = measure(options)
    print(f"{PEER}: {' '.join(['--log-bin', *PEER_SETTINGS])}; {options.warehouses} warehouses, {options.threads} connections,")
    print(f"medians of {options.rounds} rounds of {options.seconds} s; its conditions held after each:\n")
    print("| server | tpmC | ratio | p95 ms | errors |\n|---|---|---|---|---|")
    first = [run["tpm"] for run in found if run["server"] == options.servers[0]]
    for name in options.servers:
        runs = [run for run in found if run["server"] == name]
        ratio = statistics.median(run["tpm"] / base for run, base in zip(runs, first))
        errors = sum(run["errors"] for run in runs)
        print(f"| {name} | {median_of(runs, 'tpm'):,.0f} | {ratio:.2f} | {median_of(runs, 'p95_ms'):.1f} | {errors} |")


if __name__ == "__main__":
    main()
