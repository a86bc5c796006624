"""The proof of isolation when something is wrong: a node that dies under a batch, a limit that is not met, a target that
goes away. It says so, and by its exit code."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import Cluster, wait_until
from test_bench import ROOT, target

# Of two rounds an interval may reach far: these are beyond any.
FAR = 10**30
UNMEETABLE = f"throughput<=-{FAR}%"


@pytest.fixture
def cluster(isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    base = os.environ.get("ISOBAR_PORT_BASE")
    with Cluster(isobar, tmp_path_factory.mktemp("bench"), port_base=int(base) if base else None) as running:
        yield running


class Run:
    """A short `isobar bench isolation` against a cluster, whose progress is read as it comes."""

    def __init__(self, cluster: Cluster, *more: object):
        words = ["--tables", 1, "--rows", 2_000, "--threads", 2, "--rate", 20, "--warmup", 0.2, "--time", 1]
        words += ["--throughput-time", 1, "--timeline", 0, "--no-spark", *more]
        command = [cluster.isobar, "bench", "isolation", *target(cluster, "bench"), *words]
        self.process = subprocess.Popen(
            [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)

    def seen(self, what: str, seconds: float = 90) -> None:
        found = lambda: any(what in line for line in self.lines) or self.process.poll() is not None  # noqa: E731
        wait_until(f"the run says {what}", found, seconds)
        assert self.process.poll() is None, "".join(self.lines)

    def end(self, seconds: float) -> tuple[int, str]:
        out = self.process.stdout.read() if self.process.wait(seconds) is not None else ""
        # The last lines, which are what a test asks for, may still be on their way.
        self.reader.join(seconds)
        return self.process.returncode, out + "".join(self.lines)


@pytest.mark.timeout(240)
def test_a_node_that_dies_under_a_batch_and_a_limit_that_is_not_met_are_reported(cluster: Cluster, tmp_path: Path):
    files = ["--json", tmp_path / "i.json", "--html", tmp_path / "i.html"]
    run = Run(cluster, "--rounds", 2, "--limit", UNMEETABLE, "--limit", f"p50<={FAR}%", *files)
    try:
        run.seen("round 1 of at most 2")
        run.seen("turns of learners, batch on rows")
        pid = cluster.kill("columnar-1")
        code, output = run.end(180)
    finally:
        run.process.kill()
    cluster.wait_restarted("columnar-1", pid)
    assert code == 1, output
    assert "NOT MET" in output, output
    report, page = json.loads((tmp_path / "i.json").read_text()), (tmp_path / "i.html").read_text()
    assert [limit["verdict"] for limit in report["limits"]] == ["not-met", "met"], report["limits"]
    missed = page.split('<li class="missed">')[1].split("</li>")[0]
    assert f"throughput ≤ -{FAR} %" in missed and "not met" in missed.lower() and page.count('class="missed"') == 1, missed
    # The online path did not notice, and the batch was broken off or done again: an error is reported by name.
    for arm in report["arms"]:
        assert arm["errors"] == {}, arm
        assert arm["batch_errors"] == 0 or arm["batch_first_error"], arm
        assert arm["batch_first_error"] is None or arm["batch_first_error"] in page.replace("&#39;", "'")


@pytest.mark.timeout(150)
def test_a_target_that_goes_away_ends_the_run(cluster: Cluster, tmp_path: Path):
    path = tmp_path / "i.json"
    run = Run(cluster, "--rounds", 3, "--json", path)
    try:
        run.seen("round 1 of at most 3")
        cluster.kill_supervisor()
        gone = time.monotonic()
        code, output = run.end(90)
    finally:
        run.process.kill()
    assert code == 1 and not path.exists(), output
    assert f"round 1, on 127.0.0.1:{cluster.mysql_port}/" in output, output
    assert time.monotonic() - gone < 90
