"""Every sqllogictest script over a cluster: on rows, on columns, in Spark, and on MariaDB beside it.

The scripts of engine/sql/tests/scripts say what Isobar answers; those of tests/scripts were written for comparison and
say what MySQL answers. Every difference must be in tests/scripts/differences.toml with its reason, and every line there
must still be one.
"""

import json
import os
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import scripts
from harness import Cluster
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
# Of each script, reader by reader: the statement and what is wrong with it.
Found = dict[tuple[str, str], list[tuple[Record, str]]]


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
        now = {row for row in self.admin(tables) if row[0].lower() not in scripts.SYSTEM}
        for database, name in sorted(now - self.stored):
            self.admin(f"ALTER TABLE `{database}`.`{name}` SET COLUMNAR REPLICA 1")
            self.cluster.wait_available(f"{database}.{name}")
        self.stored = now


class Report:
    """Counts of all readers, and every difference."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter] = defaultdict(Counter)
        self.found: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)

    def add(self, script: str, reader: str, record: Record, wrong: str | None) -> None:
        self.counts[reader][wrong.split(":")[0] if wrong else "agrees"] += 1
        if wrong:
            # The same statement twice in one script is one difference.
            self.found[script, reader].setdefault(" ".join(record.sql.split()), f"line {record.line}: {wrong}")

    def skip(self, reader: str, records: int) -> None:
        self.counts[reader]["not asked"] += records

    def table(self) -> list[dict]:
        kinds = ["agrees", "differs", "refused", "not asked"]
        return [{"reader": name, **{kind: count[kind] for kind in kinds}} for name, count in self.counts.items()]


def explained() -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], dict[str, str]]]:
    """Scripts that a reader is not asked, and statements that differ, each with its reason."""
    whole, single = {}, defaultdict(dict)
    for entry in tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))["difference"]:
        assert len(entry["why"]) > 10, f"no reason: {entry}"
        for reader in entry["readers"]:
            if entry.get("not_asked"):
                for script in entry["scripts"]:
                    whole[script, reader] = entry["why"]
                continue
            for statement in entry["statements"]:
                single[entry["script"], reader][statement] = entry["why"]
    return whole, single


def run(path: Path, reader: str, server: Server, report: Report, numbers: dict, spark: Spark) -> None:
    """One script on one server, and in Spark while its tables have columns."""
    server.begin("CREATE DATABASE d" if server.own else "CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    for record in parse(path):
        answer = server.run(record)
        at = path.name, record.line
        if reader == "rows":
            numbers[at] = answer.error[0] if answer.error else None
        report.add(path.name, reader, record, verdict(record, answer, server.own, numbers.get(at)))
        if reader == "columns" and record.spark:
            spark.begin()
            report.add(path.name, "spark", record, verdict(record, spark.run(record), True, None))
    server.end()


@pytest.fixture
def mariadb(tmp_path: Path, client):
    server = MariaDb(client("mariadbd", "/usr/sbin/mariadbd"), tmp_path)
    yield server
    server.stop()


@pytest.mark.timeout(900)
def test_scripts_agree_on_every_reader(cluster: Cluster, mariadb: MariaDb, jar: Path):
    report, numbers = Report(), {}
    whole, single = explained()
    servers = {
        "rows": Server(cluster.connect, ["SET isobar_read_engines = 'rows'"], True),
        "columns": Columns(cluster),
        "mariadb": Server(mariadb.connect, LIKE_ISOBAR, False),
    }
    spark = Spark(jar, cluster)
    for path in scripts.scripts(*FOLDERS):
        for reader, server in servers.items():
            if (path.name, reader) in whole:
                report.skip(reader, len(parse(path)))
            else:
                run(path, reader, server, report, numbers, spark)
    spark.reader.close()
    for line in report.table():
        print(json.dumps(line))
    if os.environ.get("ISOBAR_RESULTS"):
        with open(os.environ["ISOBAR_RESULTS"], "a", encoding="utf-8") as file:
            file.writelines(json.dumps({"table": "scripts", **line}) + "\n" for line in report.table())
            for (script, reader), statements in report.found.items():
                for statement, wrong in statements.items():
                    line = {"script": script, "reader": reader, "statement": statement, "wrong": wrong}
                    file.write(json.dumps({"table": "differences", **line}) + "\n")
    new = [
        f"{script} on {reader}, {wrong}\n    {statement}"
        for (script, reader), statements in report.found.items()
        for statement, wrong in statements.items()
        if statement not in single[script, reader]
    ]
    gone = [
        f"{script} on {reader} agrees now: {statement}"
        for (script, reader), statements in single.items()
        for statement in statements
        if statement not in report.found[script, reader]
    ]
    text = f"{len(new)} differences are not explained:\n" + "\n".join(new)
    assert not new and not gone, text + f"\n{len(gone)} explained differences are none:\n" + "\n".join(gone)
