"""GRANT and REVOKE over real connections: what several users may do at the MySQL port, on other nodes, and over Flight."""

import re

import pymysql
import pytest
from pyarrow import flight

from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until

pytestmark = pytest.mark.own_cluster

ANN = {"user": "ann", "password": "Sesame-ann"}


@pytest.fixture(scope="module", autouse=True)
def tables(cluster: Cluster):
    """A shop with a table for all and one for few, both with replicas; `ann` may do nothing yet."""
    cluster.sql(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, total INT)",
        "CREATE TABLE shop.wages (id INT PRIMARY KEY, amount INT)",
        "INSERT INTO shop.orders VALUES (1, 10), (2, 20)",
        "INSERT INTO shop.wages VALUES (1, 4711)",
        "CREATE VIEW shop.totals AS SELECT SUM(amount) AS amount FROM shop.wages",
        f"CREATE USER 'ann'@'%' IDENTIFIED BY '{ANN['password']}'",
    )
    cluster.replicate("shop.orders")
    cluster.replicate("shop.wages")


@pytest.fixture(autouse=True)
def nothing(cluster: Cluster):
    """Each test begins with a user who has nothing."""
    cluster.sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM ann")


def code(cluster: Cluster, *statements: str, **who) -> int:
    """The number of the error that statements end with; 0 without one."""
    try:
        cluster.sql(*statements, **(who or ANN))
        return 0
    except pymysql.err.MySQLError as error:
        return error.args[0]


def denied(call) -> None:
    with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-DENIED.*command denied to user 'ann'"):
        call()


def test_a_new_user_connects_and_sees_nothing(cluster: Cluster):
    assert cluster.sql("SELECT 1", **ANN) == [(1,)]
    assert cluster.sql("SHOW DATABASES", **ANN) == [("information_schema",)]
    assert cluster.sql("SHOW GRANTS", **ANN) == [("GRANT USAGE ON *.* TO `ann`@`%`",)]
    stored = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema <> 'information_schema'"
    assert cluster.sql(stored, **ANN) == [(0,)]
    assert cluster.sql("SELECT COUNT(*) FROM information_schema.regions", **ANN) == [(0,)]
    assert code(cluster, "SELECT * FROM shop.orders") == 1142
    assert code(cluster, "SELECT * FROM information_schema.cluster_info") == 1227
    for wrong in ("shop", "nowhere"):
        with pytest.raises(pymysql.err.MySQLError) as raised:
            cluster.connect(ANN["user"], ANN["password"], database=wrong)
        assert raised.value.args[0] == 1044, raised.value
    with cluster.connect(ANN["user"], ANN["password"]) as connection:
        with pytest.raises(pymysql.err.MySQLError) as raised:
            connection.select_db("shop")
        assert raised.value.args == (1044, "Access denied for user 'ann'@'%' to database 'shop'")


def test_grants_change_under_an_open_connection(cluster: Cluster):
    with cluster.connect(ANN["user"], ANN["password"]) as connection, connection.cursor() as cursor:
        def number(sql: str) -> int:
            try:
                cursor.execute(sql)
                cursor.fetchall()
                return 0
            except pymysql.err.MySQLError as error:
                return error.args[0]

        assert number("SELECT * FROM shop.orders") == 1142
        cluster.sql("GRANT SELECT ON shop.orders TO ann")
        assert number("SELECT * FROM shop.orders") == 0
        assert number("SELECT * FROM shop.orders JOIN shop.wages USING (id)") == 1142
        assert number("UPDATE shop.orders SET total = 1") == 1142
        cluster.sql("GRANT UPDATE ON shop.* TO ann")
        assert number("UPDATE shop.orders SET total = 10 WHERE id = 1") == 0
        cluster.sql("REVOKE UPDATE ON shop.* FROM ann")
        assert number("UPDATE shop.orders SET total = 10 WHERE id = 1") == 1142
        # Rows and columns alike: what is checked is the statement.
        for engine in ("rows", "columns"):
            assert number(f"SET isobar_read_engines = '{engine}'") == 0
            assert number("SELECT SUM(total) FROM shop.orders") == 0
            assert number("SELECT SUM(amount) FROM shop.wages") == 1142
            assert number("EXPLAIN SELECT SUM(total) FROM shop.orders") == 0
            assert number("SELECT * FROM shop.totals") == 1142
        cluster.sql("GRANT SELECT ON shop.totals TO ann")
        for engine in ("rows", "columns"):
            assert number(f"SET isobar_read_engines = '{engine}'") == 0
            cursor.execute("SELECT amount FROM shop.totals")
            assert cursor.fetchall() == ((4711,),)
            cursor.execute("EXPLAIN SELECT amount FROM shop.totals")
            assert cursor.fetchall()


