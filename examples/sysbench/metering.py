"""What resource control costs: sysbench's point_select on one server with it and without, by turns, and how well that is known:
queries a second, and the server's processor time a query, which knows less of what else the machine does.

In each round both run, in the order in which they did not run in the round before: what makes a machine slower for a while is
in both. It must never measure a server that it did not start.
"""

import argparse
import math
import re
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from compare import SHAPES, Server, start, sysbench

# Of Student's distribution, two-sided 95 %, by degrees of freedom; beyond, that of the normal one.
STUDENT = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09]


class Run(NamedTuple):
    """Queries a second, and microseconds of a processor that one costs."""

    rate: float
    cost: float


def run(server: Server, options: argparse.Namespace, control: str) -> Run:
    client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{server.port}", "-uroot", "-e"]
    switch = f"SET GLOBAL tidb_enable_resource_control = {control}"
    subprocess.run([*client, switch], check=True, timeout=60)
    before = sum(server.processor_seconds().values())
    out = sysbench(server, options, options.workload, "run", options.threads, options.seconds)
    spent = sum(server.processor_seconds().values()) - before
    count, rate = re.search(r"queries:\s+(\d+)\s+\(([\d.]+)", out).groups()
    return Run(float(rate), 1e6 * spent / int(count))


def interval(ratios: list[float]) -> tuple[float, float]:
    """The geometric mean of ratios, and the half-width of its 95 % interval as a part of it."""
    logs = [math.log(ratio) for ratio in ratios]
    freedom = len(logs) - 1
    student = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.mean(logs)), math.exp(half) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--workload", default="oltp_point_select", help="of sysbench (oltp_point_select)")
    add("--server", default="1 replica", choices=[*SHAPES], help="which (1 replica)")
    add("--threads", type=int, default=8, help="connections (8)")
    add("--seconds", type=int, default=5, help="length of each run (5)")
    add("--rounds", type=int, default=20, help="pairs of runs, at least 2 (20)")
    add("--tables", type=int, default=4, help="tables (4)")
    add("--rows", type=int, default=10_000, help="rows in each (10000)")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds below 2 show nothing about how well the ratio is known")
    pairs = []
    with ExitStack() as stack:
        server, _ = start(stack, options, options.server, trace=False)
        run(server, options, "ON")
        for turn in range(options.rounds):
            order = ["ON", "OFF"] if turn % 2 else ["OFF", "ON"]
            found = {control: run(server, options, control) for control in order}
            pairs.append((found["ON"], found["OFF"]))
            shown = ", ".join(f"{control} {of.rate:,.0f} and {of.cost:.1f} µs" for control, of in found.items())
            print(f"round {turn + 1}: {shown}", file=sys.stderr, flush=True)
    print(f"{options.workload}, {options.threads} connections, {options.rounds} rounds of {options.seconds} s: with resource control / without")
    for what, of in [("queries a second", lambda run: run.rate), ("processor time a query", lambda run: run.cost)]:
        ratio, half = interval([of(on) / of(off) for on, off in pairs])
        print(f"{what}: {ratio:.3f} ± {100 * half:.1f} % (95 %)")


if __name__ == "__main__":
    main()
