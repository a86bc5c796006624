"""A table begins as one region with its indexes: cut, its columns and its indexes answer as before."""

from harness import Cluster, wait_until

ROWS = 3_000
WHERE = "FROM information_schema.regions WHERE table_schema = 'one' AND table_name = 't'"


def regions(cluster: Cluster) -> list[tuple]:
    """Learners and rows of the table's regions, in key order."""
    return cluster.sql(f"SELECT learners, row_count {WHERE} ORDER BY start_key")


def same_by_every_way(cluster: Cluster):
    """Rows, an index and columns at one snapshot."""
    scan = "SELECT id, v, w FROM one.t"
    by_index = f"{scan} FORCE INDEX (by_v) WHERE v >= 0"
    with cluster.connect() as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION READ ONLY")
        answers = []
        for engines, query in (("tikv", by_index), ("tikv", scan), ("tiflash", scan)):
            cursor.execute(f"SET tidb_isolation_read_engines = '{engines}'")
            cursor.execute(query)
            answers.append(sorted(cursor.fetchall()))
    assert answers[0] == answers[1] == answers[2] and answers[0], [len(answer) for answer in answers]


def test_a_table_and_its_indexes_begin_as_one_region(cluster: Cluster):
    cluster.sql(
        "CREATE DATABASE one",
        "CREATE TABLE one.t (id INT PRIMARY KEY, v INT, w INT, KEY by_v (v), UNIQUE KEY by_w (w))",
    )
    cluster.replicate("one.t")
    assert len(regions(cluster)) == 1
    values = ",".join(f"({row}, {row % 97}, {row})" for row in range(ROWS))
    cluster.sql(f"INSERT INTO one.t VALUES {values}", "UPDATE one.t SET v = v + 1 WHERE id % 3 = 0")
    cluster.sql("DELETE FROM one.t WHERE id % 7 = 0")
    left = ROWS - (ROWS + 6) // 7
    wait_until("entries are not counted as rows", lambda: [row[1] for row in regions(cluster)] == [left])
    same_by_every_way(cluster)

    # Cut, entries are in a region of their own, without columns.
    cluster.sql("SPLIT TABLE one.t REGIONS 3")
    wait_until("the entries have no learner", lambda: [bool(row[0]) for row in regions(cluster)] == [False] + [True] * 3)
    cluster.sql("UPDATE one.t SET v = v + 1, w = w + 10000 WHERE id % 5 = 0", f"INSERT INTO one.t VALUES ({ROWS}, 1, -1)")
    same_by_every_way(cluster)

    # An index that comes later needs no region, and one that goes leaves none.
    cluster.sql("CREATE INDEX by_both ON one.t (v, w)", "DROP INDEX by_w ON one.t")
    assert len(regions(cluster)) == 4
    same_by_every_way(cluster)
    cluster.sql("INSERT INTO one.t SELECT id + 100000, v, w FROM one.t WHERE id < 10")
    same_by_every_way(cluster)


def test_a_duplicate_in_a_shared_region_names_its_index(cluster: Cluster):
    cluster.sql(
        "CREATE DATABASE IF NOT EXISTS named",
        "CREATE TABLE named.t (id INT PRIMARY KEY, v INT, UNIQUE KEY by_v (v))",
        "INSERT INTO named.t VALUES (1, 10), (2, 20)",
    )
    for statement, key in (("(1, 30)", "PRIMARY"), ("(3, 20)", "by_v")):
        with cluster.connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute(f"INSERT INTO named.t VALUES {statement}")
                raise AssertionError("it was taken")
            except Exception as error:
                assert error.args[0] == 1062 and key in error.args[1], error
