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
TABLES = {
    "region": "r_regionkey INT PRIMARY KEY, r_name CHAR(25) NOT NULL, r_comment VARCHAR(152)",
    "nation": "n_nationkey INT PRIMARY KEY, n_name CHAR(25) NOT NULL, n_regionkey INT NOT NULL,"
    " n_comment VARCHAR(152)",
    "supplier": "s_suppkey INT PRIMARY KEY, s_name CHAR(25) NOT NULL, s_address VARCHAR(40) NOT NULL,"
    " s_nationkey INT NOT NULL, s_phone CHAR(15) NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL,"
    " s_comment VARCHAR(101) NOT NULL",
    "part": "p_partkey INT PRIMARY KEY, p_name VARCHAR(55) NOT NULL, p_mfgr CHAR(25) NOT NULL,"
    " p_brand CHAR(10) NOT NULL, p_type VARCHAR(25) NOT NULL, p_size INT NOT NULL, p_container CHAR(10) NOT NULL,"
    " p_retailprice DECIMAL(15,2) NOT NULL, p_comment VARCHAR(23) NOT NULL",
    "partsupp": "ps_partkey INT NOT NULL, ps_suppkey INT NOT NULL, ps_availqty INT NOT NULL,"
    " ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment VARCHAR(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)",
    "customer": "c_custkey INT PRIMARY KEY, c_name VARCHAR(25) NOT NULL, c_address VARCHAR(40) NOT NULL,"
    " c_nationkey INT NOT NULL, c_phone CHAR(15) NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL,"
    " c_mktsegment CHAR(10) NOT NULL, c_comment VARCHAR(117) NOT NULL",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey INT NOT NULL, o_orderstatus CHAR(1) NOT NULL,"
    " o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL, o_orderpriority CHAR(15) NOT NULL,"
    " o_clerk CHAR(15) NOT NULL, o_shippriority INT NOT NULL, o_comment VARCHAR(79) NOT NULL",
    "lineitem": "l_orderkey BIGINT NOT NULL, l_partkey INT NOT NULL, l_suppkey INT NOT NULL,"
    " l_linenumber INT NOT NULL, l_quantity DECIMAL(15,2) NOT NULL, l_extendedprice DECIMAL(15,2) NOT NULL,"
    " l_discount DECIMAL(15,2) NOT NULL, l_tax DECIMAL(15,2) NOT NULL, l_returnflag CHAR(1) NOT NULL,"
    " l_linestatus CHAR(1) NOT NULL, l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL,"
    " l_receiptdate DATE NOT NULL, l_shipinstruct CHAR(25) NOT NULL, l_shipmode CHAR(10) NOT NULL,"
    " l_comment VARCHAR(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
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
    """The peer: the same files, the same texts."""

    def __init__(self, folder: Path):
        import duckdb

        self.connection = duckdb.connect()
        for table, columns in TABLES.items():
            self.connection.execute(f"CREATE TABLE {table} ({columns})")
            # The separator at the end of a line makes one more column, which is always empty.
            names = re.findall(r"\b([a-z]+_[a-z]+) [A-Z]", columns)
            types = {name: "VARCHAR" for name in [*names, "nothing"]}
            self.connection.execute(
                f"INSERT INTO {table} SELECT {', '.join(names)} FROM read_csv(?, delim='|', header=false, quote='',"
                f" escape='', columns={types})",
                [str(folder / f"{table}.tbl")],
            )

    def answer(self, number: int, scale: float) -> list[tuple]:
        """The rows."""
        return self.connection.execute(query(number, scale)).fetchall()


def differences(number: int, expected: list[tuple], found: list[tuple]) -> list[str]:
    """How an answer differs from DuckDB's; nothing if it does not."""
    if len(expected) != len(found):
        return [f"{len(found)} rows, not {len(expected)}"]
    keys = ORDER[number]
    problems = []
    ordered = [[value(row[key]) for key in keys] for row in found]
    for at, row in enumerate(expected):
        if not all(same(a, b) for a, b in zip([value(row[key]) for key in keys], ordered[at])):
            problems.append(f"row {at} is out of order: {found[at]}, not {row}")
    order = lambda row: [str(rounded(value(cell))) for cell in row]  # noqa: E731
    for left, right in zip(sorted(expected, key=order), sorted(found, key=order)):
        if not all(same(value(a), value(b)) for a, b in zip(left, right)):
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


def same(expected: object, found: object) -> bool:
    """Equality; where DuckDB divides, it answers a double, and ours is a decimal of limited scale."""
    if isinstance(expected, float) and isinstance(found, Decimal):
        digits = max(-found.as_tuple().exponent, 0)
        exact = Decimal(expected)
        step = Decimal(1).scaleb(-digits)
        return abs(exact - found) <= step / 2 + abs(exact) * Decimal("1e-14")
    if isinstance(expected, float) and isinstance(found, float):
        return abs(expected - found) <= abs(expected) * 1e-12
    return expected == found and type(expected) is type(found)
