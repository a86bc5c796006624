"""TPC-H's 22 queries, texts unchanged: rows, columns and Spark answer what DuckDB answers."""

import subprocess
import time
from decimal import Decimal
from pathlib import Path

import pytest
import tpch
from harness import Cluster
from readers import SparkReader

pytestmark = pytest.mark.timeout(300)

SCALE = 0.01
QUERIES = range(1, 23)
ROWS = {"region": 5, "nation": 25, "supplier": 100, "part": 2_000, "partsupp": 8_000, "customer": 1_500,
        "orders": 15_000, "lineitem": 60_175}  # fmt: skip


@pytest.fixture(scope="module")
def folder(isobar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables as files, of both formats."""
    path = tmp_path_factory.mktemp("tpch")
    for kind in ("tbl", "parquet"):
        subprocess.run([isobar, "dbgen", "--scale", str(SCALE), "--format", kind, "--dir", path], check=True, timeout=60)
    return path


@pytest.fixture(scope="module")
def duck(folder: Path) -> dict[int, list[tuple]]:
    """DuckDB's answers."""
    peer = tpch.DuckDb(folder)
    return {number: peer.answer(number, SCALE) for number in QUERIES}


@pytest.fixture(scope="module")
def loaded(cluster: Cluster, folder: Path) -> Cluster:
    """A cluster with the tables, in several regions where they are large, and columnar replicas of all."""
    cluster.sql(f"CREATE DATABASE {tpch.DATABASE}", f"USE {tpch.DATABASE}", *tpch.create())
    with cluster.connect(database=tpch.DATABASE) as connection, connection.cursor() as cursor:
        for table in tpch.TABLES:
            assert cursor.execute(tpch.load(table, folder / f"{table}.tbl")) == ROWS[table]
        for table in ("lineitem", "orders", "partsupp"):
            cursor.execute(f"SPLIT TABLE {table} REGIONS 3")
        for table in tpch.TABLES:
            cursor.execute(f"ALTER TABLE {table} SET COLUMNAR REPLICA 1")
    for table in tpch.TABLES:
        cluster.wait_available(f"{tpch.DATABASE}.{table}")
    return cluster


@pytest.fixture(scope="module")
def spark(loaded: Cluster, jar: Path):
    """Spark with the connector's catalog as its own, so that the texts need no change."""
    reader = SparkReader(jar, loaded.flight, master="local[2]")
    reader.spark.sql(f"USE isobar.{tpch.DATABASE}")
    yield reader.spark
    reader.close()


def check(expected: dict[int, list[tuple]], answer, who: str) -> None:
    """Compares all 22 answers with DuckDB's; every difference is shown, not the first alone."""
    problems = {}
    for number in QUERIES:
        began = time.monotonic()
        found = answer(number)
        print(f"{who} q{number:02} {time.monotonic() - began:.2f} s")
        if wrong := tpch.differences(number, expected[number], found):
            problems[number] = wrong[:3]
    assert not problems, f"{who} answers otherwise than DuckDB: {problems}"


def test_no_answer_is_empty(duck: dict[int, list[tuple]]):
    assert [number for number, rows in duck.items() if not rows] == []


@pytest.mark.parametrize("engine", ["tikv", "tiflash"], ids=["rows", "columns"])
def test_sql_answers_what_duckdb_answers(loaded: Cluster, duck: dict[int, list[tuple]], engine: str):
    with loaded.connect(database=tpch.DATABASE) as connection, connection.cursor() as cursor:
        # No other engine may help out.
        cursor.execute("SET tidb_isolation_read_engines = %s", (engine,))

        def answer(number: int) -> list[tuple]:
            cursor.execute(tpch.query(number, SCALE))
            return list(cursor.fetchall())

        check(duck, answer, engine)


def test_spark_answers_what_duckdb_answers(spark, duck: dict[int, list[tuple]]):
    check(duck, lambda number: [tuple(row) for row in spark.sql(tpch.query(number, SCALE)).collect()], "Spark")


def test_the_comparison_reports_wrong_answers(duck: dict[int, list[tuple]]):
    """A digit, a row, an order, a type: each is seen, in each query that has such a thing."""
    for number, rows in duck.items():
        assert tpch.differences(number, rows, rows) == []
        assert tpch.differences(number, rows, rows[1:]) != []
        first = rows[0]
        assert tpch.differences(number, rows, [("another", *first[1:]), *rows[1:]]) != []
        for at, cell in enumerate(first):
            if isinstance(cell, Decimal):
                off = cell + Decimal(1).scaleb(cell.as_tuple().exponent)
            elif isinstance(cell, float):
                off = cell + max(abs(cell), 1) * 1e-9
            else:
                continue
            assert tpch.differences(number, rows, [(*first[:at], off, *first[at + 1 :]), *rows[1:]]) != []
        if len(rows) > 1 and tpch.ORDER[number]:
            assert tpch.differences(number, rows, rows[::-1]) != [], number
