"""Asks random queries of rows, of columns on one node and on three, and of MariaDB, and makes what differs small.

    make differential QUERIES=10000 SEED=1

Every difference is written as a script with the tables that show it; a difference that `known.toml` explains, with the
page of MySQL's manual that MariaDB departs from, is counted and left out. The exit code is 1 if any other is left, or
a server's connection ended. Nothing here changes an answer before it is compared, beyond what `Answer` says.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

import pymysql  # noqa: E402
from tqdm import tqdm  # noqa: E402

from grammar import Grammar, Query, Table  # noqa: E402
from harness import Cluster  # noqa: E402
from mariadb_server import MariaDb  # noqa: E402
from scripts import library_words  # noqa: E402
from test_scripts import LIKE_ISOBAR  # noqa: E402

FLOATS = {pymysql.constants.FIELD_TYPE.FLOAT, pymysql.constants.FIELD_TYPE.DOUBLE}
PER_SCHEMA = 100


@dataclass
class Answer:
    """Rows as a server printed them (floats to 14 digits; a bag unless the query orders them), or an error's number."""

    rows: tuple = ()
    error: int | None = None
    text: str = ""

    def same(self, other: Answer) -> bool:
        return (self.rows, self.error) == (other.rows, other.error)

    def __str__(self) -> str:
        shown = " / ".join(" ".join(map(str, row)) for row in self.rows[:6])
        return f"error {self.error}: {self.text[:160]}" if self.error else shown or "(no rows)"


class Lost(Exception):
    """A server's connection ended with a query."""


class Reader:
    """One server's session, and a database of its own for each schema."""

    def __init__(self, name: str, connect: Callable[..., pymysql.Connection], begins: list[str], collation: str = ""):
        self.name, self.connect, self.begins, self.collation = name, connect, begins, collation
        self.session: pymysql.Connection | None = None
        self.open()

    def open(self) -> None:
        self.session = self.connect(conv=dict(pymysql.converters.encoders), read_timeout=60)
        for statement in self.begins:
            self.run(statement)

    def run(self, sql: str, ordered: bool = True) -> Answer:
        try:
            with self.session.cursor() as cursor:
                cursor.execute(sql)
                floats = [column[1] in FLOATS for column in cursor.description or ()]
                rows = [tuple(cell_text(cell, floats[at]) for at, cell in enumerate(row)) for row in cursor.fetchall()]
                return Answer(tuple(rows if ordered else sorted(rows)))
        except (pymysql.err.InterfaceError, OSError) as error:
            raise Lost(f"{self.name}: {error}") from error
        except pymysql.err.MySQLError as error:
            code, text = (*error.args, "")[:2]
            if not isinstance(code, int) or code in (2006, 2013, 0):
                raise Lost(f"{self.name}: {error}") from error
            return Answer(error=code, text=str(text))


def cell_text(cell: object, floating: bool) -> str:
    if cell is None:
        return "NULL"
    text = cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else str(cell)
    return f"{float(text):.13e}" if floating else text


@dataclass
class Known:
    """A known difference of MariaDB from MySQL 8: a pattern of queries, and why."""

    pattern: re.Pattern
    why: str
    readers: tuple[str, ...] = ("mariadb",)


def known() -> list[Known]:
    entries = tomllib.loads((HERE / "known.toml").read_text(encoding="utf-8"))["known"]
    for entry in entries:
        assert entry["manual"], f"no page of MySQL's manual: {entry}"
    return [Known(re.compile(entry["query"]), entry["why"]) for entry in entries]


