"""First figures of a cluster on this machine: scan rates of each reader, the fixed cost of a distributed
query, and replica lag under steady writes.

Run it with `make figures`, or see --help. Everything runs on this one machine, so readers, writers and nodes
share its processors; each figure is measured while nothing else is asked of the cluster. Answers are compared
before times are shown. It must never touch a cluster that it did not start.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quickstart"))

from playground import Playground  # noqa: E402
from readers import SparkReader, connect  # noqa: E402
from tqdm import tqdm  # noqa: E402

DATABASE = "figures"
PART = 50_000
REPLICA_TIMEOUT = 180
SCAN = (
    "SELECT COUNT(*), SUM(quantity), SUM(price), MIN(city), MAX(city), MAX(changed), SUM(customer) FROM {table}"
)
CREATE = (
    "CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, customer BIGINT NOT NULL, quantity INT NOT NULL,"
    " price DECIMAL(12,2) NOT NULL, city VARCHAR(24) NOT NULL, changed DATETIME NOT NULL)"
)


class FiguresError(Exception):
    """No figure can be told; the text says why."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    parser.add_argument("--jar", type=Path, help="the Spark connector's runtime jar; without it Spark is left out")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the scanned table (default 1,000,000)")
    parser.add_argument("--rate", type=int, default=1_000, help="rows written per second for the lag (default 1,000)")
    parser.add_argument("--seconds", type=int, default=60, help="how long to write for the lag (default 60)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


def line(at: int) -> str:
    """Row `at` of the scanned table; spread, so that nothing compresses to nothing."""
    mixed = (at * 2_654_435_761) % 4_294_967_296
    day, second = mixed % 28 + 1, mixed % 60
    return (
        f"{at},{mixed % 100_000},{mixed % 50},{mixed % 1_000_000}.{mixed % 100:02},city {mixed % 5_000},"
        f"2026-0{mixed % 9 + 1}-{day:02} 12:00:{second:02}\n"
    )


def load(port: int, rows: int) -> float:
    """Loads the table by LOAD DATA; seconds."""
    started = time.monotonic()
    with connect(port, None) as connection, connection.cursor() as cursor, tempfile.TemporaryDirectory() as scratch:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(CREATE.format(table="big"))
        part = Path(scratch) / "part.csv"
        with tqdm(total=rows, desc="  load", unit=" rows", unit_scale=True, leave=False) as bar:
            for start in range(0, rows, PART):
                end = min(start + PART, rows)
                part.write_text("".join(line(at) for at in range(start, end)), encoding="utf-8")
                bar.update(cursor.execute(f"LOAD DATA LOCAL INFILE '{part}' INTO TABLE big FIELDS TERMINATED BY ','"))
    return time.monotonic() - started


def replicate(port: int, tables: dict[str, int]) -> None:
    """Gives tables columnar replicas, cut into so many regions, and waits for them."""
    with connect(port, DATABASE) as connection, connection.cursor() as cursor:
        for table, regions in tables.items():
            if regions > 1:
                cursor.execute(f"SPLIT TABLE {table} REGIONS {regions}")
            cursor.execute(f"ALTER TABLE {table} SET COLUMNAR REPLICA 1")
        deadline = time.monotonic() + REPLICA_TIMEOUT
        while any(not replica(cursor, table)[0] for table in tables):
            if time.monotonic() > deadline:
                raise FiguresError(f"replicas are not available after {REPLICA_TIMEOUT} s")
            time.sleep(0.2)


def replica(cursor, table: str) -> tuple[int, int | None, int | None]:
    """Whether a table's replica is available, and its lag's median and 99th percentile in ms."""
    cursor.execute(
        "SELECT available, lag_p50_ms, lag_p99_ms FROM information_schema.columnar_replica"
        " WHERE table_schema = %s AND table_name = %s",
        (DATABASE, table),
    )
    return cursor.fetchone() or (0, None, None)


def timed(ask: Callable[[], object], rounds: int) -> tuple[object, list[float]]:
    """The answer, the same each time, and the seconds of each round after a first one."""
    answer = ask()
    times = []
    for _ in range(rounds):
        started = time.monotonic()
        again = ask()
        times.append(time.monotonic() - started)
        if again != answer:
            raise FiguresError(f"two answers to one question: {answer} and {again}")
    return answer, times


def on(port: int, engine: str, query: str) -> Callable[[], object]:
    """Asks one engine, and no other, over one connection."""
    connection = connect(port, DATABASE)
    with connection.cursor() as cursor:
        cursor.execute("SET tidb_isolation_read_engines = %s", (engine,))

    def ask() -> object:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchone()

    return ask


def scans(cluster: Playground, rows: int, jar: Path | None) -> dict[str, float]:
    """Rows per second of a scan over all columns, by reader."""
    query = SCAN.format(table="big")
    port = cluster.mysql_port
    asked = {"rows": on(port, "tikv", query), "columns": on(port, "tiflash", query)}
    spark = SparkReader(jar, cluster.flight) if jar else None
    try:
        if spark is not None:
            session = spark.spark
            there = SCAN.format(table=f"isobar.{DATABASE}.big")
            asked["Spark"] = lambda: tuple(session.sql(there).collect()[0])
        answers, found = {}, {}
        for name, ask in asked.items():
            answers[name], times = timed(ask, 5)
            found[name] = rows / statistics.median(times)
            print(f"  {name:8} {found[name]:>12,.0f} rows/s   median of 5: {statistics.median(times):.3f} s", flush=True)
        if len(set(answers.values())) != 1:
            raise FiguresError(f"the readers disagree: {answers}")
        return found
    finally:
        if spark is not None:
            spark.close()


def fixed_cost(port: int) -> dict[str, float]:
    """Milliseconds of a count of ten rows, by engine: what a query costs before it reads anything."""
    found = {}
    for name, engine in (("rows", "tikv"), ("columns", "tiflash")):
        _, times = timed(on(port, engine, "SELECT COUNT(*), MAX(price) FROM small"), 200)
        milliseconds = sorted(seconds * 1_000 for seconds in times)
        found[name] = statistics.median(milliseconds)
        print(f"  {name:8} median {found[name]:.1f} ms, p99 {milliseconds[int(len(milliseconds) * 0.99)]:.1f} ms", flush=True)
    return found


class Writer(threading.Thread):
    """Inserts ten rows a transaction, on a schedule that does not wait for slow ones."""

    ROWS = 10

    def __init__(self, port: int, first: int, step: int, rate: float, until: float):
        super().__init__(daemon=True)
        self.connection = connect(port, DATABASE)
        self.next, self.step, self.pause, self.until = first, step, 1 / rate, until
        self.latencies: list[float] = []
        self.error: Exception | None = None

    def run(self) -> None:
        due = time.monotonic()
        try:
            with self.connection.cursor() as cursor:
                while (due := due + self.pause) < self.until:
                    time.sleep(max(0.0, due - time.monotonic()))
                    rows = ",".join(
                        f"({self.next + n * self.step},{n},1,2.50,'city {n}','2026-01-01')" for n in range(self.ROWS)
                    )
                    cursor.execute(f"INSERT INTO written VALUES {rows}")
                    self.next += self.ROWS * self.step
                    # From when it was due: a stall is charged to every transaction that it delays.
                    self.latencies.append(time.monotonic() - due)
        except Exception as error:  # told to whoever waits
            self.error = error


def lag(port: int, rate: int, seconds: int) -> dict[str, float]:
    """Replica lag in milliseconds while so many rows a second are inserted."""
    threads = 4
    started = time.monotonic()
    until = started + seconds
    writers = [Writer(port, n, threads, rate / threads / Writer.ROWS, until) for n in range(threads)]
    for writer in writers:
        writer.start()
    for writer in tqdm(writers, desc="  writing", leave=False):
        writer.join(seconds + 60)
    took = time.monotonic() - started
    failed = [writer.error for writer in writers if writer.error is not None]
    if failed or any(writer.is_alive() for writer in writers):
        raise FiguresError(f"the writers did not end well: {failed}")
    latencies = sorted(seconds for writer in writers for seconds in writer.latencies)
    written = len(latencies) * Writer.ROWS / took
    with connect(port, DATABASE) as connection, connection.cursor() as cursor:
        time.sleep(1)  # a heartbeat carries the last measures
        _, p50, p99 = replica(cursor, "written")
    p99_commit = latencies[int(len(latencies) * 0.99)] * 1_000
    print(f"  {written:,.0f} rows/s written; commits: median {statistics.median(latencies) * 1_000:.1f} ms, p99 {p99_commit:.1f} ms")
    print(f"  replica lag: p50 {p50} ms, p99 {p99} ms (from commit timestamp to visible, slowest commit of each batch)")
    return {"rows_per_second": written, "p50_ms": p50, "p99_ms": p99}


def run(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    with Playground(options.isobar, scratch / "cluster") as cluster:
        port = cluster.mysql_port
        print(f"\n▸ {options.rows:,} rows, four regions, three row nodes and two columnar nodes")
        took = load(port, options.rows)
        print(f"  loaded by LOAD DATA in {took:.1f} s: {options.rows / took:,.0f} rows/s")
        with connect(port, DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute(CREATE.format(table="small"))
            cursor.execute("INSERT INTO small VALUES " + ",".join(f"({n},1,1,1.00,'c','2026-01-01')" for n in range(10)))
            cursor.execute(CREATE.format(table="written"))
        replicate(port, {"big": 4, "small": 1, "written": 1})
        print("\n▸ Full scan of every column but the key, aggregated")
        rates = scans(cluster, options.rows, options.jar)
        print("\n▸ Fixed cost: a count of ten rows, 200 times")
        fixed = fixed_cost(port)
        print(f"\n▸ Replica lag, {options.rate:,} rows/s for {options.seconds} s, ten rows a transaction")
        behind = lag(port, options.rate, options.seconds)
        return {"load_rows_per_second": options.rows / took, "scan_rows_per_second": rates, "count_ms": fixed, "lag": behind}


def main() -> int:
    options = arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="isobar-figures-", ignore_cleanup_errors=True) as scratch:
            figures = run(options, Path(scratch))
    except KeyboardInterrupt:
        print("\ninterrupted; everything is stopped", file=sys.stderr)
        return 130
    except FiguresError as error:
        print(f"\nno figures: {error}", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
