"""The plan of a run: the differences as they were found, on disk, before the first correction.

A plan never changes once it is complete: a run that is started again goes on with the same batches.
"""

import datetime
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet

from classify import KINDS

BATCH_BYTES = 4 << 20

Value = object


@dataclass(frozen=True)
class Difference:
    """One row that differs. `lake` and `live` are whole rows by column name; None where there is none."""

    number: int
    kind: str
    key: tuple[Value, ...]
    changed: tuple[str, ...]
    lake: dict[str, Value] | None
    live: dict[str, Value] | None


@dataclass(frozen=True)
class Summary:
    """What is known of a table's comparison."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    lake_rows: int
    live_rows: int
    kinds: dict[str, int]
    seconds: float
    ignored: tuple[str, ...]


class Plan:
    """The saved differences of one table."""

    def __init__(self, work: Path, table: str):
        self.folder = work / "plan" / table
        self._mark = work / "plan" / f"{table}.json"

    def is_complete(self) -> bool:
        """Whether the plan was saved to its end."""
        return self._mark.is_file()

    def summary(self) -> Summary:
        """The summary of a complete plan."""
        found = json.loads(self._mark.read_text(encoding="utf-8"))
        return Summary(**{**found, **{name: tuple(found[name]) for name in ("key", "columns", "ignored")}})

    def seal(self, summary: Summary) -> None:
        """Declares the plan complete; after this it is never written again."""
        for path in self.folder.iterdir():
            sync(path)
        replace(self._mark, json.dumps(asdict(summary), indent=1))

    def forget(self) -> None:
        """Removes a plan that rests on a snapshot which is gone, before anything was done by it."""
        self._mark.unlink(missing_ok=True)

    def count(self) -> dict[str, int]:
        """Differences of each kind."""
        counts = dict.fromkeys(KINDS, 0)
        for file in self.folder.glob("*.parquet"):
            for kind in pyarrow.parquet.read_table(file, columns=["kind"])["kind"].to_pylist():
                counts[kind] += 1
        return counts

    def has_unique_keys(self, key: tuple[str, ...]) -> bool:
        """Whether every difference has a key of its own; equal ones would lie side by side."""
        before = None
        for row in self.differences(key):
            if row.key == before or None in row.key:
                return False
            before = row.key
        return True

    def differences(self, key: tuple[str, ...]) -> Iterator[Difference]:
        """Every difference, in the order of the keys."""
        number = 0
        for file in sorted(self.folder.glob("*.parquet")):
            with pyarrow.parquet.ParquetFile(file) as opened:
                for batch in opened.iter_batches(batch_size=1024, columns=["kind", "changed", "lake", "live"]):
                    for row in batch.to_pylist():
                        lake, live = plain_row(row["lake"]), plain_row(row["live"])
                        known = lake if lake is not None else live
                        values = tuple(known[name] for name in key)
                        yield Difference(number, row["kind"], values, tuple(row["changed"] or ()), lake, live)
                        number += 1

    def batches(self, key: tuple[str, ...], rows: int) -> Iterator[list[Difference]]:
        """The differences in bounded batches: the same ones whenever it is asked."""
        batch: list[Difference] = []
        size = 0
        for difference in self.differences(key):
            sides = (difference.lake or {}, difference.live or {})
            weight = sum(len(value) for side in sides for value in side.values() if isinstance(value, str))
            if batch and (len(batch) >= rows or size + weight > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(difference)
            size += weight
        if batch:
            yield batch


def digest(batch: list[Difference]) -> str:
    """Identifies a batch by all that it holds."""
    hashed = hashlib.sha256()
    for one in batch:
        hashed.update(repr((one.number, one.kind, one.changed, one.lake, one.live)).encode())
    return hashed.hexdigest()


def plain_row(row: dict[str, Value] | None) -> dict[str, Value] | None:
    """A row's values as MySQL clients have them."""
    return None if row is None else {name: plain(value) for name, value in row.items()}


def plain(value: Value) -> Value:
    """Instants in UTC without saying so: what a MySQL session whose time_zone is UTC reads and writes."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    return value


def replace(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a file whole and durably, or not at all."""
    part = path.with_name(path.name + ".part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
