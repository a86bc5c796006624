"""What a server answered to a query, the sessions that ask, and the differences that are known.

Nothing here changes an answer before it is compared, beyond what `Answer` says.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pymysql

FLOATS = {pymysql.constants.FIELD_TYPE.FLOAT, pymysql.constants.FIELD_TYPE.DOUBLE}
# As `cell_text` writes a DOUBLE.
FLOATING = re.compile(r"-?\d\.\d{13}e[+-]\d{2,3}")
KNOWN = Path(__file__).resolve().with_name("known.toml")


@dataclass
class Answer:
    """Rows as a server printed them (floats to 14 digits; a bag unless the query orders them), or an error's number."""

    rows: tuple = ()
    error: int | None = None
    text: str = ""

    def same(self, other: Answer) -> bool:
        if (self.rows, self.error) == (other.rows, other.error):
            return True
        if self.error or other.error or [*map(len, self.rows)] != [*map(len, other.rows)]:
            return False
        return all(close(*cells) for rows in zip(self.rows, other.rows) for cells in zip(*rows))

    def __str__(self) -> str:
        shown = " / ".join(" ".join(map(str, row)) for row in self.rows[:6])
        return f"error {self.error}: {self.text[:160]}" if self.error else shown or "(no rows)"


class Lost(Exception):
    """A server's connection ended with a query."""


class Reader:
    """One session of a server."""

    def __init__(self, name: str, connect: Callable[..., pymysql.Connection], begins: list[str], collation: str = ""):
        self.name, self.connect, self.begins, self.collation = name, connect, begins, collation
        self.session: pymysql.Connection | None = None
        self.open()

    def open(self) -> None:
        self.session = self.connect(conv=dict(pymysql.converters.encoders), read_timeout=60)
        for statement in self.begins:
            self.run(statement)

    def run(self, sql: str, ordered: bool = True) -> Answer:
        try:
            with self.session.cursor() as cursor:
                cursor.execute(sql)
                floats = [column[1] in FLOATS for column in cursor.description or ()]
                rows = [tuple(cell_text(cell, floats[at]) for at, cell in enumerate(row)) for row in cursor.fetchall()]
                return Answer(tuple(rows if ordered else sorted(rows)))
        except (pymysql.err.InterfaceError, OSError) as error:
            raise Lost(f"{self.name}: {error}") from error
        except pymysql.err.MySQLError as error:
            code, text = (*error.args, "")[:2]
            if not isinstance(code, int) or code in (2006, 2013, 0):
                raise Lost(f"{self.name}: {error}") from error
            return Answer(error=code, text=str(text))


def cell_text(cell: object, floating: bool) -> str:
    if cell is None:
        return "NULL"
    text = cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else str(cell)
    return f"{float(text):.13e}" if floating else text


def close(one: str, other: str) -> bool:
    """Whether two cells are the same, or the same DOUBLE but for its last printed digits, which 14 digits may round apart."""
    if one == other:
        return True
    return bool(FLOATING.fullmatch(one) and FLOATING.fullmatch(other)) and math.isclose(
        float(one), float(other), rel_tol=1e-12
    )


@dataclass
class Known:
    """A known difference: a pattern of queries, who may differ from rows, by which error of either and by which cell of
    the one who differs, if only by one."""

    pattern: re.Pattern
    why: str
    readers: list[str]
    error: int | None
    cell: re.Pattern | None

    def explains(self, query: str, reader: str, answer: Answer, rows: Answer) -> bool:
        errors = (None, answer.error, rows.error)[0 if self.error is None else 1 :]
        if reader not in self.readers or self.error not in errors or not self.pattern.search(query):
            return False
        return self.cell is None or any(self.cell.fullmatch(cell) for row in answer.rows for cell in row)


def known() -> list[Known]:
    entries = tomllib.loads(KNOWN.read_text(encoding="utf-8"))["known"]
    for entry in entries:
        assert entry["manual"], f"no page of MySQL's manual: {entry}"
    return [
        Known(
            re.compile(entry["query"]),
            entry["why"],
            entry.get("readers", ["mariadb"]),
            entry.get("error"),
            re.compile(entry["cell"]) if "cell" in entry else None,
        )
        for entry in entries
    ]
