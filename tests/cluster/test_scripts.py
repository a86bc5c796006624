"""Every sqllogictest script over a cluster: on rows, on columns, in Spark, and on MariaDB beside it.

The scripts of engine/sql/tests/scripts say what Isobar answers; those of tests/scripts were written for comparison and
say what MySQL answers. Every difference must be in tests/scripts/differences.toml with its reason, and every line there
must still be one.
"""

import json
import os
import shutil
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import scripts
from harness import SYSTEM_DATABASES, Cluster, absent
from mariadb_server import MariaDb
from scripts import Answer, Record, Server, parse, verdict

ROOT = Path(__file__).resolve().parents[2]
DIFFERENCES = ROOT / "tests/scripts/differences.toml"
FOLDERS = [ROOT / "engine/sql/tests/scripts", ROOT / "tests/scripts"]
# What a session of Isobar begins with, so that MariaDB's means the same.
STRICT = (
    "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
)
LIKE_ISOBAR = [
    f"SET sql_mode = '{STRICT}'",
    "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin",
    "SET time_zone = '+00:00'",
    "SET div_precision_increment = 4",
]
DEFINES = ("CREATE", "ALTER", "RENAME", "TRUNCATE")


class Spark:
    """Spark over the connector's catalog, in one process."""

    def __init__(self, jar: Path, cluster: Cluster):
        from readers import SparkReader

        self.reader = SparkReader(jar, cluster.flight, master="local[1]")
        self.session = self.reader.spark
        self.session.conf.set("spark.sql.session.timeZone", "UTC")
        self.session.conf.set("spark.sql.shuffle.partitions", "1")

    def begin(self) -> None:
        self.session.catalog.setCurrentCatalog("isobar")
        self.session.sql("USE d")

    def run(self, record: Record) -> Answer:
        """The answer to a query; whatever Spark refuses is an error without a number."""
        try:
            frame = self.session.sql(record.sql)
            floats = [kind in ("double", "float") for _, kind in frame.dtypes]
            rows = [[(scripts.text(cell), floats[at]) for at, cell in enumerate(row)] for row in frame.collect()]
            return Answer(rows)
        except Exception as error:  # noqa: BLE001: py4j's and Spark's errors have no common base
            return Answer(error=(0, str(error).strip().split("\n")[0]))


class Columns(Server):
    """Isobar where nothing but columns may answer: every table gets a columnar replica as soon as it is there."""

    def __init__(self, cluster: Cluster):
        super().__init__(cluster.connect, ["SET isobar_read_engines = 'columns'"], True)
        self.cluster, self.stored, self.stale = cluster, set(), False

    def begin(self, create: str) -> None:
        super().begin(create)
        self.stored.clear()

    def run(self, record: Record) -> Answer:
        if self.stale:
            self.replicate()
        words = record.sql.lstrip().upper()
        self.stale = words.startswith(DEFINES)
        if words.startswith("TRUNCATE"):
            # The name is another table's from now on, whose replica takes a moment.
            self.stored.clear()
        return super().run(record)

    def replicate(self) -> None:
        tables = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
        now = {row for row in self.admin(tables) if row[0].lower() not in SYSTEM_DATABASES}
        for database, name in sorted(now - self.stored):
            self.admin(f"ALTER TABLE `{database}`.`{name}` SET COLUMNAR REPLICA 1")
            self.cluster.wait_available(f"{database}.{name}")
        self.stored = now


