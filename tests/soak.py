"""Runs the random tests in turn for as long as one wants, each time from seeds that it has not used, and sums up.

    make soak HOURS=8

In turn: the seeds of the Rust tests (ten times as many as usual), whole clusters in simulated time, random queries, and
nemeses. What fails is printed with
the command that shows it again, and the rest goes on; the exit code is 1 if anything failed. Ctrl-C ends it after the
summary. It must never call a run good that was cut short: that one is left out of the counts.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
SEEDED = ["isobar-raft --test simulation", "isobar-txn", "isobar-columnar histories", "isobar-equivalence"]


def commands(turn: int, isobar: Path, results: Path) -> list[str]:
    """The commands of one turn: a shell line each, which shows the same failure when it is run again."""
    python, program = shlex.quote(sys.executable), shlex.quote(str(isobar))
    first = turn * 10_000
    seeded = [f"ISOBAR_SOAK=10 ISOBAR_FIRST_SEED={first} cargo test --locked -p {tests}" for tests in SEEDED]
    simulated = "cargo run --locked -p isobar-simulation --features clock --"
    clusters = f"{simulated} --seeds 100 --from {first} --keep-going"
    random = f"{python} tests/differential/compare.py --isobar {program} --seed {first} --queries 5000"
    rounds = f"{python} tests/nemeses/rounds.py --isobar {program} --seed {first} --rounds 12"
    return [*seeded, clusters, f"{random} --out {shlex.quote(str(results))}/queries-{turn}", rounds]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--hours", type=float, default=1.0, help="how long, in hours")
    options.add_argument("--results", type=Path, default=Path("soak"), help="folder for logs and scripts of differences")
    given = options.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    began, counts, failed = time.monotonic(), Counter(), []
    seconds = given.hours * 3600
    turn = int(time.time()) // 60  # seeds that an earlier run has not used
    try:
        with tqdm(total=round(seconds), unit="s", bar_format="{l_bar}{bar}| {elapsed}{postfix}") as bar:
            while time.monotonic() - began < seconds:
                for at, command in enumerate(commands(turn, given.isobar.resolve(), given.results.resolve())):
                    left = seconds - (time.monotonic() - began)
                    if left <= 0:
                        break
                    log = given.results / f"{turn}-{at}.log"
                    with log.open("w", encoding="utf-8") as output:
                        try:
                            code = subprocess.run(
                                ["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                timeout=left,
                            ).returncode
                        except subprocess.TimeoutExpired:
                            break
                    counts["runs"] += 1
                    if code != 0:
                        failed.append(command)
                        bar.write(f"failed ({log}): {command}")
                    bar.n = min(round(time.monotonic() - began), round(seconds))
                    bar.set_postfix(runs=counts["runs"], failed=len(failed))
                turn += 1
    except KeyboardInterrupt:
        print("interrupted")
    print(f"{counts['runs']} runs, {len(failed)} failed, logs in {given.results}")
    for command in failed:
        print(f"  {command}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
