"""The bench: TPC-C's conditions hold and a broken one is named, loads survive their server, a short proof of isolation
has every arm, a page and an exit code, and TPC-H, scans and lag are measured only where answers are right."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from harness import Cluster, wait_until

from playground import free_port_base

pytestmark = pytest.mark.own_cluster

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
ARMS = ["alone", "learners", "rows", "columns", "spark", "control"]
KINDS = {"new-order", "payment", "order-status", "delivery", "stock-level"}


def bench(isobar: Path, *arguments: object, seconds: float = 120) -> subprocess.CompletedProcess:
    """`isobar bench …`, bounded."""
    command = [isobar, "bench", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT)


def target(cluster: Cluster, database: str) -> list[str]:
    return ["--target", f"mysql://root@127.0.0.1:{cluster.mysql_port}/{database}"]


TPCC = ["--workload", "tpcc", "--warehouses", "1", "--fraction", "0.01"]


@pytest.fixture(scope="module")
def tpcc(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A run of TPC-C on fresh tables, as it was reported."""
    path = tmp_path_factory.mktemp("tpcc") / "run.json"
    done = bench(
        cluster.isobar, "online", *target(cluster, "tpcc"), *TPCC,
        "--prepare", "--threads", "4", "--warmup", "0", "--time", "12", "--json", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every condition holds" in done.stdout
    return json.loads(path.read_text())


def test_tpcc_runs_and_its_conditions_hold(tpcc: dict):
    phase = tpcc["phase"]
    assert phase["transactions"] > 0 and phase["errors"] == {}, phase
    assert {"new-order", "payment"} <= set(phase["kinds"]) <= KINDS
    assert "not corrected" in phase["latency_from"] and tpcc["checked"] and tpcc["violations"] == []


BROKEN = {
    "warehouse": ("UPDATE warehouse SET w_ytd = w_ytd + 1", "UPDATE warehouse SET w_ytd = w_ytd - 1", {1, 8}),
    "next order": (
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = 3",
        "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_id = 3",
        {2},
    ),
    "carrier": (
        "UPDATE orders SET o_carrier_id = 7 WHERE o_d_id = {district} AND o_id = {undelivered}",
        "UPDATE orders SET o_carrier_id = NULL WHERE o_d_id = {district} AND o_id = {undelivered}",
        {5, 7},
    ),
    "lines": (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_d_id = 2 AND o_id = 3",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_d_id = 2 AND o_id = 3",
        {4, 6},
    ),
    "district": (
        "UPDATE district SET d_ytd = d_ytd + 0.01 WHERE d_id = 9",
        "UPDATE district SET d_ytd = d_ytd - 0.01 WHERE d_id = 9",
        {1, 9},
    ),
    "customer": (
        "UPDATE customer SET c_balance = c_balance + 1 WHERE c_d_id = 4 AND c_id = 5",
        "UPDATE customer SET c_balance = c_balance - 1 WHERE c_d_id = 4 AND c_id = 5",
        {10, 12},
    ),
    "gap": (
        "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES (1, {district}, 1)",
        "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = {district} AND no_o_id = 1",
        {3, 5},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_condition_is_named(cluster: Cluster, tpcc: dict, name: str):
    plant, undo, conditions = BROKEN[name]
    # A fast machine has delivered any given order by now, and every one of some districts.
    longest = "SELECT no_d_id, MAX(no_o_id) FROM tpcc.new_order GROUP BY no_d_id ORDER BY COUNT(*) DESC LIMIT 1"
    district, undelivered = cluster.sql(longest)[0]
    plant, undo = (text.format(district=district, undelivered=undelivered) for text in (plant, undo))
    cluster.sql("USE tpcc", plant)
    try:
        done = bench(cluster.isobar, "online", *target(cluster, "tpcc"), *TPCC, "--time", "0")
    finally:
        cluster.sql("USE tpcc", undo)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {int(number) for number in re.findall(r"condition (\d+) ", done.stdout)} == conditions, done.stdout


def test_a_load_outlives_its_sql_node_and_reports_what_it_lost(cluster: Cluster, tmp_path: Path):
    path = tmp_path / "run.json"
    mix = ["--workload", "point-select", "--tables", "1", "--rows", "500", *target(cluster, "bench")]
    assert bench(cluster.isobar, "online", *mix, "--prepare", "--time", "0").returncode == 0
    command = [cluster.isobar, "bench", "online", *mix, "--rate", "50", "--threads", 2]
    command += ["--time", "12", "--warmup", "0", "--json", path]
    running = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        connected = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'bench'"
        wait_until("the load is connected", lambda: cluster.sql(connected)[0][0] >= 2)
        old = cluster.kill("sql")
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    cluster.wait_restarted("sql", old)
    phase = json.loads(path.read_text())["phase"]
    assert running.returncode == 0, out + err
    assert phase["errors"].get("connection", 0) > 0, phase["errors"]
    assert phase["latency_from"] == "intended start"
    # What waited for the node to come back is counted with the time that it waited.
    assert phase["latency_ms"]["max"] > 300, phase["latency_ms"]


def test_a_server_that_is_not_there_is_an_error(isobar: Path):
    done = bench(isobar, "online", "--target", f"mysql://root@127.0.0.1:{free_port_base()}/bench", seconds=40)
    assert done.returncode == 1
    assert "cannot connect" in done.stderr and "127.0.0.1" in done.stderr, done.stderr


def test_a_table_that_is_not_there_is_an_error_before_the_load(cluster: Cluster):
    cluster.sql("CREATE DATABASE IF NOT EXISTS nothing")
    done = bench(cluster.isobar, "online", *target(cluster, "nothing"), "--time", "30", seconds=20)
    assert done.returncode == 1
    assert "sbtest1" in done.stderr and "--prepare" in done.stderr, done.stderr
    assert "1146" in done.stderr and not done.stdout, done.stdout + done.stderr


def isolation(isobar: Path, *more: object) -> list[str]:
    short = ["--tables", 2, "--rows", 2_000, "--threads", 4, "--warmup", 0.5, "--time", 3]
    base = [isobar, "bench", "isolation", "--port-base", free_port_base(), *short, "--throughput-time", 2, *more]
    return [str(part) for part in base]


@pytest.mark.timeout(400)
def test_a_short_proof_of_isolation_has_every_arm(isobar: Path, jar: Path, tmp_path: Path):
    spark = ROOT / "examples/isolation/spark_batch.py"
    command = f"{sys.executable} {spark} --jar {jar} --endpoints {{endpoints}} --database {{database}} --tables {{tables}}"
    files = ["--json", tmp_path / "i.json", "--html", tmp_path / "i.html"]
    limits = ["--limit", "p95<=5%", "--limit", "throughput<=3%"]
    load = ["--workload", "single-row", "--rate", 50]
    command_line = isolation(isobar, *load, "--rounds", 1, "--timeline", 2, "--spark-command", command, *files, *limits)
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=380, cwd=ROOT)
    # One round has no interval.
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.count("inconclusive") == 2

    report = json.loads((tmp_path / "i.json").read_text())
    assert [arm["arm"] for arm in report["arms"]] == ARMS
    assert sorted(sample["arm"] for sample in report["samples"]) == sorted(ARMS)
    results = {arm["arm"]: arm for arm in report["arms"]}
    for arm in ARMS:
        assert results[arm]["latency_ms"]["p95"]["mean"] > 0 and results[arm]["throughput"]["mean"] > 0, arm
        assert results[arm]["errors"] == {}, results[arm]
    compared = {(one["arm"], one["base"]): one for one in report["differences"]}
    assert set(compared["columns", "control"]["unresolved"]) == {"p95", "p99"}
    assert set(compared["learners", "alone"]["unresolved"]) == {"throughput"}
    for arm in ("rows", "columns", "spark"):
        rates = results[arm]["batch_rows_per_second"]
        assert set(rates) == {"scan", "aggregate"} and results[arm]["batch_errors"] == 0, results[arm]
    # In each arm, and not in the first of a turn alone, a fifth of the transactions has something to write: 4 KiB and more.
    assert all(sample["written_mb"]["row-1"] > 0.02 for sample in report["samples"]), report["samples"]
    assert report["control"]["cpu"] > 0.01 and results["control"]["cpu"]["batch"]["mean"] > 0.01
    assert report["violations"] == []
    assert {"row-1", "sql-batch", "columnar-1", "driver"} <= set(report["pinning"]["processes"])
    if report["pinning"]["online"] is not None:
        processes = report["pinning"]["processes"]
        assert processes["row-1"] == processes["driver"] == report["pinning"]["online"]
        assert processes["columnar-1"] == processes["sql-batch"] == report["pinning"]["batch"]
        assert report["pinning"]["online"] != report["pinning"]["batch"]
    check_page((tmp_path / "i.html").read_text(), report)


def check_page(page: str, report: dict) -> None:
    """Well-formed by a strict parser, complete, and without anything from elsewhere."""
    assert page.startswith("<!DOCTYPE html>") and len(page) < 300_000
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>"))
    for name in ("src", "href"):
        assert [element for element in tree.iter() if name in element.attrib] == []
    assert "url(" not in page and "@import" not in page
    drawings = [element for element in tree.iter() if element.tag.endswith("svg")]
    assert len(drawings) >= 8, len(drawings)
    text = " ".join(tree.itertext())
    for arm in report["arms"]:
        assert arm["name"] in text, arm["name"]
    for expected in ("inconclusive", "not resolved", "What this run cannot show", "sched_setaffinity", "batch runs"):
        assert expected in text or report["pinning"]["online"] is None, expected
    assert "NaN" not in text and "inf" not in text.split()


def test_an_interrupt_leaves_nothing_behind(isobar: Path, tmp_path: Path):
    data = tmp_path / "data"
    command = isolation(isobar, "--rate", 5, "--no-spark", "--data", data, "--json", tmp_path / "i.json")
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    ours = lambda: [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if names(entry, str(data))]  # noqa: E731
    try:
        wait_until("nodes run", lambda: len(ours()) >= 7, 60)
        wait_until("it measures", lambda: "round 1" in (running.stderr.readline() or ""), 60)
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        running.communicate(timeout=60)
        assert running.returncode == 1 and time.monotonic() - began < 45
    finally:
        running.kill()
    wait_until("every process is gone", lambda: not ours(), 15)
    assert not (tmp_path / "i.json").exists()


def names(cmdline: Path, text: str) -> bool:
    try:
        return text in cmdline.read_bytes().decode(errors="replace")
    except OSError:
        return False


PEERS = f"{sys.executable} {ROOT / 'examples/tpch/peers.py'}"
# A peer whose answer to one query is wrong by a hundredth in one cell.
LIAR = """
import sys
sys.path.insert(0, {folder!r})
import peers
honest = peers.DuckDb.answer
def answer(self, text):
    rows = honest(self, text)
    if "sum(l_extendedprice * l_discount)" in text:
        return [(rows[0][0] + 1 / peers.Decimal(100), *rows[0][1:])]
    return rows
peers.DuckDb.answer = answer
peers.main()
"""


@pytest.fixture(scope="module")
def tpch(isobar: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run of all queries at a tiny scale against a fresh cluster's tables; how to ask it again."""
    path = tmp_path_factory.mktemp("bench-tpch")
    with Cluster(isobar, path / "data") as own:
        arguments = ["tpch", *target(own, "tpch"), "--scale", "0.01", "--repetitions", "1", "--files", path]
        done = bench(isobar, *arguments, "--peers-command", PEERS, "--json", path / "r.json", seconds=280)
        yield done, path / "r.json", [*arguments, "--no-load", "--no-load-data"], own


@pytest.mark.timeout(400)
def test_tpch_is_measured_beside_its_peers(tpch):
    done, path, _, own = tpch
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    readers = {"columns", "duckdb", "duckdb-parquet", "datafusion-parquet"}
    assert set(report["readers"]) == readers and report["absent"] == {} and report["failed"] == {}
    assert report["checked_against"] == "duckdb" and "all equal those of duckdb" in done.stdout
    assert [query["number"] for query in report["queries"]] == list(range(1, 23))
    for query in report["queries"]:
        assert set(query["median"]) == readers and min(query["median"].values()) > 0, query
    assert [ratio["queries"] for ratio in report["ratios"]] == [22, 22, 22]
    assert report["load"]["import_rows"] == 86_805 and report["load"]["load_data_rows"] == 60_175
    assert report["bytes"]["parquet_zstd"] > 1_000_000
    # What was loaded once more is gone.
    assert own.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tpch_load_data'")[0][0] == 0


def test_a_wrong_answer_has_no_times(tpch, tmp_path: Path):
    """Whoever lies is named with the query, be it the one that others are compared with."""
    _, _, arguments, own = tpch
    liar = tmp_path / "liar.py"
    liar.write_text(LIAR.format(folder=str(ROOT / "examples/tpch")))
    done = bench(own.isobar, *arguments, "--query", 6, "--query", 14, "--peers-command", f"{sys.executable} {liar}")
    assert done.returncode == 1 and "no time is shown" in done.stderr, done.stdout + done.stderr
    assert "Q6: columns answers otherwise than duckdb" in done.stderr and "Q14" not in done.stderr, done.stderr
    assert "geometric mean" not in done.stdout


def test_a_peer_that_is_absent_is_reported(tpch, tmp_path: Path):
    _, _, arguments, own = tpch
    path = tmp_path / "r.json"
    done = bench(own.isobar, *arguments, "--query", 6, "--json", path, "--peers-command", "no-such-python peers.py")
    assert done.returncode == 0, done.stderr
    assert "NOT CHECKED" in done.stdout and "duckdb is absent" in done.stdout and "no-such-python" in done.stdout
    assert set(json.loads(path.read_text())["readers"]) == {"columns"}


def test_scans_see_the_same_rows(tpch, jar: Path, tmp_path: Path):
    _, _, arguments, own = tpch
    path = tmp_path / "r.json"
    files = arguments[arguments.index("--files") + 1]
    done = bench(
        own.isobar, "scan", *target(own, "tpch"), "--no-load", "--scale", "0.01", "--repetitions", 1, "--files", files,
        "--jar", jar, "--peers-command", PEERS, "--json", path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert set(report["readers"]) == {"sql-columns", "sql-rows", "connector", "spark-parquet"}, report
    assert report["rows"] == 60_175 and report["failed"] == {}
    assert all(reader["rows_per_second"] > 0 for reader in report["readers"].values())
    assert "mvn dependency" in report["absent"]["jdbc-1"] and "mariadb-1" in report["absent"], report["absent"]


def test_lag_is_measured_while_rows_come(cluster: Cluster, tmp_path: Path):
    path = tmp_path / "lag.json"
    short = ["--rate", 30, "--connections", 4, "--warmup", 1, "--time", 5, "--quiet-reads", 5, "--rows", 500]
    done = bench(cluster.isobar, "lag", *target(cluster, "lag"), *short, "--json", path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    assert report["writers"]["errors"] == {} and report["writers"]["transactions"] > 60
    assert report["lag_p50_ms"] is not None and report["lag_p50_ms"] <= report["lag_p99_ms"]
    for reads in (report["quiet"], report["under_load"]):
        assert reads["wait_ms"]["reads"] >= 5 and 0 < reads["wait_ms"]["p50"] < reads["columns_ms"]["p99"], reads
    assert "missed a row" in done.stdout


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how, victim", [("kill", "leaders"), ("planned", "placement")])
def test_a_failover_is_measured_and_nothing_acknowledged_is_lost(isobar: Path, tmp_path: Path, how: str, victim: str):
    path = tmp_path / "failover.json"
    short = ["--tables", 3, "--rows", 50, "--reads", 60, "--writes", 30, "--transactions", 6, "--capacity-time", 1]
    short += ["--warmup", 2, "--watch", 8, "--runs", 1, "--port-base", free_port_base()]
    done = bench(isobar, "failover", *short, "--stop", how, "--victim", victim, "--json", path, seconds=360)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(path.read_text())
    (run,) = report["runs"]
    (ended,) = run["ended"]
    assert ended["name"].startswith("row-") and ended["led_placement"] >= (victim == "placement"), ended
    assert report["wrong"] == [] and "every acknowledged write is there" in done.stdout and run["lost"] == []
    for kind, one in run["kinds"].items():
        assert one["all_answer"] and one["due"] > 30 and 0 < one["none_for"] < 8, (kind, one)
    assert set(run["kinds"]) == {"read", "write", "transaction"}
    # One of three regions has no leader for a while; its statements are late.
    assert how == "planned" or run["kinds"]["write"]["lowest"] < 1, run
