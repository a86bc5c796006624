"""The nightly reconciliation over a cluster: killed and started again, with lost leases, bad files and lost servers.

What was planted and what was written are in ledgers that the job does not see; the judge holds it to them.
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import Cluster, Door, wait_until

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/reconciliation"
sys.path.insert(0, str(EXAMPLE))

import journal  # noqa: E402
import make_lake  # noqa: E402
import rehearsal  # noqa: E402
import tables  # noqa: E402
from judge import judge  # noqa: E402
from rehearsal import Job  # noqa: E402
from target import Target  # noqa: E402

JOB_SECONDS = 240


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
        verdict = judge(self.folder / "work", lake, self.sources, self.planted, self.writer, self.cluster.flight, token)
        Door(self.cluster).action("snapshot.release", {"snapshot": token})
        assert verdict.good(), json.dumps(verdict.told(), indent=1)
        assert verdict.planted > 300 and verdict.corrected > verdict.planted // 2, verdict.told()


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
    assert len(leases) <= 1 and all(owner.startswith("root@") for owner, _ in leases)
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
