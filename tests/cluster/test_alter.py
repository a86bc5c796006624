"""A table altered under a writer: no write is lost, and the columns say what the rows say at every step."""

import threading
from collections import Counter
from decimal import Decimal

import pymysql
import pytest

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster

ROWS = 600
# Errors that a writer may get: that the change, or another, was first; that a column is hidden as yet.
EXPECTED = {1213}


def write(cluster: Cluster, seed: int, stop: threading.Event, outcomes: Counter, database: str = "alt"):
    """Counts rows up, ends some and brings others, through whatever columns the table has."""
    turn = 0
    with cluster.connect(database=database) as connection, connection.cursor() as cursor:
        while not stop.is_set():
            turn += 1
            try:
                if turn % 10 == 0:
                    fresh = ROWS + 2 * turn + seed
                    cursor.execute(f"INSERT INTO t (id, n) VALUES ({fresh}, 0)")
                    cursor.execute(f"DELETE FROM t WHERE id = {fresh - 40} AND id >= {ROWS}")
                cursor.execute(f"UPDATE t SET n = n + 1 WHERE id = {(turn * 2 + seed) % ROWS}")
                outcomes["done"] += 1
            except pymysql.err.MySQLError as error:
                outcomes[error.args[0]] += 1


def fill(cluster: Cluster, stop: threading.Event, outcomes: Counter):
    """Adds rows with the next number until it is stopped, whatever table has the name."""
    number = 0
    with cluster.connect(database="emptied") as connection, connection.cursor() as cursor:
        while not stop.is_set():
            number += 1
            try:
                cursor.execute(f"INSERT INTO t VALUES ({number}, 'x')")
                outcomes["done"] += 1
            except pymysql.err.MySQLError as error:
                outcomes[error.args[0]] += 1


class Altered:
    """The table, and what all of its readers must say."""

    def __init__(self, cluster: Cluster, outcomes: list[Counter], name: str = "alt.t"):
        self.cluster, self.outcomes, self.name = cluster, outcomes, name

    def change(self, statement: str) -> None:
        """Alters the table, and waits for writes of its new version."""
        self.cluster.sql(statement)
        before = [outcomes["done"] for outcomes in self.outcomes]
        wait_until(
            f"writers go on after {statement}",
            lambda: all(outcomes["done"] > count + 5 for outcomes, count in zip(self.outcomes, before)),
        )

    def agree(self, columns: str) -> list[tuple]:
        """The rows, which are the same from rows and from columns at one token."""
        token, query = self.cluster.token(), f"SELECT {columns} FROM {self.name} ORDER BY id"
        rows = self.cluster.read("tikv", query, token)
        assert self.cluster.read("tiflash", query, token) == rows, query
        return rows


