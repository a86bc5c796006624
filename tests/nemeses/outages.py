"""How long queries on columns have no answer when a columnar node dies, hangs, or loses its disk.

    python tests/nemeses/outages.py --isobar target/debug/isobar --fault kill --rounds 5

A table has two columnar replicas, on nodes in network namespaces of their own, and a few sessions ask for an aggregate of
it, one query after the other. Each round a columnar node is killed (`kill`), stopped (`pause`), or killed and started with
an empty disk (`empty`). Printed, of each round: the longest time without any answer, the slowest query, the time until
queries are answered at 90 % of their rate before, errors by number, and the time until both replicas hold data again. Every
answer is compared with the right one: a wrong one ends the run with code 1. Needs root.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

import pymysql  # noqa: E402

from harness import wait_until  # noqa: E402
from hosts import Hosts, may_make_namespaces  # noqa: E402

STEP = 5_000  # rows of one INSERT
CALM = 8.0  # seconds of queries before a fault: their rate is what later ones are measured by
HELD = 20.0  # seconds that a node stays away
WINDOW = 1.0  # seconds over which a rate is taken
REPLICAS = 240.0  # most seconds until both replicas are back


class Readers:
    """Sessions that run the same query again and again, and when each answer or error came."""

    def __init__(self, cluster: Hosts, query: str, right: list[tuple], sessions: int):
        self.cluster, self.query, self.right = cluster, query, right
        self.answers: list[tuple[float, float]] = []  # when it came, how long it took
        self.errors: list[tuple[float, int]] = []
        self.texts: set[str] = set()
        self.wrong: list[object] = []
        self.end = threading.Event()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(sessions)]

    def __enter__(self) -> Readers:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        for thread in self.threads:
            thread.join(70)

    def run(self) -> None:
        connection = None
        while not self.end.is_set():
            began = time.monotonic()
            try:
                if connection is None:
                    connection = self.cluster.connect_to("sql-1", read_timeout=60)
                with connection.cursor() as cursor:
                    cursor.execute(self.query)
                    answer = list(cursor.fetchall())
            except (pymysql.err.MySQLError, OSError) as error:
                self.errors.append((time.monotonic(), error.args[0] if error.args else 0))
                self.texts.add(str(error))
                if isinstance(error, OSError) or error.args[0] in (2006, 2013):
                    connection = None
                continue
            now = time.monotonic()
            self.answers.append((now, now - began))
            if answer != self.right:
                self.wrong.append(answer)

    def rate(self, begin: float, end: float) -> float:
        return sum(begin <= at < end for at, _ in list(self.answers)) / (end - begin)

    def gap(self, begin: float, end: float) -> float:
        """The longest time without any answer."""
        times = [begin, *sorted(at for at, _ in list(self.answers) if begin <= at < end), end]
        return max(later - at for at, later in zip(times, times[1:]))

    def recovered(self, begin: float, end: float, wanted: float) -> float | None:
        """Seconds from `begin` until a window has the wanted rate."""
        at = begin
        while at + WINDOW <= end:
            if self.rate(at, at + WINDOW) >= wanted:
                return at + WINDOW - begin
            at += 0.1
        return None


def round_of(cluster: Hosts, readers: Readers, fault: str, victim: str) -> str:
    """One fault, and a line of what came of it."""
    time.sleep(CALM)
    began = time.monotonic()
    before = readers.rate(began - CALM, began)
    old = number_of(cluster, victim)
    if fault == "pause":
        cluster.pause(victim)
    elif fault == "empty":
        cluster.empty(victim)
        cluster.run(victim)
    else:
        cluster.kill(victim)
    returned = time.monotonic()
    if fault != "empty":
        time.sleep(HELD)
        returned = time.monotonic()
        cluster.heal()
    both = lambda: (fault != "empty" or number_of(cluster, victim) != old) and ready(cluster) >= 2  # noqa: E731
    wait_until("both replicas hold data", both, REPLICAS)
    again = time.monotonic() - returned
    time.sleep(max(0.0, began + HELD - time.monotonic()))
    ended = time.monotonic()
    during = [took for at, took in list(readers.answers) if at >= began]
    errors = Counter(number for at, number in list(readers.errors) if at >= began)
    to_90 = readers.recovered(began, ended, 0.9 * before)
    return (
        f"{fault} {victim}: without an answer {readers.gap(began, min(ended, began + HELD)):.2f} s; slowest query {max(during, default=0):.2f} s; "
        f"90 % of {before:.0f} queries/s after {'more than ' + format(HELD, '.0f') if to_90 is None else format(to_90, '.1f')} s; "
        f"errors {dict(errors) or 'none'}; both replicas {again:.1f} s after its return"
    )


def number_of(cluster: Hosts, name: str) -> int:
    """The number of the node at a node's address."""
    numbers = [node["id"] for node in cluster.status()["nodes"] if node["rpc_address"].startswith(f"{cluster.address[name]}:")]
    assert len(numbers) == 1, numbers
    return numbers[0]


def ready(cluster: Hosts) -> int:
    """Replicas that every region of the table has."""
    rows = cluster.sql(
        "SELECT ready_learners FROM information_schema.regions WHERE table_schema = 'outages' AND index_name IS NULL"
    )
    known = {str(node["id"]) for node in cluster.status()["nodes"] if node["up"]}
    return min(sum(node in known for node in row[0].split(",")) for row in rows)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the program")
    options.add_argument("--fault", choices=("kill", "pause", "empty"), default="kill")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--sessions", type=int, default=4)
    given = options.parse_args()
    if not may_make_namespaces():
        print("network namespaces cannot be made: run this as root", file=sys.stderr)
        return 2
    with TemporaryDirectory(prefix="isobar-outages-") as folder:
        cluster = Hosts(given.isobar.resolve(), Path(folder), number=77, sql=1).start()
        try:
            return measure(cluster, given)
        finally:
            cluster.stop()


def measure(cluster: Hosts, given: argparse.Namespace) -> int:
    cluster.sql("CREATE DATABASE outages", "CREATE TABLE outages.t (id INT PRIMARY KEY, n INT NOT NULL)")
    for start in range(0, given.rows, STEP):
        values = ",".join(f"({n},{n % 7})" for n in range(start, min(start + STEP, given.rows)))
        cluster.sql(f"INSERT INTO outages.t VALUES {values}")
    cluster.sql("SPLIT TABLE outages.t REGIONS 4", "ALTER TABLE outages.t SET COLUMNAR REPLICA 2")
    wait_until("both replicas hold data", lambda: ready(cluster) >= 2, REPLICAS)
    query = "SELECT n, COUNT(*), SUM(id) FROM outages.t GROUP BY n ORDER BY n"
    right = cluster.read("tikv", query)
    with Readers(cluster, query, right, given.sessions) as readers:
        for number in range(given.rounds):
            print(round_of(cluster, readers, given.fault, f"columnar-{number % 2 + 1}"), flush=True)
    print(f"{len(readers.answers)} answers, {len(readers.wrong)} of them wrong, {len(readers.errors)} errors", *sorted(readers.texts), sep="\n  ")
    return 1 if readers.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
