"""`isobar diff`: planted differences are found, no others; corrections correct; interruptions lose nothing."""

import contextlib
import csv
import datetime
import json
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow
import pymysql
import pytest
from pyarrow import parquet

from harness import Cluster, absent, wait_until
from mariadb_server import MariaDb, free_port

COLUMNS = (
    "id BIGINT, part VARCHAR(20) {bin}, n INT, u BIGINT UNSIGNED, money DECIMAL(12,2), x DOUBLE, code CHAR(6) {bin},"
    " name VARCHAR(60) {bin}, note TEXT {bin}, day DATE, at DATETIME(6), seen TIMESTAMP(3) NULL"
)
NAMES = [word.split()[0] for word in COLUMNS.split(", ")]
TEXTS = ["", "a", "a ", "A", "N", "naïve ☃ 🙂", "it's", 'back\\slash "quoted"', "tab\tline\nend", "a,1:b", None]
ROWS = 3000
UTC = datetime.timezone.utc


def create(table: str, bin: str = "") -> str:
    return f"CREATE TABLE {table} ({COLUMNS.format(bin=bin)}, PRIMARY KEY (id, part))"


def some_row(number: int) -> list:
    """A row, decided by its number."""
    rng = random.Random(number)

    def maybe(value):
        return None if rng.random() < 0.1 else value

    at = datetime.datetime(2013, 1, 1) + datetime.timedelta(seconds=number * 7919, microseconds=rng.choice([0, 120000, 7]))
    return [
        # Dense in places, far apart in others.
        number if number % 3 else number * 1_000_003 - 7_000_000_000,
        ["", "x", "y☃"][number % 2 + (number % 5 == 0)],
        maybe(rng.randint(-(2**31), 2**31 - 1)),
        maybe(rng.choice([0, 2**64 - 1, number])),
        maybe(Decimal(rng.randint(-(10**9), 10**9)) / 100),
        maybe(rng.choice([0.1, -2.5, 1e300, 1e-7, 123456789.125, float(number)])),
        maybe(rng.choice(["", "ab", "abcdef"])),
        rng.choice(TEXTS),
        maybe("long " * rng.choice([0, 1, 400])),
        maybe(at.date()),
        maybe(at),
        maybe(at.replace(microsecond=rng.choice([0, 5000]))),
    ]


def load(connection, table: str, rows: list[list]) -> None:
    holders = ", ".join(["%s"] * len(NAMES))
    with connection.cursor() as cursor:
        for start in range(0, len(rows), 500):
            cursor.executemany(f"INSERT INTO {table} ({', '.join(NAMES)}) VALUES ({holders})", rows[start : start + 500])


def planted(rows: list[list]) -> tuple[list[list], dict[tuple, tuple]]:
    """The rows with differences, and what they are: key → (kind, columns)."""
    expected: dict[tuple, tuple] = {}
    other = []

    def change(row: list, **values) -> list:
        new = [values.get(name, old) for name, old in zip(NAMES, row)]
        names = {name for name, old, now in zip(NAMES, row, new) if type(old) is not type(now) or old != now}
        if names:
            expected[(row[0], row[1])] = ("changed", names)
        return new

    for number, row in enumerate(rows):
        match number:
            case 0 | 1 | 777 | 2999:
                expected[(row[0], row[1])] = ("missing", set())
                continue
            case 10:
                row = change(row, name="" if row[7] is None else None)
            case 11:
                row = change(row, money=(row[4] or Decimal(0)) + Decimal("0.01"))
            case 12:
                row = change(row, note="long " * 399 + "lonG ")
            case 13:
                row = change(row, name="naïve ☃ 🙃")
            case 14:
                row = change(row, x=0.30000000000000004)
            case 15:
                row = change(row, at=datetime.datetime(2013, 1, 1, 0, 0, 0, 1))
            case 16:
                row = change(row, u=2**64 - 2, n=None if row[2] is not None else 0)
            case 17:
                row = change(row, name="A" if row[7] == "a" else "a")
            case 18:
                row = change(row, seen=datetime.datetime(2024, 2, 29, 1, 2, 3, 4000))
            case 19:
                row = change(row, day=datetime.date(9999, 12, 31))
        other.append(row)
    for number in range(5000, 5004):
        row = some_row(number)
        expected[(row[0], row[1])] = ("extra", set())
        other.append(row)
    return other, expected


