"""What clients do while nodes fail, and what must be true of it afterwards.

A workload notes every attempt with its outcome: acknowledged, refused, or unknown (the connection ended first, or error
8501). It reads from rows and from columns by chance, and never counts an attempt as more than what what its answer said.
"""

from __future__ import annotations

import random
import threading
import time

import pymysql

from checker import FAILED, OK, UNKNOWN, Transaction, judge
from hosts import Hosts

# Errors by which a statement says that nothing of its transaction was done. All others leave it unknown.
REFUSED = {1205, 1213, 1412, 9006}
THREADS = 6
ACCOUNTS, OPENING = 16, 100
KEYS = 6


class Workload:
    """Threads that work until they are stopped; `judge` says what is wrong with what they saw, a line each."""

    tables: list[str] = []

    def __init__(self, cluster: Hosts, database: str, seed: int):
        self.cluster, self.database, self.random = cluster, database, random.Random(seed)
        self.acknowledged: list[float] = []  # when, in seconds of the monotonic clock
        self.counts = {OK: 0, FAILED: 0, UNKNOWN: 0}
        self.lock, self.end, self.threads = threading.Lock(), threading.Event(), []
        self.errors: list[str] = []

    def make(self) -> list[str]:
        raise NotImplementedError

    def step(self, session: pymysql.Connection, chance: random.Random) -> None:
        """One transaction; raises what the server said if it did not do it."""
        raise NotImplementedError

    def judge(self) -> list[str]:
        raise NotImplementedError

    def open(self) -> None:
        self.cluster.sql(f"CREATE DATABASE {self.database}", f"USE {self.database}", *self.make())
        for table in self.tables:
            self.cluster.sql(f"ALTER TABLE {self.database}.{table} SET COLUMNAR REPLICA 1")
        self.cluster.wait_replicas(*(f"{self.database}.{table}" for table in self.tables))

    def start(self) -> None:
        for number in range(THREADS):
            thread = threading.Thread(target=self.work, args=(number, self.random.random()), daemon=True)
            self.threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self.end.set()
        for thread in self.threads:
            thread.join(60)
        if any(thread.is_alive() for thread in self.threads):
            self.errors.append("hung: a client still waits a minute after the end")

    def work(self, number: int, seed: float) -> None:
        chance, session = random.Random(seed), None
        servers = [name for name, role in self.cluster.roles.items() if role == "sql"]
        while not self.end.is_set():
            try:
                if session is None:
                    session = self.cluster.connect_to(servers[chance.randrange(len(servers))], database=self.database)
                outcome = self.attempt(session, chance)
            except (pymysql.err.Error, OSError, EOFError):
                outcome, session = None, drop(session)
            if outcome is UNKNOWN:
                session = drop(session)
            if session is None:
                self.end.wait(0.2)

    def attempt(self, session: pymysql.Connection, chance: random.Random) -> str:
        try:
            self.step(session, chance)
            outcome = OK
        except pymysql.err.MySQLError as error:
            outcome = FAILED if error.args and error.args[0] in REFUSED else UNKNOWN
            if outcome is FAILED:
                session.rollback()
        except (OSError, EOFError):
            outcome = UNKNOWN
        with self.lock:
            self.counts[outcome] += 1
            if outcome is OK:
                self.acknowledged.append(time.monotonic())
        return outcome

    def outage(self, began: float, ended: float) -> float:
        """The longest time between two acknowledgements."""
        times = [began, *sorted(at for at in self.acknowledged if began < at < ended), ended]
        return max(two - one for one, two in zip(times, times[1:]))

    def final(self, query: str, engine: str) -> list[tuple]:
        return self.cluster.sql(f"USE {self.database}", f"SET isobar_read_engines = '{engine}'", query)


def drop(session: pymysql.Connection | None) -> None:
    if session is not None:
        try:
            session.close()
        except (pymysql.err.Error, OSError):
            pass


def choose_engine(cursor, chance: random.Random) -> None:
    cursor.execute(f"SET isobar_read_engines = '{chance.choice(['rows', 'rows', 'columns'])}'")


class Bank(Workload):
    """Transfers between accounts: their sum is the same in every snapshot, of rows and of columns."""

    tables = ["account"]

    def make(self) -> list[str]:
        rows = ", ".join(f"({n}, {OPENING})" for n in range(ACCOUNTS))
        return ["CREATE TABLE account (id INT PRIMARY KEY, n INT NOT NULL)", f"INSERT INTO account VALUES {rows}"]

    def step(self, session, chance) -> None:
        with session.cursor() as cursor:
            if chance.random() < 0.4:
                choose_engine(cursor, chance)
                cursor.execute("SELECT COUNT(*), SUM(n) FROM account")
                row = cursor.fetchone()
                if (row[0], int(row[1])) != (ACCOUNTS, ACCOUNTS * OPENING):
                    self.errors.append(f"sum: {row}")
                return
            one, two = chance.sample(range(ACCOUNTS), 2)
            amount = chance.randint(1, 5)
            cursor.execute("BEGIN")
            cursor.execute(f"UPDATE account SET n = n - {amount} WHERE id = {one}")
            cursor.execute(f"UPDATE account SET n = n + {amount} WHERE id = {two}")
            cursor.execute("COMMIT")

    def judge(self) -> list[str]:
        found = list(self.errors)
        for engine in ("rows", "columns"):
            ((count, total),) = self.final("SELECT COUNT(*), SUM(n) FROM account", engine)
            if (count, int(total)) != (ACCOUNTS, ACCOUNTS * OPENING):
                found.append(f"final sum by {engine}: {count} accounts, {total}")
        return found


