"""Read-only cursors by real clients: large results in small memory, and what ends a cursor."""

import subprocess
from pathlib import Path

import mysql.connector
import pytest

from harness import Cluster

ROWS = 60_000
CURSOR_EXISTS, LAST_ROW_SENT = 0x40, 0x80
READ_ONLY = 1


@pytest.fixture(scope="module", autouse=True)
def filled(cluster: Cluster, tmp_path_factory):
    path = tmp_path_factory.mktemp("cursors") / "t.csv"
    path.write_text("".join(f"{n}\n" for n in range(ROWS)), encoding="ascii")
    cluster.sql("CREATE DATABASE c", "CREATE TABLE c.t (id INT PRIMARY KEY)")
    cluster.sql(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE c.t")


@pytest.mark.timeout(400)
def test_connector_j_reads_more_than_fits_its_memory(cluster: Cluster, jars: Path):
    source = Path(__file__).with_name("Cursors.java")
    for more in ["", "&useServerPrepStmts=true"]:
        # What is read makes 120 MB.
        url = f"jdbc:mysql://127.0.0.1:{cluster.mysql_port}/c?useCursorFetch=true{more}"
        ran = subprocess.run(
            ["java", "-Xmx64m", "-cp", f"{jars}/*", str(source), url], capture_output=True, text=True, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.split() == [str(ROWS), str(sum(range(ROWS))), "7"]


class Cursor:
    """A cursor of mysql-connector-python's own protocol, opened and fetched by hand."""

    def __init__(self, cluster: Cluster, sql: bytes = b"SELECT id FROM t ORDER BY id"):
        self.connection = mysql.connector.connect(
            host="127.0.0.1", port=cluster.mysql_port, user="root", database="c", use_pure=True, autocommit=True
        )
        self.id = self.connection.cmd_stmt_prepare(sql)["statement_id"]
        self.open()

    def open(self) -> None:
        _, self.columns, end = self.connection.cmd_stmt_execute(self.id, flags=READ_ONLY)
        assert end["status_flag"] & CURSOR_EXISTS
        self.connection.unread_result = False

    def fetch(self, rows: int) -> tuple[list[int], int]:
        self.connection.cmd_stmt_fetch(self.id, rows)
        self.connection.unread_result = True
        got, end = self.connection.get_rows(binary=True, columns=self.columns)
        return [row[0] for row in got], end["status_flag"] & (CURSOR_EXISTS | LAST_ROW_SENT)


def test_pieces_are_of_one_snapshot_and_other_statements_run_between(cluster: Cluster):
    cluster.sql("DROP TABLE IF EXISTS c.few", "CREATE TABLE c.few (id INT PRIMARY KEY)", "INSERT INTO c.few VALUES (1), (2), (3)")
    cursor = Cursor(cluster, b"SELECT id FROM few ORDER BY id")
    assert cursor.fetch(1) == ([1], CURSOR_EXISTS)
    cluster.sql("DELETE FROM c.few WHERE id = 2", "INSERT INTO c.few VALUES (4)")
    other = cursor.connection.cursor()
    other.execute("SELECT COUNT(*) FROM few")
    assert other.fetchall() == [(3,)]
    assert cursor.fetch(10) == ([2, 3], LAST_ROW_SENT)
    with pytest.raises(mysql.connector.Error) as raised:
        cursor.fetch(1)
    assert raised.value.errno == 1421
    cursor.connection.close()


def test_later_writes_of_its_transaction_do_not_show(cluster: Cluster):
    cluster.sql("DROP TABLE IF EXISTS c.own", "CREATE TABLE c.own (id INT PRIMARY KEY, v INT)")
    cluster.sql("INSERT INTO c.own SELECT id, 1 FROM c.t")
    cursor = Cursor(cluster, b"SELECT v FROM own ORDER BY id")
    other = cursor.connection.cursor()
    other.execute("BEGIN")
    other.execute(f"INSERT INTO own VALUES ({ROWS}, 1)")
    cursor.open()
    assert cursor.fetch(1) == ([1], CURSOR_EXISTS)
    for write in (f"UPDATE own SET v = 2 WHERE id > {ROWS - 10}", "DELETE FROM own WHERE id = 50000"):
        other.execute(write)
    rest, status = cursor.fetch(2 * ROWS)
    assert (len(rest), set(rest), status) == (ROWS, {1}, LAST_ROW_SENT)
    other.execute("SELECT COUNT(*), SUM(v) FROM own")
    assert other.fetchall() == [(ROWS, ROWS + 10)]
    other.execute("ROLLBACK")
    cursor.connection.close()


def test_kill_ends_a_connection_with_a_cursor(cluster: Cluster):
    cursor = Cursor(cluster)
    assert cursor.fetch(2) == ([0, 1], CURSOR_EXISTS)
    cluster.sql(f"KILL {cursor.connection.connection_id}")
    with pytest.raises(mysql.connector.Error):
        cursor.fetch(2)
