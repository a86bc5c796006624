"""Runs random queries on rows, on columns on one node and on three, and on MariaDB, and makes what differs small.

    make differential QUERIES=10000 SEED=1

Several queries are run at once, each worker over connections and tables of its own; a seed's queries are the same
whoever runs them. Every difference is written as a script with the tables that show it; a difference that `known.toml`
explains, with the page of MySQL's manual that states the rule, is counted and left out. The exit code is 1 if any other
is left, or a server's connection ended. SIGINT and SIGTERM end the run with its summary.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

from answers import Answer, Known, Lost, Reader, known  # noqa: E402
from grammar import Grammar, Query, Table  # noqa: E402
from harness import Cluster  # noqa: E402
from mariadb_server import MariaDb  # noqa: E402
from scripts import library_words  # noqa: E402
from test_scripts import LIKE_ISOBAR  # noqa: E402

PER_SCHEMA = 100
WORKERS = 8
MARIADB = "mariadb"
THREE = "columns on three"
# A table of so many rows is cut into regions, so that three nodes have a part of it each.
MANY_ROWS = 5
# Regions of dropped tables are kept so long, for readers of the past. There are none here, and a thousand regions idle at the
# cost of half the queries.
HISTORY = "SET GLOBAL tidb_gc_life_time = '30s'"


@dataclass
class Findings:
    """What all workers found, and whether they are to stop."""

    out: Path
    known: list[Known] = field(default_factory=known)
    counts: Counter = field(default_factory=Counter)
    shapes: set[str] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, *names: str) -> None:
        with self.lock:
            self.counts.update(names)

    def is_new(self, shape: str) -> int | None:
        """The number of a difference that was not found before."""
        with self.lock:
            if shape in self.shapes:
                return None
            self.shapes.add(shape)
            return len(self.shapes)

    def line(self, seconds: float) -> str:
        with self.lock:
            queries = self.counts["queries"]
            names = ("answered", f"run on {MARIADB}", "known", "wrong only once", "connections lost")
            counts = {name: self.counts[name] for name in names}
            return (
                f"{queries} queries, {queries / max(seconds, 0.001):.1f}/s, {len(self.shapes)} different; "
                + ", ".join(f"{count} {name}" for name, count in counts.items())
            )


class Worker:
    """One database, and a session of each server in it."""

    def __init__(self, number: int, servers: Servers, findings: Findings, shares: dict[str, float]):
        self.database, self.clusters, self.findings, self.shares = f"d{number}", servers.clusters, findings, shares
        self.readers = {reader.name: reader for reader in servers.readers()}

    def run(self, seeds: deque[tuple[int, int]]) -> None:
        """Takes seeds, each with how many of its queries are due, until there are none."""
        try:
            while seeds and not self.findings.stop.is_set():
                try:
                    seed, count = seeds.popleft()
                except IndexError:
                    return
                self.run_all(seed, count)
        except BaseException:
            stopped = self.findings.stop.is_set()
            self.findings.stop.set()
            # Whoever stopped the run may have stopped the servers, too.
            if not stopped:
                self.findings.count("workers failed")
                raise

    def run_all(self, seed: int, count: int) -> None:
        grammar = Grammar(seed)
        tables = grammar.tables()
        self.define(tables)
        chance = random.Random(seed)
        for _ in range(count):
            query = grammar.query(tables)
            names = [name for name in self.readers if chance.random() < self.shares.get(name, 1)]
            if self.findings.stop.is_set():
                return
            try:
                self.judge(query, names, tables, seed)
            except Lost as lost:
                if not self.findings.stop.is_set():
                    self.reconnect(lost, seed, query)

    def define(self, tables: list[Table]) -> None:
        """The tables, everywhere. Rows and columns of the first cluster are one set of tables."""
        for reader in self.readers.values():
            if reader.name == "columns":
                continue
            reader.run(f"DROP DATABASE IF EXISTS {self.database}")
            reader.run(f"CREATE DATABASE {self.database} {reader.collation}")
            reader.run(f"USE {self.database}")
            for statement in (statement for table in tables for statement in table.create()):
                answer = reader.run(statement)
                if answer.error:
                    raise AssertionError(f"{reader.name} refused {statement}: {answer}")
        self.readers["columns"].run(f"USE {self.database}")
        names = [f"{self.database}.{table.name}" for table in tables]
        for name, table in zip(names, tables):
            if len(table.rows) >= MANY_ROWS:
                self.readers[THREE].run(f"SPLIT TABLE {name} REGIONS 3")
        for cluster in self.clusters:
            cluster.sql(*(f"ALTER TABLE {name} SET COLUMNAR REPLICA 1" for name in names))
        for cluster in self.clusters:
            for name in names:
                cluster.wait_available(name)

    def reconnect(self, lost: Lost, seed: int, query: Query) -> None:
        self.findings.count("connections lost")
        number = self.findings.counts["connections lost"]
        (self.findings.out / f"lost_{number:04}.txt").write_text(f"{lost}\nseed {seed}\n{query}\n", encoding="utf-8")
        for reader in self.readers.values():
            reader.open()
            reader.run(f"USE {self.database}")

    def answers(self, query: Query, names: list[str]) -> dict[str, Answer]:
        return {name: self.readers[name].run(str(query), query.ordered) for name in names}

    def wrong(self, query: Query, answers: dict[str, Answer]) -> str | None:
        """What is wrong with the answers: nothing, a fault, or who differs from rows."""
        for name, answer in answers.items():
            if name != MARIADB and answer.error and library_words(answer.text):
                return f"fault on {name}"
        rows = answers["rows"]
        for name, answer in answers.items():
            if not answer.same(rows):
                if any(known.explains(str(query), name, answer, rows) for known in self.findings.known):
                    self.findings.count("known")
                else:
                    return "MariaDB differs" if name == MARIADB else f"{name} differs from rows"
        return None

    def judge(self, query: Query, names: list[str], tables: list[Table], seed: int) -> None:
        answers = self.answers(query, names)
        wrong = self.wrong(query, answers)
        ran = [f"run on {name}" for name in self.shares if name in names]
        self.findings.count("queries", *["answered"] * (not answers["rows"].error), *ran)
        if not wrong:
            return
        if self.wrong(query, self.answers(query, names)) != wrong:
            self.note_once(query, answers, wrong, seed)
            return
        small = self.shrink(query, wrong)
        self.findings.count(wrong)
        number = self.findings.is_new(f"{wrong}: {re.sub(r'[abs][0-9]?[.][a-z][0-9]+', 'c', str(small))}")
        if number is not None:
            self.note(small, tables, wrong, seed, number)

    def shrink(self, query: Query, wrong: str) -> Query:
        """The smallest query that is wrong in the same way; bounded, for each step asks the readers again."""
        names = [name for name in self.readers if name != MARIADB or wrong == "MariaDB differs"]
        for _ in range(60):
            for less in query.smaller():
                if self.findings.stop.is_set():
                    return query
                if self.wrong(less, self.answers(less, names)) == wrong:
                    query = less
                    break
            else:
                return query
        return query

    def note_once(self, query: Query, answers: dict[str, Answer], wrong: str, seed: int) -> None:
        """What was wrong once and is not any more: a node that did not answer in time, or a race."""
        self.findings.count("wrong only once")
        shown = "\n".join(f"{name}: {answer}" for name, answer in answers.items())
        path = self.findings.out / f"once_{self.findings.counts['wrong only once']:04}.txt"
        path.write_text(f"{wrong}; seed {seed}\n{query}\n{shown}\n", encoding="utf-8")

    def note(self, query: Query, tables: list[Table], wrong: str, seed: int, number: int) -> None:
        answers = self.answers(query, list(self.readers))
        shown = (f"# {name}: {answer}".replace("\n", " ") for name, answer in answers.items())
        lines = [f"# {wrong}; seed {seed}", *shown, ""]
        for table in tables:
            if re.search(rf"\b{table.name}\b", str(query)):
                lines += [line for statement in table.create() for line in ("statement ok", statement, "")]
        lines += ["query T" + ("" if query.ordered else " rowsort"), str(query), ""]
        path = self.findings.out / f"{wrong.replace(' ', '_')}_{number:04}.slt"
        path.write_text("\n".join(lines), encoding="utf-8")


class Servers:
    """Two clusters and MariaDB, for as long as it is entered."""

    def __init__(self, isobar: Path, folder: Path):
        self.maria = MariaDb("/usr/sbin/mariadbd", folder)
        self.one = Cluster(isobar, folder / "one", row=1, columnar=1)
        self.three = Cluster(isobar, folder / "three", row=1, columnar=3)
        self.clusters = (self.one, self.three)

    def __enter__(self) -> Servers:
        try:
            self.one.__enter__()
            try:
                self.three.__enter__()
            except BaseException:
                self.one.__exit__(*sys.exc_info())
                raise
        except BaseException:
            self.maria.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            try:
                self.three.__exit__(*error)
            finally:
                self.one.__exit__(*error)
        finally:
            self.maria.stop()

    def readers(self) -> list[Reader]:
        columns = ["SET isobar_read_engines = 'columns'", "SET time_zone = '+00:00'"]
        return [
            Reader("rows", self.one.connect, ["SET isobar_read_engines = 'rows'", "SET time_zone = '+00:00'"]),
            Reader("columns", self.one.connect, columns),
            Reader(THREE, self.three.connect, columns),
            Reader(MARIADB, self.maria.connect, LIKE_ISOBAR, "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"),
        ]


def watch(threads: list[threading.Thread], findings: Findings, seconds: float | None) -> None:
    """Shows how far the workers are until they are done, or the time is up."""
    begun = shown = time.monotonic()
    terminal = sys.stderr.isatty()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(0.2) if threads[0].is_alive() else time.sleep(0.2)
        now = time.monotonic()
        if seconds is not None and now - begun > seconds:
            findings.stop.set()
        if now - shown >= (1 if terminal else 30):
            print(findings.line(now - begun), end="\r" if terminal else "\n", file=sys.stderr, flush=True)
            shown = now
    print(findings.line(time.monotonic() - begun), file=sys.stderr, flush=True)


def compare(servers: Servers, findings: Findings, given: argparse.Namespace) -> None:
    """Runs so many queries from a seed on."""
    for cluster in servers.clusters:
        cluster.sql(HISTORY)
    counts = [min(PER_SCHEMA, given.queries - first) for first in range(0, given.queries, PER_SCHEMA)]
    seeds = deque((given.seed + at, count) for at, count in enumerate(counts))
    shares = {MARIADB: given.mariadb, THREE: given.three}
    workers = [Worker(number, servers, findings, shares) for number in range(min(given.workers, len(seeds)))]
    threads = [threading.Thread(target=worker.run, args=(seeds,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    watch(threads, findings, given.seconds)


def stop_by_signal(findings: Findings) -> None:
    """The first signal ends the run with its summary, a second one ends the process."""

    def on_signal(number: int, _: object) -> None:
        if findings.stop.is_set():
            raise SystemExit(128 + number)
        findings.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--seed", type=int, default=1, help="the first seed; each makes a schema and a hundred queries")
    options.add_argument("--queries", type=int, default=10_000, help="how many queries to run")
    options.add_argument("--seconds", type=float, help="how long to run at most")
    options.add_argument("--workers", type=int, default=WORKERS, help="how many queries to run at once")
    options.add_argument("--mariadb", type=float, default=1.0, metavar="SHARE", help="share of queries run on MariaDB, too")
    options.add_argument("--three", type=float, default=1.0, metavar="SHARE", help="share of queries run on three nodes, too")
    options.add_argument("--out", type=Path, default=Path("differences"), help="folder for a script of each difference")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    findings = Findings(given.out)
    with TemporaryDirectory(prefix="isobar-differential-") as folder, Servers(given.isobar, Path(folder)) as servers:
        stop_by_signal(findings)
        compare(servers, findings, given)
    for name, count in sorted(findings.counts.items()):
        print(f"{count:8}  {name}")
    print(f"{len(findings.shapes):8}  different after shrinking, in {given.out}")
    failed = any(findings.counts[name] for name in ("connections lost", "workers failed", "wrong only once"))
    return 1 if findings.shapes or failed else 0


if __name__ == "__main__":
    sys.exit(main())
