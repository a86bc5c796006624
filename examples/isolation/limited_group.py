"""What a batch that reads rows does to online latency: by itself, and in a resource group with a low rate, beside no batch.

In each round all three run, in turn, on one server of its own; what is compared is the ratio of percentiles of a round. It
must never measure a server that it did not start.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path += [str(EXAMPLES / "quickstart"), str(EXAMPLES / "sysbench")]
from metering import interval  # noqa: E402
from playground import Playground  # noqa: E402

QUERY = "scan:SELECT COUNT(*), SUM(LENGTH(c)) FROM sbtest1"
ARMS = ["alone", "limited", "unlimited"]
QUIET = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Bench:
    """A server, its online load, and a batch by one of two users."""

    def __init__(self, options: argparse.Namespace, playground: Playground, folder: Path):
        self.options, self.port, self.folder = options, playground.mysql_port, folder

    def target(self, user: str) -> str:
        return f"mysql://{user}@127.0.0.1:{self.port}/bench"

    def sql(self, *statements: str) -> list[str]:
        client = ["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{self.port}", "-uroot", "-N", "-e", ";".join(statements)]
        return subprocess.run(client, check=True, capture_output=True, text=True, timeout=60).stdout.split()

    def online(self, seconds: float, *more: str) -> dict:
        options, shown = self.options, self.folder / "online.json"
        command = [options.isobar, "bench", "online", "--target", self.target("root"), "--workload", options.workload]
        command += ["--tables", "4", "--rows", str(options.rows), "--threads", "16", "--rate", str(options.rate)]
        command += ["--time", str(seconds), "--json", shown, *more]
        subprocess.run(command, check=True, timeout=seconds + 300, **QUIET)
        return json.loads(shown.read_text())["phase"] or {}

    @contextmanager
    def batch(self, user: str | None) -> Iterator[None]:
        """Queries of a user, again and again."""
        if user is None:
            yield
            return
        command = [self.options.isobar, "bench", "batch", "--target", self.target(user), "--engine", "rows"]
        process = subprocess.Popen([*command, "--query", QUERY, "--time", "3600"], **QUIET)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    def used(self) -> int:
        return int(self.sql("SELECT ru FROM information_schema.resource_group_usage WHERE name = 'batch'")[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--isobar", type=Path, required=True, help="the binary")
    add("--workload", default="single-row", help="of bench online (single-row)")
    add("--rate", type=int, default=500, help="transactions a second (500)")
    add("--limit", type=int, default=50, help="RU_PER_SEC of the batch's group (50)")
    add("--rows", type=int, default=25_000, help="rows in each of four tables (25000)")
    add("--seconds", type=int, default=8, help="length of each run (8)")
    add("--rounds", type=int, default=8, help="rounds, at least 2 (8)")
    add("--no-unlimited", action="store_true", help="leave the batch without a limit out")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds below 2 show nothing about how well a ratio is known")
    arms = [arm for arm in ARMS if arm != "unlimited" or not options.no_unlimited]
    found: dict[str, list[dict]] = {arm: [] for arm in arms}
    with tempfile.TemporaryDirectory(prefix="isobar-limited-") as folder:
        with Playground(options.isobar, Path(folder) / "data", row=1, columnar=0, sql=1) as playground:
            bench = Bench(options, playground, Path(folder))
            bench.sql("CREATE DATABASE bench")
            bench.online(0, "--prepare", "--no-check")
            bench.sql(
                f"CREATE RESOURCE GROUP batch RU_PER_SEC = {options.limit} PRIORITY = LOW",
                "CREATE USER limited RESOURCE GROUP batch",
                "CREATE USER unlimited",
                "GRANT SELECT ON bench.* TO limited, unlimited",
            )
            bench.online(options.seconds, "--no-check")
            for turn in range(options.rounds):
                for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
                    before = bench.used()
                    with bench.batch(None if arm == "alone" else arm):
                        latency = bench.online(options.seconds, "--no-check", "--warmup", "1")["latency_ms"]
                    found[arm].append(latency)
                    used = (bench.used() - before) / options.seconds
                    shown = ", ".join(f"{name} {latency[name]:.2f}" for name in ("p50", "p95", "p99"))
                    print(f"round {turn + 1}, {arm}: {shown} ms, the group used {used:.0f} RU/s", file=sys.stderr, flush=True)
    print(f"{options.workload}, {options.rate} transactions a second, {options.rounds} rounds of {options.seconds} s; ms, and")
    print("the ratio to no batch with its 95 % interval:\n\n| batch on rows | p50 | p95 | p99 |\n|---|---|---|---|")
    for arm in arms:
        cells = []
        for name in ("p50", "p95", "p99"):
            cell = f"{statistics.median(run[name] for run in found[arm]):.2f}"
            if arm != "alone":
                ratio, half = interval([run[name] / base[name] for run, base in zip(found[arm], found["alone"])])
                cell += "" if math.isnan(ratio) else f", {ratio:.2f} ± {100 * half:.0f} %"
            cells.append(cell)
        print(f"| {arm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