class Counter(Workload):
    """Inserts: every one that was acknowledged is there, none that was refused is, in rows and in columns."""

    tables = ["entry"]

    def __init__(self, *args):
        super().__init__(*args)
        self.inserted: set[int] = set()
        self.refused: set[int] = set()
        self.next = 0

    def make(self) -> list[str]:
        return ["CREATE TABLE entry (id BIGINT PRIMARY KEY, note VARCHAR(40), UNIQUE KEY (note))"]

    def step(self, session, chance) -> None:
        with self.lock:
            self.next += 1
            number = self.next
        try:
            with session.cursor() as cursor:
                cursor.execute(f"INSERT INTO entry VALUES ({number}, 'entry {number}')")
            self.inserted.add(number)
        except pymysql.err.MySQLError as error:
            if error.args and error.args[0] in REFUSED:
                self.refused.add(number)
            raise

    def judge(self) -> list[str]:
        found = list(self.errors)
        for engine in ("rows", "columns"):
            there = {row[0] for row in self.final("SELECT id FROM entry", engine)}
            if lost := self.inserted - there:
                found.append(f"lost: {len(lost)} acknowledged inserts not in {engine}, such as {sorted(lost)[:5]}")
            if extra := self.refused & there:
                found.append(f"undead: {len(extra)} refused inserts in {engine}, such as {sorted(extra)[:5]}")
        ((count, by_index),) = self.final("SELECT COUNT(*), COUNT(DISTINCT note) FROM entry", "rows")
        if count != by_index:
            found.append(f"index: {count} rows and {by_index} notes")
        return found


class Register(Workload):
    """Single rows, read and overwritten with growing numbers: no read goes back behind what was acknowledged."""

    tables = ["register"]

    def __init__(self, *args):
        super().__init__(*args)
        self.written = [0] * KEYS
        self.owners = [threading.Lock() for _ in range(KEYS)]

    def make(self) -> list[str]:
        rows = ", ".join(f"({key}, 0)" for key in range(KEYS))
        return ["CREATE TABLE register (id INT PRIMARY KEY, n BIGINT NOT NULL)", f"INSERT INTO register VALUES {rows}"]

    def step(self, session, chance) -> None:
        key = chance.randrange(KEYS)
        with session.cursor() as cursor:
            if chance.random() < 0.5:
                known = self.written[key]
                choose_engine(cursor, chance)
                cursor.execute(f"SELECT SUM(n) FROM register WHERE id = {key}")
                seen = int(cursor.fetchone()[0])
                if seen < known:
                    self.errors.append(f"stale: register {key} is {seen} after {known} was acknowledged")
                return
            with self.owners[key]:  # one writer at a time, so that an unknown write is never behind a known one
                value = time.monotonic_ns()
                cursor.execute(f"UPDATE register SET n = GREATEST(n, {value}) WHERE id = {key}")
                self.written[key] = value

    def judge(self) -> list[str]:
        found = list(self.errors)
        for engine in ("rows", "columns"):
            for key, value in self.final("SELECT id, n FROM register", engine):
                if value < self.written[key]:
                    found.append(f"lost: register {key} is {value} in {engine}, {self.written[key]} was acknowledged")
        return found


class Append(Workload):
    """Transactions that append to lists and read them, judged as snapshot isolation (`checker`)."""

    tables = ["list"]

    def __init__(self, *args):
        super().__init__(*args)
        self.history: list[Transaction] = []
        self.next = 0

    def make(self) -> list[str]:
        rows = ", ".join(f"({key}, '')" for key in range(KEYS))
        return ["CREATE TABLE list (id INT PRIMARY KEY, v TEXT NOT NULL)", f"INSERT INTO list VALUES {rows}"]

    def step(self, session, chance) -> None:
        transaction = Transaction(began=time.monotonic())
        with self.lock:
            self.history.append(transaction)
        try:
            self.transact(session, chance, transaction)
            transaction.outcome = OK
        except pymysql.err.MySQLError as error:
            transaction.outcome = FAILED if error.args and error.args[0] in REFUSED else UNKNOWN
            raise
        finally:
            transaction.ended = time.monotonic()

    def transact(self, session, chance, transaction: Transaction) -> None:
        with session.cursor() as cursor:
            writes, locks = chance.random() < 0.6, chance.random() < 0.5
            if writes or locks:
                cursor.execute("SET isobar_read_engines = 'rows'")
            else:
                choose_engine(cursor, chance)
            # Under locks an UPDATE reads the present, as in MySQL: what is read before it must be locked as well.
            cursor.execute("BEGIN" if locks else "BEGIN OPTIMISTIC")
            keys = chance.sample(range(KEYS), chance.randint(1, 3))
            for key in keys:
                cursor.execute(f"SELECT v FROM list WHERE id = {key}{' FOR UPDATE' if locks else ''}")
                transaction.operations.append(("read", key, numbers(cursor.fetchone()[0])))
            for key in keys[: chance.randint(1, 2)] if writes else []:
                with self.lock:
                    self.next += 1
                    value = self.next
                # Noted first: an update whose answer is lost may have happened.
                transaction.operations.append(("append", key, value))
                cursor.execute(f"UPDATE list SET v = CONCAT(v, ' {value}') WHERE id = {key}")
            cursor.execute("COMMIT")

    def judge(self) -> list[str]:
        last = Transaction(began=time.monotonic(), outcome=OK)
        found = list(self.errors)
        for engine in ("rows", "columns"):
            lists = self.final("SELECT id, v FROM list", engine)
            last.operations = [("read", key, numbers(text)) for key, text in lists]
            last.ended = time.monotonic()
            found += [f"{engine}: {line}" for line in judge([*self.history, last])]
        return list(dict.fromkeys(found))


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


WORKLOADS = {"bank": Bank, "counter": Counter, "register": Register, "append": Append}
