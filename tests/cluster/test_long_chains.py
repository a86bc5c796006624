"""Statements that are long in one direction are answered or refused with a number; no process dies of them."""

import pymysql
import pytest

from harness import Cluster

LONG = 100_000

REFUSED = {
    "sum": "SELECT 1" + "+1" * LONG,
    "and": "SELECT 1 WHERE 1" + " AND 1=1" * LONG,
    "or": "SELECT * FROM long.t WHERE id = 1" + " OR id = 2" * LONG,
    "like": "SELECT 1" + " LIKE 1" * LONG,
    "union": "SELECT 1" + " UNION ALL SELECT 1" * LONG,
    "minus": "SELECT " + "- " * LONG + "1",
    "not": "SELECT " + "NOT " * LONG + "1",
    "parentheses": "SELECT " + "(" * LONG + "1" + ")" * LONG,
    "subqueries": "SELECT " + "(SELECT " * LONG + "1" + ")" * LONG,
    "functions": "SELECT " + "ABS(" * LONG + "1" + ")" * LONG,
    "cases": "SELECT " + "CASE WHEN 1 THEN " * LONG + "1" + " END" * LONG,
    "cut short": "SELECT 1" + "+1" * LONG + "+",
    "joins": "SELECT 1 FROM long.t" + " JOIN long.t" * LONG,
}


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster):
    """A small table; afterwards every process is still the one that it was."""
    cluster.sql("CREATE DATABASE `long`", "CREATE TABLE long.t (id INT PRIMARY KEY, v INT)")
    cluster.sql("INSERT INTO long.t VALUES (1, 1), (2, 2), (3, 3)")
    before = cluster.pids()
    yield
    assert cluster.pids() == before, "a process died of a long statement"
    assert cluster.sql("SELECT COUNT(*) FROM long.t") == [(3,)]


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_be_too_deep_is_refused(cluster: Cluster, kind: str):
    """As a query and as a prepared statement."""
    for prepare in (False, True):
        sql = REFUSED[kind]
        with pytest.raises(pymysql.MySQLError) as caught:
            cluster.sql("PREPARE s FROM '" + sql + "'" if prepare else sql)
        assert caught.value.args[0] in (1064, 1116, 1235, 1436), (kind, caught.value.args[1][:200])
        assert len(caught.value.args[1]) < 2000


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT 1" + "+1" * 200, [(201,)]),
        ("SELECT COUNT(*) FROM long.t WHERE id = 1" + " OR id = 2" * 700, [(2,)]),
        ("SELECT COUNT(*) FROM long.t WHERE id > 0" + " AND v > 0" * 700, [(3,)]),
        ("SELECT COUNT(*) FROM long.t WHERE id IN (" + ",".join(map(str, range(2, LONG))) + ")", [(2,)]),
        ("SELECT COUNT(*) FROM long.t WHERE (id, v) IN ((1, 1)" + ", (9, 9)" * 2000 + ")", [(1,)]),
        ("SELECT " + "(" * 200 + "1" + ")" * 200, [(1,)]),
        ("SELECT COUNT(*) FROM long.t WHERE " + "(" * 100 + "id = 1" + " OR id = 2)" * 100, [(2,)]),
        ("SELECT COUNT(*) FROM (SELECT 1" + " UNION ALL SELECT 1" * 150 + ") x", [(151,)]),
    ],
    ids=["sum", "or", "and", "in", "pairs", "parentheses", "nested or", "union"],
)
def test_what_clients_write_is_answered(cluster: Cluster, sql: str, rows: list):
    """Within the bounds, on the stack of the server's threads."""
    assert [tuple(int(cell) for cell in row) for row in cluster.sql(sql)] == rows
