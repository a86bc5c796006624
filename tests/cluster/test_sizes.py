"""How large tables are, as tools ask: what regions report of themselves, in TABLES and SHOW TABLE STATUS."""

from harness import Cluster, wait_until

ROWS = 3000
SIZES = "table_rows, avg_row_length, data_length, max_data_length, index_length, data_free"


def sizes(cluster: Cluster, table: str) -> tuple:
    where = f"table_schema = 'sized' AND table_name = '{table}'"
    return cluster.sql(f"SELECT {SIZES} FROM information_schema.tables WHERE {where}")[0]


def reported_sizes(cluster: Cluster, rows: int) -> tuple:
    """Those of sized.t once its regions are reported, the index's first and then its records' with so many rows, which a
    region's new leader has not done yet."""
    query = "SELECT row_count FROM information_schema.regions WHERE table_schema = 'sized' AND table_name = 't' ORDER BY start_key"
    found: list[tuple] = []

    def are_known() -> bool:
        found[:] = [sizes(cluster, "t")]
        return found[0][0] == rows and bool(found[0][4]) and cluster.sql(query) == [(0,), (rows,)]

    wait_until(f"{rows} rows are reported", are_known)
    return found[0]


def test_sizes_are_those_of_the_regions(cluster: Cluster):
    cluster.sql(
        "CREATE DATABASE sized",
        "CREATE TABLE sized.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT NOT NULL, pad CHAR(100), KEY by_v (v))",
        # Without rows there is one cut only, before the first of them.
        "SPLIT TABLE sized.t REGIONS 2",
        "CREATE TABLE sized.nothing (id INT PRIMARY KEY)",
        "CREATE TABLE sized.small (id INT PRIMARY KEY, v INT, KEY by_v (v))",
        "INSERT INTO sized.small VALUES (1, 1), (2, 2)",
        "CREATE VIEW sized.w AS SELECT id FROM sized.t",
    )
    pad = "x" * 100
    cluster.sql("INSERT INTO sized.t (v, pad) VALUES " + ",".join(f"({n}, '{pad}')" for n in range(ROWS)))
    rows, average, data, most, index, free = reported_sizes(cluster, ROWS)
    assert rows == ROWS and data > ROWS * len(pad) and average == data // ROWS, (data, average)
    # As long as they share a region, entries of indexes count as data.
    wait_until("the small table is reported", lambda: sizes(cluster, "small")[0] == 2)
    assert sizes(cluster, "small")[2] > 0 and sizes(cluster, "small")[4] == 0
    assert 0 < index < data and (most, free) == (None, None), (index, data)
    # Views have none; an empty table's are known.
    assert sizes(cluster, "w") == (None,) * 6
    wait_until("the empty table is reported", lambda: sizes(cluster, "nothing") == (0, 0, 0, None, 0, None))

    def shows_the_same() -> bool:
        shown = {row[0]: row[4:10] for row in cluster.sql("SHOW TABLE STATUS FROM sized")}
        return shown == {table: sizes(cluster, table) for table in ("t", "nothing", "small", "w")}

    wait_until("SHOW TABLE STATUS shows the same", shows_the_same)
    assert cluster.sql("SHOW TABLE STATUS FROM sized LIKE 't'")[0][10] == ROWS + 1
    # What is deleted is not counted.
    cluster.sql(f"DELETE FROM sized.t WHERE id > {ROWS // 2}")
    reported_sizes(cluster, ROWS // 2)
