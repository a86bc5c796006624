"""The nightly reconciliation over a cluster: killed and started again, with lost leases, bad files and lost servers.

What was planted and what was written are in ledgers that the job does not see; the judge holds it to them.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
from harness import Cluster, FlightClient, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/reconciliation"
sys.path.insert(0, str(EXAMPLE))

import journal  # noqa: E402
import make_lake  # noqa: E402
import rehearsal  # noqa: E402
import tables  # noqa: E402
from judge import judge  # noqa: E402
from rehearsal import Job  # noqa: E402
from target import Target  # noqa: E402

pytestmark = pytest.mark.own_cluster

# Three Java machines beside another test's take long on two processors.
JOB_SECONDS = 400


class Night:
    """Live tables, a lake that differs from them, and jobs."""

    def __init__(self, cluster: Cluster, jar: Path, folder: Path, sources: list, differences: int):
        self.cluster, self.jar, self.folder, self.sources = cluster, jar, folder, sources
        (folder / "data").mkdir(parents=True)
        command = [cluster.isobar, "dbgen", "--scale", "0.004", "--dir", folder / "data"]
        subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
        databases = {source.name.split(".")[0] for source in sources}
        cluster.sql(*(f"DROP DATABASE IF EXISTS {database}" for database in databases))
        self.planted = make_lake.make(sources, folder / "data", folder, differences, seed=random.randrange(1_000))
        rehearsal.load(cluster.mysql_port, sources, folder)
        journal.prepare(Target("127.0.0.1", cluster.mysql_port, "root", "", 10))
        self.earlier = 0
        self.earlier = self.batches()
        self.writer = rehearsal.writer_for(cluster.mysql_port, sources, self.planted, folder)

    def job(self, *more: object, work: str = "work") -> Job:
        options = SimpleNamespace(jar=self.jar, memory="1g", master="local[2]")
        command = rehearsal.job_command(self.cluster, self.sources, self.folder, options)
        command[command.index("--work") + 1] = self.folder / work
        return Job([*map(str, command), "--partitions", "4", *map(str, more)])

    def finish(self, job: Job, expected: int = 0) -> list[str]:
        """Waits for a job's end; its lines."""
        try:
            code = job.wait(JOB_SECONDS)
        finally:
            job.end()
        assert code == expected, "\n".join(job.lines)
        return job.lines

    def batches(self) -> int:
        """Batches committed since this night began."""
        return self.cluster.sql("SELECT COUNT(*) FROM reconciliation.batches")[0][0] - self.earlier

    def judged(self) -> None:
        """Stops the writer; everything must be as the ledgers want it, and nothing left behind."""
        self.writer.stop()
        assert self.writer.commits > 20, "the writer hardly wrote: the test proves nothing"
        assert rehearsal.left_behind(self.cluster.mysql_port) == []
        token = self.cluster.token()
        lake = self.folder / "lake"
        target, endpoints = Target("127.0.0.1", self.cluster.mysql_port, "root", "", 10), self.cluster.flight
        verdict = judge(
            self.folder / "work", lake, self.sources, self.planted, self.writer, target, endpoints, token
        )
        FlightClient(self.cluster).action("snapshot.release", {"snapshot": token})
        assert verdict.good(), json.dumps(verdict.counts(), indent=1)
        assert verdict.planted > 300 and verdict.corrected > verdict.planted // 2, verdict.counts()


@pytest.fixture
def night(cluster: Cluster, jar: Path, tmp_path: Path):
    made = Night(cluster, jar, tmp_path, [tables.typed(3_000), tables.lineitem(20_000)], 500)
    yield made
    made.writer.stop()


def seen(job: Job, what: str, times: int = 1) -> None:
    """Waits until the job has said something so many times."""

    def said() -> bool:
        assert job.process.poll() is None, "\n".join(job.lines)
        return sum(line.startswith(f"▸ {what}") for line in job.lines) >= times

    wait_until(f"the job says {what} {times} times", said, JOB_SECONDS)


@pytest.mark.timeout(900)
def test_killed_at_three_points_it_ends_as_if_it_had_not_been(night: Night):
    night.writer.start()
    first = night.job("--batch-rows", 10)
    seen(first, "start")
    refused = night.finish(night.job("--batch-rows", 10, work="another"), expected=4)
    run = json.loads((night.folder / "work/run.json").read_text())["run"]
    assert f"is being reconciled by run {run}" in refused[-1]
    leases = night.cluster.sql("SELECT owner, expires_in_ms FROM information_schema.snapshot_leases")
    assert len(leases) <= 1
    assert all(owner.startswith("root@") and f" reconciliation {run} " in f"{owner} " for owner, _ in leases), leases
    seen(first, "plan_saved", 2)
    first.kill()
    second = night.job("--batch-rows", 10)
    seen(second, "batch", 7)
    second.kill()
    done = night.batches()
    assert done >= 7
    third = night.job("--batch-rows", 10)
    seen(third, "verification")
    third.kill()
    assert not any("plan_saved" in line for line in second.lines + third.lines), "the plan was made twice"
    lines = night.finish(night.job("--batch-rows", 10))
    assert not any(line.startswith("▸ batch") for line in lines), "batches were repeated"
    history = night.cluster.sql("SELECT target, starts, undone FROM reconciliation.history WHERE run = '" + run + "'")
    assert sorted(history) == [("every.typed", 4, 0), ("tpch.lineitem", 4, 0)]
    page = (night.folder / "work/report.html").read_text(encoding="utf-8")
    assert "tpch.lineitem" in page and "isobar1-" not in page
    night.judged()


