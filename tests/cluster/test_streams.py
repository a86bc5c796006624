"""Large results leave the SQL node's memory flat, and work ends when its client leaves."""

import os
import time

import pytest
from harness import Cluster, wait_until
from pymysql.cursors import SSCursor

ROWS = 200_000
WIDTH = 400
MIB = 1 << 20
# Buffers of a session and of the engine's batches, and what the allocator keeps; the result is larger than that.
MOST_GROWTH = 70 * MIB
ENGINES = ["tikv", "tiflash"]
HOSTILE = "SELECT COUNT(*) FROM large.t a JOIN large.t b ON a.id + b.id > a.n * b.n"


@pytest.fixture(scope="module")
def large(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A table whose rows take 80 MB."""
    cluster.sql("CREATE DATABASE large", "CREATE TABLE large.t (id INT PRIMARY KEY, n INT NOT NULL, text VARCHAR(400))")
    path = tmp_path_factory.mktemp("large") / "t.csv"
    path.write_text("".join(f"{n},{n % 7},{n:0{WIDTH}}\n" for n in range(ROWS)), encoding="ascii")
    cluster.sql(f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE large.t FIELDS TERMINATED BY ','")
    cluster.sql("SPLIT TABLE large.t REGIONS 4")
    cluster.replicate("large.t")
    return cluster


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def processor_seconds(pids: list[int]) -> float:
    """Processor time that processes have used."""
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def share(pids: list[int]) -> float:
    """Processors in use over half a second: a measure needs a span."""
    before, started = processor_seconds(pids), time.monotonic()
    time.sleep(0.5)
    return (processor_seconds(pids) - before) / (time.monotonic() - started)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_large_result_leaves_the_sql_nodes_memory_flat(large: Cluster, engine: str):
    pid = large.pids()["sql"]
    with large.connect(cursorclass=SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
        cursor.execute("SELECT * FROM large.t LIMIT 1000")
        cursor.fetchall()
        before, most = resident(pid), 0
        cursor.execute("SELECT * FROM large.t")
        total = seen = 0
        # While nobody reads, the node must stop, not go on into its memory.
        wait_until("the result is held back", lambda: share([pid]) < 0.1)
        most = resident(pid)
        while rows := cursor.fetchmany(1_000):
            seen += len(rows)
            total += sum(row[0] for row in rows)
            most = max(most, resident(pid))
    assert (seen, total) == (ROWS, ROWS * (ROWS - 1) // 2)
    assert most - before < MOST_GROWTH, f"grew by {(most - before) / MIB:.0f} MiB"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("query", ["SELECT * FROM large.t", HOSTILE])
def test_work_ends_when_its_client_leaves(large: Cluster, engine: str, query: str):
    pids = list(large.pids().values())
    # What it takes with nothing to do grows with its regions.
    wait_until("the cluster is idle", lambda: share(pids) < 0.6)
    idle = max(share(pids) for _ in range(4))
    connection = large.connect(cursorclass=SSCursor)
    with connection.cursor() as cursor:
        cursor.execute(f"SET tidb_isolation_read_engines = '{engine}'")
    identity = connection.thread_id()

    def listed() -> bool:
        return identity in [row[0] for row in large.sql("SHOW PROCESSLIST")]

    used = processor_seconds(pids)
    connection._execute_command(3, query)  # COM_QUERY, without waiting for an answer
    wait_until("the query runs", lambda: processor_seconds(pids) - used > 0.3)
    assert listed()
    connection._force_close()
    wait_until("the session is gone", lambda: not listed(), 10)
    wait_until("nothing is computed for nobody", lambda: share(pids) < idle + 0.1, 10)