class Report:
    """Counts of all readers of one script, and every difference."""

    def __init__(self, script: str) -> None:
        self.script = script
        self.counts: dict[str, Counter] = defaultdict(Counter)
        self.found: dict[str, dict[str, str]] = defaultdict(dict)

    def add(self, reader: str, record: Record, wrong: str | None) -> None:
        self.counts[reader][wrong.split(":")[0] if wrong else "agrees"] += 1
        if wrong:
            # The same statement twice in one script is one difference.
            self.found[reader].setdefault(" ".join(record.sql.split()), f"line {record.line}: {wrong}")

    def skip(self, reader: str, records: int) -> None:
        self.counts[reader]["not run"] += records

    def note(self) -> None:
        """Appends counts and differences to the file that ISOBAR_RESULTS names, for `make tables`."""
        if not os.environ.get("ISOBAR_RESULTS"):
            return
        kinds = ["agrees", "differs", "refused", "not run"]
        lines = [
            {"table": "scripts", "reader": reader, **{kind: count[kind] for kind in kinds}}
            for reader, count in self.counts.items()
        ]
        lines += [
            {"table": "differences", "script": self.script, "reader": reader, "statement": statement, "wrong": wrong}
            for reader, statements in self.found.items()
            for statement, wrong in statements.items()
        ]
        with open(os.environ["ISOBAR_RESULTS"], "a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def explained() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], dict[str, str]]]:
    """Scripts that are not run on a reader, and statements that differ, each with its reason."""
    whole, single = {}, defaultdict(dict)
    for entry in tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))["difference"]:
        assert len(entry["why"]) > 10, f"no reason: {entry}"
        for reader in entry["readers"]:
            if entry.get("not_run"):
                for script in entry["scripts"]:
                    whole[script, reader] = entry["why"]
                continue
            for statement in entry["statements"]:
                single[entry["script"], reader][statement] = entry["why"]
    return whole, single


def run(path: Path, reader: str, server: Server, report: Report, numbers: dict[int, int | None], spark: Spark) -> None:
    """One script on one server, and in Spark while its tables have columns."""
    server.begin("CREATE DATABASE d" if server.own else "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    for record in parse(path):
        answer = server.run(record)
        if reader == "rows":
            numbers[record.line] = answer.error[0] if answer.error else None
        report.add(reader, record, verdict(record, answer, server.own, numbers.get(record.line)))
        if reader == "columns" and record.spark:
            spark.begin()
            report.add("spark", record, verdict(record, spark.run(record), True, None))
    server.end()


@pytest.fixture(scope="module")
def readers(cluster: Cluster, jar: Path, tmp_path_factory: pytest.TempPathFactory):
    """Who answers the scripts: rows, columns and MariaDB by name, and Spark."""
    program = shutil.which("mariadbd") or shutil.which("/usr/sbin/mariadbd") or absent("mariadbd")
    mariadb = MariaDb(program, tmp_path_factory.mktemp("mariadb"))
    try:
        spark = Spark(jar, cluster)
        yield {
            "rows": Server(cluster.connect, ["SET isobar_read_engines = 'rows'"], True),
            "columns": Columns(cluster),
            "mariadb": Server(mariadb.connect, LIKE_ISOBAR, False),
        }, spark
        spark.reader.close()
    finally:
        mariadb.stop()


WHOLE, SINGLE = explained()
PATHS = list(scripts.scripts(*FOLDERS))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_script_agrees_on_every_reader(path: Path, readers):
    servers, spark = readers
    report, numbers = Report(path.name), {}
    for reader, server in servers.items():
        if (path.name, reader) in WHOLE:
            report.skip(reader, len(parse(path)))
        else:
            run(path, reader, server, report, numbers, spark)
    report.note()
    names = {reader for script, reader in SINGLE if script == path.name} | set(report.found)
    known = {reader: SINGLE.get((path.name, reader), {}) for reader in names}
    new = [
        f"on {reader}, {wrong}\n    {statement}"
        for reader, statements in report.found.items()
        for statement, wrong in statements.items()
        if statement not in known[reader]
    ]
    gone = [
        f"on {reader}: {statement}"
        for reader, statements in known.items()
        for statement in statements
        if statement not in report.found[reader]
    ]
    text = f"{len(new)} differences are not explained:\n" + "\n".join(new)
    assert not new and not gone, text + f"\n{len(gone)} explained differences are none:\n" + "\n".join(gone)


def test_every_explained_difference_names_a_script():
    assert {script for script, _ in [*WHOLE, *SINGLE]} <= {path.name for path in PATHS}
