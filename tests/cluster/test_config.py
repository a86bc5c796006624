"""SHOW CONFIG and SET CONFIG reach the settings of nodes of every kind, and what is set outlives the nodes."""

from contextlib import ExitStack

import pymysql
import pytest

from harness import Cluster, wait_until


@pytest.fixture(scope="module")
def own(isobar, tmp_path_factory):
    """A cluster with one node of each kind."""
    with Cluster(isobar, tmp_path_factory.mktemp("config"), row=1, columnar=1) as cluster:
        wait_until("all nodes have said", lambda: set(shown(cluster, "role")) == {"row", "sql", "columnar"})
        yield cluster


def shown(cluster: Cluster, name: str) -> dict[str, str]:
    """A setting by kind of node."""
    return {kind: value for kind, _, _, value in cluster.sql(f"SHOW CONFIG WHERE Name = '{name}'")}


def test_every_kind_of_node_shows_its_settings(own: Cluster):
    kinds = {kind for kind, *_ in own.sql("SHOW CONFIG LIKE 'columnar'")}
    assert kinds == {"columnar"}
    assert shown(own, "max_connections")["sql"] == "1000"
    listed = "SELECT `type`, instance, `key`, value FROM information_schema.cluster_config WHERE `type` = 'row'"
    assert sorted(own.sql(listed)) == sorted(own.sql("SHOW CONFIG WHERE Type = 'row'"))
    assert shown(own, "log_level") == dict.fromkeys(("row", "sql", "columnar"), "info")


def test_a_level_of_logs_is_turned_and_turned_back(own: Cluster):
    log = own.data / "columnar-1" / "isobar.log"

    def details() -> int:
        return log.read_text().count(" DEBUG ")

    assert details() == 0
    own.sql("SET CONFIG tiflash log.level = 'debug'")
    wait_until("it logs more", lambda: details() > 0)
    wait_until("it is shown", lambda: shown(own, "log_level") == {"row": "info", "sql": "info", "columnar": "debug"})
    own.sql("SET CONFIG columnar log_level = DEFAULT")
    wait_until("it is shown", lambda: shown(own, "log_level")["columnar"] == "info")


def test_connections_are_limited_from_now_on(own: Cluster):
    own.sql("SET CONFIG sql max_connections = 3")
    wait_until("it counts", lambda: shown(own, "max_connections")["sql"] == "3")
    with ExitStack() as stack:
        first = stack.enter_context(own.connect())
        for _ in range(2):
            stack.enter_context(own.connect())
        with pytest.raises(pymysql.err.MySQLError) as error:
            own.connect()
        assert error.value.args[0] == 1040
        # Whoever is there stays, and can undo it.
        with first.cursor() as cursor:
            cursor.execute("SET CONFIG 'sql' max_connections = DEFAULT")

        def connects() -> bool:
            try:
                own.connect().close()
                return True
            except pymysql.err.MySQLError:
                return False

        wait_until("there is room again", connects)


def test_a_setting_of_one_node_goes_before_its_kinds_and_outlives_it(own: Cluster):
    address = own.sql("SHOW CONFIG WHERE Name = 'flight_address'")[0]
    own.sql(
        "SET CONFIG columnar query_memory_mib = 100",
        f"SET CONFIG '{address[3]}' query_memory_mib = 200",
        "SET CONFIG columnar column_cache_mib = 64",
    )
    wait_until("what counts at once is shown", lambda: shown(own, "column_cache_mib")["columnar"] == "64")
    assert shown(own, "query_memory_mib")["columnar"] == "2048", "it counts from the next start on"
    own.wait_restarted("columnar-1", own.kill("columnar-1"))
    wait_until("it has started with it", lambda: shown(own, "query_memory_mib").get("columnar") == "200")
    assert shown(own, "column_cache_mib")["columnar"] == "64"


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("SET CONFIG sql log_level = 'loud'", "error, warn, info, debug, trace"),
        ("SET CONFIG sql max_connections = 0", "a number from 1"),
        ("SET CONFIG row max_connections = 10", "nodes of kind sql"),
        ("SET CONFIG sql data_dir = '/tmp'", "SHOW CONFIG lists all"),
        ("SET CONFIG pd log_level = 'info'", "neither a kind of node"),
        ("SET CONFIG '127.0.0.1:1' log_level = 'info'", "neither a kind of node"),
    ],
)
def test_what_cannot_be_set_is_refused_with_what_can(own: Cluster, statement: str, says: str):
    with pytest.raises(pymysql.err.MySQLError, match=says):
        own.sql(statement)


def test_who_may_not_is_refused(own: Cluster):
    own.sql("CREATE USER 'ann'@'%'")
    for statement in ("SHOW CONFIG", "TABLE information_schema.cluster_config", "SET CONFIG sql log_level = 'info'"):
        with pytest.raises(pymysql.err.MySQLError) as error:
            own.sql(statement, user="ann")
        assert error.value.args[0] == 1227
