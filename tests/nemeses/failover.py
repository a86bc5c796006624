"""Measures failover: for how long nothing is answered, and until when the former rate is back, once a node is killed or stopped.

    make failover TIMES=5

Reads by key, inserts and queries on columns run all the while on a playground of its own. Each round hits one node with
SIGKILL or SIGSTOP: the row node that leads most regions, placement's leader, or a columnar node. At the end every insert
that was acknowledged must be there once, in rows and in columns; the exit code is 1 if one is not. Needs no root.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

import pymysql  # noqa: E402

from harness import Cluster, wait_until  # noqa: E402

ROWS = 2_000
SPREAD = 2_654_435_761  # odd: multiples modulo 2^32 are all different, and spread over the whole range
REFUSED = {1205, 1213, 1412, 9006}  # nothing of the statement was done
BEFORE, WINDOW = 5.0, 2.0  # seconds of the former rate, and of the window in which it is to be reached again
HEALTHY = 180.0  # most seconds until every node and replica is back
VICTIMS = ("leaders", "placement", "columnar")
HITS = ("kill", "pause")


@dataclass
class Kind:
    """One kind of statement: when it was answered, how long that took, and errors. Times are of the monotonic clock."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    errors: list[tuple[float, object]] = field(default_factory=list)

    def rate(self, begin: float, end: float) -> float:
        return sum(begin <= at < end for at, _ in list(self.answered)) / (end - begin)

    def measure(self, hit: float, end: float) -> dict[str, float | int | None]:
        """Of the time between a fault and the end of its round."""
        within = sorted(at for at, _ in self.answered if hit <= at <= end)
        times = [hit, *within, end]
        former = self.rate(hit - BEFORE, hit)
        steps = (hit + WINDOW + step / 10 for step in range(int((end - hit - WINDOW) * 10)))
        back = next((at for at in steps if self.rate(at - WINDOW, at) >= 0.9 * former), None)
        return {
            "silent": round(max(two - one for one, two in zip(times, times[1:])), 2),
            "back": None if back is None else round(back - hit - WINDOW, 1),
            "slowest": round(max((took for at, took in self.answered if at >= hit), default=0.0), 2),
            "errors": sum(at >= hit for at, _ in self.errors),
        }


class Load:
    """Clients that read, insert and query until they are stopped. Use it as a context."""

    def __init__(self, cluster: Cluster, database: str = "failover", readers: int = 2, writers: int = 3, queriers: int = 1):
        self.cluster, self.database = cluster, database
        self.kinds = {"read": Kind(), "write": Kind(), "query": Kind()}
        self.steps = {"read": (self.read, readers), "write": (self.write, writers), "query": (self.query, queriers)}
        self.numbers, self.lock, self.end = itertools.count(1), threading.Lock(), threading.Event()
        self.inserted: set[int] = set()
        self.refused: set[int] = set()
        self.wrong: list[str] = []
        self.threads: list[threading.Thread] = []

    def open(self) -> None:
        rows = ", ".join(f"({id}, {id % 7})" for id in range(ROWS))
        entries = ", ".join(f"({id * (2**31 // ROWS) * 2}, 0)" for id in range(ROWS))  # even: inserts are odd
        self.cluster.sql(
            f"CREATE DATABASE {self.database}",
            f"USE {self.database}",
            "CREATE TABLE kv (id INT PRIMARY KEY, n INT NOT NULL)",
            f"INSERT INTO kv VALUES {rows}",
            "CREATE TABLE entry (id BIGINT PRIMARY KEY, n INT NOT NULL)",
            f"INSERT INTO entry VALUES {entries}",
        )
        for table in ("kv", "entry"):
            self.cluster.sql(f"SPLIT TABLE {self.database}.{table} REGIONS 4")
            self.cluster.sql(f"ALTER TABLE {self.database}.{table} SET COLUMNAR REPLICA 2")
        self.wait_replicas()

    def wait_replicas(self) -> None:
        """Waits until every region of the tables has data on both columnar nodes."""

        def complete() -> bool:
            status = self.cluster.status()
            records = [region for region in status["regions"] if region["columnar"] or "records" in str(region["kind"])]
            return bool(records) and all(len(region["columnar"]) >= 2 for region in records)

        wait_until("every region has two columnar replicas", complete, HEALTHY)

    def __enter__(self) -> "Load":
        for name, (step, count) in self.steps.items():
            for number in range(count):
                thread = threading.Thread(target=self.work, args=(name, step, number), daemon=True)
                self.threads.append(thread)
                thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end.set()
        for thread in self.threads:
            thread.join(60)
        if any(thread.is_alive() for thread in self.threads):
            self.wrong.append("hung: a client still waits a minute after the end")

    def work(self, name: str, step, number: int) -> None:
        kind, session, turn = self.kinds[name], None, number
        while not self.end.is_set():
            turn += 7
            began = time.monotonic()
            try:
                session = session or self.cluster.connect(database=self.database)
                step(session, turn)
                ended = time.monotonic()
                kind.answered.append((ended, ended - began))
            except (pymysql.err.Error, OSError, EOFError) as error:
                kind.errors.append((time.monotonic(), error.args[0] if error.args else repr(error)))
                if session is not None and not session.open or not isinstance(error, pymysql.err.MySQLError):
                    session = None
                self.end.wait(0.05)

    def read(self, session, turn: int) -> None:
        id = turn * 31 % ROWS
        with session.cursor() as cursor:
            cursor.execute(f"SELECT n FROM kv WHERE id = {id}")
            if (row := cursor.fetchone()) != (id % 7,):
                self.wrong.append(f"read: row {id} is {row}")

    def write(self, session, _: int) -> None:
        with self.lock:
            number = next(self.numbers)
        id = (2 * number + 1) * SPREAD % 2**32
        try:
            with session.cursor() as cursor:
                cursor.execute(f"INSERT INTO entry VALUES ({id}, 1)")
            self.inserted.add(id)
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] == 1062:
                self.wrong.append(f"doubled: {id} is said to be there already")
            if error.args and error.args[0] in REFUSED:
                self.refused.add(id)
            raise

    def query(self, session, _: int) -> None:
        with session.cursor() as cursor:
            cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
            cursor.execute("SELECT COUNT(*), SUM(n) FROM kv")
            expected = (ROWS, sum(id % 7 for id in range(ROWS)))
            if (row := tuple(map(int, cursor.fetchone()))) != expected:
                self.wrong.append(f"query: {row} instead of {expected}")

    def judge(self) -> list[str]:
        """What is wrong with what was answered, and with what is there now: rows first, then columns."""
        found = list(dict.fromkeys(self.wrong))
        for engine in ("tikv", "tiflash"):
            read = lambda: self.cluster.read(engine, f"SELECT id FROM {self.database}.entry WHERE n = 1")  # noqa: E731, B023
            there = Counter(row[0] for row in wait_until(f"{engine} answers", read, 60))
            if lost := self.inserted - there.keys():
                found.append(f"lost: {len(lost)} acknowledged inserts are not in {engine}, such as {sorted(lost)[:3]}")
            if undead := self.refused & there.keys():
                found.append(f"undead: {len(undead)} refused inserts are in {engine}, such as {sorted(undead)[:3]}")
            if doubled := [id for id, count in there.items() if count > 1]:
                found.append(f"doubled: {len(doubled)} rows in {engine}, such as {sorted(doubled)[:3]}")
        return found