def found(report: dict, table: int = 0) -> dict[tuple, tuple]:
    """What a report says, as `planted` does."""
    return {
        (int(d["key"]["id"]), d["key"]["part"]): (d["kind"], set(d["source"]) if d["kind"] == "changed" else set())
        for d in report["tables"][table]["differences"]
    }


class Differ:
    """Runs `isobar diff` against one cluster."""

    def __init__(self, cluster: Cluster, folder: Path):
        self.cluster, self.folder = cluster, folder
        self.report = folder / "report.json"

    def at(self, table: str, port: int | None = None) -> str:
        return f"mysql://root@127.0.0.1:{port or self.cluster.mysql_port}/{table.replace('.', '/')}"

    def command(self, source: object, target: object, *words: object) -> list[str]:
        options = {"--chunk-rows": "300", "--fetch-rows": "20", "--timeout": "60", "--report": str(self.report)}
        sizes = [word for name, value in options.items() if name not in words for word in (name, value)]
        return [self.cluster.isobar, "diff", str(source), str(target), *sizes, *map(str, words)]

    def run(self, source: object, target: object, *words: object, seconds: float = 120) -> tuple[int, dict, str]:
        """Exit code, report, standard error."""
        self.report.unlink(missing_ok=True)
        done = subprocess.run(self.command(source, target, *words), capture_output=True, text=True, timeout=seconds)
        report = json.loads(self.report.read_text()) if self.report.exists() else {}
        assert "panicked" not in done.stderr, done.stderr
        return done.returncode, report, done.stdout + done.stderr


@pytest.fixture
def differ(cluster: Cluster, tmp_path: Path) -> Differ:
    return Differ(cluster, tmp_path)


ALL = [some_row(number) for number in range(ROWS)]
OTHER, EXPECTED = planted(ALL)


@pytest.fixture(scope="module", autouse=True)
def tables(cluster: Cluster):
    cluster.sql("CREATE DATABASE d", create("d.t"), create("d.copy"), create("d.other"))
    with cluster.connect(database="d") as connection:
        load(connection, "t", ALL)
        load(connection, "copy", random.Random(1).sample(ALL, len(ALL)))
        load(connection, "other", OTHER)
    for table in ["d.t", "d.copy", "d.other"]:
        cluster.replicate(table)


def apply(connection, fix: Path) -> None:
    """Runs a file of statements, one a line, each to its end."""
    with connection.cursor() as cursor:
        for line in fix.read_text().split("\n"):
            if line and not line.startswith("--"):
                cursor.execute(line.removesuffix(";"))


@pytest.mark.parametrize("engine", ["columns", "rows"])
def test_planted_differences_are_found_on_both_engines(differ: Differ, engine: str):
    code, report, text = differ.run(differ.at("d.t"), differ.at("d.copy"), "--engine", engine)
    assert code == 0, text
    assert report["tables"][0]["source_rows"] == ROWS and report["tables"][0]["chunks"] > 5
    assert report["source_moment"] == "all at one snapshot"
    code, report, text = differ.run(differ.at("d.t"), differ.at("d.other"), "--engine", engine)
    assert code == 1, text
    assert found(report) == EXPECTED


def test_corrections_make_the_target_the_same(cluster: Cluster, differ: Differ):
    cluster.sql(create("d.mended"))
    with cluster.connect(database="d") as connection:
        load(connection, "mended", OTHER)
        fix = differ.folder / "fix.sql"
        code, report, text = differ.run(differ.at("d.t"), differ.at("d.mended"), "--fix", fix)
        assert code == 1 and found(report) == EXPECTED, text
        assert "no columnar replica" in text
        # A row that changes after the comparison is left alone.
        key = next(key for key, what in EXPECTED.items() if what == ("changed", {"money"}))
        connection.cursor().execute("UPDATE mended SET n = 4711 WHERE id = %s AND part = %s", key)
        apply(connection, fix)
    code, report, text = differ.run(differ.at("d.t"), differ.at("d.mended"))
    assert code == 1 and found(report) == {key: ("changed", {"money", "n"})}, text
    fix.unlink()
    differ.run(differ.at("d.t"), differ.at("d.mended"), "--fix", fix)
    with cluster.connect(database="d") as connection:
        apply(connection, fix)
    assert differ.run(differ.at("d.t"), differ.at("d.mended"))[0] == 0


