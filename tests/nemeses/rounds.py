"""Runs workloads while nodes fail, one fault a round, and judges what clients saw.

    make nemeses ROUNDS=20 SEED=1

A round: a workload on tables of its own; after some seconds a fault, held, undone; the cluster healthy again within a
bound; the workload's judgement. Choices come from the seed; when what happens is the machine's. The exit code is 1 if a
round has an anomaly, loses an acknowledged commit, or does not get healthy. Needs root, for network namespaces.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

from tqdm import tqdm  # noqa: E402

from faults import FAULTS  # noqa: E402
from harness import wait_until  # noqa: E402
from hosts import Hosts, may_make_namespaces  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

CALM, RECOVERY = 2.0, 2.0  # seconds of work before a fault and after it
HEALTHY = 180.0  # most seconds until every node and replica is back


@dataclass
class Round:
    """What one round showed. Times are in seconds."""

    number: int
    seed: int
    workload: str
    fault: str
    victim: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)
    outage: float = 0.0
    recovery: float = 0.0
    wrong: list[str] = field(default_factory=list)


def play(cluster: Hosts, number: int, seed: int, workload: str, fault: str) -> Round:
    chance = random.Random(seed * 1_000_003 + number)
    result = Round(number, seed, workload, fault)
    work = WORKLOADS[workload](cluster, f"w{number}", seed + number)
    work.open()
    began = time.monotonic()
    work.start()
    try:
        time.sleep(CALM)
        result.victim = FAULTS[fault](cluster, chance)
        time.sleep(chance.uniform(3, 8))
        healed = time.monotonic()
        try:
            cluster.heal()
            cluster.wait_healthy(HEALTHY)
            # An emptied row node is a new one: the next fault must not be a second one of the same three.
            wait_until("every region has three voters", cluster.is_whole, HEALTHY)
            cluster.wait_replicas(*(f"{work.database}.{table}" for table in work.tables), seconds=HEALTHY)
        except AssertionError as error:
            result.wrong.append(f"not healthy: {error}")
        result.recovery = time.monotonic() - healed
        time.sleep(RECOVERY)
    finally:
        work.stop()
    result.outage = work.outage(began, time.monotonic())
    result.outcomes = work.counts
    try:
        result.wrong += work.judge()
    except Exception as error:  # noqa: BLE001: whatever keeps the judge from reading is a finding
        result.wrong.append(f"not readable afterwards: {error!r}")
    cluster.sql(f"DROP DATABASE {work.database}")
    return result


def table(rounds: list[Round]) -> str:
    """Anomalies, lost commits and the longest outage, by fault."""
    lines = ["| fault | rounds | operations | anomalies | longest outage, s | longest recovery, s |", "|---|---|---|---|---|---|"]
    by: dict[str, list[Round]] = defaultdict(list)
    for one in rounds:
        by[one.fault].append(one)
    for fault, ones in by.items():
        operations = sum(sum(one.outcomes.values()) for one in ones)
        wrong = sum(bool(one.wrong) for one in ones)
        worst, slow = max(one.outage for one in ones), max(one.recovery for one in ones)
        lines.append(f"| {fault} | {len(ones)} | {operations} | {wrong} | {worst:.1f} | {slow:.1f} |")
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--rounds", type=int, default=20, help="how many rounds")
    options.add_argument("--seed", type=int, default=1, help="what all choices come from")
    options.add_argument("--fault", action="append", choices=list(FAULTS), help="only this fault; may be repeated")
    options.add_argument("--workload", action="append", choices=list(WORKLOADS), help="only this workload; may be repeated")
    options.add_argument("--json", type=Path, help="file for a line of each round")
    options.add_argument("--keep", type=Path, help="folder for the cluster's data, which is kept")
    given = options.parse_args()
    if not may_make_namespaces():
        raise SystemExit("this needs the right to make network namespaces: run it as root, with iproute2 installed")
    chance = random.Random(given.seed)
    faults, works = given.fault or list(FAULTS), given.workload or list(WORKLOADS)
    rounds: list[Round] = []
    with TemporaryDirectory(prefix="isobar-nemeses-") as folder:
        cluster = Hosts(given.isobar, given.keep or Path(folder), number=given.seed % 200)
        with cluster, tqdm(total=given.rounds, unit="round", disable=None) as bar:
            for number in range(given.rounds):
                one = play(cluster, number, given.seed, works[number % len(works)], faults[chance.randrange(len(faults))])
                rounds.append(one)
                if given.json:
                    with given.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(one)) + "\n")
                for line in one.wrong:
                    bar.write(f"round {number}, {one.workload}, {one.fault} ({one.victim}): {line[:300]}")
                bar.update()
                bar.set_postfix(wrong=sum(bool(one.wrong) for one in rounds), refresh=False)
    print(table(rounds))
    return 1 if any(one.wrong for one in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
