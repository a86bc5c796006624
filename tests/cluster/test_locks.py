"""Row locks over a whole cluster: who waits, who gives way, and what a lost leader or client leaves behind."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pymysql
import pytest

from harness import Cluster, wait_until
from sessions import Waiting

DEADLOCK, LOCK_WAIT, NOWAIT, INTERRUPTED = 1213, 1205, 3572, 1317
ACCOUNTS, START = 6, 100


@pytest.fixture(scope="module")
def cluster(isobar, tmp_path_factory):
    """Row nodes only: columns have no part in this."""
    data = tmp_path_factory.mktemp("locks")
    base = os.environ.get("ISOBAR_PORT_BASE")
    with Cluster(isobar, data, port_base=int(base) if base else None, columnar=0) as running:
        yield running
    shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def table(cluster: Cluster, request) -> str:
    """A fresh table of accounts, cut into regions with leaders on several nodes."""
    name = "locks." + request.node.name.split("[")[0][-50:]
    cluster.sql("CREATE DATABASE IF NOT EXISTS locks", f"CREATE TABLE {name} (id INT PRIMARY KEY, v BIGINT NOT NULL)")
    values = ",".join(f"({n},{START})" for n in range(ACCOUNTS))
    cluster.sql(f"INSERT INTO {name} VALUES {values}", f"SPLIT TABLE {name} REGIONS 3")
    return name


class Session(Waiting):
    """A session in a transaction."""

    def __init__(self, cluster: Cluster, begin: str = "BEGIN"):
        super().__init__(cluster.connect(autocommit=True))
        self.run(begin)


def lock(table: str, number: int, more: str = "") -> str:
    return f"SELECT v FROM {table} WHERE id = {number} FOR UPDATE {more}"


def test_waiters_go_on_in_order_and_none_fails_at_commit(cluster: Cluster, table: str):
    add = f"UPDATE {table} SET v = v * 2 + 1 WHERE id = 1"
    with Session(cluster) as one, Session(cluster) as two, Session(cluster) as three:
        assert one.run(lock(table, 1)) == ((START,),)
        second = two.later(add)
        third = three.later(lock(table, 1))
        one.run(f"UPDATE {table} SET v = 0 WHERE id = 1")
        one.run("COMMIT")
        second.result(5)
        assert not third.done(), "the third overtook the second"
        two.run("COMMIT")
        assert third.result(5) == ((1,),)
        three.run(add)
        three.run("COMMIT")
    assert cluster.sql(f"SELECT v FROM {table} WHERE id = 1") == [(3,)]


def test_a_wait_ends_after_its_time_or_at_once(cluster: Cluster, table: str):
    with Session(cluster) as one, Session(cluster, "SET innodb_lock_wait_timeout = 1") as two:
        one.run(lock(table, 1))
        two.run("BEGIN")
        two.run(f"UPDATE {table} SET v = 7 WHERE id = 2")
        began = time.monotonic()
        assert two.error(lock(table, 1)) == LOCK_WAIT
        assert 0.9 < time.monotonic() - began < 5
        assert two.error(lock(table, 1, "NOWAIT")) == NOWAIT
        skipped = f"SELECT id FROM {table} ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED"
        assert two.run(skipped) == ((0,), (2,))
        two.run("COMMIT")
        one.run("COMMIT")
    assert cluster.sql(f"SELECT v FROM {table} WHERE id = 2") == [(7,)], "only the statement was rolled back"


def test_of_two_that_wait_for_each_other_exactly_one_gives_way(cluster: Cluster, table: str):
    # Rows of different regions, hence of different leaders.
    first, last = 0, ACCOUNTS - 1
    with Session(cluster) as one, Session(cluster) as two:
        one.run(f"UPDATE {table} SET v = 1 WHERE id = {first}")
        two.run(f"UPDATE {table} SET v = 2 WHERE id = {last}")
        waits = one.later(f"UPDATE {table} SET v = 1 WHERE id = {last}")
        began = time.monotonic()
        assert two.error(f"UPDATE {table} SET v = 2 WHERE id = {first}") == DEADLOCK
        assert time.monotonic() - began < 5
        waits.result(5)
        one.run("COMMIT")
        # The victim's transaction is over: its next statement is one of its own.
        two.run(f"UPDATE {table} SET v = 3 WHERE id = {first}")
    rows = cluster.sql(f"SELECT v FROM {table} WHERE id IN ({first}, {last}) ORDER BY id")
    assert rows == [(3,), (1,)]


def test_a_killed_statement_stops_waiting_at_once(cluster: Cluster, table: str):
    with Session(cluster) as one, Session(cluster) as two:
        one.run(lock(table, 1))
        number = two.connection.thread_id()
        waits = two.later(lock(table, 1))
        cluster.sql(f"KILL QUERY {number}")
        with pytest.raises(pymysql.err.MySQLError) as raised:
            waits.result(5)
        assert raised.value.args[0] == INTERRUPTED
        one.run("COMMIT")
        assert two.run(lock(table, 1, "NOWAIT")) == ((START,),)


def test_a_killed_client_holds_nothing(cluster: Cluster, table: str):
    script = (
        "import pymysql, sys, time\n"
        f"c = pymysql.connect(host='127.0.0.1', port={cluster.mysql_port}, user='root')\n"
        "k = c.cursor()\n"
        f"k.execute('BEGIN'); k.execute({lock(table, 3)!r})\n"
        "print('held', flush=True); time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with Session(cluster) as other:
            assert other.error(lock(table, 3, "NOWAIT")) == NOWAIT
            waits = other.later(lock(table, 3))
            holder.send_signal(signal.SIGKILL)
            assert waits.result(10) == ((START,),)
    finally:
        holder.kill()
        holder.wait(10)


def test_a_transaction_that_is_open_for_long_keeps_its_rows(cluster: Cluster, table: str):
    """Longer than a leader remembers who does not say anything."""
    with Session(cluster) as one, Session(cluster) as two:
        one.run(lock(table, 1))
        waits = two.later(lock(table, 1), seconds=13)
        one.run(f"UPDATE {table} SET v = 8 WHERE id = 1")
        one.run("COMMIT")
        assert waits.result(5) == ((8,),)


@pytest.mark.timeout(240)
def test_a_lost_leader_loses_no_update(cluster: Cluster, table: str):
    """Every row node is killed while rows are held; the sum stays, and an acknowledged commit is there."""
    stop, committed, refused = threading.Event(), [], []

    def transfer(seed: int) -> None:
        random_ = random.Random(seed)
        connection = None
        while not stop.is_set():
            source, target = random_.sample(range(ACCOUNTS), 2)
            try:
                connection = connection or cluster.connect(autocommit=True, read_timeout=30)
                with connection.cursor() as cursor:
                    cursor.execute("SET innodb_lock_wait_timeout = 5")
                    cursor.execute("BEGIN")
                    balances = {}
                    for number in (source, target):
                        cursor.execute(lock(table, number))
                        balances[number] = cursor.fetchone()[0]
                    # Not `v = v - 1`: what was read under the lock is what is written.
                    cursor.execute(f"UPDATE {table} SET v = {balances[source] - 1} WHERE id = {source}")
                    cursor.execute(f"UPDATE {table} SET v = {balances[target] + 1} WHERE id = {target}")
                    cursor.execute("COMMIT")
                committed.append((source, target))
            except pymysql.err.MySQLError as error:
                refused.append(error.args[0])
                if connection is not None:
                    connection.close()
                connection = None

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for name in ("row-1", "row-2", "row-3"):
            before = len(committed)
            wait_until("transfers go on", lambda: len(committed) > before + 20, 60)
            # A row is held by an idle transaction while its leader may be the one that dies.
            with Session(cluster) as holder:
                held = random.randrange(ACCOUNTS)
                balance = holder.run(lock(table, held))[0][0]
                pid = cluster.kill(name)
                cluster.wait_restarted(name, pid)
                try:
                    holder.run(f"UPDATE {table} SET v = {balance} WHERE id = {held}")
                    holder.run("COMMIT")
                except pymysql.err.MySQLError as error:
                    assert error.args[0] in (DEADLOCK, LOCK_WAIT), error
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    total = cluster.sql(f"SELECT SUM(v) FROM {table}")[0][0]
    assert total == START * ACCOUNTS, f"{len(committed)} commits, {len(refused)} refused"
    print(f"{len(committed)} commits; refused: { {code: refused.count(code) for code in set(refused)} }")
