"""The lake's files: found, opened and checked against the live tables before anything else happens.

It reads footers only. What cannot be compared exactly is refused by name: no value is ever converted by guess.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyarrow.parquet
from pyarrow import types

from flight_client import Column, LiveTable
from errors import BadLake


@dataclass(frozen=True)
class LakeTable:
    """The Parquet files of one table."""

    table: str
    files: tuple[Path, ...]
    rows: int
    ignored: tuple[str, ...]


def check(folder: Path, live: LiveTable) -> LakeTable:
    """The files of a table: `DATABASE/TABLE/*.parquet` below the lake's folder."""
    place = folder / Path(*live.name.split("."))
    files = tuple(sorted(place.glob("*.parquet")))
    if not files:
        raise BadLake(f"{place}: no Parquet files for table {live.name}: check --lake and --tables")
    rows = 0
    ignored: set[str] = set()
    for file in files:
        try:
            with pyarrow.parquet.ParquetFile(file) as opened:
                rows += opened.metadata.num_rows
                schema = opened.schema_arrow
        except (pyarrow.ArrowException, OSError) as error:
            raise BadLake(
                f"{file}: not a whole Parquet file ({str(error).splitlines()[0]}): export the table again"
            ) from error
        _check_columns(file, schema, live)
        ignored.update(set(schema.names) - {column.name for column in live.columns})
    return LakeTable(live.name, files, rows, tuple(sorted(ignored)))


def _check_columns(file: Path, schema: pyarrow.Schema, live: LiveTable) -> None:
    for column in live.columns:
        at = schema.get_all_field_indices(column.name)
        if len(at) != 1:
            what = "is missing" if not at else "is there twice"
            raise BadLake(
                f"{file}: column {column.name} of {live.name} {what}; the file has {', '.join(schema.names)}: "
                "export the table again"
            )
        kind = schema.field(at[0]).type
        if not comparable(column, kind):
            raise BadLake(
                f"{file}: column {column.name} is {kind}, which does not compare exactly with {column.kind} "
                f"of {live.name}: export it as {wanted(column)}"
            )


def comparable(column: Column, kind: pyarrow.DataType) -> bool:
    """Whether values of an Arrow type compare exactly with a live column's."""
    base = column.kind.split("(")[0].split()[0]
    if base in ("tinyint", "smallint", "mediumint", "int", "integer", "bigint"):
        return types.is_integer(kind) or (types.is_decimal128(kind) and kind.scale == 0 and kind.precision <= 20)
    if base in ("decimal", "numeric"):
        return types.is_decimal128(kind) and kind.scale == scale(column.kind)
    if base == "double":
        return types.is_float64(kind)
    if base in ("char", "varchar", "tinytext", "text", "mediumtext", "longtext"):
        return types.is_string(kind) or types.is_large_string(kind)
    if base == "date":
        return types.is_date32(kind)
    if base == "datetime":
        return types.is_timestamp(kind) and kind.tz is None and kind.unit in ("ms", "us")
    if base == "timestamp":
        return types.is_timestamp(kind) and kind.tz is not None and kind.unit in ("ms", "us")
    return False


def scale(kind: str) -> int:
    """Digits behind the point of `decimal(p,s)`."""
    inside = kind.partition("(")[2].partition(")")[0].split(",")
    return int(inside[1]) if len(inside) > 1 else 0


def wanted(column: Column) -> str:
    """What a lake column should be, in Parquet's words."""
    base = column.kind.split("(")[0].split()[0]
    if base in ("decimal", "numeric"):
        return f"a decimal of scale {scale(column.kind)}"
    return {
        "double": "a double",
        "date": "a date",
        "datetime": "a timestamp in microseconds that is not adjusted to UTC",
        "timestamp": "a timestamp in microseconds that is adjusted to UTC",
    }.get(base, "a string" if "char" in base or "text" in base else "an integer")
