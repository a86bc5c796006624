"""A cluster under test: SQL and Flight clients, processes by name, and waiting for conditions.

Nothing here sleeps instead of waiting for a condition, and only processes of its own playground are killed.
"""

import base64
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import pyarrow
import pymysql
import pytest
from pyarrow import flight
from pymysql.connections import Connection

from playground import OFFSETS, Playground, is_free

T = TypeVar("T")

CONFLICT = 1213
SYSTEM_DATABASES = {"information_schema", "mysql", "performance_schema", "sys"}
# typed.t: a column of each type, with extremes, NULLs and zeros.
EVERY_TYPE = [
    "CREATE DATABASE typed",
    "USE typed",
    "CREATE TABLE t (id INT PRIMARY KEY, a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED, e INT,"
    " f INT UNSIGNED, g BIGINT, h BIGINT UNSIGNED, i DOUBLE, j DECIMAL(38,10), k CHAR(8), l VARCHAR(40), m TEXT,"
    " n DATE, o DATETIME(6), p TIMESTAMP)",
    "INSERT INTO t VALUES"
    " (1, -128, 255, -32768, 65535, -2147483648, 4294967295, -9223372036854775808, 18446744073709551615, 1.5e300,"
    " 9999999999999999999999999999.9999999999, 'char', 'naïve ☃', 'text', '2013-02-28', '9999-12-31 23:59:59.999999',"
    " '2013-06-01 12:00:00'),"
    " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    " (3, 0, 0, 0, 0, 0, 0, 0, 0, -0.25, -0.0000000001, '', '', '', '1000-01-01', '1000-01-01 00:00:00',"
    " '1970-01-02 00:00:00')",
]
# more.t: types that readers show in their own ways.
MORE_TYPES = [
    "CREATE DATABASE more",
    "CREATE TABLE more.t (id INT PRIMARY KEY, q BINARY(4), r VARBINARY(20), s BLOB, u TINYINT(1), v FLOAT, w YEAR,"
    " x TIME(6), y BIT(64), z JSON)",
    "INSERT INTO more.t VALUES"
    " (1, X'00ff', X'00ff80fe', X'c328', -128, -3.4e38, 2155, '838:59:59', 18446744073709551615,"
    ' \'{"b": [1, 2.5, -9223372036854775808, "naïve ☃"], "a": null}\'),'
    " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),"
    " (3, '', '', '', 0, 0.25, 1901, '-838:59:59', 0, 'null')",
]
FLIGHT_ERRORS = (flight.FlightError, pyarrow.ArrowException)


def absent(name: str) -> NoReturn:
    """Skips a test whose client is not installed, or fails it under REQUIRE_CLIENTS=1."""
    text = f"{name} is not installed"
    if os.environ.get("REQUIRE_CLIENTS") == "1":
        pytest.fail(text)
    pytest.skip(text)


def wait_until(what: str, condition: Callable[[], T], seconds: float = 30) -> T:
    """The condition's first true value; errors of clients count as not yet."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except (pymysql.err.MySQLError, *FLIGHT_ERRORS, StatusError, OSError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}; last seen: {last!r}")


def gone(pids: dict[str, int]) -> bool:
    """Whether none of these processes runs."""
    return not any(alive(pid) for pid in pids.values())


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class StatusError(Exception):
    """`isobar ctl status` failed."""


def encrypted() -> ssl.SSLContext:
    """TLS without a look at the server's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


# Left to itself, pymysql makes one for each connection and reads the system's certificates for it: 50 ms of a processor.
TLS = encrypted()


class Cluster(Playground):
    """A playground with clients."""

    host = "127.0.0.1"  # of the SQL node

    def connect(self, user: str = "root", password: str = "", **more) -> Connection:
        """A connection to the MySQL port; every wait of it is bounded."""
        bounds = dict(connect_timeout=10, read_timeout=60, write_timeout=60)
        options = dict(port=self.mysql_port, ssl=TLS, autocommit=True, local_infile=True, **bounds)
        return pymysql.connect(**{**options, **more}, host=self.host, user=user, password=password)

    def sql(self, *statements: str, **more) -> list[tuple]:
        """Runs statements in one session; the rows of the last."""
        with self.connect(**more) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def token(self, ttl: str = "10m") -> str:
        return self.sql(f"SELECT isobar_snapshot('{ttl}')")[0][0]

    def read(self, engine: str, query: str, token: str | None = None) -> list[tuple]:
        """The answer of one engine, and of no other: `tikv` or `tiflash`."""
        first = [f"SET tidb_isolation_read_engines = '{engine}'"]
        if token is not None:
            first.append(f"SET isobar_snapshot = '{token}'")
        return self.sql(*first, query)

    def status(self) -> dict:
        """`isobar ctl status --json`."""
        command = [self.isobar, "ctl", "status", "--json", "--placement", ",".join(self.placement)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise StatusError(done.stderr)
        return json.loads(done.stdout)

    def status_text(self) -> str:
        """The status for a failure's report, or why there is none."""
        try:
            return json.dumps(self.status())
        except (StatusError, OSError, subprocess.SubprocessError, ValueError) as error:
            return repr(error)

    def node(self, name: str) -> dict:
        """A row node as its status shows it."""
        port = self.port_base + 19 + int(name.removeprefix("row-"))
        return next(node for node in self.status()["nodes"] if node["rpc_address"].endswith(f":{port}"))

    def led(self, name: str) -> int:
        """Regions that a row node leads as far as placement knows, placement's own among them."""
        id, status = self.node(name)["id"], self.status()
        return [status["placement_leader"], *(region["leader"] for region in status["regions"])].count(id)

    def clear(self) -> None:
        """Drops every database and every user but root: what the next tests find is as new."""
        for (name,) in self.sql("SHOW DATABASES"):
            if name not in SYSTEM_DATABASES:
                self.sql(f"DROP DATABASE `{name}`")
        for user, host in self.sql("SELECT user, host FROM mysql.user WHERE user <> 'root'"):
            self.sql(f"DROP USER '{user}'@'{host}'")

    def names(self) -> list[str]:
        """Names of the nodes, in no order that matters."""
        return sorted(path.parent.name for path in self.data.glob("*/isobar.toml"))

    def pids(self) -> dict[str, int]:
        """Processes of the nodes that run now: children of this playground only."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except (OSError, IndexError, ValueError):
                continue
            if self.process is not None and parent == self.process.pid and "--config" in words:
                found[Path(words[words.index("--config") + 1]).parent.name] = int(entry.name)
        return found

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Kills a node, or asks it to stop; its process number."""
        pid = self.pids()[name]
        os.kill(pid, how)
        return pid

    @contextmanager
    def down(self, *names: str, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """Nodes that are killed, or asked to stop and have done so; they are not started again meanwhile, for their settings
        are away."""
        settings = [self.data / name / "isobar.toml" for name in names]
        for path in settings:
            path.rename(path.with_suffix(".away"))
        try:
            pids = {name: self.kill(name, how) for name in names}
            wait_until(f"{', '.join(names)} ended", lambda: gone(pids), 15)
            yield
        finally:
            for path in settings:
                path.with_suffix(".away").rename(path)

    def empty(self, name: str) -> None:
        """Takes everything from the disk of a node that is down but its settings and what it logged."""
        for path in (self.data / name).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in ("isobar.away", "isobar.log"):
                path.unlink()

    def wait_restarted(self, name: str, old: int, seconds: float = 40) -> None:
        """Waits until another process runs the node and every node is up."""
        wait_until(f"{name} is started again", lambda: self.pids().get(name) not in (None, old), seconds)
        self.wait_healthy(seconds)

    def wait_healthy(self, seconds: float = 40) -> None:
        """Waits until every node is up, SQL included."""
        expected = len(self.names())
        wait_until(
            "every node is up", lambda: sum(node["up"] for node in self.status()["nodes"]) >= expected, seconds
        )
        wait_until("SQL answers", lambda: self.sql("SELECT 1") == [(1,)], seconds)

    def is_whole(self) -> bool:
        """Whether every region, placement's own included, has three voters that live and hold data. For three row nodes."""
        status = self.status()
        up = {node["id"] for node in status["nodes"] if node["up"] and node["role"] == "row"}
        ready = [{peer["node"] for peer in region["peers"] if peer["ready"]} for region in status["regions"]]
        voters = [set(group["voters"]) for group in [status["placement"], *status["regions"]]]
        return len(up) == 3 and all(nodes == up for nodes in voters) and all(up <= nodes for nodes in ready)

    def replica(self, table: str) -> dict[str, object] | None:
        """A table's line of information_schema.columnar_replica."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT available, regions, ready_regions, lag_ms FROM information_schema.columnar_replica"
                " WHERE table_schema = %s AND table_name = %s",
                tuple(table.split(".")),
            )
            row = cursor.fetchone()
            names = [column[0].lower() for column in cursor.description]
            return dict(zip(names, row)) if row else None

    def replicate(self, table: str, seconds: float = 60) -> None:
        """Gives a table a columnar replica and waits for it."""
        self.sql(f"ALTER TABLE {table} SET COLUMNAR REPLICA 1")
        self.wait_available(table, seconds)

    def wait_available(self, table: str, seconds: float = 60) -> None:
        wait_until(f"{table} has a columnar replica", lambda: (self.replica(table) or {}).get("available"), seconds)

    def kill_supervisor(self) -> None:
        """Kills the playground itself with SIGKILL, and waits until its nodes and their ports are gone with it."""
        pids = self.pids()
        self.process.kill()
        self.process.wait()
        wait_until("every child is gone", lambda: gone(pids), 15)
        wait_until("every port is free", lambda: all(is_free(self.port_base + offset) for offset in OFFSETS), 15)


class FlightClient:
    """A Flight client that follows endpoints to the nodes that own the regions."""

    def __init__(self, cluster: Cluster, node: int = 0, user: str = "root", password: str = ""):
        basic = base64.b64encode(f"{user}:{password}".encode())
        self.options = flight.FlightCallOptions(headers=[(b"authorization", b"Basic " + basic)], timeout=60)
        self.client = flight.connect(f"grpc://{cluster.flight[node]}")

    def info(self, command: dict | bytes) -> flight.FlightInfo:
        body = command if isinstance(command, bytes) else json.dumps(command).encode()
        return self.client.get_flight_info(flight.FlightDescriptor.for_command(body), self.options)

    def get(self, endpoint: flight.FlightEndpoint, ticket: bytes | None = None) -> list[tuple]:
        """One endpoint's rows, from its first location."""
        client = flight.connect(endpoint.locations[0]) if endpoint.locations else self.client
        reader = client.do_get(flight.Ticket(ticket or endpoint.ticket.ticket), self.options)
        return [tuple(row.values()) for row in reader.read_all().to_pylist()]

    def rows(self, command: dict) -> list[tuple]:
        """All rows of all endpoints."""
        return [row for endpoint in self.info(command).endpoints for row in self.get(endpoint)]

    def scan(self, table: str, columns: list[str], token: str | None = None, filter: dict | None = None) -> list[tuple]:
        database, name = table.split(".")
        scan = {"database": database, "table": name, "columns": columns, "snapshot": token, "filter": filter}
        return self.rows({"scan": scan})

    def sql(self, query: str, database: str = "", token: str | None = None) -> list[tuple]:
        return self.rows({"sql": {"query": query, "database": database, "snapshot": token}})

    def action(self, name: str, body: dict) -> list:
        results = self.client.do_action(flight.Action(name, json.dumps(body).encode()), self.options)
        return [json.loads(result.body.to_pybytes()) for result in results]


class Bank:
    """Accounts whose sum never changes, and a ledger of every transfer that was acknowledged.

    Transfers run in threads. An error of the connection means "unknown": the transfer may or may not have happened,
    and is not counted as acknowledged.
    """

    ACCOUNTS = 40
    OPENING = 1000

    def __init__(self, cluster: Cluster, database: str):
        self.cluster = cluster
        self.database = database
        self.total = self.ACCOUNTS * self.OPENING
        self.acknowledged: list[int] = []
        self.conflicts = 0
        self.broken = 0
        self.failure: BaseException | None = None
        self._next = 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        accounts = ",".join(f"({n}, {self.OPENING}, 'account {n}')" for n in range(self.ACCOUNTS))
        self.cluster.sql(
            f"CREATE DATABASE {self.database}",
            f"USE {self.database}",
            "CREATE TABLE account (id INT PRIMARY KEY, balance DECIMAL(12,2) NOT NULL, note VARCHAR(40))",
            "CREATE TABLE ledger (id BIGINT PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, amount INT NOT NULL)",
            f"INSERT INTO account VALUES {accounts}",
        )
        for table in ("account", "ledger"):
            self.cluster.sql(f"ALTER TABLE {self.database}.{table} SET COLUMNAR REPLICA 1")
        for table in ("account", "ledger"):
            self.cluster.wait_available(f"{self.database}.{table}")

    def start(self, threads: int = 2) -> "Bank":
        for number in range(threads):
            thread = threading.Thread(target=self._run, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(70)
        assert not any(thread.is_alive() for thread in self._threads), "a transfer hangs"
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> "Bank":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_for(self, more: int, seconds: float = 40) -> None:
        """Waits until so many more transfers were acknowledged."""
        target = len(self.acknowledged) + more
        done = lambda: self.failure is not None or len(self.acknowledged) >= target  # noqa: E731
        wait_until(f"{more} more transfers", done, seconds)

    def _run(self, seed: int) -> None:
        connection = None
        step = seed
        while not self._end.is_set():
            with self._lock:
                self._next += 1
                number = self._next
            step = (step * 31 + 17 + number) % 10_007
            source, target = step % self.ACCOUNTS, (step // 7) % self.ACCOUNTS
            if source == target:
                target = (target + 1) % self.ACCOUNTS
            try:
                if connection is None:
                    connection = self.cluster.connect(database=self.database, read_timeout=30)
                self._transfer(connection, number, source, target, 1 + step % 5)
                self.acknowledged.append(number)
            except pymysql.err.MySQLError as error:
                if error.args[0] == CONFLICT:
                    self.conflicts += 1
                    continue
                if error.args[0] in (1064, 1146, 1054, 1235):  # the statement itself is refused: a test's mistake
                    self.failure = error
                    return
                self.broken += 1
                connection = self._drop(connection)
            except (OSError, EOFError):
                self.broken += 1
                connection = self._drop(connection)
        self._drop(connection)

    def _drop(self, connection: Connection | None) -> None:
        if connection is not None:
            try:
                connection.close()
            except (pymysql.err.Error, OSError):
                pass
        self._end.wait(0.1)  # a node that is being started again needs no storm of connections

    @staticmethod
    def _transfer(connection: Connection, number: int, source: int, target: int, amount: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            try:
                cursor.execute("UPDATE account SET balance = balance - %s WHERE id = %s", (amount, source))
                cursor.execute("UPDATE account SET balance = balance + %s WHERE id = %s", (amount, target))
                cursor.execute("INSERT INTO ledger VALUES (%s, %s, %s, %s)", (number, source, target, amount))
                cursor.execute("COMMIT")
            except pymysql.err.MySQLError:
                cursor.execute("ROLLBACK")
                raise

    def check(self) -> None:
        """At one new token, rows and columns agree, the sum is right and every acknowledged transfer is there."""
        acknowledged = set(self.acknowledged)
        token = self.cluster.token()
        answers = {}
        for engine in ("tikv", "tiflash"):
            total = self.cluster.read(engine, f"SELECT SUM(balance) FROM {self.database}.account", token)
            ids = self.cluster.read(engine, f"SELECT id FROM {self.database}.ledger", token)
            accounts = self.cluster.read(engine, f"SELECT * FROM {self.database}.account ORDER BY id", token)
            assert total[0][0] == self.total, f"{engine}: the sum of all accounts is {total[0][0]}, not {self.total}"
            found = {row[0] for row in ids}
            assert len(found) == len(ids), f"{engine}: {len(ids) - len(found)} transfers are there twice"
            missing = sorted(acknowledged - found)
            assert not missing, f"{engine}: {len(missing)} acknowledged transfers are missing: {missing[:10]}"
            answers[engine] = (found, accounts)
        assert answers["tikv"] == answers["tiflash"], "rows and columns differ at one token"
