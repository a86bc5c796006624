"""GET_LOCK over two SQL nodes: who is excluded, who is granted, and what a dead node or leader leaves behind."""

import os
import shutil
import signal
import time

import pymysql
import pytest

from harness import Cluster, wait_until
from sessions import Waiting

INTERRUPTED, DEADLOCK = 1317, 3058
COM_RESET_CONNECTION = 0x1F
# Placement keeps the locks of a silent session for fifteen seconds, and looks twice a second.
KEPT_FOR = 15
FREED_WITHIN = 25.0


@pytest.fixture(scope="module")
def cluster(isobar, tmp_path_factory):
    """Row nodes and two SQL nodes: columns have no part in this."""
    data = tmp_path_factory.mktemp("advisory")
    base = os.environ.get("ISOBAR_PORT_BASE")
    with Cluster(isobar, data, port_base=int(base) if base else None, columnar=0, sql=2) as running:
        yield running
    shutil.rmtree(data, ignore_errors=True)


class Session(Waiting):
    """A session of the first or the second SQL node."""

    def __init__(self, cluster: Cluster, node: int = 1):
        port = cluster.mysql_port + node - 1
        bounds = {"connect_timeout": 10, "read_timeout": 60, "write_timeout": 60}
        super().__init__(pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True, **bounds))

    def row(self, sql: str) -> tuple:
        """The only row."""
        (row,) = self.run(sql)
        return row

    def value(self, sql: str, *values: object) -> object:
        """The only value."""
        ((value,),) = self.run(sql, *values)
        return value


@pytest.fixture
def one(cluster: Cluster):
    with Session(cluster, 1) as session:
        yield session


@pytest.fixture
def two(cluster: Cluster):
    with Session(cluster, 2) as session:
        yield session


def test_sessions_of_two_nodes_exclude_each_other(cluster: Cluster, one: Session, two: Session):
    assert one.value("SELECT GET_LOCK(%s, %s)", "ex", 10) == 1
    assert one.value("SELECT GET_LOCK('EX', 10)") == 1
    began = time.monotonic()
    assert two.row("SELECT GET_LOCK('ex', 0), RELEASE_LOCK('ex'), IS_FREE_LOCK('ex')") == (0, 0, 0)
    assert time.monotonic() - began < 5
    own = one.connection.thread_id()
    assert one.row("SELECT IS_USED_LOCK('ex'), CONNECTION_ID()") == (own, own)
    holder = two.value("SELECT IS_USED_LOCK('ex')")
    assert holder & 0xFFFFFFFF == own and holder >> 32 > 0, "a connection of another node"
    assert one.row("SELECT RELEASE_LOCK('ex'), IS_FREE_LOCK('ex')") == (1, 0), "it was taken twice"
    assert one.row("SELECT RELEASE_LOCK('ex'), IS_FREE_LOCK('ex')") == (1, 1)
    assert two.row("SELECT RELEASE_LOCK('ex'), GET_LOCK('ex', 0)") == (None, 1)
    assert two.value("SELECT RELEASE_ALL_LOCKS()") == 1


def test_who_waits_is_granted_and_the_rest_go_on_waiting(cluster: Cluster, one: Session, two: Session):
    with Session(cluster, 1) as three:
        assert one.value("SELECT GET_LOCK('w', 0)") == 1
        first, second = two.later("SELECT GET_LOCK('w', 50)"), three.later("SELECT GET_LOCK('w', -1)", 1.5)
        began = time.monotonic()
        assert one.value("SELECT RELEASE_LOCK('w')") == 1
        assert first.result(30) == ((1,),)
        # Woken, not found out by the next look a second later; with room for a busy machine.
        assert time.monotonic() - began < 5
        assert not second.done()
        two.close()
        assert second.result(30) == ((1,),)


