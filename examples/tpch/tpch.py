"""TPC-H: its eight tables, its 22 queries, and what DuckDB answers to them.

The data is what `isobar dbgen` writes; the queries are the standard's texts with its validation parameters, in
`queries/`. Answers are compared by value, in the order that a query asks for and in no other.
"""

import datetime
import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

DATABASE = "tpch"
# Each table's columns, as in its CREATE TABLE, on one line.
TABLES = {
    name: " ".join(columns.split())
    for name, columns in re.findall(
        r"CREATE TABLE (\w+) \(\n(.*?)\n\);", (Path(__file__).parent / "schema.sql").read_text(), re.DOTALL
    )
}
# What a query orders by, as positions of its columns: two rows that are equal there may change places.
ORDER = {
    1: (0, 1), 2: (0, 2, 1, 3), 3: (1, 2), 4: (0,), 5: (1,), 6: (), 7: (0, 1, 2), 8: (0,), 9: (0, 1), 10: (2,), 11: (1,),
    12: (0,), 13: (1, 0), 14: (), 15: (0,), 16: (3, 0, 1, 2), 17: (), 18: (4, 3), 19: (), 20: (0,), 21: (1, 0), 22: (0,),
}  # fmt: skip


def query(number: int, scale: float = 1) -> str:
    """A query's text. Q11's fraction is the one parameter that the standard ties to the scale."""
    text = (Path(__file__).parent / f"queries/q{number:02}.sql").read_text(encoding="ascii")
    if number == 11 and scale != 1:
        text = text.replace("0.0001\n", f"{Decimal('0.0001') / Decimal(str(scale)):f}\n")
    return text


def create() -> Iterable[str]:
    """CREATE TABLE, one statement a table."""
    return [f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()]


def load(table: str, file: Path) -> str:
    """LOAD DATA of a `.tbl` file, whose lines end in a separator."""
    return f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} FIELDS TERMINATED BY '|' LINES TERMINATED BY '|\\n'"


class DuckDb:
    """The peer: the same data, the same texts. `folder` has the tables as Parquet."""

    def __init__(self, folder: Path):
        import duckdb

        self.connection = duckdb.connect()
        for table, columns in TABLES.items():
            self.connection.execute(f"CREATE TABLE {table} ({columns})")
            self.connection.execute(f"INSERT INTO {table} SELECT * FROM '{folder / table}.parquet'")

    def answer(self, number: int, scale: float) -> list[tuple]:
        """The rows."""
        return self.connection.execute(query(number, scale)).fetchall()


def differences(number: int, expected: list[tuple], found: list[tuple], cut: bool = False) -> list[str]:
    """How an answer differs from DuckDB's; nothing if it does not. `cut`: one of both cuts decimals off at a scale of
    its own, where the other rounds or goes on.
    """
    if len(expected) != len(found):
        return [f"{len(found)} rows, not {len(expected)}"]
    keys = ORDER[number]
    problems = []
    ordered = [[value(row[key]) for key in keys] for row in found]
    for at, row in enumerate(expected):
        if not all(same(a, b, cut) for a, b in zip([value(row[key]) for key in keys], ordered[at])):
            problems.append(f"row {at} is out of order: {found[at]}, not {row}")
    order = lambda row: [str(rounded(value(cell))) for cell in row]  # noqa: E731
    for left, right in zip(sorted(expected, key=order), sorted(found, key=order)):
        if not all(same(value(a), value(b), cut) for a, b in zip(left, right)):
            problems.append(f"{right}, not {left}")
    return problems


def value(cell: object) -> object:
    """A cell without what only one of the readers knows of it: CHAR's padding, the time zone, the width of a number."""
    if isinstance(cell, bool):
        return int(cell)
    if isinstance(cell, int):
        return Decimal(cell)
    if isinstance(cell, datetime.datetime):
        return cell.replace(tzinfo=None)
    return cell


def rounded(cell: object) -> object:
    return round(float(cell), 2) if isinstance(cell, (Decimal, float)) else cell


def same(expected: object, found: object, cut: bool = False) -> bool:
    """Equality; where DuckDB divides, it answers a double, and ours is a decimal of limited scale."""
    if cut and isinstance(expected, (Decimal, float)) and isinstance(found, (Decimal, float)):
        scales = [-number.as_tuple().exponent for number in (expected, found) if isinstance(number, Decimal)]
        exact = Decimal(expected)
        return abs(exact - Decimal(found)) <= Decimal(1).scaleb(-min(scales, default=12)) + abs(exact) * Decimal("1e-12")
    if isinstance(expected, float) and isinstance(found, Decimal):
        digits = max(-found.as_tuple().exponent, 0)
        exact = Decimal(expected)
        step = Decimal(1).scaleb(-digits)
        return abs(exact - found) <= step / 2 + abs(exact) * Decimal("1e-14")
    if isinstance(expected, float) and isinstance(found, float):
        return abs(expected - found) <= abs(expected) * 1e-12
    return expected == found and type(expected) is type(found)
