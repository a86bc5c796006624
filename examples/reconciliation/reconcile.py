"""The nightly reconciliation: makes live tables what the lake's snapshot says, without overwriting anybody's work.

    compare      every table at one snapshot of the live database, in Spark; the differences are saved
    correct      in bounded transactions, each row only if it is still what the snapshot showed
    verify       compare again, at a new snapshot
    report       JSON, one HTML page, and a line for each table in reconciliation.history

Started again with the same --work folder after whatever ended it, it goes on where it was. README.md has the guide.
"""

import argparse
import json
import os
import signal
import sys
import time
import uuid
from datetime import datetime, timezone
from pathlib import Path

import journal
import lake
import report
import verification
from claims import Claims
from comparison import Comparison
from corrections import Corrections
from flight_client import FlightClient, LiveTable
from errors import CorrectionsUndone, LeaseLost, ReconciliationError
from lease import UNSAVED_LEASE_SECONDS, Lease, release
from plan import Plan, Summary, digest, replace
from target import Target

JAR = Path(__file__).resolve().parents[2] / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"

# Exit codes of a run that another process may continue at the same snapshot: its lease is not given back.
CONTINUED = (4, 5, 6)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Reconciles live tables with the lake.", allow_abbrev=False)
    parser.add_argument("--lake", type=Path, required=True, help="folder with DATABASE/TABLE/*.parquet")
    parser.add_argument("--tables", required=True, help="live tables: db.table,db.table")
    parser.add_argument("--work", type=Path, required=True, help="the run's folder; the same one continues the run")
    parser.add_argument("--mysql", default="127.0.0.1:4000", help="host:port of the MySQL port")
    parser.add_argument("--flight", default="127.0.0.1:4040,127.0.0.1:4041", help="Flight servers, host:port,host:port")
    parser.add_argument("--user", default="root", help="the password is taken from ISOBAR_PASSWORD")
    parser.add_argument("--dry-run", action="store_true", help="compare and report, correct nothing")
    parser.add_argument("--ttl", type=int, default=600, help="lease of the snapshot, in seconds; renewed all the time")
    parser.add_argument("--batch-rows", type=int, default=500, help="most rows of one correcting transaction")
    parser.add_argument("--most-differences", type=int, default=200_000, help="for each table; more is an error")
    parser.add_argument("--retry-timeout", type=float, default=120, help="seconds to retry an unreachable database")
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--memory", default="3g", help="memory of Spark's driver")
    parser.add_argument("--partitions", type=int, default=32, help="partitions of Spark's shuffle")
    parser.add_argument("--jar", type=Path, default=JAR, help="the connector's runtime jar")
    return parser.parse_args()


class Run:
    """What a run is, kept in `run.json` so that a later process is the same run."""

    def __init__(self, work: Path, options: argparse.Namespace):
        self.path = work / "run.json"
        self.work = work
        (work / "plan").mkdir(parents=True, exist_ok=True)
        fixed = {"lake": str(options.lake.resolve()), "tables": options.tables, "batch_rows": options.batch_rows}
        if self.path.is_file():
            self.state: dict = json.loads(self.path.read_text(encoding="utf-8"))
        else:
            self.state = {"run": uuid.uuid4().hex, "started": now(), "starts": 0, "tokens": {}, "corrected": False}
            self.save(**fixed)
        for name, value in fixed.items():
            if self.state[name] != value:
                raise ReconciliationError(
                    f"{self.path} is a run with {name} {self.state[name]}, not {value}: use another --work folder"
                )
        if "ended" in self.state:
            raise ReconciliationError(f"the run in {work} ended at {self.state['ended']}: use another --work folder")

    @property
    def name(self) -> str:
        return self.state["run"]

    def save(self, **more: object) -> None:
        """Changes the state; readable by its owner only, because a token opens the data."""
        self.state.update(more)
        replace(self.path, json.dumps(self.state, indent=1), mode=0o600)

    def event(self, what: str, **more: object) -> None:
        """Prints, and keeps, how far the run is."""
        line = {"at": now(), "event": what, **more}
        with (self.work / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"▸ {what} {' '.join(f'{name}={value}' for name, value in more.items())}".rstrip(), flush=True)


