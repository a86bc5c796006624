"""Corrections of the live table: bounded transactions that overwrite nothing which changed since the snapshot.

Each transaction locks the rows of its batch, compares them with what the snapshot showed, corrects those that are
still the same and reports the others. Its own line in the journal is written with it, so that it happens once.
"""

from dataclasses import dataclass, field

import pymysql
from pymysql.cursors import Cursor

import journal
from claims import Claims
from classify import EXTRA, MISSING
from errors import ReconciliationError
from journal import BatchRecord
from lease import Lease
from plan import Difference, Value, digest
from target import COMMIT_SECONDS, Again, Target, quoted

CHANGED_MEANWHILE = "changed meanwhile"
REFUSED = "refused"
DUPLICATE = 1062
LONGEST_REASON = 200
# A value is wrong for its column: one row's matter, not the batch's.
WRONG_VALUES = (pymysql.err.DataError, pymysql.err.IntegrityError)


@dataclass
class Tally:
    """How a batch went, row by row."""

    corrected: int = 0
    details: list[tuple[int, str, str]] = field(default_factory=list)

    def reject(self, row: Difference, outcome: str, reason: str) -> None:
        """Notes a row that is not corrected."""
        self.details.append((row.number, outcome, reason[:LONGEST_REASON]))

    def record(self, of: str) -> BatchRecord:
        """The journal's line."""
        counts = [sum(outcome == kind for _, outcome, _ in self.details) for kind in (CHANGED_MEANWHILE, REFUSED)]
        return BatchRecord(of, self.corrected, *counts, tuple(sorted(self.details)))


class Corrections:
    """Corrections of one table."""

    def __init__(
        self, target: Target, claims: Claims, lease: Lease, run: str, table: str, key: tuple[str, ...], columns: tuple[str, ...]
    ):
        self._target, self._claims, self._lease = target, claims, lease
        self._run, self._table, self._key, self._columns = run, table, key, columns

    def apply(self, number: int, batch: list[Difference]) -> BatchRecord:
        """Corrects a batch, unless its line is in the journal; that line."""
        self._lease.check()
        of = digest(batch)
        tries = 0

        def work(cursor: Cursor) -> BatchRecord:
            nonlocal tries
            tries += 1
            self._claims.hold(cursor, self._table)
            known = journal.recorded(cursor, self._run, self._table, number)
            if known is not None:
                if known.digest != of:
                    raise ReconciliationError(
                        f"batch {number} of {self._table} was committed with other rows than the plan holds: "
                        "the plan in the --work folder was changed; start a new run"
                    )
                return known
            made = self._correct(cursor, batch, tries).record(of)
            journal.record(cursor, self._run, self._table, number, made)
            return made

        # The lease is made to outlast the COMMIT, whose time is bounded by the connection.
        return self._target.transaction(work, before_commit=lambda: self._lease.require(COMMIT_SECONDS))

    def _correct(self, cursor: Cursor, batch: list[Difference], tries: int) -> Tally:
        tally = Tally()
        now = self._locked(cursor, batch)
        unchanged = []
        for row in batch:
            if same(row.live, now.get(row.key), self._columns):
                unchanged.append(row)
            else:
                tally.reject(row, CHANGED_MEANWHILE, meanwhile(row.live, now.get(row.key), self._columns))
        # Rows that go make room in unique indexes for rows that come.
        self._delete(cursor, [row for row in unchanged if row.kind == EXTRA], tally)
        for row in unchanged:
            if row.kind not in (EXTRA, MISSING):
                self._one(cursor, row, self._update, tally, tries)
        self._insert(cursor, [row for row in unchanged if row.kind == MISSING], tally, tries)
        return tally

    def _locked(self, cursor: Cursor, batch: list[Difference]) -> dict[tuple[Value, ...], dict[str, Value]]:
        names = ", ".join(map(quoted, self._columns))
        where, values = self._keys(batch)
        cursor.execute(f"SELECT {names} FROM {quoted(self._table)} WHERE {where} FOR UPDATE", values)
        rows = (dict(zip(self._columns, row)) for row in cursor.fetchall())
        return {tuple(row[name] for name in self._key): row for row in rows}

    def _keys(self, rows: list[Difference]) -> tuple[str, list[Value]]:
        """The condition that is true of these rows only, and its values."""
        one = "(" + ", ".join(["%s"] * len(self._key)) + ")"
        where = f"({', '.join(map(quoted, self._key))}) IN ({', '.join([one] * len(rows))})"
        return where, [value for row in rows for value in row.key]

    def _delete(self, cursor: Cursor, rows: list[Difference], tally: Tally) -> None:
        if rows:
            where, values = self._keys(rows)
            tally.corrected += cursor.execute(f"DELETE FROM {quoted(self._table)} WHERE {where}", values)

    def _update(self, cursor: Cursor, row: Difference) -> None:
        """Writes the columns that differ, and no other."""
        sets = ", ".join(f"{quoted(name)} = %s" for name in row.changed)
        where, key = self._keys([row])
        values = [row.lake[name] for name in row.changed]
        cursor.execute(f"UPDATE {quoted(self._table)} SET {sets} WHERE {where}", values + key)

    def _insert(self, cursor: Cursor, rows: list[Difference], tally: Tally, tries: int) -> None:
        if not rows:
            return
        try:
            self._insert_all(cursor, rows)
            tally.corrected += len(rows)
        except WRONG_VALUES as error:
            again_if_duplicate(error, tries)
            for row in rows:
                self._one(cursor, row, lambda cursor, row: self._insert_all(cursor, [row]), tally, tries)

    def _insert_all(self, cursor: Cursor, rows: list[Difference]) -> None:
        one = "(" + ", ".join(["%s"] * len(self._columns)) + ")"
        names = ", ".join(map(quoted, self._columns))
        values = [row.lake[name] for row in rows for name in self._columns]
        cursor.execute(f"INSERT INTO {quoted(self._table)} ({names}) VALUES {', '.join([one] * len(rows))}", values)

    def _one(self, cursor: Cursor, row: Difference, write, tally: Tally, tries: int) -> None:
        try:
            write(cursor, row)
            tally.corrected += 1
        except WRONG_VALUES as error:
            again_if_duplicate(error, tries)
            tally.reject(row, REFUSED, str(error.args[-1]))


def again_if_duplicate(error: Exception, tries: int) -> None:
    """A row that came between the look and the INSERT is seen at the next look."""
    if error.args and error.args[0] == DUPLICATE and tries == 1:
        raise Again


def same(seen: dict[str, Value] | None, now: dict[str, Value] | None, columns: tuple[str, ...]) -> bool:
    """Whether a row is what the snapshot showed, in every column."""
    if seen is None or now is None:
        return seen is now
    return all(seen[name] == now[name] for name in columns)


def meanwhile(seen: dict[str, Value] | None, now: dict[str, Value] | None, columns: tuple[str, ...]) -> str:
    """What happened to a row since the snapshot; no values, which may be secret."""
    if now is None:
        return "deleted"
    if seen is None:
        return "inserted"
    return "changed: " + ", ".join(name for name in columns if seen[name] != now[name])