def test_columns_follow_every_change_of_a_table_that_is_written(cluster: Cluster):
    cluster.sql("CREATE DATABASE alt", "CREATE TABLE alt.t (id INT PRIMARY KEY, n INT NOT NULL, s VARCHAR(4))")
    cluster.sql("INSERT INTO alt.t VALUES " + ",".join(f"({n}, 0, 's{n % 9}')" for n in range(ROWS)))
    cluster.sql("SPLIT TABLE alt.t REGIONS 3")
    cluster.replicate("alt.t")
    stop, outcomes = threading.Event(), [Counter(), Counter()]
    writers = [threading.Thread(target=write, args=(cluster, seed, stop, outcomes[seed])) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        table = Altered(cluster, outcomes)
        for turn in range(3):
            table.change(f"ALTER TABLE alt.t ADD COLUMN a INT NOT NULL DEFAULT {turn} AFTER id")
            assert {row[1] for row in table.agree("*")} == {turn}
            # Older rows stay what they were; those that writers add from now on are not.
            table.change("ALTER TABLE alt.t ALTER a SET DEFAULT 77")
            old = [row for row in table.agree("id, a") if row[0] < ROWS]
            assert len(old) == ROWS and {row[1] for row in old} == {turn}
            cluster.sql("UPDATE alt.t SET a = 1000 + id WHERE id < 300")
            table.change("ALTER TABLE alt.t RENAME COLUMN a TO b, MODIFY s VARCHAR(%d) NULL" % (10 + turn))
            cluster.sql("UPDATE alt.t SET s = 'longer' WHERE id = 5")
            rows = [row for row in table.agree("id, b, s") if row[0] < ROWS]
            assert [row[1] for row in rows] == [1000 + n if n < 300 else turn for n in range(ROWS)]
            assert rows[5][2] == "longer"
            table.change("ALTER TABLE alt.t DROP COLUMN b")
            assert [len(row) for row in table.agree("*")][:ROWS] == [3] * ROWS
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert not any(writer.is_alive() for writer in writers)
    assert set().union(*outcomes) - {"done"} <= EXPECTED, outcomes
    counted = sum(row[1] for row in table.agree("id, n"))
    assert counted == sum(each["done"] for each in outcomes), "an update was lost, or done twice"


def test_columns_follow_a_column_that_changes_its_type_under_writers(cluster: Cluster):
    create = "CREATE TABLE retyped.t (id INT PRIMARY KEY, n INT NOT NULL, s VARCHAR(12))"
    cluster.sql("CREATE DATABASE retyped", create)
    cluster.sql("INSERT INTO retyped.t VALUES " + ",".join(f"({n}, 0, '{n % 9}')" for n in range(ROWS)))
    cluster.sql("SPLIT TABLE retyped.t REGIONS 3")
    cluster.replicate("retyped.t")
    stop, outcomes = threading.Event(), [Counter(), Counter()]
    writers = [threading.Thread(target=write, args=(cluster, seed, stop, outcomes[seed], "retyped")) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        table = Altered(cluster, outcomes, "retyped.t")
        types = {"VARCHAR(20) NOT NULL": str, "DECIMAL(14,2) NOT NULL AFTER s": Decimal, "BIGINT NOT NULL AFTER id": int}
        for column, kind in types.items():
            before = cluster.token()
            table.change(f"ALTER TABLE retyped.t MODIFY n {column}")
            assert {type(row[0]) for row in table.agree("n")} == {kind}
            for engine in ("tikv", "tiflash"):
                with pytest.raises(pymysql.err.MySQLError) as younger:
                    cluster.read(engine, "SELECT COUNT(*) FROM retyped.t", before)
                assert younger.value.args[0] == 1412, younger.value
        # A value that does not fit ends it, and changes nothing that a reader sees.
        cluster.sql("UPDATE retyped.t SET s = 'seven' WHERE id = 7")
        with pytest.raises(pymysql.err.MySQLError) as wrong:
            cluster.sql("ALTER TABLE retyped.t MODIFY s INT")
        assert wrong.value.args[0] == 1366 and "'s'" in str(wrong.value), wrong.value
        assert table.agree("id, s")[:ROWS] == [(n, "seven" if n == 7 else str(n % 9)) for n in range(ROWS)]
        cluster.sql("UPDATE retyped.t SET s = NULL WHERE id = 7")
        table.change("ALTER TABLE retyped.t MODIFY s TINYINT UNSIGNED FIRST")
        assert table.agree("id, s")[:ROWS] == [(n, None if n == 7 else n % 9) for n in range(ROWS)]
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert not any(writer.is_alive() for writer in writers)
    assert set().union(*outcomes) - {"done"} <= EXPECTED | {1412}, outcomes
    counted = sum(row[1] for row in table.agree("id, n"))
    assert counted == sum(each["done"] for each in outcomes), "an update was lost, or done twice"


@pytest.mark.timeout(360)
def test_a_sql_node_that_dies_while_a_type_changes_or_an_index_is_made_leaves_what_was_there(cluster: Cluster):
    cluster.sql("CREATE DATABASE dying", "CREATE TABLE dying.t (id INT PRIMARY KEY, s VARCHAR(9))")
    cluster.sql("CREATE TABLE dying.u (id INT PRIMARY KEY, v INT)", "INSERT INTO dying.u VALUES (1, 1)")
    rows = [(n, str(n)) for n in range(ROWS)]
    cluster.sql("INSERT INTO dying.t VALUES " + ",".join(f"({n}, '{s}')" for n, s in rows))
    cluster.replicate("dying.t")
    holder, ended = cluster.connect(), []

    def define(statement: str) -> None:
        try:
            cluster.sql(statement)
            ended.append("done")
        except (pymysql.err.MySQLError, OSError) as error:
            ended.append(error)

    def refused(statement: str, code: int) -> bool:
        """Whether writers are held to what is being made."""
        try:
            cluster.sql(statement)
        except pymysql.err.MySQLError as error:
            assert error.args[0] in {1213, code}, error
            return error.args[0] == code
        cluster.sql("DELETE FROM dying.t WHERE id < 0", "DELETE FROM dying.u WHERE id < 0")
        return False

    def typed() -> bool:
        return refused("INSERT INTO dying.t VALUES (-1, 'text')", 1366)

    def unique() -> bool:
        return refused("INSERT INTO dying.u VALUES (-1, -1), (-2, -1)", 1062)

    with holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT s FROM dying.t WHERE id = {ROWS - 1} FOR UPDATE")
        cursor.execute("SELECT v FROM dying.u WHERE id = 1 FOR UPDATE")
    definitions = ("ALTER TABLE dying.t MODIFY s INT", "CREATE UNIQUE INDEX by_v ON dying.u (v)")
    defining = [threading.Thread(target=define, args=(each,), daemon=True) for each in definitions]
    for one in defining:
        one.start()
    wait_until("the change is under way", typed)
    wait_until("the index is under way", unique)
    cluster.wait_restarted("sql", cluster.kill("sql"))
    for one in defining:
        one.join(60)
    assert len(ended) == 2 and "done" not in ended, ended
    cluster.sql("DELETE FROM dying.t WHERE id = -1", "INSERT INTO dying.t VALUES (10000, '10000')")
    rows.append((10000, "10000"))
    token, query = cluster.token(), "SELECT id, s FROM dying.t ORDER BY id"
    for engine in ("tikv", "tiflash"):
        assert cluster.read(engine, query, token) == rows
    # The next SQL node finds them after a while: writers are as free as before.
    wait_until("the change is taken back", lambda: not typed(), 200)
    wait_until("the index is taken back", lambda: not unique(), 200)
    cluster.sql("ALTER TABLE dying.t MODIFY s VARCHAR(10) FIRST", "CREATE UNIQUE INDEX by_v ON dying.u (v)")
    assert unique()
    for engine in ("tikv", "tiflash"):
        assert cluster.read(engine, "SELECT * FROM dying.t ORDER BY id") == [(s, n) for n, s in rows]


def test_columns_follow_a_table_that_is_emptied_and_exchanged_for_another(cluster: Cluster):
    create = "CREATE TABLE emptied.t (id INT PRIMARY KEY, s VARCHAR(4))"
    cluster.sql("CREATE DATABASE emptied", create, "CREATE TABLE emptied.other LIKE emptied.t")
    for table in ("emptied.t", "emptied.other"):
        cluster.replicate(table)
    stop, outcomes = threading.Event(), Counter()
    writer = threading.Thread(target=fill, args=(cluster, stop, outcomes))
    writer.start()

    def agree(name: str) -> list[tuple]:
        token, query = cluster.token(), f"SELECT id, s FROM emptied.{name} ORDER BY id"
        rows = cluster.read("tikv", query, token)
        assert cluster.read("tiflash", query, token) == rows, query
        return rows

    names = ("emptied.t", "emptied.x"), ("emptied.other", "emptied.t"), ("emptied.x", "emptied.other")
    exchange = "RENAME TABLE " + ", ".join(f"{old} TO {new}" for old, new in names)
    try:
        first = 0
        for change in ("TRUNCATE TABLE emptied.t", exchange):
            wait_until("the table is written", lambda: len(agree("t")) > 20)
            before = cluster.token()
            cluster.sql(change)
            # From before, the name is no other table's.
            for engine in ("tikv", "tiflash"):
                with pytest.raises(pymysql.err.MySQLError) as younger:
                    cluster.read(engine, "SELECT COUNT(*) FROM emptied.t", before)
                assert younger.value.args[0] == 1412, younger.value
            with pytest.raises(FLIGHT_ERRORS, match="created or renamed after the snapshot"):
                FlightClient(cluster).scan("emptied.t", ["id"], before)
            cluster.wait_available("emptied.t")
            wait_until("the other table is written", lambda: len(agree("t")) > 5)
            rows = [row[0] for row in agree("t")]
            assert rows[0] > first, "rows of the table before were shown"
            assert len(rows) <= rows[-1] - rows[0] + 1
            first = rows[0]
        assert agree("other")[-1][0] < agree("t")[0][0]
    finally:
        stop.set()
        writer.join(60)
    assert not writer.is_alive() and outcomes["done"] > 50, outcomes
    assert set(outcomes) <= {"done", *EXPECTED}, outcomes
