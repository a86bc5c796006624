"""A night in small or in full: a cluster, a lake that differs in planted ways, a live writer, the job, and a judge.

Ends with 0 only if every planted difference was found, none was corrected that should not have been, and no lease and
no claim is left. With --kills the job is killed (SIGKILL) at random times and started again.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import pymysql

import make_lake
import tables
from judge import Verdict, judge
from lease import UNSAVED_LEASE_SECONDS
from live_writer import LiveWriter, percentile
from make_lake import Planted
from tables import Source, dataset
from target import Target

from playground import Playground, PlaygroundError

HERE = Path(__file__).resolve().parent
JOB_TIMEOUT = 3600
REPLICA_TIMEOUT = 900
LOAD_TIMEOUT = 1800
SAMPLE = 5_000
BATCH_ROWS = 100


class RehearsalError(Exception):
    """The rehearsal itself could not be held."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Rehearses a reconciliation on a cluster of its own.", allow_abbrev=False)
    parser.add_argument("--isobar", type=Path, required=True, help="the binary, built with `make build`")
    parser.add_argument("--jar", type=Path, required=True, help="the connector's runtime jar, built with `make jar`")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/isobar", help="where downloads are kept")
    parser.add_argument("--scale", type=int, default=60_000, help="rows of lineitem; 6001215 is all of TPC-H at scale 1")
    parser.add_argument("--differences", type=int, help="planted differences; one in 500 rows unless given")
    parser.add_argument("--kills", type=int, default=0, help="kill the job so many times, at random times")
    parser.add_argument("--kill-within", type=float, default=40, help="longest time from the start of a phase to the kill in it")
    parser.add_argument("--seed", type=int, help="for the times of the kills; printed at the beginning")
    parser.add_argument("--quiet", type=float, default=10, help="seconds of online work without the job, to compare with")
    parser.add_argument("--port-base", type=int, help="ports of the cluster; free ones unless given")
    parser.add_argument("--out", type=Path, help="folder to keep report and measurements in")
    parser.add_argument("--memory", default="3g", help="memory of Spark's driver")
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    return parser.parse_args()


def step(text: str) -> None:
    print(f"\n▸ {text}", flush=True)


