"""Writes the lake's Parquet files and the live tables' load files, which differ in planted ways, and what was planted.

The ledger is for the judge alone: the job never reads it. The same seed plants the same differences.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tables import Source

FILE_ROWS = 1_000_000
LOAD_ROWS = 250_000  # LOAD DATA is given a file of so many lines at a time


@dataclass(frozen=True)
class Planted:
    """What was planted in one table: keys, as the texts of their values in UTC, by kind."""

    table: str
    rows: int
    missing: list[tuple[str, ...]]
    extra: list[tuple[str, ...]]
    changed: list[tuple[str, ...]]


def make(sources: list[Source], data: Path, folder: Path, differences: int, seed: int = 7) -> list[Planted]:
    """Writes `lake/`, `load/` and `ledger.json` below a folder; `differences` in all, shared by number of rows."""
    database = duckdb.connect(str(folder / "make_lake.duckdb"))
    database.execute("SET memory_limit = '2GB'")
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET threads = 2")
    (folder / "load").mkdir(parents=True, exist_ok=True)
    rows = {}
    for number, source in enumerate(sources):
        database.execute(f"CREATE TABLE t{number} AS {source.select(data)}")
        rows[source.name] = database.execute(f"SELECT count(*) FROM t{number}").fetchone()[0]
    planted = []
    for number, source in enumerate(sources):
        share = max(3, round(differences * rows[source.name] / sum(rows.values())))
        planted.append(_plant(database, f"t{number}", source, folder, share, seed))
        database.execute(f"DROP TABLE t{number}")
    database.close()
    (folder / "make_lake.duckdb").unlink()
    ledger = [{**vars(one)} for one in planted]
    (folder / "ledger.json").write_text(json.dumps(ledger), encoding="utf-8")
    return planted


def _plant(database, rows: str, source: Source, folder: Path, differences: int, seed: int) -> Planted:
    key = ", ".join(f'"{name}"' for name in source.key)
    # A tenth missing, a tenth extra, the rest changed: the first rows in an order that the seed decides.
    few = max(1, differences // 10)
    database.execute(
        f"CREATE TABLE fates AS SELECT {key}, CASE WHEN place <= {few} THEN 'missing' WHEN place <= {2 * few} THEN 'extra'"
        f" ELSE 'changed' END AS fate, hash({key}, {seed}, 'column') AS chance FROM (SELECT {key}, row_number()"
        f" OVER (ORDER BY hash({key}, {seed}), {key}) AS place FROM {rows}) WHERE place <= {differences}"
    )
    others = [name for name in source.columns if name not in source.key]
    altered = ", ".join(
        _altered(source, name, others.index(name), len(others)) if name in others else f'r."{name}"'
        for name in source.columns
    )
    joined = f"{rows} AS r LEFT JOIN fates AS f USING ({key})"
    database.execute(f"CREATE TABLE lake AS SELECT {altered} FROM {joined} WHERE f.fate IS DISTINCT FROM 'extra'")
    place = folder / "lake" / Path(*source.name.split("."))
    place.mkdir(parents=True)
    total = database.execute("SELECT count(*) FROM lake").fetchone()[0]
    for part in range(-(-total // FILE_ROWS)):
        database.execute(
            f"COPY (SELECT * FROM lake LIMIT {FILE_ROWS} OFFSET {part * FILE_ROWS})"
            f" TO '{place}/part-{part:04}.parquet' (FORMAT parquet, COMPRESSION zstd)"
        )
    database.execute(
        f"CREATE TABLE live AS SELECT {_texts(source)} FROM {joined} WHERE f.fate IS DISTINCT FROM 'missing'"
    )
    lines = database.execute("SELECT count(*) FROM live").fetchone()[0]
    for part in range(-(-lines // LOAD_ROWS)):
        database.execute(
            f"COPY (SELECT * FROM live LIMIT {LOAD_ROWS} OFFSET {part * LOAD_ROWS})"
            f" TO '{folder}/load/{source.name}.{part:04}.csv' (FORMAT csv, HEADER false, DELIMITER '|', QUOTE '\"',"
            " ESCAPE '\"', FORCE_QUOTE *, NULLSTR '\\N')"
        )
    text = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in source.key)
    found = {
        fate: database.execute(f"SELECT {text} FROM fates WHERE fate = '{fate}' ORDER BY {key}").fetchall()
        for fate in ("missing", "extra", "changed")
    }
    for table in ("fates", "lake", "live"):
        database.execute(f"DROP TABLE {table}")
    return Planted(source.name, total, **found)


def _altered(source: Source, name: str, place: int, places: int) -> str:
    """A column of the lake: in a row that is to differ, one column, chosen by chance, has another value."""
    column = f'r."{name}"'
    kind = source.duck(name)
    if kind == "VARCHAR":
        most = source.columns[name].partition("(")[2].partition(")")[0]
        first = f"CASE WHEN {column}[1:1] = '~' THEN '^' ELSE '~' END"
        other = f"{first} || coalesce({column}[2:], '')" if most else f"coalesce({column}, '') || '~'"
    elif kind == "DATE":
        other = f"coalesce({column}, DATE '2001-01-01') + CASE WHEN year({column}) > 5000 THEN -1 ELSE 1 END"
    elif kind == "TIMESTAMP":
        other = f"coalesce({column}, TIMESTAMP '2001-01-01') + INTERVAL 1 SECOND"
    elif kind == "TIMESTAMPTZ":
        other = f"coalesce({column}, TIMESTAMPTZ '2001-01-01 00:00:00+00') + INTERVAL 1 HOUR"
    elif kind == "DOUBLE":
        other = f"coalesce({column}, 0) * 2 + 1e-9"
    else:
        other = f"coalesce({column} + CASE WHEN {column} > 0 THEN -1 ELSE 1 END, 1)"
    if name in source.nullable:
        # Every third difference is one of NULL: a value that is not there any more.
        other = f"CASE WHEN {column} IS NOT NULL AND (f.chance >> 20) % 3 = 0 THEN NULL ELSE {other} END"
    chosen = f"f.fate = 'changed' AND f.chance % {places} = {place}"
    return f'CASE WHEN {chosen} THEN {other} ELSE {column} END::{kind} AS "{name}"'


def _texts(source: Source) -> str:
    """A live row as LOAD DATA reads it."""

    def text(name: str) -> str:
        column = f'r."{name}"'
        if source.duck(name) == "TIMESTAMPTZ":
            return f"strftime(timezone('UTC', {column}), '%Y-%m-%d %H:%M:%S.%f')"
        return f"CAST({column} AS VARCHAR)"

    return ", ".join(f'{text(name)} AS "{name}"' for name in source.columns)


def load(source: Source, folder: Path) -> list[str]:
    """LOAD DATA of a live table, file by file. A NULL is `\\N`, which no text of these tables is."""
    variables = ", ".join(f"@{name}" for name in source.columns)
    sets = ", ".join(f"`{name}` = NULLIF(@{name}, '\\\\N')" for name in source.columns)
    return [
        f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {source.name} FIELDS TERMINATED BY '|'"
        f" ENCLOSED BY '\"' ESCAPED BY '' LINES TERMINATED BY '\\n' ({variables}) SET {sets}"
        for file in sorted((folder / "load").glob(f"{source.name}.*.csv"))
    ]
