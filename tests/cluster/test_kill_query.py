"""KILL, Ctrl-C and clients that leave: a statement ends within a second, and nobody computes for it any more."""

import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import SSCursor

from harness import Cluster, FlightClient, wait_until
from test_streams import processor_seconds, share

INTERRUPTED, NO_SUCH_THREAD = 1317, 1094
ROWS = 60_000
SOON = 1.0  # seconds from KILL to the error
IDLE = 0.3  # processors
# Minutes of work each, on either engine.
LONG = {
    "a join": "SELECT COUNT(*) FROM k.t a JOIN k.t b ON a.id + b.id > a.n * b.n",
    "an aggregate": "SELECT a.n, SUM(a.id * b.id) FROM k.t a, k.t b GROUP BY a.n ORDER BY 2",
    "a sort": "SELECT a.id, b.id FROM k.t a, k.t b ORDER BY a.text, b.text DESC LIMIT 10",
}
# The row path by a hint, columns by a hint.
ROWS_HINT, COLUMNS_HINT = "/*+ READ_FROM_STORAGE(TIKV[a, b]) */", "/*+ READ_FROM_STORAGE(TIFLASH[a, b]) */"


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster, tmp_path_factory) -> None:
    cluster.sql("CREATE DATABASE k", "CREATE TABLE k.t (id INT PRIMARY KEY, n INT NOT NULL, text VARCHAR(40))")
    cluster.sql(f"LOAD DATA LOCAL INFILE '{lines(tmp_path_factory, ROWS)}' INTO TABLE k.t FIELDS TERMINATED BY ','")
    cluster.sql("SPLIT TABLE k.t REGIONS 4")
    cluster.replicate("k.t")


def lines(tmp_path_factory, count: int, width: int = 40) -> str:
    path = tmp_path_factory.mktemp("lines") / "t.csv"
    path.write_text("".join(f"{n},{n % 7},{n * 7919 % 1_000_003:0{width}}\n" for n in range(count)), encoding="ascii")
    return str(path)


class Victim:
    """A session whose statement runs in the background."""

    def __init__(self, cluster: Cluster, *first: str):
        self.cluster = cluster
        self.connection = cluster.connect(database="k", cursorclass=SSCursor)
        self.id = self.connection.thread_id()
        self.thread = ThreadPoolExecutor(1)
        for statement in first:
            self.run(statement)

    def run(self, statement: str) -> list[tuple]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def start(self, statement: str) -> Future:
        """Begins a statement, and finds it in the process list, as one would who wants to kill it."""
        future = self.thread.submit(self.run, statement)
        wait_until(f"the process list shows {statement}", lambda: self.info() == statement or future.done(), 10)
        return future

    def info(self) -> str | None:
        rows = self.cluster.sql(f"SELECT info FROM information_schema.processlist WHERE id = {self.id}")
        return rows[0][0] if rows else None

    def killed(self, future: Future, how: str = "KILL QUERY") -> None:
        """Kills it; the client gets the error soon."""
        began = time.monotonic()
        self.cluster.sql(f"{how} {self.id}")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            future.result(10)
        took = time.monotonic() - began
        assert raised.value.args[0] == INTERRUPTED, raised.value
        assert took < SOON, f"the killed client waited {took:.2f} s"


def pids(cluster: Cluster) -> list[int]:
    return list(cluster.pids().values())


def wait_busy(cluster: Cluster, names: list[str]) -> None:
    """Waits until some of these nodes compute."""
    ours = [pid for name, pid in cluster.pids().items() if name in names]
    wait_until(f"{names} compute", lambda: share(ours) > 0.4)


def wait_idle(cluster: Cluster) -> None:
    wait_until("every node is idle", lambda: share(pids(cluster)) < IDLE, 10)


@pytest.mark.parametrize("hint", [ROWS_HINT, COLUMNS_HINT])
@pytest.mark.parametrize("kind", LONG)
def test_a_killed_query_ends_everywhere_and_its_session_goes_on(cluster: Cluster, kind: str, hint: str):
    wait_idle(cluster)
    victim = Victim(cluster)
    query = LONG[kind].replace("SELECT", f"SELECT {hint}", 1)
    future = victim.start(query)
    wait_busy(cluster, ["columnar-1", "columnar-2"] if hint == COLUMNS_HINT else ["sql"])
    victim.killed(future)
    wait_idle(cluster)
    assert victim.run("SELECT COUNT(*) FROM k.t") == [(ROWS,)]
    assert victim.info() is None


def test_a_killed_answer_that_streams_breaks_off(cluster: Cluster):
    victim = Victim(cluster)
    with victim.connection.cursor() as cursor:
        cursor.execute("SELECT a.id, b.text FROM k.t a, k.t b")
        cursor.fetchmany(10)
        cluster.sql(f"KILL QUERY {victim.id}")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            while cursor.fetchmany(1000):
                pass
        assert raised.value.args[0] == INTERRUPTED
    wait_idle(cluster)
    assert victim.run("SELECT 1") == [(1,)]


def test_kill_of_a_connection_closes_it(cluster: Cluster):
    victim = Victim(cluster)
    future = victim.start(LONG["a join"])
    victim.killed(future, "KILL")
    wait_until("the session is gone", lambda: victim.info() is None)
    with pytest.raises(pymysql.err.MySQLError) as raised:
        victim.run("SELECT 1")
    assert raised.value.args[0] in (0, 2006, 2013), raised.value
    with pytest.raises(pymysql.err.MySQLError) as raised:
        cluster.sql(f"KILL {victim.id}")
    assert raised.value.args[0] == NO_SUCH_THREAD
    wait_idle(cluster)


