"""Bad input is a typed error within a bounded wait; the processes live on and logs stay silent about secrets."""

import os
import socket
import struct

import mysql.connector
import pymysql
import pytest
from pyarrow import flight

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until

PASSWORD = "pass-Xyzzy-4711"
VALUE = "row-value-Xyzzy-0815"


@pytest.fixture(scope="module", autouse=True)
def tables(cluster: Cluster):
    """A table with a replica; afterwards every process is still the one that it was."""
    cluster.sql(
        "CREATE DATABASE bad",
        "USE bad",
        "CREATE TABLE t (id INT PRIMARY KEY, tiny TINYINT, big BIGINT UNSIGNED, price DECIMAL(5,2), word VARCHAR(20),"
        " day DATE, needed INT NOT NULL)",
        f"INSERT INTO t VALUES (1, 1, 1, 1.00, '{VALUE}', '2013-01-01', 1)",
        f"CREATE USER 'ann'@'%' IDENTIFIED BY '{PASSWORD}'",
        "GRANT SELECT ON bad.* TO 'ann'@'%'",
    )
    cluster.replicate("bad.t")
    before = cluster.pids()
    yield
    assert cluster.pids() == before, "a process died of bad input"
    assert cluster.sql("SELECT COUNT(*) FROM bad.t") == [(1,)]


@pytest.mark.parametrize(
    ("statement", "code", "names"),
    [
        ("USE nowhere", 1049, "nowhere"),
        ("SELECT * FROM nothing", 1146, "bad.nothing"),
        ("SELECT nobody FROM t", 1054, "nobody"),
        ("INSERT INTO t (id, nobody) VALUES (2, 2)", 1054, "nobody"),
        ("INSERT INTO t (id, tiny, needed) VALUES (2, 128, 1)", 1264, "tiny"),
        ("INSERT INTO t (id, tiny, needed) VALUES (2, -129, 1)", 1264, "tiny"),
        ("INSERT INTO t (id, big, needed) VALUES (2, -1, 1)", 1264, "big"),
        ("INSERT INTO t (id, price, needed) VALUES (2, 1000, 1)", 1264, "price"),
        ("INSERT INTO t (id, word, needed) VALUES (2, REPEAT('x', 21), 1)", 1406, "word"),
        ("INSERT INTO t (id, day, needed) VALUES (2, '2013-02-30', 1)", 1292, "day"),
        ("INSERT INTO t (id, needed) VALUES (2, NULL)", 1048, "needed"),
        ("INSERT INTO t (id) VALUES (2)", 1364, "needed"),
        ("INSERT INTO t (id, needed) VALUES (1, 1)", 1062, "PRIMARY"),
        ("SELEKT 1", 1064, "SQL syntax"),
        ("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.a=1", 1235, "TRIGGER"),
        ("CREATE TABLE c (id INT PRIMARY KEY, w VARCHAR(9) COLLATE utf8mb4_general_ci)", 1273, "utf8mb4_general_ci"),
        ("SELECT no_such_function(1)", 1305, "no_such_function"),
        ("SET no_such_variable = 1", 1193, "no_such_variable"),
        ("SET isobar_snapshot = 'forged'", 1231, "isobar_snapshot"),
        ("SELECT isobar_snapshot('99h')", 1210, "isobar_snapshot"),
        ("ALTER TABLE nothing SET COLUMNAR REPLICA 1", 1146, "nothing"),
    ],
)
def test_a_wrong_statement_gets_mysqls_number_and_names_its_object(cluster: Cluster, statement, code, names):
    with pytest.raises(pymysql.err.MySQLError) as raised:
        cluster.sql(statement, database="bad")
    assert raised.value.args[0] == code, raised.value
    assert names in raised.value.args[1]


@pytest.mark.parametrize(
    ("user", "password", "database", "code"),
    [("root", "wrong", None, 1045), ("ann", "wrong", None, 1045), ("nobody", "", None, 1045), ("root", "", "nowhere", 1049)],
)
def test_a_wrong_log_in_is_refused(cluster: Cluster, user, password, database, code):
    with pytest.raises(pymysql.err.MySQLError) as raised:
        cluster.connect(user, password, database=database)
    assert raised.value.args[0] == code


def test_users_come_and_go_at_both_ports(cluster: Cluster):
    cluster.sql("CREATE USER 'bob'@'%' IDENTIFIED BY 'one'", "GRANT SELECT ON bad.* TO 'bob'@'%'")
    assert cluster.sql("SELECT 1", user="bob", password="one") == [(1,)]
    assert FlightClient(cluster, user="bob", password="one").sql("SELECT COUNT(*) FROM t", "bad") == [(1,)]
    cluster.sql("SET PASSWORD FOR 'bob'@'%' = 'two'")
    with pytest.raises(pymysql.err.MySQLError):
        cluster.connect("bob", "one")
    assert cluster.sql("SELECT 1", user="bob", password="two") == [(1,)]
    cluster.sql("DROP USER 'bob'@'%'")
    with pytest.raises(pymysql.err.MySQLError):
        cluster.connect("bob", "two")
    with pytest.raises(flight.FlightUnauthenticatedError):
        FlightClient(cluster, user="bob", password="two").info({"sql": {"query": "SELECT 1", "database": "bad"}})