def test_whole_databases_are_compared(cluster: Cluster, differ: Differ):
    cluster.sql(
        "CREATE DATABASE one",
        "CREATE DATABASE two",
        *[f"CREATE TABLE {d}.same (id INT PRIMARY KEY, v CHAR(3))" for d in ["one", "two"]],
        "CREATE TABLE one.narrow (id INT PRIMARY KEY)",
        "CREATE TABLE two.narrow (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE one.gone (id INT PRIMARY KEY)",
        "CREATE TABLE one.keyless (v INT)",
        "CREATE TABLE two.keyless (v INT)",
    )
    code, report, text = differ.run(differ.at("one"), differ.at("two"))
    assert code == 2, text
    verdicts = {table["table"]: table["verdict"] for table in report["tables"]}
    assert verdicts == {"same": "same", "narrow": "could_not_tell", "gone": "different", "keyless": "could_not_tell"}
    assert "lacks v" in text and "--ignore-columns" in text and "--key" in text
    code, report, text = differ.run(differ.at("one.narrow"), differ.at("two.narrow"), "--ignore-columns", "v")
    assert code == 0, text


def test_rules_are_followed_on_both_engines(cluster: Cluster, differ: Differ):
    cluster.sql(
        "CREATE DATABASE rules",
        "CREATE TABLE rules.a (id INT PRIMARY KEY, x DOUBLE, d DECIMAL(10,2), c VARCHAR(9), k INT NOT NULL, extra INT)",
        "CREATE TABLE rules.b (id INT PRIMARY KEY, x DOUBLE, d DECIMAL(14,4), c VARCHAR(9), k INT NOT NULL)",
        "INSERT INTO rules.a VALUES (1, 1.0000001, 1.50, 'Aé', 7, 1), (2, 0.1, -0.05, 'b ', 8, 1), (3, 1e300, 100, '', 9, 1),"
        " (4, NULL, NULL, NULL, 10, NULL), (100, 5, 5, 'x', 11, 1)",
        "INSERT INTO rules.b VALUES (1, 1.0000002, 1.5, 'aé', 7), (2, 0.1, -0.05, 'b', 8), (3, 1.0000001e300, 100, '', 9),"
        " (4, NULL, NULL, NULL, 10), (100, 6, 6, 'y', 12)",
    )
    sides = differ.at("rules.a"), differ.at("rules.b")
    for table in "ab":
        cluster.replicate(f"rules.{table}")
    loose = ["--ignore-columns", "extra", "--ignore-case", "--ignore-trailing-spaces", "--float-digits", "6"]
    for engine in ["columns", "rows"]:
        code, report, text = differ.run(*sides, "--engine", engine, "--ignore-columns", "extra", "--fetch-rows", "1")
        assert code == 1 and report["tables"][0]["columns"] == {"x": 3, "c": 3, "d": 1, "k": 1}, text
        code, report, text = differ.run(*sides, "--engine", engine, *loose, "--where", "id < 50 OR id > 5000")
        assert code == 0 and report["tables"][0]["source_rows"] == 4 and report["tables"][0]["differing_chunks"] == 0, text
        # Matched by another key, one row is missing and one is extra.
        code, report, text = differ.run(*sides, "--engine", engine, *loose, "--key", "k")
        assert code == 1 and [d["kind"] for d in report["tables"][0]["differences"]] == ["missing", "extra"], text
    code, report, text = differ.run(*sides, "--ignore-columns", "extra", "--max-differences", "1", "--fetch-rows", "1")
    assert code == 1 and "--max-differences" in text, text
    code, _, text = differ.run(*sides, *loose, "--key", "x")
    assert code == 2 and "NULL in the key column x" in text, text
    code, _, text = differ.run(*sides, *loose, "--where", "nope = 1")
    assert code == 2 and "nope" in text, text


def arrow_table(rows: list[list], **changes) -> pyarrow.Table:
    types = dict(
        id=pyarrow.int64(), part=pyarrow.string(), n=pyarrow.int32(), u=pyarrow.uint64(), money=pyarrow.decimal128(14, 3),
        x=pyarrow.float64(), code=pyarrow.string(), name=pyarrow.string(), note=pyarrow.string(), day=pyarrow.date32(),
        at=pyarrow.timestamp("us"), seen=pyarrow.timestamp("ms", "UTC"),
    )
    types.update(changes)
    columns = {name: [row[at] for row in rows] for at, name in enumerate(NAMES)}
    columns["seen"] = [None if value is None else value.replace(tzinfo=UTC) for value in columns["seen"]]
    return pyarrow.table({name: pyarrow.array(columns[name], types[name]) for name in NAMES})


