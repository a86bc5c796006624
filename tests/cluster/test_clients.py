"""Real clients: what people have installed can connect, browse, write and read."""

import datetime
import subprocess
from decimal import Decimal

import mysql.connector
import prepared
import pymysql
import pytest
from pymysql.constants import FIELD_TYPE

from harness import Cluster


@pytest.fixture(scope="module", autouse=True)
def table(cluster: Cluster):
    cluster.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(20) NOT NULL DEFAULT 'nobody',"
        " total DECIMAL(10,2), at DATETIME)",
        "INSERT INTO shop.orders (customer, total, at) VALUES ('ann', 1.50, '2013-01-02 03:04:05'), ('bob', NULL, NULL)",
        "CREATE USER 'cli'@'%' IDENTIFIED BY 'Sesame-1'",
        "GRANT ALL ON shop.* TO 'cli'@'%'",
    )


def run_cli(cluster: Cluster, program: str, *words: str, password: str = "", user: str = "root") -> str:
    command = [program, "--no-defaults", "-h", "127.0.0.1", "-P", str(cluster.mysql_port), "-u", user]
    command += [f"--password={password}"] if password else []
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_client_connects_and_browses(cluster: Cluster, client):
    program = client("mariadb", "mysql")
    plain = "--skip-ssl"
    assert run_cli(cluster, program, plain, "-N", "-e", "SELECT 6 * 7") == "42\n"
    assert "shop" in run_cli(cluster, program, plain, "-e", "SHOW DATABASES")
    assert "orders" in run_cli(cluster, program, plain, "shop", "-e", "SHOW TABLES")
    described = run_cli(cluster, program, plain, "shop", "-e", "DESCRIBE orders")
    assert "decimal(10,2)" in described and "PRI" in described and "auto_increment" in described
    assert "PRIMARY KEY" in run_cli(cluster, program, plain, "shop", "-e", "SHOW CREATE TABLE orders")
    table = run_cli(cluster, program, plain, "-t", "shop", "-e", "SELECT customer, total FROM orders ORDER BY id")
    assert "| ann      |  1.50 |" in table and "|  NULL |" in table
    assert run_cli(cluster, program, plain, "-N", "-e", "SELECT 1", user="cli", password="Sesame-1") == "1\n"


def test_the_command_line_client_speaks_tls(cluster: Cluster, client):
    program = client("mariadb", "mysql")
    help_text = subprocess.run([program, "--help", "--verbose"], capture_output=True, text=True, timeout=30).stdout
    words = ["--ssl"]
    if "ssl-verify-server-cert" in help_text:
        words.append("--skip-ssl-verify-server-cert")
    shown = run_cli(cluster, program, *words, "-e", "\\s", user="cli", password="Sesame-1")
    assert "Cipher in use is" in shown


def test_pymysql_prepares_writes_and_reads(cluster: Cluster):
    with cluster.connect(database="shop", cursorclass=pymysql.cursors.DictCursor) as connection:
        with connection.cursor() as cursor:
            assert cursor.execute("INSERT INTO orders (total) VALUES (%s), (%s)", (Decimal("2.25"), None)) == 2
            first = cursor.lastrowid
            assert first > 2
            assert cursor.execute("UPDATE orders SET total = total + 1 WHERE id = %s", (first,)) == 1
            cursor.execute("SELECT * FROM orders WHERE id = %s", (first,))
            assert cursor.fetchall() == [{"id": first, "customer": "nobody", "total": Decimal("3.25"), "at": None}]
            assert cursor.execute("DELETE FROM orders WHERE id >= %s", (first,)) == 2


def test_clients_get_the_warnings_of_rows(cluster: Cluster):
    """The number stands in the packet behind the rows, which is written when the last of them is computed."""
    cluster.sql(
        "DROP TABLE IF EXISTS shop.warned",
        "CREATE TABLE shop.warned (id INT PRIMARY KEY, n INT)",
        "INSERT INTO shop.warned VALUES (1, 0), (2, 5), (3, 0)",
    )
    with cluster.connect() as connection, connection.cursor() as cursor:
        for sql, expected in (
            ("SELECT 1/0", 1),
            ("SELECT id, 10 / n FROM shop.warned", 2),
            ("SELECT id FROM shop.warned", 0),
            ("DO CAST('12x' AS SIGNED)", 1),
        ):
            cursor.execute(sql)
            assert cursor.warning_count == expected, sql
        cursor.execute("SHOW WARNINGS")
        assert cursor.fetchall() == (("Warning", 1292, "Truncated incorrect INTEGER value: '12x'"),)
        cursor.execute("SELECT PI(), ROUND(2.5e0, 2)")
        assert [column[5] for column in cursor.description] == [6, 2]


def test_mysql_connector_prepares_writes_and_reads(cluster: Cluster):
    for pure, ssl_disabled in ((True, True), (True, False)):
        connection = mysql.connector.connect(
            host="127.0.0.1",
            port=cluster.mysql_port,
            user="cli",
            password="Sesame-1",
            database="shop",
            connection_timeout=20,
            use_pure=pure,
            ssl_disabled=ssl_disabled,
            autocommit=True,
        )
        try:
            cursor = connection.cursor(prepared=True)
            at = datetime.datetime(2020, 2, 29, 1, 2, 3)
            cursor.execute("INSERT INTO orders (customer, total, at) VALUES (?, ?, ?)", ("zoë", Decimal("9.99"), at))
            number = cursor.lastrowid
            cursor.execute("SELECT id, customer, total, at FROM orders WHERE id = ?", (number,))
            assert cursor.fetchall() == [(number, "zoë", Decimal("9.99"), at)]
            cursor.execute("DELETE FROM orders WHERE id = ?", (number,))
            assert cursor.rowcount == 1
        finally:
            connection.close()