def test_a_broken_line_is_mended_and_reported(cluster: Cluster, tmp_path):
    """LOCAL means IGNORE, as in MySQL."""
    file = tmp_path / "lines.csv"
    with cluster.connect() as connection, connection.cursor() as cursor:
        for line, code, tiny in (("12,300", 1264, 127), ("12", 1261, None), ("12,1,1,1", 1262, 1), ("12,word", 1366, 0)):
            file.write_text(f"id,tiny\n10,1\n11,1\n{line}\n13,1\n")
            cursor.execute(
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE bad.t FIELDS TERMINATED BY ',' IGNORE 1 LINES (id, tiny)"
                " SET needed = 1"
            )
            assert cursor.rowcount == 4
            cursor.execute("SHOW WARNINGS")
            ((level, number, message),) = cursor.fetchall()
            assert (level, number, "row 3" in message.lower()) == ("Warning", code, True), message
            cursor.execute("SELECT tiny FROM bad.t WHERE id = 12")
            assert cursor.fetchall() == ((tiny,),)
            cursor.execute("DELETE FROM bad.t WHERE id >= 10")
            connection.commit()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 3140),
        ("{", 3140),
        ("[1,]", 3140),
        ("{'a': 1}", 3140),
        ('{"a": 1} x', 3140),
        ('"\\ud800"', 3140),
        ('"tab\there"', 3140),
        ("1e999", 3140),
        ("nul", 3140),
        ("[" * 101 + "]" * 101, 3157),
        ("[" * 1_000_000, 3157),
    ],
)
def test_broken_json_is_refused_by_both_protocols(cluster: Cluster, text, code):
    cluster.sql("CREATE TABLE IF NOT EXISTS bad.j (id INT PRIMARY KEY, d JSON)")
    insert, length = "INSERT INTO bad.j VALUES (1, %s)", "SELECT JSON_LENGTH(%s)"
    with cluster.connect() as connection, connection.cursor() as cursor:
        for sql, expected in ((insert, code), (length, 3141 if code == 3140 else code)):
            with pytest.raises(pymysql.err.MySQLError) as raised:
                cursor.execute(sql, (text,))
            assert raised.value.args[0] == expected, raised.value
    binary = mysql.connector.connect(host="127.0.0.1", port=cluster.mysql_port, user="root", use_pure=True)
    prepared = binary.cursor(prepared=True)
    for sql, expected in ((insert, code), (length, 3141 if code == 3140 else code)):
        with pytest.raises(mysql.connector.Error) as failed:
            prepared.execute(sql, (text,))
            prepared.fetchall()
        assert failed.value.errno == expected, failed.value
    binary.close()
    assert cluster.sql("SELECT COUNT(*) FROM bad.j") == [(0,)]


def test_a_token_past_its_lease_is_a_typed_error(cluster: Cluster):
    token = cluster.token("1s")

    def refusal():
        try:
            cluster.read("tikv", "SELECT COUNT(*) FROM bad.t", token)
        except pymysql.err.MySQLError as error:
            return error.args
        return None

    code, text = wait_until("the lease ends", refusal, 20)
    assert code == 9006 and "lease" in text.lower()
    with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-(LEASE_LOST|SNAPSHOT_TOO_OLD)"):
        FlightClient(cluster).scan("bad.t", ["id"], token)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"scan": {"database": "bad", "table": "nothing", "columns": ["id"]}}, "NOT_FOUND"),
        ({"scan": {"database": "nowhere", "table": "t", "columns": ["id"]}}, "NOT_FOUND"),
        ({"scan": {"database": "bad", "table": "t", "columns": ["nobody"]}}, "NOT_FOUND"),
        ({"scan": {"database": "bad", "table": "t", "columns": ["id"], "snapshot": "forged"}}, "TICKET_FORGED"),
        ({"scan": {"database": "bad", "table": "t", "columns": ["id"], "filter": {"op": "??"}}}, "INVALID"),
        ({"sql": {"query": "SELEKT", "database": "bad"}}, "INVALID"),
        ({"sql": {"query": "SELECT nobody FROM t", "database": "bad"}}, "NOT_FOUND"),
        ({"sql": {"query": "DELETE FROM t", "database": "bad"}}, "INVALID|UNSUPPORTED"),
        (b"{", "INVALID"),
        (b"{}", "INVALID"),
        (b"\xff\x00", "INVALID|UNSUPPORTED"),
    ],
)
def test_a_wrong_flight_request_gets_a_code(cluster: Cluster, command, code):
    with pytest.raises(FLIGHT_ERRORS, match=f"ISOBAR-({code})"):
        info = FlightClient(cluster).info(command)
        for endpoint in info.endpoints:
            FlightClient(cluster).get(endpoint)


