"""A columnar node killed while a large answer streams: all rows, or an error that says so; never a part of them."""

import os
import re
import signal
from collections.abc import Iterator

import pyarrow
import pymysql
import pytest
from pyarrow import flight
from pymysql.cursors import SSCursor

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster

ROWS = 40_000
PAD = 500
# Sixty megabytes: more than sockets, windows and buffers between nodes hold.
LONG = "SELECT id, CONCAT(pad, pad, pad) FROM t"
NODES = ["columnar-1", "columnar-2"]
# Codes of an answer that was cut off, at the Flight server and at the MySQL port.
BROKEN = "ISOBAR-(UNAVAILABLE|TIMEOUT|STALE_REGION|CANCELLED)|[Ss]ocket closed|[Cc]onnection reset|recvmsg|GOAWAY"
BROKEN_NUMBERS = (9012, 9013)


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster) -> None:
    """Twenty megabytes in regions on both nodes."""
    pad = f"CONCAT(id, REPEAT('x', {PAD}))"
    cluster.sql("CREATE DATABASE mid", "CREATE TABLE mid.t (id INT PRIMARY KEY, pad VARCHAR(600) NOT NULL)")
    cluster.sql("INSERT INTO mid.t VALUES " + ",".join(f"({n}, '')" for n in range(5000)))
    for shift in (5000, 10_000, 20_000):
        cluster.sql(f"INSERT INTO mid.t SELECT id + {shift}, '' FROM mid.t")
    for start in range(0, ROWS, 10_000):
        cluster.sql(f"UPDATE mid.t SET pad = {pad} WHERE id >= {start} AND id < {start + 10_000}")
    cluster.sql("SPLIT TABLE mid.t REGIONS 4")
    wait_until("regions are cut", lambda: len(parts(cluster)) >= 4)
    cluster.replicate("mid.t")
    wait_until("both nodes hold some", lambda: len(endpoints(cluster)) == 2)


def parts(cluster: Cluster) -> list[tuple]:
    return cluster.sql("SELECT region_id FROM information_schema.regions WHERE table_schema = 'mid'")


def endpoints(cluster: Cluster) -> list[flight.FlightEndpoint]:
    return FlightClient(cluster).info({"scan": {"database": "mid", "table": "t", "columns": ["id", "pad"]}}).endpoints


def right(number: int, times: int = 1) -> tuple[int, str]:
    return number, f"{number}{'x' * PAD}" * times


def long_answer() -> list[tuple]:
    return [right(n, 3) for n in range(ROWS)]


def of_node(cluster: Cluster, ends: list[flight.FlightEndpoint], name: str) -> flight.FlightEndpoint:
    """The endpoint that a node serves."""
    address = cluster.flight[NODES.index(name)]
    return next(end for end in ends if address in str(end.locations[0].uri))


def batches(client: FlightClient, endpoint: flight.FlightEndpoint) -> Iterator[pyarrow.RecordBatch]:
    reader = flight.connect(endpoint.locations[0]).do_get(endpoint.ticket, client.options)
    while True:
        try:
            yield reader.read_chunk().data
        except StopIteration:
            return


def rows_of(parts: list[pyarrow.RecordBatch | list[tuple]]) -> list[tuple]:
    """All rows; converted at the end, so that an answer is not read on behind slow Python."""
    lists = [part if isinstance(part, list) else [tuple(row.values()) for row in part.to_pylist()] for part in parts]
    return [row for rows in lists for row in rows]


def rest_after_kill(cluster: Cluster, name: str, answer: Iterator) -> list[tuple] | Exception:
    """Takes an answer's first rows, kills a node, and takes the rest: all rows, or the error."""
    pid = cluster.pids()[name]
    parts = [next(answer)]
    os.kill(pid, signal.SIGKILL)
    assert 0 < len(parts[0]) < ROWS / 2
    try:
        return rows_of([*parts, *answer])
    except (pymysql.err.MySQLError, *FLIGHT_ERRORS) as error:
        return error
    finally:
        cluster.wait_restarted(name, pid)
        cluster.wait_available("mid.t")


def check(outcome: list[tuple] | Exception, expected: list[tuple]) -> None:
    """All rows, or an error of a kind that stands for a node that went."""
    if isinstance(outcome, pymysql.err.MySQLError):
        assert outcome.args[0] in BROKEN_NUMBERS, outcome
    elif isinstance(outcome, Exception):
        assert re.search(BROKEN, str(outcome)), outcome
    else:
        assert sorted(outcome) == expected


def test_a_scan_over_flight(cluster: Cluster):
    client = FlightClient(cluster)
    ends = endpoints(cluster)
    whole = [sorted(client.get(end)) for end in ends]
    assert sorted(row for part in whole for row in part) == [right(n) for n in range(ROWS)]
    for name in NODES:
        end = of_node(cluster, ends, name)
        outcome = rest_after_kill(cluster, name, batches(client, end))
        # The ticket is good for another try, and gives what it would have given.
        again = wait_until("the ticket is redeemed again", lambda end=end: sorted(client.get(end)))
        assert again in whole
        check(outcome, again)


@pytest.mark.parametrize("victim", NODES)
def test_a_query_over_flight(cluster: Cluster, victim: str):
    client = FlightClient(cluster)  # the first node coordinates
    info = client.info({"sql": {"query": LONG, "database": "mid"}})
    outcome = rest_after_kill(cluster, victim, batches(client, info.endpoints[0]))
    check(outcome, long_answer())
    assert wait_until("it is answered again", lambda: sorted(FlightClient(cluster).sql(LONG, "mid"))) == long_answer()


def fetched(cursor: SSCursor) -> Iterator[list[tuple]]:
    while rows := cursor.fetchmany(500):
        yield list(rows)


@pytest.mark.parametrize("victim", NODES)
def test_a_query_routed_by_the_mysql_port(cluster: Cluster, victim: str):
    with cluster.connect(database="mid", cursorclass=SSCursor, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SET tidb_isolation_read_engines = 'tiflash'")
        cursor.execute(LONG)
        check(rest_after_kill(cluster, victim, fetched(cursor)), long_answer())
    # Where the session asks for it, the rows stand in for what is missing.
    query = "SELECT COUNT(*), SUM(id) FROM mid.t"
    assert cluster.sql("SET isobar_fallback = 'rows'", query) == [(ROWS, sum(range(ROWS)))]