def test_sleep_is_killed_and_the_process_list_shows_what_runs(cluster: Cluster):
    assert cluster.sql("SELECT SLEEP(0.01), 1") == [(0, 1)]
    victim = Victim(cluster)
    text = f"SELECT SLEEP(600) AS {'x' * 120}"
    future = victim.start(text)
    shown = {row[0]: row[7] for row in cluster.sql("SHOW PROCESSLIST")}
    whole = {row[0]: row[7] for row in cluster.sql("SHOW FULL PROCESSLIST")}
    assert (shown[victim.id], whole[victim.id]) == (text[:100], text)
    victim.killed(future)
    secret = victim.thread.submit(victim.run, "SELECT SLEEP(600), 'IDENTIFIED BY secret-7'")
    wait_until("a secret is not shown", lambda: "not shown" in (victim.info() or ""), 10)
    assert "secret-7" not in str(cluster.sql("SHOW FULL PROCESSLIST"))
    victim.killed(secret)


def test_a_killed_wait_for_a_lock_ends_and_leaves_no_transaction_open(cluster: Cluster):
    cluster.sql("CREATE TABLE k.counters (id INT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO k.counters VALUES (1, 0)")
    holder = Victim(cluster, "BEGIN", "UPDATE counters SET n = 1 WHERE id = 1")
    for first in ([], ["BEGIN"]):
        victim = Victim(cluster, *first)
        victim.killed(victim.start("UPDATE counters SET n = 2 WHERE id = 1"))
        # Alone, a statement's transaction ended with it; within BEGIN, only the statement did.
        victim.run(f"INSERT INTO counters VALUES ({2 + len(first)}, 7)")
        victim.run("COMMIT") if first else None
        assert (2 + len(first), 7) in cluster.sql("SELECT id, n FROM k.counters")
    holder.run("COMMIT")
    assert cluster.sql("SELECT n FROM k.counters WHERE id = 1") == [(1,)]


@pytest.mark.parametrize("alone", [True, False])
def test_a_killed_load_says_what_it_left(cluster: Cluster, tmp_path_factory, alone: bool):
    """Within a transaction nothing; alone, whole transactions, and their number."""
    table, rows = f"k.loaded_{alone}", 40_000
    cluster.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT NOT NULL, text VARCHAR(1000))")
    path = lines(tmp_path_factory, rows, 1000)
    victim = Victim(cluster, *([] if alone else ["BEGIN", f"INSERT INTO {table} VALUES (-1, 0, 'before')"]))
    future = victim.start(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE {table} FIELDS TERMINATED BY ','")
    if alone:
        wait_until("its first rows are there", lambda: cluster.sql(f"SELECT id FROM {table} WHERE id = 0"))
    assert not future.done(), "the load was over before it was killed"
    cluster.sql(f"KILL QUERY {victim.id}")
    with pytest.raises(pymysql.err.MySQLError) as raised:
        # What a client sends is read to its end, and what is being committed is committed: no matter of a second.
        future.result(30)
    assert raised.value.args[0] == INTERRUPTED, raised.value
    victim.run("SELECT 1" if alone else "COMMIT")
    ((left,),) = cluster.sql(f"SELECT COUNT(*) FROM {table}")
    if alone:
        assert 0 < left < rows and f"({left} rows were loaded" in raised.value.args[1], (left, raised.value)
    else:
        assert cluster.sql(f"SELECT id FROM {table}") == [(-1,)]
    wait_idle(cluster)


def test_a_killed_create_index_is_taken_back(cluster: Cluster):
    """It waits for a transaction that holds a row: killed there, its name is free, and it can be made again."""
    cluster.sql("CREATE TABLE k.small (id INT PRIMARY KEY, n INT NOT NULL)")
    cluster.sql("INSERT INTO k.small SELECT id, n FROM k.t WHERE id < 2000")
    holder = Victim(cluster, "BEGIN", "SELECT id FROM small WHERE id = 7 FOR UPDATE")
    victim = Victim(cluster)
    victim.killed(victim.start("CREATE INDEX by_n ON k.small (n)"))
    assert "by_n" not in cluster.sql("SHOW CREATE TABLE k.small")[0][1]
    assert cluster.sql("SHOW INDEX FROM k.small WHERE Key_name = 'by_n'") == []
    holder.run("ROLLBACK")
    victim.run("INSERT INTO small VALUES (-1, 3)")
    victim.run("CREATE INDEX by_n ON k.small (n)")
    by_index = victim.run("SELECT COUNT(*), SUM(id) FROM small WHERE n = 3")
    assert by_index == victim.run("SELECT COUNT(*), SUM(id) FROM small WHERE n + 0 = 3")


def test_ctrl_c_in_the_command_line_client_kills_its_query(cluster: Cluster, client):
    program = client("mariadb", "mysql")
    command = [program, "-h", "127.0.0.1", "-P", str(cluster.mysql_port), "-u", "root", "-e", LONG["a join"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        running = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) FROM k.t a%'"
        wait_until("its query runs", lambda: cluster.sql(running) == [(1,)])
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    finally:
        process.kill()
    assert "1317" in said, said
    wait_idle(cluster)


def test_a_flight_client_that_leaves_ends_its_query(cluster: Cluster):
    wait_idle(cluster)
    here = [str(Path(__file__).parent), str(Path(sys.modules["playground"].__file__).parent)]
    script = (
        f"import sys; sys.path[:0] = {here!r}\n"
        "from types import SimpleNamespace\nfrom harness import FlightClient\n"
        f"print(FlightClient(SimpleNamespace(flight={cluster.flight!r})).sql({LONG['an aggregate']!r}, 'k'))"
    )
    client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_busy(cluster, ["columnar-1", "columnar-2"])
        assert client.poll() is None, client.stdout.read()
    finally:
        client.kill()
        client.wait(10)
    wait_idle(cluster)