def test_a_forged_ticket_is_refused_wherever_it_was_changed(cluster: Cluster):
    client = FlightClient(cluster)
    endpoint = client.info({"scan": {"database": "bad", "table": "t", "columns": ["id"]}}).endpoints[0]
    ticket = endpoint.ticket.ticket
    assert client.get(endpoint) == [(1,)]
    assert client.get(endpoint) == [(1,)], "a ticket can be redeemed again"
    step = max(1, len(ticket) // 25)
    forged = [ticket[:at] + bytes([ticket[at] ^ 1]) + ticket[at + 1 :] for at in range(0, len(ticket), step)]
    for wrong in [*forged, b"x", ticket[:-1], ticket + b"x", os.urandom(64)]:
        with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-TICKET_FORGED"):
            client.get(endpoint, wrong)


def test_flight_refuses_wrong_credentials(cluster: Cluster):
    command = {"scan": {"database": "bad", "table": "t", "columns": ["id"]}}
    for user, password in (("root", "wrong"), ("ann", "wrong"), ("nobody", "")):
        with pytest.raises(flight.FlightUnauthenticatedError):
            FlightClient(cluster, user=user, password=password).info(command)
    with pytest.raises(flight.FlightUnauthenticatedError):
        flight.connect(f"grpc://{cluster.flight[0]}").get_flight_info(flight.FlightDescriptor.for_command(b"{}"))
    assert FlightClient(cluster, user="ann", password=PASSWORD).rows(command) == [(1,)]


def test_the_handshake_gives_a_bearer_token(cluster: Cluster):
    raw = flight.connect(f"grpc://{cluster.flight[0]}")
    header = raw.authenticate_basic_token("ann", PASSWORD)
    assert header[1].startswith(b"Bearer ")
    client = FlightClient(cluster)
    client.options = flight.FlightCallOptions(headers=[header], timeout=30)
    assert client.sql("SELECT COUNT(*) FROM t", "bad") == [(1,)]


def test_a_ticket_gives_the_rows_of_its_snapshot_though_the_table_was_recreated(cluster: Cluster):
    cluster.sql("CREATE TABLE bad.r (id INT PRIMARY KEY)", "INSERT INTO bad.r VALUES (1)")
    cluster.replicate("bad.r")
    client = FlightClient(cluster)
    endpoint = client.info({"scan": {"database": "bad", "table": "r", "columns": ["id"]}}).endpoints[0]
    assert client.get(endpoint) == [(1,)]
    cluster.sql("DROP TABLE bad.r", "CREATE TABLE bad.r (id INT PRIMARY KEY)", "INSERT INTO bad.r VALUES (2)")
    cluster.replicate("bad.r")
    assert client.get(endpoint) == [(1,)], "those of the table that was dropped, which its token keeps"


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x00" * 64,
        b"\xff" * 4096,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack("<I", 0x01FFFFFF) + b"x" * 1000,
        b"\x05\x00\x00\x01\x85\xa6",
    ],
    ids=["zeros", "ones", "http", "oversize", "cut short"],
)
def test_malformed_packets_end_one_connection_only(cluster: Cluster, bytes_):
    with socket.create_connection(("127.0.0.1", cluster.mysql_port), timeout=10) as raw:
        assert raw.recv(4096), "the server speaks first"
        raw.sendall(bytes_)
        raw.shutdown(socket.SHUT_WR)
        raw.settimeout(30)
        try:
            while raw.recv(4096):
                pass
        except ConnectionError:
            pass
    assert cluster.sql("SELECT 1") == [(1,)]


def test_logs_hold_no_passwords_tokens_or_row_values(cluster: Cluster):
    token = cluster.token()
    assert cluster.sql(f"SELECT word FROM bad.t WHERE word = '{VALUE}'") == [(VALUE,)]
    cluster.read("tiflash", f"SELECT COUNT(*) FROM bad.t WHERE word <> '{VALUE}'", token)
    with pytest.raises(pymysql.err.MySQLError):
        cluster.sql(f"INSERT INTO bad.t (id, needed, word) VALUES (1, 1, '{VALUE}')")
    logs = {path.parent.name: path.read_text(errors="replace") for path in cluster.logs()}
    assert len(logs) == 6 and all(logs.values())
    for secret in (PASSWORD, VALUE, token):
        holders = [name for name, text in logs.items() if secret in text]
        assert not holders, f"a secret is in the log of {holders}"
