"""Random subqueries that read columns outside of them, on rows, on columns and on MariaDB: all say the same.

The queries are those of fixed seeds. They leave out what MariaDB 10.11 answers wrong: outer columns in HAVING, groups over
such subqueries, and derived tables, of which its cache of subqueries does not know all columns.
"""

import random
from pathlib import Path

import pymysql
import pytest

from harness import Cluster
from mariadb_server import MariaDb
from test_scripts import LIKE_ISOBAR

TABLES = {"t": 9, "u": 12, "w": 6}
QUERIES = 100
COMPARISONS = ["=", "<", "<=", ">", "<>", "<=>", ">="]


class Queries:
    """Queries over three small tables of equal columns: id, a, b, s and p."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def tables(self) -> list[str]:
        statements = []
        for name, rows in TABLES.items():
            statements.append(f"CREATE TABLE {name} (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(9), p DECIMAL(8,2))")
            values = ", ".join(f"({id}, {self.number()}, {self.number()}, {self.word()}, {self.price()})" for id in range(1, rows + 1))
            statements.append(f"INSERT INTO {name} VALUES {values}")
        return statements

    def number(self) -> str:
        return "NULL" if self.chance(0.2) else str(self.random.randint(0, 5))

    def word(self) -> str:
        return "NULL" if self.chance(0.15) else f"'{self.one('a', 'b', 'c', 'A', 'B')}'"

    def price(self) -> str:
        return "NULL" if self.chance(0.15) else str(self.random.randint(-300, 900) / 100)

    def column(self, table: str) -> str:
        return f"{table}.{self.one('id', 'a', 'b')}"

    def conditions(self, own: str, around: list[str], depth: int) -> str:
        return " AND ".join(self.condition(own, around, depth) for _ in range(self.random.choice([1, 1, 2])))

    def condition(self, own: str, around: list[str], depth: int) -> str:
        """What a subquery's WHERE asks of its table `own` and of those of the queries around."""
        other = self.random.choice(around)
        left, right, compares = self.column(own), self.column(other), self.random.choice(COMPARISONS)
        forms = [
            lambda: f"{left} {compares} {right}",
            lambda: f"{left} {compares} {right}",
            lambda: f"{left} = {right}",
            lambda: f"({self.condition(own, around, depth)} OR {self.condition(own, around, depth)})",
            lambda: f"{own}.s {compares} {other}.s",
            lambda: f"{left} + {right} {compares} {self.random.randint(2, 8)}",
            lambda: f"{right} IS NULL",
            lambda: f"{left} BETWEEN {right} - 1 AND {right} + 1",
            lambda: f"COALESCE({right}, 2) = {left}",
            lambda: f"NOT ({left} = {right})",
        ]
        if depth < 2:
            within = f"y{depth}"
            rest = self.conditions(within, [*around, own], depth + 1)
            of = f"FROM {self.one('u', 'w')} {within} WHERE {rest}"
            forms += [
                lambda: f"{self.one('', 'NOT ')}EXISTS (SELECT 1 {of})",
                lambda: f"{left} {self.one('', 'NOT ')}IN (SELECT {self.column(within)} {of})",
                lambda: f"{left} {compares} {self.value([*around, own], depth + 1)}",
            ]
        return self.random.choice(forms)()

    def value(self, around: list[str], depth: int) -> str:
        """A subquery in the place of a value."""
        own, table, other = f"x{depth}", self.one("u", "w"), self.random.choice(around)
        where = self.conditions(own, around, depth)
        if self.chance(0.1):
            return f"(SELECT {own}.p FROM {table} {own} WHERE {own}.id = {self.column(other)} AND {where})"
        if self.chance(0.35):
            order = self.one(f"{own}.a DESC, ", f"{own}.b, ", "") + f"{own}.id {self.one('', 'DESC')}"
            shown = self.one(f"{own}.p", f"{own}.s", f"{own}.id + {self.column(other)}")
            return f"(SELECT {shown} FROM {table} {own} WHERE {where} ORDER BY {order} LIMIT 1{self.one('', ' OFFSET 1')})"
        joined = f" {self.one('JOIN', 'LEFT JOIN')} {self.one('t', 'w')} z{depth} ON z{depth}.a = {own}.b" if self.chance(0.2) else ""
        shown = self.one(
            "COUNT(*)",
            f"COUNT(DISTINCT {own}.a)",
            f"SUM({own}.p)",
            f"AVG({own}.a)",
            f"MAX({own}.s)",
            f"MAX({own}.b) + {self.column(other)}",
            f"SUM({own}.a + {self.column(other)})",
            f"COUNT(*) * {self.column(other)}",
            f"SUM({own}.p > {other}.p)",
            f"COALESCE(SUM({own}.b), {other}.id)",
            f"GROUP_CONCAT({own}.id ORDER BY {own}.id)",
        )
        return f"(SELECT {shown} FROM {table} {own}{joined} WHERE {where})"

    def query(self) -> str:
        value = self.value(["t"], 0)
        among = f"(SELECT {self.column('x')} FROM u x WHERE {self.conditions('x', ['t'], 0)})"
        compares = self.one("> ALL", ">= ALL", "<> ALL", "= ANY", "< ANY")
        return self.one(
            f"SELECT id, {value} FROM t ORDER BY id",
            f"SELECT id FROM t WHERE {self.one('1', '2', 't.a', 't.b')} {self.one('=', '<', '>', '<=')} {value} ORDER BY id",
            f"SELECT id FROM t WHERE {self.conditions('t', ['t'], 0)} ORDER BY id",
            f"SELECT id FROM t WHERE {self.column('t')} {compares} {among} ORDER BY id",
            f"SELECT id, {self.column('t')} {compares} {among} FROM t ORDER BY id",
            f"SELECT id, CASE WHEN t.id > 4 THEN {value} ELSE {self.value(['t'], 0)} END FROM t ORDER BY id",
            f"SELECT t.id, w.id, {self.value(['t', 'w'], 0)} FROM t {self.one('JOIN', 'LEFT JOIN')} w ON w.a = t.a ORDER BY 1, 2",
        )