def test_a_table_is_compared_with_parquet(cluster: Cluster, differ: Differ):
    lake = differ.folder / "lake"
    lake.mkdir()
    shuffled = random.Random(2).sample(ALL, len(ALL))
    parquet.write_table(arrow_table(shuffled[:1000]), lake / "a.parquet", row_group_size=100)
    parquet.write_table(arrow_table(shuffled[1000:]), lake / "b.parquet", compression="zstd")
    code, report, text = differ.run(lake, differ.at("d.t"))
    assert code == 0, text
    assert "without trailing zeros" in text and report["tables"][0]["source_rows"] == ROWS
    fix = differ.folder / "fix.sql"
    code, report, text = differ.run(lake, differ.at("d.other"), "--fix", fix)
    assert code == 1 and found(report) == EXPECTED, text
    cluster.sql(create("d.from_lake"))
    with cluster.connect(database="d") as connection:
        load(connection, "from_lake", OTHER)
        fix.write_text(fix.read_text().replace("`other`", "`from_lake`"))
        apply(connection, fix)
    assert differ.run(f"{lake}/*.parquet", differ.at("d.from_lake"))[0] == 0
    # A row that is there twice is reported as such.
    parquet.write_table(arrow_table(shuffled[:1]), lake / "c.parquet")
    code, report, text = differ.run(lake, differ.at("d.t"))
    assert code == 1 and [d["kind"] for d in report["tables"][0]["differences"]] == ["repeated"], text


def test_a_table_is_compared_with_csv(cluster: Cluster, differ: Differ):
    file = differ.folder / "t.csv"

    def spell(value: object) -> str:
        if value is None:
            return "\\N"
        return repr(value) if isinstance(value, float) else str(value)

    def write(rows: list[list]) -> None:
        with file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(NAMES)
            writer.writerows([spell(value) for value in row] for row in rows)

    write(random.Random(3).sample(ALL, len(ALL)))
    code, report, text = differ.run(differ.at("d.t"), file)
    assert code == 0, text
    code, report, text = differ.run(file, differ.at("d.other"))
    assert code == 1 and found(report) == EXPECTED, text
    lines = file.read_text()
    first = lines.index("\n", lines.index("\n") + 1)
    for broken, words in [
        (lines[: first + 1] + "1,2,3\n" + lines[first + 1 :], ["line", "fields"]),
        (lines + "abc" + ",x" * 11 + "\n", ["column id", "'abc' is no whole number"]),
        (lines.replace("money", "cash", 1), ["lacks", "money"]),
    ]:
        file.write_text(broken)
        code, report, text = differ.run(differ.at("d.t"), file)
        assert code == 2 and all(word in text for word in words), text


