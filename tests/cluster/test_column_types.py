"""Every column type through every reader: what was written comes back, letter by letter and bit by bit, NULLs too.

Rows are written once as text and once with prepared statements. A cell of the table that `make tables` prints is
`exact`, or says what a reader's own way of showing a value leaves of it, or the words with which it refuses the type. A
value that comes back as anything else, or a refusal that is none any more, fails the test.
"""

import datetime
import json
import os
import re
import struct
from decimal import Context, Decimal
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import pandas
import polars
import prepared
import pymysql
import pytest
import scripts
from column_types import NOT_STORED, TYPES, Type
from harness import Cluster, FlightClient

UTC = datetime.timezone.utc
TABLE = "kinds.every"
BINARY_ROWS = 100


class Reader:
    """A way to read columns; `natural` says what a value is in it."""

    name = ""

    def read(self, table: str, columns: list[str], token: str) -> list[tuple]:
        """The rows with `id` before the columns, sorted by it."""
        raise NotImplementedError

    def natural(self, kind: Type, value: object) -> object:
        return value

    def shown(self, kind: Type) -> str:
        """What the cell says of values that are as `natural` has them."""
        return kind.note

    def close(self) -> None:
        pass


class Sql(Reader):
    """SQL at the MySQL port, by one engine."""

    def __init__(self, cluster: Cluster, engine: str, is_prepared: bool):
        self.name = f"SQL on {engine}, {'prepared' if is_prepared else 'text'}"
        self.engine, self.is_prepared = engine, is_prepared
        self.connection = cluster.connect()

    def read(self, table: str, columns: list[str], token: str) -> list[tuple]:
        sql = f"SELECT {', '.join(['id', *columns])} FROM {table} ORDER BY id"
        with self.connection.cursor() as cursor:
            cursor.execute(f"SET isobar_read_engines = '{self.engine}'")
            cursor.execute(f"SET isobar_snapshot = '{token}'")
            if self.is_prepared:
                return prepared.execute(self.connection, sql)
            cursor.execute(sql)
            return list(cursor.fetchall())

    def natural(self, kind: Type, value: object) -> object:
        if kind.base == "BIT":
            return value.to_bytes((bits(kind) + 7) // 8, "big")
        return float(f"{value:.6g}") if self.is_rounded(kind) else value

    def is_rounded(self, kind: Type) -> bool:
        """MySQL prints six digits of a FLOAT."""
        return kind.base == "FLOAT" and not self.is_prepared

    def shown(self, kind: Type) -> str:
        return kind.note.replace("exact", "six digits, as in MySQL") if self.is_rounded(kind) else kind.note

    def close(self) -> None:
        self.connection.close()


class Arrow(Reader):
    """What has Arrow's types: a TIMESTAMP knows its zone."""

    def natural(self, kind: Type, value: object) -> object:
        return value.replace(tzinfo=UTC) if kind.base == "TIMESTAMP" else value


class Flight(Arrow):
    """The Flight server: scans, or queries."""

    def __init__(self, cluster: Cluster, is_scan: bool):
        self.name, self.is_scan = f"Flight {'scan' if is_scan else 'SQL'}", is_scan
        self.client = FlightClient(cluster)

    def read(self, table: str, columns: list[str], token: str) -> list[tuple]:
        if self.is_scan:
            return sorted(self.client.scan(table, ["id", *columns], token), key=lambda row: row[0])
        return self.client.sql(f"SELECT {', '.join(['id', *columns])} FROM {table} ORDER BY id", "", token)


class Adbc(Arrow):
    """ADBC's Flight SQL driver, into a frame; its rows are those of now."""

    def __init__(self, cluster: Cluster, into: str):
        self.name, self.into = f"ADBC, {into}", into
        login = {"username": "root", "password": ""}
        self.connection = flight_sql.connect(f"grpc://{cluster.flight[0]}", db_kwargs=login, autocommit=True)

    def read(self, table: str, columns: list[str], token: str) -> list[tuple]:
        sql = f"SELECT {', '.join(['id', *columns])} FROM {table} ORDER BY id"
        if self.into == "polars":
            return polars.read_database(sql, self.connection).rows()
        # pandas' own types have no NULL among integers.
        frame = pandas.read_sql(sql, self.connection, dtype_backend="pyarrow")
        return list(zip(*(map(self.plain, frame[name].tolist()) for name in frame.columns)))

    @staticmethod
    def plain(value: object) -> object:
        if isinstance(value, pandas.Timestamp):
            return value.to_pydatetime()
        if isinstance(value, pandas.Timedelta):
            return value.to_pytimedelta()
        return None if value is pandas.NA else value

    def close(self) -> None:
        self.connection.close()


class Spark(Reader):
    """Spark over the connector."""

    name = "Spark"

    def __init__(self, jar: Path, cluster: Cluster):
        from readers import SparkReader

        self.spark = SparkReader(jar, cluster.flight, master="local[1]")

    def frame(self, table: str, token: str):
        return self.spark.spark.read.option("snapshot", token).table(f"isobar.{table}")

    def read(self, table: str, columns: list[str], token: str) -> list[tuple]:
        frame = self.frame(table, token).select("id", *columns).sort("id")
        kinds = [field.dataType for field in frame.schema.fields]
        return [tuple(map(self.scaled, kinds, row)) for row in frame.collect()]

    @staticmethod
    def scaled(kind: object, value: object) -> object:
        """PySpark hands a Decimal over in engineering notation, which may add zeros: its scale is its column's."""
        if isinstance(value, Decimal):
            return value.quantize(Decimal((0, (1,), -kind.scale)), context=Context(prec=80))
        return value

    def natural(self, kind: Type, value: object) -> object:
        if kind.sql in ("BIGINT UNSIGNED", "BIT(64)"):
            return Decimal(value)
        # PySpark shows timestamps in the zone of its process.
        return value.replace(tzinfo=UTC).astimezone().replace(tzinfo=None) if kind.base == "TIMESTAMP" else value

    def close(self) -> None:
        self.spark.close()


def bits(kind: Type) -> int:
    return int(re.search(r"\((\d+)\)", kind.sql)[1])


def literal(value: object) -> str:
    """A value as SQL."""
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.timedelta():
            return f"'{scripts.time(value)}'"
        case datetime.date():
            return f"'{value}'"
        case float():
            return f"{value!r}e0" if "e" not in repr(value) else repr(value)
        case Decimal():
            return f"{value:f}"
        case str():
            return pymysql.converters.escape_str(value)
    return str(value)


def written(kind: Type, at: int, binary: bool) -> object:
    """The value of a row; NULL behind the last."""
    values = kind.written()
    value = values[at] if at < len(values) else None
    return prepared.Single(value) if binary and kind.base == "FLOAT" and value is not None else value


def write(cluster: Cluster, table: str, kinds: list[Type]) -> None:
    """A table with a column c0, c1, … of each type: rows from 1 on as text, from BINARY_ROWS on as parameters."""
    columns = ", ".join(f"c{at} {kind.sql}" for at, kind in enumerate(kinds))
    rows = range(1 + max(len(kind.values) for kind in kinds))
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})")
        for at in rows:
            cells = ", ".join(literal(written(kind, at, False)) for kind in kinds)
            cursor.execute(f"INSERT INTO {table} VALUES ({at}, {cells})")
        insert = f"INSERT INTO {table} VALUES (?{', ?' * len(kinds)})"
        for at in rows:
            prepared.execute(connection, insert, (BINARY_ROWS + at, *(written(kind, at, True) for kind in kinds)))