def answer(session: pymysql.Connection, query: str) -> tuple | str:
    with session.cursor() as cursor:
        try:
            cursor.execute(query)
            return cursor.fetchall()
        except pymysql.MySQLError as error:
            return str(error)


@pytest.mark.timeout(300)
def test_random_subqueries_mean_the_same(cluster: Cluster, tmp_path: Path, client):
    server = MariaDb(client("mariadbd", "/usr/sbin/mariadbd"), tmp_path)
    try:
        for seed in (1, 2):
            compare(cluster, server, Queries(seed), f"subqueries_{seed}")
    finally:
        server.stop()


def compare(cluster: Cluster, server: MariaDb, queries: Queries, database: str) -> None:
    maria, rows, columns = server.connect(), cluster.connect(), cluster.connect()
    tables = queries.tables()
    for session, begins in (
        (maria, [*LIKE_ISOBAR, f"CREATE DATABASE {database} COLLATE utf8mb4_nopad_bin", f"USE {database}", *tables]),
        (rows, [f"CREATE DATABASE {database}", f"USE {database}", *tables, "SET isobar_read_engines = 'rows'"]),
        (columns, [f"USE {database}", "SET isobar_read_engines = 'columns'"]),
    ):
        with session.cursor() as cursor:
            for statement in begins:
                cursor.execute(statement)
    for table in TABLES:
        cluster.replicate(f"{database}.{table}")
    refused = 0
    for _ in range(QUERIES):
        query = queries.query()
        wanted = answer(maria, query)
        if isinstance(wanted, str):
            refused += 1
            continue
        assert (answer(rows, query), answer(columns, query)) == (wanted, wanted), query
    assert refused < QUERIES // 20, f"MariaDB refused {refused} of {QUERIES}"
    for session in (maria, rows, columns):
        session.close()
