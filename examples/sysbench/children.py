"""What a foreign key costs an INSERT into its child, on Isobar and beside it on MariaDB.

Each round runs both servers with and without the key, by turns; what is compared are ratios of one round. Every server
syncs its log before it answers. It must never measure a server that it did not start.
"""

import argparse
import re
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from compare import PEER, SHAPES, Server, create, isobar, mariadb

SCRIPT = Path(__file__).with_name("children.lua")


def sysbench(server: Server, step: str, keyed: bool, threads: int, seconds: int) -> str:
    words = ["sysbench", SCRIPT, "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}"]
    words += ["--mysql-user=root", "--mysql-db=sb", f"--keyed={'on' if keyed else 'off'}"]
    server.runs += 1
    words += [f"--threads={threads}", f"--time={seconds}", f"--rand-seed={server.runs}", step]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 120)
    if done.returncode != 0:
        raise SystemExit(f"sysbench {step} at {server.name}: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return done.stdout


def inserts(server: Server, keyed: bool, options: argparse.Namespace) -> float:
    """Inserts a second."""
    out = sysbench(server, "run", keyed, options.threads, options.seconds)
    return float(re.search(r"transactions:\s+\d+\s+\(([\d.]+)", out)[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--shape", default="1 replica", choices=list(SHAPES), metavar="SHAPE", help=f"of Isobar: {'; '.join(SHAPES)}")
    add("--threads", type=int, default=8, help="connections (8)")
    add("--seconds", type=int, default=5, help="length of each run (5)")
    add("--rounds", type=int, default=7, help="rounds (7)")
    options = parser.parse_args()
    found: dict[tuple[str, bool], list[float]] = {}
    with ExitStack() as stack:
        servers = []
        for name, begin in ((PEER, mariadb), (options.shape, isobar)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isobar-children-")))
            server = begin(stack, options, folder, None, name)
            create(server, "sb")
            sysbench(server, "prepare", True, 1, 0)
            sysbench(server, "run", True, options.threads, 2)
            servers.append(server)
        for turn in range(options.rounds):
            for server in servers[turn % 2 :] + servers[: turn % 2]:
                for keyed in (True, False) if turn % 4 < 2 else (False, True):
                    found.setdefault((server.name, keyed), []).append(inserts(server, keyed, options))
    print(f"inserts a second, {options.threads} connections, medians of {options.rounds} rounds of {options.seconds} s:\n")
    print("| server | with the key | without | ratio in a round |\n|---|---|---|---|")
    for server in servers:
        keyed, loose = found[server.name, True], found[server.name, False]
        ratio = statistics.median(one / other for one, other in zip(keyed, loose))
        print(f"| {server.name} | {statistics.median(keyed):,.0f} | {statistics.median(loose):,.0f} | {ratio:.2f} |")
    pairs = zip(found[options.shape, True], found[PEER, True])
    print(f"\nwith the key, {options.shape} to {PEER}: {statistics.median(one / other for one, other in pairs):.2f}")


if __name__ == "__main__":
    main()