def is_same(wanted: object, got: object) -> bool:
    if isinstance(got, bytearray):
        got = bytes(got)
    if type(wanted) is not type(got):
        return False
    if isinstance(wanted, float):
        return struct.pack("<d", wanted) == struct.pack("<d", got)
    return wanted.as_tuple() == got.as_tuple() if isinstance(wanted, Decimal) else wanted == got


def short(value: object) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) < 80 else f"{text[:60]}… ({len(text)} letters)"


def cell(reader: Reader, kind: Type, column: dict[int, object]) -> str:
    """What a reader makes of a type's values, by the rows' numbers."""
    values = kind.read()
    for first in (0, BINARY_ROWS):
        for at in range(len(column) // 2):
            wanted = reader.natural(kind, values[at]) if at < len(values) else None
            if not is_same(wanted, column[first + at]):
                return f"WRONG in row {first + at}: {short(column[first + at])}, not {short(wanted)}"
    return reader.shown(kind)


def places() -> list[tuple[str, int]]:
    """The table and the column of each type: one table for all, and one each for those that not all readers take."""
    together, alone, found = iter(range(len(TYPES))), iter(range(len(TYPES))), []
    for kind in TYPES:
        found.append((f"kinds.alone{next(alone)}", 0) if kind.refused else (TABLE, next(together)))
    return found


def kinds_of(table: str) -> list[Type]:
    return [kind for kind, (where, _) in zip(TYPES, places()) if where == table]


def tables() -> list[str]:
    return list(dict.fromkeys(table for table, _ in places()))


def read_column(reader: Reader, table: str, at: int, token: str) -> str:
    """The cell of one column, read alone."""
    try:
        rows = reader.read(table, [f"c{at}"], token)
    except Exception as error:  # noqa: BLE001: whatever a reader throws is its refusal
        return "refused: " + " ".join(str(error).split())
    return cell(reader, kinds_of(table)[at], {row[0]: row[1] for row in rows})


def cells(reader: Reader, token: str) -> list[str]:
    """A reader's column of the table: the columns of a table at once, or one by one where that fails."""
    said = {}
    for table in tables():
        kinds = kinds_of(table)
        try:
            rows = reader.read(table, [f"c{at}" for at in range(len(kinds))], token)
        except Exception:  # noqa: BLE001: it is asked again, to learn which type it is
            said.update({(table, at): read_column(reader, table, at, token) for at in range(len(kinds))})
        else:
            for at, kind in enumerate(kinds):
                said[table, at] = cell(reader, kind, {row[0]: row[1 + at] for row in rows})
    return [said[place] for place in places()]


def note(table: dict[str, list[str]]) -> None:
    """The lines that `make tables` gathers."""
    for at, kind in enumerate(TYPES):
        cells = {name: column[at][:200].replace("|", "/") for name, column in table.items()}
        line = {"table": "types", "type": kind.sql, "cells": cells}
        print(json.dumps(line, ensure_ascii=False))
        if os.environ.get("ISOBAR_RESULTS"):
            with open(os.environ["ISOBAR_RESULTS"], "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


@pytest.fixture(scope="module")
def readers(cluster: Cluster, jar: Path):
    made = [Sql(cluster, engine, is_prepared) for engine in ("rows", "columns") for is_prepared in (False, True)]
    made += [Flight(cluster, True), Flight(cluster, False), Adbc(cluster, "pandas"), Adbc(cluster, "polars")]
    made.append(Spark(jar, cluster))
    yield made
    for reader in made:
        reader.close()


@pytest.mark.timeout(420)
def test_every_type_comes_back_from_every_reader(cluster: Cluster, readers: list[Reader]):
    cluster.sql("CREATE DATABASE kinds")
    for name in tables():
        write(cluster, name, kinds_of(name))
    cluster.replicate(TABLE)
    token = cluster.token()
    table = {reader.name: cells(reader, token) for reader in readers}
    note(table)
    wrong = []
    for reader in readers:
        for kind, said in zip(TYPES, table[reader.name], strict=True):
            words = kind.refused.get(reader.name)
            is_right = said == reader.shown(kind) if words is None else said.startswith("refused: ") and words in said
            if not is_right:
                wrong.append(f"{kind.sql} by {reader.name}: {said}")
    assert not wrong, "\n".join(wrong)


def test_what_no_column_takes_is_refused(cluster: Cluster):
    cluster.sql("CREATE DATABASE refused")
    for number, (kind, value, code) in enumerate(NOT_STORED):
        cluster.sql(f"CREATE TABLE refused.t{number} (c {kind})")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            cluster.sql(f"INSERT INTO refused.t{number} VALUES ({value})")
        assert raised.value.args[0] == code, f"{kind} {value[:50]}: {raised.value}"
        assert cluster.sql(f"SELECT COUNT(*) FROM refused.t{number}") == [(0,)]
    cluster.sql("CREATE TABLE refused.real (d DOUBLE, f FLOAT)")
    with cluster.connect() as connection:
        for value in (float("nan"), float("inf"), prepared.Single("nan"), prepared.Single("-inf")):
            for column in "df":
                with pytest.raises(pymysql.err.MySQLError):
                    prepared.execute(connection, f"INSERT INTO refused.real ({column}) VALUES (?)", (value,))
    assert cluster.sql("SELECT COUNT(*) FROM refused.real") == [(0,)]