def test_mysql_connector_knows_labels(cluster: Cluster):
    cluster.sql("CREATE TABLE shop.labels (id INT PRIMARY KEY, e ENUM('low','high') NOT NULL, s SET('x','y'))")
    connection = mysql.connector.connect(
        host="127.0.0.1", port=cluster.mysql_port, user="cli", password="Sesame-1", database="shop", use_pure=True,
        autocommit=True, connection_timeout=20, ssl_disabled=True,
    )
    try:
        prepared = connection.cursor(prepared=True)
        for row in ((1, "high", "y,x"), (2, 1, 2), (3, "2", None)):
            prepared.execute("INSERT INTO labels VALUES (?, ?, ?)", row)
        with pytest.raises(mysql.connector.Error) as raised:
            prepared.execute("INSERT INTO labels VALUES (?, ?, ?)", (4, "none", None))
        assert (raised.value.errno, raised.value.sqlstate) == (1265, "01000"), raised.value
        # The same by label and by number, as text and in binary rows.
        for wanted in ("high", 2):
            prepared.execute("SELECT id, e, s FROM labels WHERE e = ? ORDER BY e DESC, id", (wanted,))
            assert prepared.fetchall() == [(1, "high", "x,y"), (3, "high", None)], wanted
        cursor = connection.cursor()
        cursor.execute("SELECT e, s, e + 0, UPPER(e) FROM labels ORDER BY e, id")
        assert cursor.fetchall() == [("low", {"y"}, 1, "LOW"), ("high", {"x", "y"}, 2, "HIGH"), ("high", None, 2, "HIGH")]
        enum, labels, number, text = ((column[1], column[7]) for column in cursor.description)
        string, enum_flag, set_flag = 254, 256, 2048
        assert enum[0] == labels[0] == string and enum[1] & enum_flag and labels[1] & set_flag, (enum, labels)
        assert not (number[1] | text[1]) & (enum_flag | set_flag), (number, text)
    finally:
        connection.close()


def test_years_are_returned_as_years(cluster: Cluster):
    """Drivers know a YEAR by its type: of a table's column, and of what chooses among such values."""
    cluster.sql(
        "CREATE TABLE shop.years (id INT PRIMARY KEY, y YEAR, z YEAR NOT NULL, s SMALLINT UNSIGNED)",
        "INSERT INTO shop.years VALUES (1, 2001, 1999, 5), (2, NULL, 0, 6)",
        "CREATE VIEW shop.seen AS SELECT id, y FROM shop.years",
    )
    unsigned, zerofill = 32, 64
    stored, computed = (FIELD_TYPE.YEAR, 4, unsigned | zerofill), (FIELD_TYPE.YEAR, 4, unsigned)
    short, long = (FIELD_TYPE.SHORT, 5, unsigned), (FIELD_TYPE.LONGLONG, 20, unsigned)
    queries = (
        ("SELECT y, z, s FROM years ORDER BY id", [stored, stored, short], [(2001, 1999, 5), (None, 0, 6)]),
        ("SELECT q FROM (SELECT y q FROM seen LIMIT 5) d ORDER BY q", [stored], [(None,), (2001,)]),
        ("SELECT MAX(y), MIN(z), MAX(s) FROM years", [computed, computed, short], [(2001, 0, 6)]),
        (
            "SELECT COALESCE(y, z), IF(id = 1, y, NULL), CASE WHEN id = 1 THEN z END, GREATEST(y, z) FROM years ORDER BY id",
            [computed] * 4,
            [(2001, 2001, 1999, 2001), (0, None, None, None)],
        ),
        ("SELECT MAX(y) OVER (), LAG(z) OVER (ORDER BY id) FROM years ORDER BY id", [computed] * 2, [(2001, None), (2001, 1999)]),
        ("SELECT (SELECT y FROM years WHERE id = 1)", [computed], [(2001,)]),
        ("SELECT COALESCE(y, s), y + z FROM years WHERE id = 1", [short, long], [(2001, 4000)]),
    )
    with cluster.connect(database="shop") as connection, connection.cursor() as cursor:
        for sql, types, rows in queries:
            cursor.execute(sql)
            fields = cursor._result.fields
            assert [(field.type_code, field.length, field.flags & (unsigned | zerofill)) for field in fields] == types, sql
            assert list(cursor.fetchall()) == rows, sql
            assert prepared.execute(connection, sql) == rows, sql
        cursor.execute("SELECT y FROM years UNION SELECT z FROM years")
        assert [column[1] for column in cursor.description] == [FIELD_TYPE.YEAR]
        cursor.execute("CREATE TABLE latest AS SELECT MAX(y) y, MAX(s) s FROM years")
        cursor.execute("SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_NAME = 'latest' ORDER BY ORDINAL_POSITION")
        assert cursor.fetchall() == (("year",), ("smallint",))


def test_optimistic_transactions_that_conflict_fail_at_commit(cluster: Cluster):
    with cluster.connect(database="shop") as one, cluster.connect(database="shop") as two:
        with one.cursor() as first, two.cursor() as second:
            first.execute("BEGIN OPTIMISTIC")
            second.execute("BEGIN OPTIMISTIC")
            first.execute("UPDATE orders SET total = 5 WHERE id = 1")
            second.execute("UPDATE orders SET total = 6 WHERE id = 1")
            first.execute("COMMIT")
            with pytest.raises(pymysql.err.OperationalError) as raised:
                second.execute("COMMIT")
            assert raised.value.args[0] == 1213
    assert cluster.sql("SELECT total FROM shop.orders WHERE id = 1") == [(Decimal("5.00"),)]