def test_neither_commit_nor_rollback_frees_and_the_end_of_the_session_does(one: Session, two: Session):
    one.run("BEGIN")
    assert one.value("SELECT GET_LOCK('t', 0)") == 1
    for end in ("COMMIT", "ROLLBACK", "CREATE DATABASE IF NOT EXISTS advisory"):
        one.run(end)
        assert two.value("SELECT GET_LOCK('t', 0)") == 0, end
    one.connection._execute_command(COM_RESET_CONNECTION, b"")
    one.connection._read_ok_packet()
    assert two.value("SELECT GET_LOCK('t', 0)") == 1, "the answer came before the lock was given back"
    assert one.value("SELECT GET_LOCK('t', 0)") == 0
    two.close()
    wait_until("the lock of a closed connection is free", lambda: one.value("SELECT GET_LOCK('t', 0)") == 1, 5)


def test_a_wait_ends_with_its_time_and_with_kill(cluster: Cluster, one: Session, two: Session):
    assert one.value("SELECT GET_LOCK('k', 0)") == 1
    began = time.monotonic()
    assert two.value("SELECT GET_LOCK('k', 3)") == 0
    assert 2.9 < time.monotonic() - began < 10
    waiting = two.later("SELECT GET_LOCK('k', 60)")
    with Session(cluster, 2) as killer:
        killer.run(f"KILL QUERY {two.connection.thread_id()}")
    with pytest.raises(pymysql.err.MySQLError) as raised:
        waiting.result(10)
    assert raised.value.args[0] == INTERRUPTED
    assert one.value("SELECT RELEASE_LOCK('k')") == 1
    wait_until("nobody has it", lambda: one.value("SELECT IS_FREE_LOCK('k')") == 1, 10)
    assert two.value("SELECT GET_LOCK('k', 0)") == 1, "the session itself goes on"


def test_a_circle_over_two_nodes_is_reported(one: Session, two: Session):
    assert one.value("SELECT GET_LOCK('c1', 0)") == 1
    assert two.value("SELECT GET_LOCK('c2', 0)") == 1
    waiting = one.later("SELECT GET_LOCK('c2', 60)")
    assert two.error("SELECT GET_LOCK('c1', 60)") == DEADLOCK
    assert two.value("SELECT RELEASE_LOCK('c2')") == 1
    assert waiting.result(30) == ((1,),)


def test_an_idle_session_keeps_its_lock_also_when_the_leader_of_placement_dies(
    cluster: Cluster, one: Session, two: Session
):
    assert one.value("SELECT GET_LOCK('idle', 0)") == 1
    assert two.value(f"SELECT GET_LOCK('idle', {KEPT_FOR + 3})") == 0
    leader = f"row-{cluster.status()['placement_leader']}"
    old = cluster.kill(leader)
    answer = wait_until("there is another leader", lambda: two.row("SELECT GET_LOCK('idle', 0)"), 40)
    assert answer == (0,), "the lock went with the leader"
    cluster.wait_restarted(leader, old)
    assert one.row("SELECT IS_USED_LOCK('idle') = CONNECTION_ID(), RELEASE_LOCK('idle')") == (1, 1)
    assert two.value("SELECT GET_LOCK('idle', 0)") == 1


def test_locks_of_a_killed_node_are_freed(cluster: Cluster, one: Session, two: Session):
    assert two.value("SELECT GET_LOCK('dead', 0)") == 1
    waiting = one.later("SELECT GET_LOCK('dead', 60)")
    began = time.monotonic()
    old = cluster.kill("sql-2")
    assert waiting.result(50) == ((1,),)
    assert time.monotonic() - began < FREED_WITHIN
    cluster.wait_restarted("sql-2", old)
    with Session(cluster, 2) as again:
        assert again.value("SELECT GET_LOCK('dead', 0)") == 0


def test_a_session_that_may_have_lost_its_lock_is_ended(cluster: Cluster, one: Session, two: Session):
    assert two.value("SELECT GET_LOCK('frozen', 0)") == 1
    pid = cluster.pids()["sql-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert one.value("SELECT GET_LOCK('frozen', 50)") == 1
        assert time.monotonic() - began < FREED_WITHIN
    finally:
        os.kill(pid, signal.SIGCONT)

    def ended() -> bool:
        try:
            two.run("SELECT 1")
        except pymysql.err.MySQLError:
            return True
        return False

    wait_until("the session that held it is ended", ended, 20)
    assert one.value("SELECT IS_USED_LOCK('frozen') = CONNECTION_ID()") == 1
    cluster.wait_healthy()