@dataclass
class Run:
    """Counts, and what was found."""

    readers: list[Reader]
    known: list[Known]
    out: Path
    counts: Counter = field(default_factory=Counter)
    shapes: set[str] = field(default_factory=set)

    def schema(self, database: str, tables: list[Table]) -> None:
        for reader in self.readers:
            reader.run(f"DROP DATABASE IF EXISTS {database}")
            reader.run(f"CREATE DATABASE {database} {reader.collation}")
            reader.run(f"USE {database}")
            for table in tables:
                for statement in table.create():
                    answer = reader.run(statement)
                    if answer.error:
                        raise SystemExit(f"{reader.name} refused {statement}: {answer}")

    def ask(self, query: Query) -> dict[str, Answer]:
        return {reader.name: reader.run(str(query), query.ordered) for reader in self.readers}

    def wrong(self, query: Query, answers: dict[str, Answer]) -> str | None:
        """What is wrong with the answers: nothing, a fault, or who differs from whom."""
        ours = {name: answer for name, answer in answers.items() if name != "mariadb"}
        for name, answer in ours.items():
            if answer.error and library_words(answer.text):
                return f"fault on {name}"
        rows = ours.pop("rows")
        for name, answer in ours.items():
            if not answer.same(rows):
                return f"{name} differs from rows"
        if not rows.same(answers["mariadb"]) and not any(known.pattern.search(str(query)) for known in self.known):
            return "MariaDB differs"
        return None

    def judge(self, query: Query, tables: list[Table], seed: int) -> None:
        self.counts["queries"] += 1
        answers = self.ask(query)
        self.counts["answered"] += not answers["rows"].error
        wrong = self.wrong(query, answers)
        if not wrong:
            return
        small = self.shrink(query, wrong)
        shape = f"{wrong}: {re.sub(r'[ab][.][a-z][0-9]+', 'c', str(small))}"
        self.counts[wrong] += 1
        if shape not in self.shapes:
            self.shapes.add(shape)
            self.note(small, tables, wrong, seed)

    def shrink(self, query: Query, wrong: str) -> Query:
        """The smallest query that is wrong in the same way; bounded, for each step asks every reader."""
        for _ in range(60):
            for less in query.smaller():
                if self.wrong(less, self.ask(less)) == wrong:
                    query = less
                    break
            else:
                return query
        return query

    def note(self, query: Query, tables: list[Table], wrong: str, seed: int) -> None:
        answers = self.ask(query)
        lines = [f"# {wrong}; seed {seed}", *(f"# {name}: {answer}".replace("\n", " ") for name, answer in answers.items()), ""]
        for table in tables:
            if re.search(rf"\b{table.name}\b", str(query)):
                lines += [line for statement in table.create() for line in ("statement ok", statement, "")]
        lines += ["query T" + ("" if query.ordered else " rowsort"), str(query), ""]
        name = f"{wrong.replace(' ', '_')}_{len(self.shapes):04}.slt"
        (self.out / name).write_text("\n".join(lines), encoding="utf-8")


def replicate(cluster: Cluster, database: str, tables: list[Table]) -> None:
    for table in tables:
        cluster.sql(f"ALTER TABLE {database}.{table.name} SET COLUMNAR REPLICA 1")
    for table in tables:
        cluster.wait_available(f"{database}.{table.name}")


def compare(isobar: Path, folder: Path, out: Path, seed: int, queries: int, quiet: bool = False) -> Run:
    """Runs so many queries from a seed on; starts and ends every server that it asks."""
    maria = MariaDb("/usr/sbin/mariadbd", folder)
    one = Cluster(isobar, folder / "one", row=1, columnar=1)
    three = Cluster(isobar, folder / "three", row=1, columnar=3)
    try:
        with one, three:
            columns = ["SET isobar_read_engines = 'columns'", "SET time_zone = '+00:00'"]
            readers = [
                Reader("rows", one.connect, ["SET isobar_read_engines = 'rows'", "SET time_zone = '+00:00'"]),
                Reader("columns", one.connect, columns),
                Reader("columns on three", three.connect, columns),
                Reader("mariadb", maria.connect, LIKE_ISOBAR, "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"),
            ]
            run = Run(readers, known(), out)
            with tqdm(total=queries, unit="query", disable=quiet or None) as bar:
                while run.counts["queries"] < queries:
                    many(run, (one, three), seed, min(PER_SCHEMA, queries - run.counts["queries"]), bar)
                    seed += 1
            return run
    finally:
        maria.stop()


def many(run: Run, clusters: tuple[Cluster, ...], seed: int, count: int, bar: tqdm) -> None:
    """The queries of one seed, over tables of their own."""
    grammar = Grammar(seed)
    tables, database = grammar.tables(), "d"
    # Rows and columns of the first cluster are one set of tables.
    shared = run.readers[1]
    run.readers.remove(shared)
    run.schema(database, tables)
    run.readers.insert(1, shared)
    shared.run(f"USE {database}")
    for cluster in clusters:
        replicate(cluster, database, tables)
    for _ in range(count):
        query = grammar.query(tables)
        try:
            run.judge(query, tables, seed)
        except Lost as lost:
            run.counts["connections lost"] += 1
            (run.out / f"lost_{run.counts['connections lost']:04}.txt").write_text(f"{lost}\nseed {seed}\n{query}\n")
            for reader in run.readers:
                reader.open()
                reader.run(f"USE {database}")
        bar.update()
        bar.set_postfix(wrong=len(run.shapes), refresh=False)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--seed", type=int, default=1, help="the first seed; each makes a schema and a hundred queries")
    options.add_argument("--queries", type=int, default=10_000, help="how many queries to ask")
    options.add_argument("--out", type=Path, default=Path("differences"), help="folder for a script of each difference")
    given = options.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="isobar-differential-") as folder:
        run = compare(given.isobar, Path(folder), given.out, given.seed, given.queries)
    for name, count in sorted(run.counts.items()):
        print(f"{count:8}  {name}")
    print(f"{len(run.shapes):8}  different after shrinking, in {given.out}")
    return 1 if run.shapes or run.counts["connections lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