class Reconciliation:
    """One process of a run."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        host, _, port = options.mysql.rpartition(":")
        password = os.environ.get("ISOBAR_PASSWORD", "")
        self.target = Target(host, int(port), options.user, password, options.retry_timeout)
        self.client = FlightClient(options.flight.split(","), options.user, password)
        self.tables = options.tables.split(",")
        self.leases: list[Lease] = []
        self._spark: Comparison | None = None

    def run(self) -> int:
        """All of it; the exit code."""
        live = {name: self.client.table(name) for name in self.tables}
        files = {name: lake.check(self.options.lake, table) for name, table in live.items()}
        journal.prepare(self.target)
        run = Run(self.options.work, self.options)
        claims = Claims(self.target, run.name, self.tables)
        claims.take()
        ended = False
        try:
            run.save(starts=run.state["starts"] + 1)
            run.event("start", number=run.state["starts"])
            summaries = self._correct_all(run, claims, live, files)
            results = {} if self.options.dry_run else self._verify(run, live, files, summaries)
            ended = True
            self._finish(run, summaries, results)
        except ReconciliationError as error:
            run.event("failed", error=type(error).__name__, exit_code=error.exit_code)
            ended = ended or error.exit_code not in CONTINUED
            raise
        finally:
            for lease in self.leases:
                lease.stop()
            if ended:  # the run keeps its tokens: started again, it must find out that they are gone
                for token in run.state["tokens"].values():
                    release(self.client, token)
            if self._spark is not None:
                self._spark.close()
            claims.release()
        return 0

    def spark(self) -> Comparison:
        """Spark, started when it is needed for the first time."""
        if self._spark is None:
            options = self.options
            endpoints = options.flight.split(",")
            self._spark = Comparison(
                options.jar, endpoints, options.user, options.master, options.memory, options.partitions
            )
        return self._spark

    def _hold(self, run: Run, purpose: str) -> Lease:
        """The lease of a snapshot of this run: the one that an earlier process took, or a new one.

        Raises LeaseLost if there was one and it is lost.
        """
        token = run.state["tokens"].get(purpose)
        known = token is not None
        if not known:
            owner = f"reconciliation {run.name} {purpose}"
            first = min(UNSAVED_LEASE_SECONDS, self.options.ttl)
            token = self.target.query(f"SELECT isobar_snapshot('{first}s', '{owner}')")[0][0]
            run.save(tokens={**run.state["tokens"], purpose: token})
        lease = Lease(self.client, token, self.options.ttl)
        self.leases.append(lease)
        if not known:
            run.event("snapshot", purpose=purpose, lease=lease.snapshot.lease, read_ts=lease.snapshot.read_ts)
        return lease

    def _correct_all(self, run: Run, claims: Claims, live: dict, files: dict) -> dict[str, Summary]:
        """Compares and corrects, as far as an earlier process of the run has not."""
        if not run.state["corrected"]:
            lease = self._snapshot(run)
            for name in self.tables:
                self._compare(run, live[name], files[name], lease)
            if not self.options.dry_run:
                for name in self.tables:
                    self._correct(run, claims, lease, name)
            run.save(corrected=True)
        return {name: Plan(run.work, name).summary() for name in self.tables}

    def _snapshot(self, run: Run) -> Lease:
        """The snapshot that the plan rests on."""
        try:
            lease = self._hold(run, "plan")
        except LeaseLost:
            if any(journal.all_recorded(self.target, run.name, name) for name in self.tables):
                raise
            # Nothing was written yet: what was compared at the lost snapshot is compared anew.
            run.event("lease_lapsed_before_corrections")
            for name in self.tables:
                Plan(run.work, name).forget()
            run.save(tokens={})
            lease = self._hold(run, "plan")
        if run.state.get("snapshot") != lease.snapshot.read_ts:
            run.save(snapshot=lease.snapshot.read_ts, snapshot_taken=time.time())
        return lease

    def _compare(self, run: Run, live: LiveTable, files: lake.LakeTable, lease: Lease) -> None:
        plan = Plan(run.work, live.name)
        if plan.is_complete():
            return
        started = time.monotonic()
        rows = self.spark().save(files, live, lease, plan, self.options.most_differences)
        kinds = plan.count()
        columns = tuple(column.name for column in live.columns)
        seconds = time.monotonic() - started
        summary = Summary(live.name, live.key, columns, files.rows, rows, kinds, seconds, files.ignored)
        plan.seal(summary)
        run.event("plan_saved", table=live.name, seconds=round(seconds, 1), live_rows=rows, **kinds)

    def _correct(self, run: Run, claims: Claims, lease: Lease, name: str) -> None:
        plan = Plan(run.work, name)
        summary = plan.summary()
        known = journal.all_recorded(self.target, run.name, name)
        corrections = Corrections(self.target, claims, lease, run.name, name, summary.key, summary.columns)
        for number, batch in enumerate(plan.batches(summary.key, self.options.batch_rows)):
            if number in known and known[number].digest == digest(batch):
                continue
            made = corrections.apply(number, batch)
            skipped = made.changed_meanwhile + made.refused
            run.event("batch", table=name, number=number, corrected=made.corrected, not_corrected=skipped)

    def _verify(self, run: Run, live: dict, files: dict, summaries: dict) -> dict[str, verification.Remaining]:
        """Compares again, at a new snapshot for all tables."""
        run.event("verification")
        results = {}
        try:
            lease = self._hold(run, "verification")
        except LeaseLost:  # of an earlier process; nothing rests on it
            run.save(tokens={name: token for name, token in run.state["tokens"].items() if name != "verification"})
            lease = self._hold(run, "verification")
        for name in self.tables:
            left = Plan(run.work, f"{name}.left")
            self.spark().save(files[name], live[name], lease, left, self.options.most_differences)
            records = journal.all_recorded(self.target, run.name, name)
            plan = Plan(run.work, name)
            results[name] = verification.explain(plan, summaries[name], self.options.batch_rows, records, left)
            run.event("verified", table=name, **results[name].counts)
        return results

    def _finish(self, run: Run, summaries: dict, results: dict) -> None:
        """Leaves report and history; raises if corrections were undone."""
        counts = {
            "dry_run": self.options.dry_run,
            "lease_ttl": self.options.ttl,
            "lease_renewals": sum(lease.renewals for lease in self.leases),
            "conflicts": self.target.conflicts,
            "reconnects": self.target.reconnects,
        }
        tables = {}
        for name, summary in summaries.items():
            records = journal.all_recorded(self.target, run.name, name)
            tables[name] = report.table(Plan(run.work, name), summary, records, results.get(name))
        ended = now()
        whole = report.whole(run.state, ended, tables, counts)
        journal.remember(self.target, report.history(whole))
        report.write(run.work, whole)
        run.save(ended=ended)
        run.event("end", seconds=whole["seconds"], report=str(run.work / "report.html"))
        undone = [key for result in results.values() for key in result.undone]
        if undone:
            raise CorrectionsUndone(
                f"{len(undone)} corrected rows are again what they were before, among them {', '.join(undone[:5])}: "
                "look who changed them back"
            )


def now() -> str:
    """The current time, in UTC."""
    return datetime.now(timezone.utc).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def main() -> int:
    options = arguments()
    os.environ["TZ"] = "UTC"  # no time of the lake passes through this machine's zone
    time.tzset()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that claims are given back then, too
    try:
        return Reconciliation(options).run()
    except ReconciliationError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
