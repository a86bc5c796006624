"""`isobar import`: all rows or none, from CSV and Parquet, through interruptions; and what is wrong, by file and line."""

import array
import contextlib
import datetime
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow
import pymysql
import pytest
from harness import FLIGHT_ERRORS, Cluster, FlightClient, wait_until
from pyarrow import parquet

pytestmark = pytest.mark.own_cluster

CLOSED = "is being filled by `isobar import`"
COLUMNS = "id INT PRIMARY KEY, s VARCHAR(40), d DECIMAL(12,2), day DATE, at DATETIME(6), u INT UNSIGNED"
INDEXES = "INDEX by_s (s), UNIQUE INDEX by_u (u)"


def command(cluster: Cluster, table: str, *more: object) -> list[str]:
    database, name = table.split(".")
    first = [cluster.isobar, "import", "--target", f"127.0.0.1:{cluster.mysql_port}"]
    return [*map(str, first), "--database", database, "--table", name, *map(str, more)]


def run(cluster: Cluster, table: str, *more: object) -> str:
    """An import that must succeed; what it said."""
    done = subprocess.run(command(cluster, table, *more), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refused(cluster: Cluster, table: str, *more: object) -> str:
    """An import that must fail; why it did."""
    done = subprocess.run(command(cluster, table, *more), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    return done.stderr


def is_closed(cluster: Cluster, name: str) -> bool:
    """Whether an import has taken the table."""
    try:
        cluster.sql(f"SELECT id FROM {name} WHERE id = 1")
    except pymysql.err.MySQLError as error:
        return CLOSED in str(error)
    return False


def stop_amid_writing(importing: subprocess.Popen, closed: Callable[[], bool], written: Callable[[], int]) -> None:
    """Freezes the process once some of its rows are written; lets it go on by small steps until then."""
    wait_until("the table is closed", lambda: closed() or importing.poll() is not None, 90)
    for _ in range(50):
        importing.send_signal(signal.SIGSTOP)
        try:
            # Regions report their sizes with their heartbeats only.
            wait_until("some rows are written", written, 2)
            return
        except AssertionError:
            importing.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                importing.wait(0.1)
    raise AssertionError("nothing was ever written")


def sample(count: int) -> list[tuple]:
    """Rows of every kind of value, keys in no order."""
    return [
        (
            n * 7_919 % count,
            None if n % 11 == 0 else f"name {n % 97}, \"{n}\"",
            Decimal(n * 37 % 10_000 - 5_000) / 100,
            datetime.date(1992, 1, 1) + datetime.timedelta(days=n % 2_500),
            None if n % 13 == 0 else datetime.datetime(2000, 1, 1) + datetime.timedelta(microseconds=n * 999_983),
            None if n % 5 == 0 else 4_000_000_000 - n,
        )
        for n in range(count)
    ]


def write_csv(path: Path, rows: list[tuple], header: bool = True) -> Path:
    def text(cell: object) -> str:
        return "\\N" if cell is None else '"' + str(cell).replace('"', '""') + '"' if isinstance(cell, str) else str(cell)

    lines = ["id,s,d,day,at,u"] if header else []
    path.write_text("\n".join([*lines, *(",".join(map(text, row)) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Cluster:
    cluster.sql("CREATE DATABASE fill")
    return cluster


def table(cluster: Cluster, name: str, indexes: str = INDEXES) -> str:
    """A new table with a columnar replica."""
    extra = f", {indexes}" if indexes else ""
    cluster.sql(f"CREATE TABLE fill.{name} ({COLUMNS}{extra})")
    cluster.replicate(f"fill.{name}")
    return f"fill.{name}"


def check(cluster: Cluster, name: str, expected: list[tuple]) -> None:
    """All rows are there, by record, by index and in columns."""
    expected = sorted(expected)
    token = cluster.token()
    for engine in ("tikv", "tiflash"):
        assert cluster.read(engine, f"SELECT * FROM {name} ORDER BY id", token) == expected, engine
    numbers = sorted(row[5] for row in expected if row[5] is not None)
    low, high = numbers[len(numbers) // 4], numbers[len(numbers) // 2]
    by_index = f"SELECT id, u FROM {name} WHERE u BETWEEN {low} AND {high}"
    assert "by_u" in str(cluster.read("tikv", f"EXPLAIN {by_index}"))
    assert sorted(cluster.read("tikv", by_index, token)) == sorted(
        (row[0], row[5]) for row in expected if row[5] is not None and low <= row[5] <= high
    )
    cluster.sql(f"SELECT isobar_release('{token}')")


def test_csv_and_parquet_files_fill_a_table(filled: Cluster, tmp_path: Path):
    rows = sample(5_000)
    by_csv = table(filled, "by_csv")
    files = [write_csv(tmp_path / f"{part}.csv", rows[part::3]) for part in range(3)]
    said = run(filled, by_csv, "--header", *files)
    assert "5000 rows are in fill.by_csv" in said, said
    check(filled, by_csv, rows)

    by_parquet = table(filled, "by_parquet")
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    schema = pyarrow.schema(
        [
            ("at", pyarrow.timestamp("ns")),
            ("s", pyarrow.dictionary(pyarrow.int32(), pyarrow.string())),
            ("ID", pyarrow.int64()),
            ("d", pyarrow.decimal128(20, 4)),
            ("day", pyarrow.date32()),
            ("u", pyarrow.uint32()),
        ]
    )
    for part in range(2):
        some = rows[part::2]
        columns = [[row[at] for row in some] for at in (4, 1, 0, 2, 3, 5)]
        arrays = [pyarrow.array(cells, kind) for cells, kind in zip(columns, schema.types)]
        parquet.write_table(pyarrow.table(arrays, schema=schema), folder / f"{part}.parquet", row_group_size=700)
    run(filled, by_parquet, folder)
    check(filled, by_parquet, rows)
    # An ordinary table from now on.
    filled.sql(f"INSERT INTO {by_parquet} (id) VALUES (-1)", f"UPDATE {by_parquet} SET s = 'x' WHERE id = 17")
    assert filled.sql(f"SELECT COUNT(*), SUM(s = 'x') FROM {by_parquet}") == [(5_001, 1)]


def test_what_is_wrong_is_named_and_nothing_is_changed(filled: Cluster, tmp_path: Path):
    wrong = table(filled, "wrong")
    rows = sample(300)
    good = write_csv(tmp_path / "good.csv", rows)
    lines = good.read_text(encoding="utf-8").splitlines()
    for at, line, why in [
        (200, "x,a,1,1992-01-01,2000-01-01,1", "Incorrect integer value"),
        (57, "9000,a,1,1992-13-01,2000-01-01,1", "Incorrect date value"),
        (3, "9000,a,1", "it has 3 fields, and 6 columns are filled"),
        (299, "9000,a,12345678901.00,1992-01-01,2000-01-01,1", "Out of range value for column 'd'"),
    ]:
        broken = tmp_path / "broken.csv"
        broken.write_text("\n".join([*lines[: at - 1], line, *lines[at:]]) + "\n", encoding="utf-8")
        said = refused(filled, wrong, "--header", good, broken)
        assert f"broken.csv line {at}: {why}" in said, said

    dup = write_csv(tmp_path / "dup.csv", [(1_000, *rows[4][1:5], None), (rows[7][0], "again", 1, None, None, None)])
    said = refused(filled, wrong, "--header", good, dup)
    assert "good.csv line 9 and" in said and "dup.csv line 3: Duplicate entry" in said and "wrong.PRIMARY" in said, said
    dup = write_csv(tmp_path / "dup.csv", [(1_000, *rows[4][1:])])
    said = refused(filled, wrong, "--header", good, dup)
    assert f"dup.csv line 2: Duplicate entry '{rows[4][5]}' for key 'wrong.by_u'" in said, said

    cells = pyarrow.table({"id": list(range(100)), "d": ["1.5"] * 70 + ["one"] + ["2"] * 29})
    parquet.write_table(cells, tmp_path / "broken.parquet", row_group_size=40)
    said = refused(filled, wrong, tmp_path / "broken.parquet")
    assert "broken.parquet row group 1 row 30: " in said, said
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "broken.parquet").read_bytes()[:-20])
    assert "cut.parquet is not a whole Parquet file" in refused(filled, wrong, tmp_path / "cut.parquet")
    parquet.write_table(pyarrow.table({"id": [1], "other": [2]}), tmp_path / "other.parquet")
    assert "Unknown column 'other'" in refused(filled, wrong, tmp_path / "other.parquet")

    # The table was open all the time, and still is; rows in it keep the next import out.
    assert filled.sql(f"SELECT COUNT(*) FROM {wrong}") == [(0,)]
    filled.sql(f"INSERT INTO {wrong} (id) VALUES (5)")
    assert "has rows" in refused(filled, wrong, "--header", good)
    filled.sql(f"DELETE FROM {wrong}")
    run(filled, wrong, "--header", good)
    check(filled, wrong, rows)


def test_indexes_of_prefixes_are_filled(filled: Cluster, tmp_path: Path):
    rows = sample(300)
    file = write_csv(tmp_path / "rows.csv", rows)
    prefixed = table(filled, "prefixed", "KEY by_u (u), KEY by_s (s(6), d)")
    run(filled, prefixed, "--header", file)
    check(filled, prefixed, rows)
    for row in [row for row in rows if row[1] is not None][:20]:
        query = f"SELECT id FROM {prefixed} WHERE s = '{row[1]}'"
        assert "by_s" in str(filled.read("tikv", f"EXPLAIN {query}"))
        assert list(filled.read("tikv", query)) == [(row[0],)], query
    alike = table(filled, "alike", "UNIQUE KEY by_start (s(4))")
    assert "Duplicate entry 'name' for key 'alike.by_start'" in refused(filled, alike, "--header", file)


def lease_of(cluster: Cluster, name: str) -> int | None:
    """The timestamp that an import of a table holds."""
    query = "SELECT snapshot_ts FROM information_schema.snapshot_leases"
    found = cluster.sql(f"{query} WHERE owner = 'import of {name}'")
    return int(found[0][0]) if found else None


def floor(cluster: Cluster) -> int:
    return int(cluster.sql("SELECT safe_point FROM information_schema.garbage_collection")[0][0])


def test_an_import_holds_its_timestamp_and_begins_anew_without_it(filled: Cluster, tmp_path: Path):
    filled.sql("SET GLOBAL tidb_gc_life_time = '1s'")
    name = table(filled, "held")
    rows = sample(60_000)
    whole = write_csv(tmp_path / "whole.csv", rows, header=False)

    def written() -> int:
        found = filled.sql(
            "SELECT SUM(row_count) FROM information_schema.regions"
            " WHERE table_schema = 'fill' AND table_name = 'held' AND index_name IS NULL"
        )
        return int(found[0][0] or 0)

    importing = subprocess.Popen(command(filled, name, whole), stderr=subprocess.PIPE, text=True)
    stop_amid_writing(importing, lambda: is_closed(filled, name), written)
    first = lease_of(filled, name)
    assert first is not None
    # However long it takes: nothing is collected that it is still to write.
    wait_until("the floor comes up to the import", lambda: floor(filled) == first)
    token = filled.token()
    # It releases its timestamp when it is asked to end, and the floor passes it.
    importing.send_signal(signal.SIGINT)
    importing.send_signal(signal.SIGCONT)
    said = importing.communicate(timeout=30)[1]
    assert importing.returncode == 1 and "interrupted" in said and "run the same command again" in said, said
    assert lease_of(filled, name) is None
    assert 0 < written() < len(rows)
    assert filled.sql(f"SELECT isobar_release('{token}')") == [(1,)]
    wait_until("the floor has passed the timestamp", lambda: floor(filled) > first)

    # One that reads between the two timestamps could see what the first attempt wrote, and nothing else.
    between = filled.token()
    said = run(filled, name, whole)
    assert "60000 rows are in fill.held" in said, said
    assert lease_of(filled, name) is None
    check(filled, name, rows)
    for engine in ("tikv", "tiflash"):
        with pytest.raises(pymysql.err.MySQLError) as younger:
            filled.read(engine, f"SELECT COUNT(*) FROM {name}", between)
        assert younger.value.args[0] == 1412, younger.value
    # An ordinary table: what is deleted, and collected, stays away.
    filled.sql(f"DELETE FROM {name} WHERE id < 30000", f"SELECT isobar_release('{between}')")
    filled.sql("SET GLOBAL tidb_gc_life_time = DEFAULT")
    assert filled.sql(f"SELECT COUNT(*) FROM {name}") == [(30_000,)]


def test_an_interrupted_import_shows_nothing_and_goes_on(filled: Cluster, tmp_path: Path):
    name = table(filled, "long_one")
    rows = sample(100_000)
    whole = write_csv(tmp_path / "whole.csv", rows, header=False)
    # Bounded memory: it sorts through files.
    arguments = [name, "--memory", "16", "--temporary", tmp_path, whole]

    def written() -> int:
        """Rows of the table's regions, as their leaders reported last."""
        found = filled.sql(
            "SELECT SUM(row_count) FROM information_schema.regions"
            " WHERE table_schema = 'fill' AND table_name = 'long_one' AND index_name IS NULL"
        )
        return int(found[0][0] or 0)

    importing = subprocess.Popen(command(filled, *arguments), stderr=subprocess.PIPE, text=True)
    stop_amid_writing(importing, lambda: is_closed(filled, name), written)
    importing.kill()
    assert importing.wait() == -signal.SIGKILL, "it was done before it was interrupted"
    assert 0 < written() < len(rows), "it was not interrupted in the middle"

    token = filled.token()
    for engine in ("tikv", "tiflash"):
        for query in (f"SELECT COUNT(*) FROM {name}", f"SELECT * FROM {name} WHERE id = 1"):
            for at in (None, token):
                with pytest.raises(pymysql.err.MySQLError, match=CLOSED):
                    filled.read(engine, query, at)
    with pytest.raises(FLIGHT_ERRORS, match=CLOSED):
        FlightClient(filled).scan(name, ["id"], None)
    for statement in (
        f"INSERT INTO {name} (id) VALUES (-1)",
        f"UPDATE {name} SET s = 'x'",
        f"DELETE FROM {name} WHERE id = 3",
        f"CREATE INDEX by_day ON {name} (day)",
    ):
        with pytest.raises(pymysql.err.MySQLError, match=CLOSED):
            filled.sql(statement)
    other = write_csv(tmp_path / "other.csv", rows[:1_000], header=False)
    assert "import of other rows" in refused(filled, name, other)

    # The same rows go on, in whatever order and from whatever files, though nodes die.
    halves = [write_csv(tmp_path / f"half{part}.csv", rows[part::2], header=False) for part in (1, 0)]
    importing = subprocess.Popen(command(filled, name, *halves), stderr=subprocess.PIPE, text=True)
    so_far = written()
    wait_until("it goes on", lambda: written() > so_far or importing.poll() is not None, 60)
    killed = {node: filled.kill(node) for node in ("row-2", "columnar-1")}
    said = importing.communicate(timeout=120)[1]
    assert importing.returncode == 0, said
    for node, old in killed.items():
        filled.wait_restarted(node, old)
    check(filled, name, rows)
    # A token from between shows all or nothing, never a part.
    assert filled.read("tikv", f"SELECT COUNT(*) FROM {name}", token) == [(len(rows),)]
    filled.sql(f"INSERT INTO {name} (id) VALUES (-1)", f"SELECT isobar_release('{token}')")


def test_an_import_notices_that_its_table_was_altered_while_it_read(filled: Cluster, tmp_path: Path):
    name = table(filled, "altered")
    rows = sample(500)
    whole = write_csv(tmp_path / "whole.csv", rows, header=False)
    content = whole.read_bytes()
    slow = tmp_path / "slow.csv"
    os.mkfifo(slow)
    # Open for reading, too, so that neither side waits for the other to open it.
    pipe = os.open(slow, os.O_RDWR)

    def unread() -> int:
        count = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, count)
        return count[0]

    importing = subprocess.Popen(command(filled, name, "--line-end", "\\n", slow), stderr=subprocess.PIPE, text=True)
    try:
        os.write(pipe, content[:1_000])
        wait_until("the first rows are read", lambda: unread() == 0 or importing.poll() is not None)
        filled.sql(f"ALTER TABLE {name} ADD COLUMN c INT DEFAULT 5 AFTER s")
        # Less than a pipe holds, so that this ends whatever the reader does.
        assert os.write(pipe, content[1_000:]) == len(content) - 1_000
    finally:
        os.close(pipe)
    said = importing.communicate(timeout=60)[1]
    assert importing.returncode == 1 and "was altered while its rows were read" in said, said
    assert not is_closed(filled, name)
    assert filled.sql(f"SELECT COUNT(*) FROM {name}") == [(0,)]
    run(filled, name, "--columns", "id,s,d,day,at,u", whole)
    assert filled.sql(f"SELECT COUNT(*), SUM(c) FROM {name}") == [(500, 2_500)]


def test_two_imports_at_once_fill_a_table_once(filled: Cluster, tmp_path: Path):
    rows = sample(20_000)
    whole = write_csv(tmp_path / "whole.csv", rows, header=False)
    other = write_csv(tmp_path / "other.csv", rows[:15_000], header=False)
    # The same rows: both may succeed, or one gets an error because it came second; the rows are there once.
    same = table(filled, "same_twice")
    both = [subprocess.Popen(command(filled, same, whole), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=120)[1] for one in both]
    assert 0 in {one.returncode for one in both}, said
    check(filled, same, rows)
    # Other rows: one of the two, whole, and the other gets the reason.
    name = table(filled, "of_two")
    both = [subprocess.Popen(command(filled, name, rows), stderr=subprocess.PIPE, text=True) for rows in (whole, other)]
    said = [one.communicate(timeout=120)[1] for one in both]
    codes = [one.returncode for one in both]
    assert sorted(codes) == [0, 1], said
    why = said[codes.index(1)]
    assert any(text in why for text in ("another import", "import of other rows", "changed by somebody", "rows")), why
    check(filled, name, rows if codes[0] == 0 else rows[:15_000])


def test_writers_and_an_import_keep_out_of_each_others_way(filled: Cluster, tmp_path: Path):
    """Either writers come first and the import is refused, or the import does and they are: never a mixture."""
    rows = sample(3_000)
    whole = write_csv(tmp_path / "whole.csv", rows, header=False)
    outcomes = set()
    for attempt in range(4):
        name = table(filled, f"written_{attempt}")
        importing = subprocess.Popen(command(filled, name, whole), stderr=subprocess.PIPE, text=True)
        accepted: list[int] = []
        id = 1_000_000
        with filled.connect() as connection, connection.cursor() as cursor:
            while importing.poll() is None:
                # The first ones keep off, so that the import may begin.
                if attempt < 2 and not is_closed(filled, name):
                    continue
                try:
                    cursor.execute(f"INSERT INTO {name} (id) VALUES ({id})")
                    accepted.append(id)
                except pymysql.err.MySQLError as error:
                    assert CLOSED in str(error) or error.args[0] in (1105, 1412, 9007, 8028), error
                id += 1
        said = importing.communicate(timeout=60)[1]
        outcomes.add(importing.returncode)
        there = sorted(row[0] for row in filled.sql(f"SELECT id FROM {name}"))
        imported = sorted(row[0] for row in rows) if importing.returncode == 0 else []
        assert there == imported + accepted, (importing.returncode, len(there), len(accepted), said)
        if importing.returncode:
            assert "an empty table only" in said, said
    assert 0 in outcomes, "no import ever came first"
