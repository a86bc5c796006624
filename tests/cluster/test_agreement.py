"""P1 and P2: at one token every reader sees the same rows, and without one a reader sees what was acknowledged."""

import datetime
from decimal import Decimal

from harness import EVERY_TYPE, MORE_TYPES, Bank, Cluster, FlightClient, wait_until


def test_rows_columns_and_flight_agree_at_every_token_while_transfers_run(cluster: Cluster, bank: Bank):
    query = "SELECT id, balance, note FROM account ORDER BY id"
    accounts = f"{bank.database}.account"
    client = FlightClient(cluster)
    seen = []
    with bank:
        for _ in range(6):
            bank.wait_for(10)
            token = cluster.token()
            rows = cluster.read("tikv", query.replace("account", accounts), token)
            assert sum(row[1] for row in rows) == bank.total
            assert cluster.read("tiflash", query.replace("account", accounts), token) == rows
            assert client.sql(query, bank.database, token) == rows
            assert sorted(client.scan(accounts, ["id", "balance", "note"], token)) == rows
            seen.append(rows)
        # An old token still shows its own rows, on every path.
        assert cluster.read("tikv", query.replace("account", accounts), token) == seen[-1]
        assert cluster.read("tiflash", query.replace("account", accounts), token) == seen[-1]
    assert len({tuple(rows) for rows in seen}) == len(seen), "the tokens did not show different snapshots"
    bank.check()


def test_a_table_is_split_while_it_is_written(cluster: Cluster, bank: Bank):
    with bank:
        bank.wait_for(20)
        cluster.sql(f"SPLIT TABLE {bank.database}.account REGIONS 4")
        cluster.sql(f"SPLIT TABLE {bank.database}.ledger REGIONS 3")
        for table, least in (("account", 4), ("ledger", 2)):
            wait_until(
                f"{table} has regions", lambda: cluster.replica(f"{bank.database}.{table}")["regions"] >= least, 30
            )
            cluster.wait_available(f"{bank.database}.{table}")
        bank.wait_for(30)
        bank.check()
    bank.check()


def test_columns_show_a_commit_as_soon_as_it_is_acknowledged(cluster: Cluster):
    cluster.sql("CREATE DATABASE fresh", "CREATE TABLE fresh.t (id INT PRIMARY KEY, n INT)")
    cluster.replicate("fresh.t")
    with cluster.connect(database="fresh") as writer, cluster.connect(database="fresh") as reader:
        with writer.cursor() as write, reader.cursor() as read:
            read.execute("SET isobar_read_engines = 'columns'")
            for number in range(40):
                write.execute("INSERT INTO t VALUES (%s, %s)", (number, number))
                write.execute("UPDATE t SET n = n + 1000 WHERE id = %s", (number,))
                read.execute("SELECT COUNT(*), SUM(n), MAX(id) FROM t")
                expected = sum(range(number + 1)) + 1000 * (number + 1)
                assert read.fetchone() == (number + 1, Decimal(expected), number)


def test_every_type_is_the_same_from_rows_columns_and_flight(cluster: Cluster):
    cluster.sql(*EVERY_TYPE)
    cluster.replicate("typed.t")
    token = cluster.token()
    rows = cluster.read("tikv", "SELECT * FROM typed.t ORDER BY id", token)
    assert cluster.read("tiflash", "SELECT * FROM typed.t ORDER BY id", token) == rows
    assert rows[0][8] == 18446744073709551615 and rows[0][12] == "naïve ☃"
    columns = ["id", *"abcdefghijklmnop"]
    flown = sorted(FlightClient(cluster).scan("typed.t", columns, token), key=lambda row: row[0])
    without_zone = [
        tuple(v.replace(tzinfo=None) if isinstance(v, datetime.datetime) else v for v in row) for row in flown
    ]
    assert without_zone == rows


def test_bytes_spans_bits_and_json_are_the_same_from_rows_columns_and_flight(cluster: Cluster):
    cluster.sql(*MORE_TYPES)
    cluster.replicate("more.t")
    token = cluster.token()
    rows = cluster.read("tikv", "SELECT * FROM more.t ORDER BY id", token)
    assert cluster.read("tiflash", "SELECT * FROM more.t ORDER BY id", token) == rows
    assert rows[0][1:5] == (b"\x00\xff\x00\x00", b"\x00\xff\x80\xfe", b"\xc3\x28", -128)
    assert rows[0][7:9] == (datetime.timedelta(hours=838, minutes=59, seconds=59), b"\xff" * 8)
    assert [row[9] for row in rows] == ['{"a": null, "b": [1, 2.5, -9223372036854775808, "naïve ☃"]}', None, "null"]
    columns = ["id", *"qrsuvwxyz"]
    flown = sorted(FlightClient(cluster).scan("more.t", columns, token), key=lambda row: row[0])
    assert [tuple(map(as_pymysql, columns, row)) for row in flown] == rows
    scan = {"database": "more", "table": "t", "columns": columns, "snapshot": token, "filter": None}
    query = {"query": f"SELECT {', '.join(columns)} FROM more.t", "snapshot": token}
    types = [kind for _, kind, *_ in cluster.sql("SHOW COLUMNS FROM more.t")]
    for command in ({"scan": scan}, {"sql": query}):
        schema = FlightClient(cluster).info(command).schema
        assert "arrow.json" in f"{schema.field('z').type} {schema.field('z').metadata}"
        assert [field.metadata[b"isobar.type"].decode() for field in schema] == types


def as_pymysql(column: str, value: object) -> object:
    """A value of the Flight server as pymysql reads the same value from the MySQL protocol."""
    if value is None:
        return None
    if column == "v":
        # A FLOAT is printed with six digits.
        return float(f"{value:.6g}")
    return value.to_bytes(8, "big") if column == "y" else value


def test_flight_filters_mean_what_sql_means(cluster: Cluster):
    cluster.sql("CREATE DATABASE filters", "CREATE TABLE filters.t (id INT PRIMARY KEY, s VARCHAR(20), d DECIMAL(6,2))")
    cluster.sql("INSERT INTO filters.t VALUES (1,'a',1.10),(2,'B',NULL),(3,NULL,-2.00),(4,'ab',1.10),(5,'A',3.00)")
    cluster.replicate("filters.t")
    token = cluster.token()
    pairs = {
        "d = 1.10": {"op": "=", "column": "d", "value": {"decimal": "1.10"}},
        "d IS NULL": {"op": "is_null", "column": "d"},
        "NOT (d > 0)": {"op": "not", "arg": {"op": ">", "column": "d", "value": {"decimal": "0"}}},
        "s IN ('a','A')": {"op": "in", "column": "s", "values": [{"string": "a"}, {"string": "A"}]},
        "s LIKE 'a%'": {"op": "starts_with", "column": "s", "value": {"string": "a"}},
        "id >= 2 AND id < 5": {
            "op": "and",
            "args": [
                {"op": ">=", "column": "id", "value": {"int": "2"}},
                {"op": "<", "column": "id", "value": {"int": "5"}},
            ],
        },
    }
    for condition, filter in pairs.items():
        rows = cluster.read("tikv", f"SELECT id FROM filters.t WHERE {condition} ORDER BY id", token)
        assert sorted(FlightClient(cluster).scan("filters.t", ["id"], token, filter)) == rows, condition