def victim(cluster: Cluster, of: str) -> str:
    """The name of the node to hit."""
    status = cluster.status()
    if of == "columnar":
        return "columnar-1"
    leaders = Counter(region["leader"] for region in status["regions"] if region["leader"])
    node = status["placement_leader"] if of == "placement" else leaders.most_common(1)[0][0]
    port = next(int(known["rpc_address"].rsplit(":", 1)[1]) for known in status["nodes"] if known["id"] == node)
    return f"row-{port - cluster.port_base - 19}"


class Stopped:
    """A process that gets no processor while this context lasts, and goes on after it whatever happens."""

    def __init__(self, pid: int):
        self.pid = pid

    def __enter__(self) -> "Stopped":
        os.kill(self.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGCONT)


def play(cluster: Cluster, load: Load, of: str, hit: str, seconds: float) -> dict:
    """One round: some calm, the fault, and what it did to each kind of statement."""
    time.sleep(BEFORE)
    name = victim(cluster, of)
    pid, at = cluster.pids()[name], time.monotonic()
    if hit == "pause":
        with Stopped(pid):
            time.sleep(seconds)
            end = time.monotonic()
    else:
        cluster.kill(name)
        time.sleep(seconds)
        end = time.monotonic()
    measured = {kind: of_kind.measure(at, end) for kind, of_kind in load.kinds.items()}
    cluster.wait_healthy(HEALTHY)
    load.wait_replicas()
    return {"victim": of, "node": name, "hit": hit, **measured}


def table(rounds: list[dict]) -> str:
    """Median and worst of each measurement, a line for each victim, hit and kind of statement."""
    lines = [
        "| node | hit | statements | longest silence, s | 90 % of the rate after, s | slowest, s | errors |",
        "|---|---|---|---|---|---|---|",
    ]
    for of, hit in dict.fromkeys((one["victim"], one["hit"]) for one in rounds):
        ones = [one for one in rounds if (one["victim"], one["hit"]) == (of, hit)]
        for kind in ("read", "write", "query"):
            shown = []
            for name in ("silent", "back", "slowest", "errors"):
                values = [one[kind][name] for one in ones]
                known = sorted(value for value in values if value is not None)
                worst = "never" if len(known) < len(values) else known[-1]
                shown.append(f"{median(known):.1f} / {worst}" if known else "never")
            lines.append(f"| {of} | {hit} | {kind} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--times", type=int, default=5, help="rounds of each victim and hit")
    options.add_argument("--seconds", type=float, default=20.0, help="how long a round watches, and a pause lasts")
    options.add_argument("--victim", action="append", choices=VICTIMS, help="only this one; may be repeated")
    options.add_argument("--hit", action="append", choices=HITS, help="only this; may be repeated")
    options.add_argument("--json", type=Path, help="file for a line of each round")
    given = options.parse_args()
    rounds: list[dict] = []
    with TemporaryDirectory(prefix="isobar-failover-") as folder, Cluster(given.isobar, Path(folder)) as cluster:
        load = Load(cluster)
        load.open()
        with load:
            for of, hit, number in itertools.product(given.victim or VICTIMS, given.hit or HITS, range(given.times)):
                one = play(cluster, load, of, hit, given.seconds)
                rounds.append(one)
                print(f"{of} {hit} {number + 1}/{given.times}: {json.dumps(one)}", file=sys.stderr, flush=True)
                if given.json:
                    with given.json.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
        wrong = load.judge()
        codes = Counter(str(code) for kind in load.kinds.values() for _, code in kind.errors)
    print(f"median / worst of {given.times} rounds each; {len(load.inserted)} inserts acknowledged\n\n{table(rounds)}\n")
    print("errors by number:", ", ".join(f"{code}: {count}" for code, count in codes.most_common()) or "none")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