def sources(scale: int) -> list[Source]:
    """The tables of a rehearsal of so many line items."""
    return [*tables.flights(max(1_000, scale)), tables.typed(min(100_000, max(2_000, scale // 20))), tables.lineitem(scale)]


def data(isobar: Path, cache: Path, scale: int, folder: Path) -> Path:
    """A folder with the files that the sources read."""
    for file in dataset.fetch(cache / "data").glob("*.csv"):
        (folder / file.name).symlink_to(file)
    factor = max(0.001, scale / 6_000_000)
    command = [isobar, "dbgen", "--scale", f"{factor:.4f}", "--dir", folder]
    subprocess.run(command, check=True, timeout=900, stdout=subprocess.DEVNULL)
    return folder


def load(port: int, parts: list[Source], folder: Path) -> None:
    """Creates, loads, spreads and replicates the live tables."""
    with connect(port, LOAD_TIMEOUT) as connection, connection.cursor() as cursor:
        for database in sorted({source.name.split(".")[0] for source in parts}):
            cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("SET time_zone = '+00:00'")
        for source in parts:
            started = time.monotonic()
            cursor.execute(source.create())
            rows = sum(cursor.execute(statement) for statement in make_lake.load(source, folder))
            if source.regions > 1:
                cursor.execute(f"SPLIT TABLE {source.name} REGIONS {source.regions}")
            cursor.execute(f"ALTER TABLE {source.name} SET COLUMNAR REPLICA 1")
            print(f"  {source.name:20} {rows:>9,} rows in {time.monotonic() - started:5.1f} s", flush=True)
        deadline = time.monotonic() + REPLICA_TIMEOUT
        while True:
            cursor.execute("SELECT table_name FROM information_schema.columnar_replica WHERE NOT available")
            behind = [row[0] for row in cursor.fetchall()]
            if not behind:
                return
            if time.monotonic() > deadline:
                raise RehearsalError(f"no columnar replica within {REPLICA_TIMEOUT} s: {behind}")
            time.sleep(0.2)


def connect(port: int, seconds: float = 60) -> pymysql.connections.Connection:
    return pymysql.connect(
        host="127.0.0.1", port=port, user="root", autocommit=True, local_infile=True,
        connect_timeout=10, read_timeout=seconds, write_timeout=seconds,
    )  # fmt: skip


def writer_for(port: int, parts: list[Source], planted: list[Planted], folder: Path) -> LiveWriter:
    """A writer that knows a sample of each table's keys, and meets every fifth planted row often."""
    keys, hot = {}, {}
    for source, plant in zip(parts, planted):
        names = ", ".join(f'CAST("{name}" AS VARCHAR)' for name in source.key)
        files = folder / "lake" / Path(*source.name.split(".")) / "*.parquet"
        sample = f"SELECT * FROM read_parquet('{files}') USING SAMPLE reservoir({SAMPLE} ROWS) REPEATABLE (5)"
        with duckdb.connect() as database:
            found = database.execute(f"SELECT {names} FROM ({sample})").fetchall()
        apart = {tuple(key) for key in (*plant.missing, *plant.extra, *plant.changed)}
        keys[source.name] = [key for key in found if key not in apart]
        hot[source.name] = [tuple(key) for key in (*plant.changed, *plant.extra)[::5]]
    return LiveWriter(port, parts, keys, hot)


class Job:
    """The job as a child process, whose lines are kept and shown."""

    def __init__(self, command: list):
        self.started = time.time()
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )  # fmt: skip
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if not line.startswith("▸ batch"):
                print("    " + line.rstrip(), flush=True)

    def kill(self) -> None:
        """SIGKILL to the driver, Python and Java, as a machine that fails would do it."""
        self.end()
        self.wait(30)

    def wait_for(self, what: str, times: int, deadline: float) -> None:
        """Waits until the job has said something so many times, or has ended."""
        while sum(line.startswith(f"▸ {what}") for line in self.lines) < times and self.process.poll() is None:
            if time.monotonic() > deadline:
                raise RehearsalError(f"the job did not say {what} {times} times within {JOB_TIMEOUT} s")
            time.sleep(0.02)

    def wait(self, seconds: float) -> int:
        """The exit code."""
        code = self.process.wait(seconds)
        self._thread.join(10)
        return code

    def end(self) -> None:
        """Kills the driver and its Java, if they are there."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def job_command(cluster: Playground, parts: list[Source], folder: Path, options: argparse.Namespace) -> list:
    return [
        sys.executable, HERE / "reconcile.py", "--lake", folder / "lake", "--work", folder / "work",
        "--tables", ",".join(source.name for source in parts), "--mysql", f"127.0.0.1:{cluster.mysql_port}",
        "--flight", ",".join(cluster.flight), "--jar", options.jar, "--memory", options.memory, "--master", options.master,
        "--batch-rows", str(BATCH_ROWS),
    ]  # fmt: skip


def kill_times(kills: int, batches: int, within: float, chance: random.Random) -> list[tuple[str, int, float]]:
    """When the job is killed, in order: after which of its lines, which of them, and how many seconds later.

    Random times in its three phases in turn: of the comparison, which lasts longest, of the corrections, and of the
    verification.
    """
    kinds = [
        ("start", lambda: (1, chance.uniform(1, within))),
        ("batch", lambda: (chance.randint(1, max(1, batches // (kills + 1))), chance.uniform(0, 0.1))),
        ("verification", lambda: (1, chance.uniform(0, within / 2))),
    ]
    chosen = sorted(number % len(kinds) for number in range(kills))
    return [(kinds[at][0], *kinds[at][1]()) for at in chosen]


def run_job(command: list, kills: list[tuple[str, int, float]]) -> None:
    """Runs the job to its end, killed at these times on the way."""
    deadline = time.monotonic() + JOB_TIMEOUT
    for after, times, delay in [*kills, (None, 0, 0)]:
        job = Job(command)
        try:
            if after is not None:
                job.wait_for(after, times, deadline)
                time.sleep(delay)  # the random time itself
                if job.process.poll() is None:
                    job.kill()
                    print(f"  ✗ killed, {delay:.1f} s after its {after} number {times}", flush=True)
                    continue
                raise RehearsalError(f"the job ended before it was killed: lower --kill-within; {job.lines[-1]}")
            code = job.wait(max(1, deadline - time.monotonic()))
        finally:
            job.end()
        if code != 0:
            raise RehearsalError(f"the job ended with {code}: {' '.join(job.lines[-3:])}")


def online(writer: LiveWriter, begin: float, end: float) -> dict:
    """Online transactions of a time."""
    found = [latency for at, latency in writer.latencies if begin <= at < end]
    return {
        "transactions": len(found),
        "per_second": round(len(found) / max(0.001, end - begin), 1),
        **{name: percentile(found, share) for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))},
    }


def phases(work: Path, begin: float, end: float) -> list[tuple[str, float, float]]:
    """When the job compared, corrected and verified; of a killed job, only the whole."""
    marks: dict[str, float] = {}
    for line in (work / "events.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        marks.setdefault(event["event"], make_time(event["at"]))
    first, verify = marks.get("batch"), marks.get("verification")
    if not first or not verify:
        return [("whole", begin, end)]
    return [("compare", begin, first), ("correct", first, verify), ("verify", verify, end), ("whole", begin, end)]


def make_time(text: str) -> float:
    from datetime import datetime, timezone

    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()


def left_behind(port: int) -> list[str]:
    """Leases and claims that nobody gave back, and that do not lapse within seconds.

    A job that was killed before it had saved its lease's token leaves a lease of UNSAVED_LEASE_SECONDS.
    """
    deadline = time.monotonic() + UNSAVED_LEASE_SECONDS + 5
    with connect(port) as connection, connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT owner FROM information_schema.snapshot_leases")
            found = [f"a lease of {row[0]}" for row in cursor.fetchall()]
            cursor.execute("SELECT target FROM reconciliation.claims")
            found += [f"the claim of {row[0]}" for row in cursor.fetchall()]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.5)


def rehearse(options: argparse.Namespace, folder: Path) -> tuple[Verdict, dict, list[str]]:
    """The rehearsal; the verdict, the measurements, and what was left behind."""
    parts = sources(options.scale)
    step("Data, and a lake that differs")
    (folder / "data").mkdir()
    differences = options.differences or max(200, options.scale // 500)
    planted = make_lake.make(parts, data(options.isobar, options.cache, options.scale, folder / "data"), folder, differences)
    for plant in planted:
        kinds = f"{len(plant.missing)} missing, {len(plant.extra)} extra, {len(plant.changed)} changed"
        print(f"  {plant.table:20} {plant.rows:>9,} rows in the lake; {kinds}", flush=True)
    step("Cluster, load, columnar replicas")
    with Playground(options.isobar, folder / "cluster", options.port_base) as cluster:
        load(cluster.mysql_port, parts, folder)
        step(f"A live writer, {options.quiet:.0f} s of it alone")
        writer = writer_for(cluster.mysql_port, parts, planted, folder)
        writer.start()
        first = time.time()
        try:
            time.sleep(options.quiet)  # the measurement itself
            alone = online(writer, first, time.time())
            print(f"  {alone}", flush=True)
            seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10_000)
            step(f"The job, killed {options.kills} times (seed {seed})" if options.kills else "The job")
            kills = kill_times(options.kills, differences // BATCH_ROWS, options.kill_within, random.Random(seed))
            begin = time.time()
            run_job(job_command(cluster, parts, folder, options), kills)
            end = time.time()
        finally:
            writer.stop()
        step("The judge")
        with connect(cluster.mysql_port) as connection, connection.cursor() as cursor:
            left = left_behind(cluster.mysql_port)
            cursor.execute("SELECT isobar_snapshot('30m')")
            token = cursor.fetchone()[0]
        target = Target("127.0.0.1", cluster.mysql_port, "root", "", 60)
        verdict = judge(folder / "work", folder / "lake", parts, planted, writer, target, cluster.flight, token)
    measured = {
        "seconds": round(end - begin, 1),
        "kills": options.kills,
        "online": {"alone": alone, **{n: online(writer, b, e) for n, b, e in phases(folder / "work", begin, end)}},
        "online_conflicts": writer.conflicts,
        "online_broken_connections": writer.broken,
    }
    return verdict, measured, left


def main() -> int:
    options = arguments()
    for path, what in ((options.isobar, "make build"), (options.jar, "make jar")):
        if not path.is_file():
            print(f"{path} is missing: build it with `{what}`", file=sys.stderr)
            return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything below is stopped then, too
    try:
        with tempfile.TemporaryDirectory(prefix="isobar-reconcile-", ignore_cleanup_errors=True) as scratch:
            verdict, measured, left = rehearse(options, Path(scratch))
            result = {"verdict": verdict.counts(), **measured, "left_behind": left}
            print(json.dumps(result, indent=1), flush=True)
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / "rehearsal.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
                for name in ("report.json", "report.html", "events.jsonl"):
                    shutil.copy(Path(scratch) / "work" / name, options.out / name)
    except (RehearsalError, PlaygroundError, dataset.DatasetError, pymysql.err.MySQLError, RuntimeError) as error:
        print(f"\nthe rehearsal failed: {error}", file=sys.stderr)
        return 1
    good = verdict.good() and not left
    print(f"\n{'✔ every planted difference was found, and nothing was overwritten' if good else '✘ see above'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
