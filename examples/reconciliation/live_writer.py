"""The online side of a rehearsal: transactions that keep changing rows, and a ledger of each with what it saw and left.

The ledger is what proves afterwards that no acknowledged write was overwritten: for every row it is a chain of states.
"""

import random
import threading
import time
from dataclasses import dataclass

import pymysql
from pymysql.connections import Connection

from tables import Source
from target import CONFLICTS, GONE, quoted

PAUSE = 0.004
# The column that updates change, and the part of the key that makes an inserted row new.
WRITTEN = {
    "nycflights.flights": ("dep_delay", "flight", 1_000_000),
    "nycflights.planes": ("model", None, 0),
    "tpch.lineitem": ("l_comment", "l_orderkey", 1_000_000_000_000),
    "every.typed": ("l", "id", 1),
}

Row = tuple[object, ...] | None


@dataclass
class Write:
    """One change of one row. `acknowledged` is false when the connection broke at COMMIT: nobody knows."""

    began: float
    ended: float
    before: Row
    after: Row
    acknowledged: bool


class LiveWriter(threading.Thread):
    """Changes rows until it is stopped. `hot`: rows that it meets far more often than others."""

    def __init__(self, port: int, sources: list[Source], keys: dict[str, list[tuple]], hot: dict[str, list[tuple]]):
        super().__init__(name="live-writer", daemon=True)
        self._port = port
        self._sources = [source for source in sources if source.name in WRITTEN and keys[source.name]]
        self._weights = [len(keys[source.name]) ** 0.5 for source in self._sources]
        self._keys = {source.name: [typed(source, key) for key in keys[source.name]] for source in self._sources}
        self._hot = {source.name: [typed(source, key) for key in hot[source.name]] for source in self._sources}
        self._random = random.Random(99)
        self._end = threading.Event()
        self._number = 0
        self._inserted: dict[str, list[tuple]] = {source.name: [] for source in self._sources}
        self.ledger: dict[str, dict[tuple[str, ...], list[Write]]] = {source.name: {} for source in self._sources}
        self.latencies: list[tuple[float, float]] = []
        self.conflicts = 0
        self.broken = 0
        self.error: Exception | None = None

    def run(self) -> None:
        connection: Connection | None = None
        try:
            while not self._end.wait(PAUSE):
                try:
                    connection = connection or self._connect()
                    self._once(connection)
                except (pymysql.err.MySQLError, OSError, EOFError) as error:
                    code = error.args[0] if error.args else None
                    if code in CONFLICTS:
                        self.conflicts += 1
                        connection.rollback()
                        continue
                    if code not in GONE and not isinstance(error, (OSError, EOFError, pymysql.err.InterfaceError)):
                        raise
                    self.broken += 1
                    connection = self._close(connection)
                    self._end.wait(0.2)
        except Exception as error:  # raised to whoever stops the writer
            self.error = error
        finally:
            self._close(connection)

    def stop(self) -> None:
        """Ends it, and raises what went wrong in it."""
        self._end.set()
        if self.ident is not None:
            self.join(90)
        if self.error is not None:
            raise RuntimeError(f"the live writer failed: {self.error!r}") from self.error

    @property
    def commits(self) -> int:
        """Acknowledged transactions so far."""
        return len(self.latencies)

    def _connect(self) -> Connection:
        return pymysql.connect(
            host="127.0.0.1",
            port=self._port,
            user="root",
            connect_timeout=10,
            read_timeout=60,
            write_timeout=60,
            autocommit=True,
            init_command="SET time_zone = '+00:00'",
        )

    def _close(self, connection: Connection | None) -> None:
        if connection is not None:
            try:
                connection.close()
            except (pymysql.err.Error, OSError):
                pass

    def _once(self, connection: Connection) -> None:
        """One transaction on one row: mostly an update, now and then an insert or a delete."""
        source = self._random.choices(self._sources, self._weights)[0]
        column, bump, first = WRITTEN[source.name]
        self._number += 1
        chance = self._random.random()
        hot = self._hot[source.name] and self._random.random() < 0.3
        key = self._random.choice(self._hot[source.name] if hot else self._keys[source.name])
        mine = self._inserted[source.name]
        if chance > 0.97 and not hot:
            key = mine.pop() if mine and self._random.random() < 0.7 else key
        began = time.time()
        clock = time.monotonic()
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            before = self._row(cursor, source, key)
            template = before
            if bump is not None and chance < 0.04 and before is not None:
                key = tuple(first + self._number if name == bump else part for name, part in zip(source.key, key))
                before = self._row(cursor, source, key)
                after = self._insert(cursor, source, key, template)
                mine.append(key)
            elif before is None:
                cursor.execute("ROLLBACK")
                return
            elif chance > 0.97 and not hot:
                cursor.execute(f"DELETE FROM {source.name} WHERE {where(source)}", key)
                # Once only: a row that is corrected and deleted again looks like a correction undone.
                self._keys[source.name] = [other for other in self._keys[source.name] if other != key]
                after = None
            else:
                value = self._number if column == "dep_delay" else f"written {self._number}"
                cursor.execute(f"UPDATE {source.name} SET {quoted(column)} = %s WHERE {where(source)}", (value, *key))
                after = self._row(cursor, source, key)
            write = Write(began, 0, before, after, False)
            try:
                cursor.execute("COMMIT")
                write.acknowledged = True
            except pymysql.err.MySQLError as error:
                if error.args[0] in CONFLICTS:
                    raise
                self._note(source, key, write)
                raise
            write.ended = time.time()
            self.latencies.append((write.ended, time.monotonic() - clock))
            self._note(source, key, write)

    def _note(self, source: Source, key: tuple, write: Write) -> None:
        self.ledger[source.name].setdefault(tuple(map(str, key)), []).append(write)

    @staticmethod
    def _row(cursor, source: Source, key: tuple) -> Row:
        names = ", ".join(map(quoted, source.columns))
        cursor.execute(f"SELECT {names} FROM {source.name} WHERE {where(source)} FOR UPDATE", key)
        return cursor.fetchone()

    def _insert(self, cursor, source: Source, key: tuple, template: tuple) -> Row:
        known = dict(zip(source.key, key))
        row = tuple(known.get(name, value) for name, value in zip(source.columns, template))
        marks = ", ".join(["%s"] * len(row))
        cursor.execute(f"INSERT INTO {source.name} VALUES ({marks})", row)
        return self._row(cursor, source, key)


def typed(source: Source, key: tuple[str, ...]) -> tuple:
    """A key whose integers are integers: MySQL compares a large integer with a text as doubles, which meets many rows."""
    return tuple(int(part) if "INT" in source.columns[name] else part for name, part in zip(source.key, key))


def where(source: Source) -> str:
    """The condition for one row by its key."""
    return " AND ".join(f"{quoted(name)} = %s" for name in source.key)


def percentile(values: list[float], share: float) -> float | None:
    """The value below which a share of all lies, in milliseconds."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 1)