def test_the_process_list_and_kill_are_ones_own(cluster: Cluster):
    with cluster.connect() as roots, cluster.connect(ANN["user"], ANN["password"]) as own:
        users = {row[1] for row in cluster.sql("SHOW PROCESSLIST", **ANN)}
        assert users == {"ann"}
        assert code(cluster, f"KILL {roots.thread_id()}") == 1095
        roots.ping(reconnect=False)
        assert code(cluster, f"KILL {own.thread_id()}") == 0
        cluster.sql("GRANT PROCESS, SUPER ON *.* TO ann")
        assert "root" in {row[1] for row in cluster.sql("SHOW PROCESSLIST", **ANN)}
        assert code(cluster, f"KILL {roots.thread_id()}") == 0


def test_dumps_and_loads_need_what_they_do(cluster: Cluster, tmp_path):
    file = tmp_path / "orders.csv"
    file.write_text("100,1\n")
    load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE shop.orders FIELDS TERMINATED BY ','"
    assert code(cluster, load) == 1142
    cluster.sql("GRANT INSERT ON shop.orders TO ann")
    assert code(cluster, load) == 0
    assert code(cluster, "DELETE FROM shop.orders WHERE id = 100") == 1142
    cluster.sql("DELETE FROM shop.orders WHERE id = 100")


def test_flight_reads_what_its_user_may_read(cluster: Cluster):
    # Any columnar node, and each way of asking.
    clients = [FlightClient(cluster, node, **ANN) for node in range(len(cluster.flight))]
    for client in clients:
        denied(lambda: client.sql("SELECT id FROM orders", "shop"))
        denied(lambda: client.sql("SELECT (SELECT MAX(amount) FROM shop.wages) AS a"))
        denied(lambda: client.scan("shop.orders", ["id"]))
        denied(lambda: client.action("explain", {"query": "SELECT id FROM orders", "database": "shop"}))
        denied(lambda: client.action("catalog.table", {"database": "shop", "table": "orders"}))
        assert client.action("catalog.databases", {}) == [["information_schema"]]
        assert client.sql("SELECT 1 AS one") == [(1,)]
    cluster.sql("GRANT SELECT ON shop.orders TO ann")
    for client in clients:
        assert sorted(client.sql("SELECT id FROM orders", "shop")) == [(1,), (2,)]
        assert sorted(client.scan("shop.orders", ["id", "total"])) == [(1, 10), (2, 20)]
        assert client.action("catalog.databases", {}) == [["information_schema", "shop"]]
        assert client.action("catalog.tables", {"database": "shop"}) == [["orders"]]
        assert client.action("catalog.table", {"database": "shop", "table": "orders"})[0]["primary_key"] == ["id"]
        denied(lambda: client.sql("SELECT * FROM orders JOIN wages USING (id)", "shop"))
        denied(lambda: client.scan("shop.wages", ["amount"]))
    # A ticket stays good; a new one is not to be had.
    command = {"scan": {"database": "shop", "table": "orders", "columns": ["id"]}}
    tickets = clients[0].info(command).endpoints
    cluster.sql("REVOKE SELECT ON shop.orders FROM ann")
    wait_until("no ticket", lambda: flight_code(clients[0], command) == "ISOBAR-DENIED")
    assert sorted(row for ticket in tickets for row in clients[0].get(ticket)) == [(1,), (2,)]
    # Nobody makes oneself a SQL node's word: a log-in's bearer is checked like its password.
    bearer = clients[0].client.authenticate_basic_token(ANN["user"], ANN["password"])
    options = flight.FlightCallOptions(headers=[bearer], timeout=60)
    with pytest.raises(FLIGHT_ERRORS, match="ISOBAR-DENIED"):
        clients[0].client.get_flight_info(
            flight.FlightDescriptor.for_command(b'{"scan": {"database": "shop", "table": "orders", "columns": ["id"]}}'),
            options,
        )


def flight_code(client: FlightClient, command: dict) -> str:
    try:
        client.info(command)
        return ""
    except FLIGHT_ERRORS as error:
        return re.search(r"ISOBAR-\w+", str(error))[0]


def test_users_and_their_grants_outlive_their_processes(cluster: Cluster):
    cluster.sql("GRANT SELECT ON shop.* TO ann WITH GRANT OPTION", "GRANT DROP ON shop.orders TO ann")
    shown = cluster.sql("SHOW GRANTS FOR ann")
    assert shown == [
        ("GRANT USAGE ON *.* TO `ann`@`%`",),
        ("GRANT SELECT ON `shop`.* TO `ann`@`%` WITH GRANT OPTION",),
        ("GRANT DROP ON `shop`.`orders` TO `ann`@`%`",),
    ]
    old = {name: cluster.kill(name) for name in cluster.names()}
    for name, pid in old.items():
        cluster.wait_restarted(name, pid)
    assert wait_until("grants", lambda: cluster.sql("SHOW GRANTS FOR ann")) == shown
    assert sorted(cluster.sql("SELECT id FROM shop.orders", **ANN)) == [(1,), (2,)]
    assert code(cluster, "INSERT INTO shop.orders VALUES (9, 9)") == 1142