@pytest.mark.timeout(900)
def test_a_lost_lease_ends_the_job_and_its_writes(night: Night):
    job = night.job("--batch-rows", 1)
    seen(job, "batch", 5)
    token = json.loads((night.folder / "work/run.json").read_text())["tokens"]["plan"]
    FlightClient(night.cluster).action("snapshot.release", {"snapshot": token})
    released = night.batches()
    lines = night.finish(job, expected=3)
    assert any(line.startswith("LeaseLost: the lease of the job's snapshot is lost") for line in lines), lines
    # One batch may have been between its last look at the lease and the end of its COMMIT.
    assert released <= night.batches() <= released + 1 < 500
    run = json.loads((night.folder / "work/run.json").read_text())["run"]
    assert night.cluster.sql(f"SELECT COUNT(*) FROM reconciliation.history WHERE run = '{run}'") == [(0,)]
    assert rehearsal.left_behind(night.cluster.mysql_port) == []
    # Started again it does not go on either: the plan rests on a snapshot that is gone.
    before = night.batches()
    assert any("LeaseLost" in line for line in night.finish(night.job("--batch-rows", 1), expected=3))
    assert night.batches() == before


@pytest.mark.timeout(900)
def test_a_dead_executor_and_dead_nodes_change_nothing(night: Night):
    night.writer.start()
    job = night.job("--batch-rows", 10, "--master", "local-cluster[2,1,1024]")
    killed = wait_until("an executor runs", lambda: kill_executor(job), JOB_SECONDS)
    assert killed
    columnar = night.cluster.kill("columnar-1")
    seen(job, "batch", 3)
    night.cluster.wait_restarted("columnar-1", columnar)
    name = next(name for name in night.cluster.names() if "sql" in name)
    old = night.cluster.kill(name)
    night.cluster.wait_restarted(name, old)
    night.finish(job)
    night.judged()


def kill_executor(job: Job) -> bool:
    """Kills one of the job's own executors, if there is one."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if "CoarseGrainedExecutorBackend" in command and os.getsid(int(entry.name)) == job.process.pid:
                os.kill(int(entry.name), signal.SIGKILL)
                return True
        except OSError:
            continue
    return False


@pytest.mark.timeout(900)
def test_bad_files_are_refused_before_anything_is_written(night: Night):
    lake = night.folder / "lake"
    file = next((lake / "tpch/lineitem").glob("*.parquet"))
    whole = file.read_bytes()
    table = pyarrow.parquet.read_table(file)

    def without(name: str) -> None:
        pyarrow.parquet.write_table(table.drop_columns([name]), file)

    def retyped(name: str, kind: pyarrow.DataType) -> None:
        at = table.schema.get_field_index(name)
        pyarrow.parquet.write_table(table.set_column(at, name, table[name].cast(kind)), file)

    def damaged() -> None:
        middle = len(whole) // 3
        file.write_bytes(whole[:middle] + bytes(4096) + whole[middle + 4096 :])

    bad = {
        "column l_tax of tpch.lineitem is missing": lambda: without("l_tax"),
        "column l_quantity is double, which does not compare exactly with decimal(15,2)": lambda: retyped("l_quantity", pyarrow.float64()),
        "column l_shipdate is timestamp": lambda: retyped("l_shipdate", pyarrow.timestamp("us")),
        "not a whole Parquet file": lambda: file.write_bytes(whole[: len(whole) - 100]),
        f"{file}: not a whole Parquet file (": lambda: file.write_bytes(b""),
        "rows that share a key, or have none, among them l_orderkey=": lambda: pyarrow.parquet.write_table(
            pyarrow.concat_tables([table, table.slice(7, 1)]), file
        ),
        "Spark cannot read a lake file": damaged,
    }
    for number, (what, damage) in enumerate(bad.items()):
        damage()
        lines = night.finish(night.job("--tables", "tpch.lineitem", work=f"bad{number}"), expected=2)
        assert any(line.startswith("BadLake: ") and what in line for line in lines), (what, lines[-5:])
    file.unlink()
    assert any("no Parquet files" in line for line in night.finish(night.job(work="none"), expected=2))
    assert night.batches() == 0
    assert rehearsal.left_behind(night.cluster.mysql_port) == []