def test_bad_parquet_is_a_typed_error(differ: Differ):
    file = differ.folder / "t.parquet"
    parquet.write_table(arrow_table(ALL[:50]).drop_columns(["money"]), file)
    code, _, text = differ.run(file, differ.at("d.t"))
    assert code == 2 and "lacks money" in text and "--ignore-columns" in text
    parquet.write_table(arrow_table(ALL[:50]).drop_columns(["x"]).append_column("x", pyarrow.array(["a"] * 50)), file)
    code, _, text = differ.run(file, differ.at("d.t"))
    assert code == 2 and "column x" in text and "no common meaning" in text
    parquet.write_table(arrow_table(ALL), file)
    whole = file.read_bytes()
    for damaged in [whole[:-100], whole[: len(whole) // 2], b"", whole[:2000] + bytes(200) + whole[2200:]]:
        file.write_bytes(damaged)
        code, _, text = differ.run(file, differ.at("d.t"))
        assert code == 2 and str(file) in text, text
    code, _, text = differ.run(differ.folder / "nope.parquet", differ.at("d.t"))
    assert code == 2 and "nope.parquet" in text


def test_a_killed_run_goes_on_to_the_same_report(differ: Differ):
    checkpoint = differ.folder / "run.json"
    sides = differ.at("d.t"), differ.at("d.other")
    _, whole, _ = differ.run(*sides)
    slow = differ.command(*sides, "--checkpoint", checkpoint, "--rows-per-second", "3000", "--threads", "1")
    for kind in [signal.SIGKILL, signal.SIGINT]:
        process = subprocess.Popen(slow + ["--resume"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        lines = checkpoint.read_text().count('"chunk"') if checkpoint.exists() else 0
        wait_until("two more chunks are done", lambda: checkpoint.read_text().count('"chunk"') >= lines + 2)
        process.send_signal(kind)
        said = process.communicate(timeout=20)[1]
        if kind == signal.SIGINT:
            assert process.returncode == 2 and "--resume" in said, said
    code, _, text = differ.run(*sides, "--checkpoint", checkpoint)
    assert code == 2 and "--resume" in text and "--restart" in text
    code, _, text = differ.run(*sides, "--checkpoint", checkpoint, "--resume", "--ignore-case")
    assert code == 2 and "other columns or rules" in text
    # A line that was being written when the process was killed does not count.
    with checkpoint.open("a") as file:
        file.write('{"line":"chunk","table":"t"')
    code, report, text = differ.run(*sides, "--checkpoint", checkpoint, "--resume")
    assert code == 1, text
    assert report["tables"] == whole["tables"] and found(report) == EXPECTED
    # A finished one is no obstacle.
    assert differ.run(*sides, "--checkpoint", checkpoint, "--resume")[0] == 1


def test_a_resumed_run_without_its_snapshot_says_so(cluster: Cluster, differ: Differ):
    checkpoint = differ.folder / "run.json"
    sides = differ.at("d.t"), differ.at("d.other")
    slow = differ.command(*sides, "--checkpoint", checkpoint, "--rows-per-second", "2000", "--threads", "1", "--lease", "3s")
    process = subprocess.Popen(slow, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_until("a chunk is done", lambda: checkpoint.exists() and '"chunk"' in checkpoint.read_text())
    process.kill()
    process.wait()
    tokens = json.loads(checkpoint.read_text().split("\n")[0])["tokens"]

    def is_over() -> bool:
        try:
            return cluster.sql(f"SET isobar_snapshot = '{tokens[0]}'") is None
        except pymysql.err.MySQLError as error:
            return error.args[0] == 9006

    wait_until("the lease is over", is_over, 30)
    code, _, text = differ.run(*sides, "--checkpoint", checkpoint, "--resume")
    assert code == 2 and "snapshot" in text and "--restart" in text, text
    code, report, text = differ.run(*sides, "--checkpoint", checkpoint, "--restart")
    assert code == 1 and found(report) == EXPECTED, text


LEASES = "SELECT owner FROM information_schema.snapshot_leases WHERE owner LIKE '%isobar diff'"


def test_a_run_that_cannot_go_on_leaves_no_lease(cluster: Cluster, differ: Differ):
    left = len(cluster.sql(LEASES))
    sides = differ.at("d.t"), differ.at("d.other")
    slow = differ.command(*sides, "--rows-per-second", "1000", "--threads", "1")
    process = subprocess.Popen(slow, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_until("its leases are there", lambda: len(cluster.sql(LEASES)) > left)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 2 and "--checkpoint" in said, said
    assert len(cluster.sql(LEASES)) <= left, "an interrupted run left its lease"
    code, _, text = differ.run(*sides, "--key", "nosuch")
    assert code == 2 and "nosuch" in text, text
    assert len(cluster.sql(LEASES)) <= left, "a failed run left its lease"


class HeldAnswer(socketserver.ThreadingTCPServer):
    """Passes a server's bytes on, but from a request for a snapshot on none of its answers until `go_on` is set."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int):
        self.port, self.requested, self.go_on = port, threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), None)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        with socket.create_connection(("127.0.0.1", self.port)) as server:

            def answers() -> None:
                with contextlib.suppress(OSError):
                    while data := server.recv(1 << 16):
                        if self.requested.is_set():
                            self.go_on.wait(60)
                        request.sendall(data)
                    request.shutdown(socket.SHUT_WR)

            threading.Thread(target=answers, daemon=True).start()
            with contextlib.suppress(OSError):
                while data := request.recv(1 << 16):
                    if b"isobar_snapshot(" in data:
                        self.requested.set()
                    server.sendall(data)


def test_a_run_interrupted_while_its_lease_is_given_leaves_none(cluster: Cluster, differ: Differ):
    left = len(cluster.sql(LEASES))
    with HeldAnswer(cluster.mysql_port) as held:
        sides = differ.at("d.t", held.server_address[1]), differ.at("d.other", held.server_address[1])
        run = subprocess.Popen(differ.command(*sides), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        wait_until("its lease is there", lambda: len(cluster.sql(LEASES)) > left)
        assert held.requested.is_set()
        run.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(1)
        held.go_on.set()
        said = run.communicate(timeout=20)[1]
        held.shutdown()
    assert run.returncode == 2 and "SIGINT" in said, said
    assert len(cluster.sql(LEASES)) <= left, "an interrupted run left its lease"


def test_a_live_table_is_compared_at_one_snapshot(cluster: Cluster, differ: Differ):
    cluster.sql(
        "CREATE DATABASE live",
        *[f"CREATE TABLE live.{t} (id INT PRIMARY KEY, v BIGINT NOT NULL)" for t in "ab"],
        *[f"INSERT INTO live.{t} VALUES " + ", ".join(f"({n}, 0)" for n in range(1000)) for t in "ab"],
    )
    for table in "ab":
        cluster.replicate(f"live.{table}")
    stop, written, owners = threading.Event(), [], set()
    # Runs that were killed before, or may go on, leave theirs to their end.
    left = len(cluster.sql(LEASES))

    def write() -> None:
        with cluster.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                n = random.randrange(1000)
                if n % 10 == 0:
                    owners.update(row[0] for row in cluster.sql(LEASES))
                try:
                    for table in "ab":
                        cursor.execute(f"UPDATE live.{table} SET v = v + 1 WHERE id = {n}")
                    connection.commit()
                    written.append(n)
                except pymysql.err.OperationalError:
                    connection.rollback()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for engine in ["columns", "rows"]:
            before = len(written)
            # One server, one snapshot: both tables change in one transaction, so they never differ.
            code, report, text = differ.run(
                differ.at("live.a"), differ.at("live.b"), "--engine", engine, "--rows-per-second", "2000"
            )
            assert code == 0, text
            assert len(written) > before, "the writer stood still"
    finally:
        stop.set()
        writer.join(30)
    assert owners == {"root@127.0.0.1 isobar diff"}, "who holds the snapshot is not shown"
    assert len(cluster.sql(LEASES)) <= left, "a lease was left behind"


def test_a_server_that_is_gone_is_no_answer(differ: Differ):
    code, _, text = differ.run(differ.at("d.t"), differ.at("d.t", free_port()))
    assert code == 2 and "does not answer" in text, text
    code, _, text = differ.run(differ.at("d.t").replace("root@", "nobody:s3cret@"), differ.at("d.t"))
    assert code == 2 and "s3cret" not in text and "refuses" in text, text
    code, _, text = differ.run(differ.at("d.t"), differ.at("d.nope"))
    assert code == 2 and "no such table" in text, text


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory):
    program = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    if program is None:
        absent("mariadbd")
    server = MariaDb(program, tmp_path_factory.mktemp("mariadb"))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d CHARACTER SET utf8mb4")
    yield server
    server.stop()


# Byte order without padding; byte order with padding; an order of its own; another character set.
@pytest.mark.parametrize(
    "collation", ["COLLATE utf8mb4_nopad_bin", "COLLATE utf8mb4_bin", "COLLATE utf8mb4_unicode_ci", "utf16"]
)
def test_mariadb_is_compared_both_ways(cluster: Cluster, differ: Differ, mariadb: MariaDb, collation: str):
    clause = "CHARACTER SET utf16" if collation == "utf16" else collation
    table = "m_" + collation.split()[-1]
    with mariadb.connect(database="d") as connection:
        connection.cursor().execute(create(table, clause))
        load(connection, table, random.Random(4).sample(ALL, len(ALL)))
        there = differ.at(f"d.{table}", mariadb.port)
        code, report, text = differ.run(differ.at("d.t"), there)
        assert code == 0, text
        code, report, text = differ.run(there, differ.at("d.other"), "--transaction")
        assert code == 1 and found(report) == EXPECTED, text
        assert report["source_moment"] == "all in one transaction with a consistent snapshot"
        # Corrections of MariaDB, whatever its collation.
        fix = differ.folder / "fix.sql"
        code, report, text = differ.run(differ.at("d.other"), there, "--fix", fix)
        assert code == 1 and set(found(report)) == set(EXPECTED), text
        apply(connection, fix)
        code, report, text = differ.run(differ.at("d.other"), there)
        assert code == 0, text


EVERY_TYPE = (
    "id BIGINT UNSIGNED PRIMARY KEY, a BIT(9), b INT(8) ZEROFILL, c FLOAT, d DOUBLE(12,3), e ENUM('x','y,N'), f SET('p','q'),"
    " g YEAR, h TIME(3), i BLOB, j VARBINARY(9), k BINARY(4), l JSON, m DATE, n DATETIME, o TIMESTAMP(6) NULL, p LONGTEXT,"
    " q TINYINT(1), r DECIMAL(65,30), s CHAR(5) CHARACTER SET latin1, t UUID"
)


def test_every_type_of_mariadb_is_compared_and_corrected(differ: Differ, mariadb: MariaDb):
    with mariadb.connect(database="d", sql_mode="") as connection:
        cursor = connection.cursor()
        for table in ["every", "mirror"]:
            cursor.execute(f"CREATE TABLE {table} ({EVERY_TYPE})")
        cursor.execute(
            "INSERT INTO every VALUES (18446744073709551615, b'101010101', 42, 0.1, 123456.789, 'y,N', 'p,q', 2013, '-100:30:00.125',"
            " X'00FF275C0A', X'00', X'00010203', '{\"a\": [1, null]}', '0000-00-00', '2013-01-02 03:04:05', '2013-01-02 03:04:05.000001',"
            " REPEAT(CONCAT('é', CHAR(92), CHAR(39)), 5000), 1, -0.000000000000000000000000000001, 'naïve', UUID()),"
            " (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
        sides = [differ.at(f"d.{table}", mariadb.port) for table in ["every", "mirror"]]
        fix = differ.folder / "fix.sql"
        assert differ.run(sides[0], sides[0])[0] == 0
        # Inserted, then changed in every column, then deleted.
        changes = [
            None,
            ", ".join(f"{column} = NULL" for column in "abcdefghijklmnopqrst"),
            "id = id - 5",
        ]
        for change in changes:
            if change:
                cursor.execute(f"UPDATE mirror SET {change} WHERE id > 5")
            code, report, text = differ.run(*sides, "--fix", fix)
            assert code == 1, text
            if change == changes[1]:
                assert len(report["tables"][0]["columns"]) == 20, text
            apply(connection, fix)
            code, report, text = differ.run(*sides)
            assert code == 0, text + fix.read_text()[:2000]


def test_a_server_that_dies_midway_is_no_answer(cluster: Cluster, differ: Differ, tmp_path: Path, mariadb: MariaDb):
    other = MariaDb(mariadb.process.args[0], tmp_path)
    try:
        with other.connect() as connection:
            connection.cursor().execute("CREATE DATABASE d CHARACTER SET utf8mb4")
            connection.cursor().execute(create("d.t", "COLLATE utf8mb4_nopad_bin"))
            connection.select_db("d")
            load(connection, "t", ALL)
        checkpoint = tmp_path / "run.json"
        words = ["--checkpoint", checkpoint, "--rows-per-second", "2000", "--threads", "1"]
        process = subprocess.Popen(
            differ.command(differ.at("d.t"), differ.at("d.t", other.port), *words), stderr=subprocess.PIPE, text=True
        )
        wait_until("a chunk is done", lambda: checkpoint.exists() and '"chunk"' in checkpoint.read_text())
        # A transaction does not outlive its process: no two snapshots are mixed.
        sides = differ.at("d.t"), differ.at("d.t", other.port)
        still = differ.command(*sides, "--checkpoint", tmp_path / "still.json", "--rows-per-second", "2000", "--transaction")
        killed = subprocess.Popen(still, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("it has begun", lambda: (tmp_path / "still.json").exists() and '"chunk"' in (tmp_path / "still.json").read_text())
        killed.kill()
        killed.wait()
        code, _, text = differ.run(*sides, "--checkpoint", tmp_path / "still.json", "--resume", "--transaction")
        assert code == 2 and "snapshot" in text and "--restart" in text, text
        other.stop()
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 2 and "does not answer" in said and "--resume" in said, said
    finally:
        other.stop()
