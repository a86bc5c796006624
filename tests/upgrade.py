"""Upgrades a running cluster node by node, from one binary to another, under load, and judges every answer.

    make upgrade FROM=/path/to/the/release/before/isobar

Three row nodes, two columnar nodes and a SQL node begin with the old binary. Under transfers between accounts, sysbench,
a reader that compares rows with columns at one snapshot, and a Spark job that is repeated, each node is ended and
started again with the new one: row nodes first, then columnar nodes, then the SQL node. Statements may fail while the
node that they are on is away; no answer may be wrong and no acknowledged transfer lost. At the end the cluster's version
has risen, and a node with the old binary is refused by name. The exit code is 1 if anything of that does not hold.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "examples/quickstart"), str(HERE / "cluster")]

import pymysql  # noqa: E402

from harness import Bank, wait_until  # noqa: E402
from nodes import Nodes  # noqa: E402

ORDER = ["row-1", "row-2", "row-3", "columnar-1", "columnar-2", "sql"]
JAR = HERE.parent / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"
# What a statement may meet while a node is away: lost connections, and errors that say so.
AWAY = (pymysql.err.MySQLError, OSError, EOFError)
SYSBENCH = ["sysbench", "oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest", "--tables=2"]
SYSBENCH += ["--table-size=2000", "--mysql-ignore-errors=all"]

SPARK = '''
import sys, time
from pyspark.sql import SparkSession
jar, endpoints, total, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.catalog.isobar", "org.isobar.spark.IsobarCatalog")
builder = builder.config("spark.sql.catalog.isobar.endpoints", endpoints).config("spark.sql.catalog.isobar.user", "root")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import os
while not os.path.exists(stop):
    try:
        found = spark.table("isobar.upgrade.account").selectExpr("SUM(balance)", "COUNT(*)").collect()[0]
        print("right" if (int(found[0]), found[1]) == (total, 40) else f"WRONG {found}", flush=True)
    except Exception as error:
        print("failed", str(error).split("\\n")[0][:300], flush=True)
        time.sleep(0.2)
spark.stop()
'''


@dataclass
class Reader:
    """Compares rows and columns at one snapshot, again and again."""

    cluster: Nodes
    bank: Bank
    right: int = 0
    failed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.end.is_set():
            try:
                self.bank.check()
                self.right += 1
            except AssertionError as error:
                self.wrong.append(str(error))
            except AWAY as error:
                self.failed.append(str(error)[:200])
                self.end.wait(0.2)


def replace(cluster: Nodes, name: str, binary: Path) -> float:
    """Ends a node in order and starts it with another binary; seconds until every node is up again."""
    began = time.monotonic()
    node = cluster.nodes[name]
    node.send_signal(signal.SIGTERM)
    node.wait(60)
    cluster.isobar = binary
    cluster.run(name)
    cluster.wait_healthy(120)
    wait_until("every region has three voters", cluster.is_whole, 120)
    return time.monotonic() - began


def replicate_twice(cluster: Nodes, bank: Bank) -> None:
    """A replica on each columnar node, so that one is enough."""
    for table in ("account", "ledger"):
        cluster.sql(f"ALTER TABLE {bank.database}.{table} SET COLUMNAR REPLICA 2")
    def ready() -> bool:
        regions = [region for region in cluster.status()["regions"] if "records" in region["kind"]]
        wanted = [region for region in regions if region["columnar"]]
        return bool(wanted) and all(len(region["columnar"]) == 2 for region in wanted)
    wait_until("two replicas of each table", ready, 60)


def refused(cluster: Nodes, binary: Path) -> str:
    """What the old binary says where it is started again in the new cluster."""
    node = cluster.nodes["columnar-2"]
    node.send_signal(signal.SIGTERM)
    node.wait(60)
    cluster.isobar = binary
    cluster.run("columnar-2")
    said = cluster.ended("columnar-2", 90)
    return said.strip().splitlines()[-1]


def upgrade(options: argparse.Namespace, folder: Path) -> int:
    cluster = Nodes(options.old, folder / "data", row=3, columnar=2, sql=1)
    cluster.data.mkdir()
    cluster.start()
    bank = Bank(cluster, "upgrade")
    bank.open()
    replicate_twice(cluster, bank)
    cluster.sql("CREATE DATABASE sbtest")
    port = f"--mysql-port={cluster.mysql_port}"
    host = "--mysql-host=127.0.0.1"
    subprocess.run([*SYSBENCH, host, port, "prepare"], check=True, capture_output=True, timeout=180)
    reader, stop = Reader(cluster, bank), folder / "stop"
    script = folder / "job.py"
    script.write_text(SPARK)
    job = [sys.executable, script, options.jar, ",".join(cluster.flight), str(bank.total), stop]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    with open(folder / "spark.log", "w+") as spark_log, open(folder / "sysbench.log", "w+") as sysbench_log:
        spark = subprocess.Popen(job, stdout=spark_log, stderr=subprocess.DEVNULL, env=environment)
        load = [*SYSBENCH, host, port, "--threads=2", "--time=3600", "--report-interval=5", "run"]
        sysbench = subprocess.Popen(load, stdout=sysbench_log, stderr=subprocess.STDOUT)
        checking = threading.Thread(target=reader.run, daemon=True)
        checking.start()
        try:
            with bank:
                bank.wait_for(20, 60)
                wait_until("Spark reads", lambda: "right" in (folder / "spark.log").read_text(), 120)
                for name in ORDER:
                    seconds = replace(cluster, name, options.new)
                    bank.wait_for(20, 60)
                    print(f"{name} upgraded in {seconds:.1f} s; cluster version {cluster.status()['version']}", flush=True)
                raised = lambda: cluster.status()["version"] == options.version  # noqa: E731
                wait_until(f"the cluster is at version {options.version}", raised, 60)
                before = (folder / "spark.log").read_text().count("right")
                wait_until("Spark goes on", lambda: (folder / "spark.log").read_text().count("right") > before + 1, 120)
        finally:
            stop.touch()
            reader.end.set()
            checking.join(120)
            sysbench.send_signal(signal.SIGTERM)
            sysbench.wait(30)
            spark.wait(120)
        said = (folder / "spark.log").read_text().splitlines()
        last = [line for line in (folder / "sysbench.log").read_text().splitlines() if " tps: " in line]
    bank.check()
    downgraded = refused(cluster, options.old)
    cluster.stop()
    jobs = {kind: sum(line.startswith(kind) for line in said) for kind in ("right", "failed", "WRONG")}
    print(f"transfers: {len(bank.acknowledged)} acknowledged, {bank.broken} of unknown outcome, {bank.conflicts} conflicts")
    print(f"rows beside columns: {reader.right} right, {len(reader.failed)} failed, {len(reader.wrong)} wrong")
    print(f"Spark jobs: {jobs['right']} right, {jobs['failed']} failed, {jobs['WRONG']} wrong")
    print(f"sysbench: {len(last)} reports, the last: {last[-1].strip() if last else 'none'}")
    print(f"the old binary in the new cluster: {downgraded}")
    for line in [*set(reader.failed), *(line for line in said if line.startswith(("failed", "WRONG"))), *reader.wrong]:
        print(f"    {line}")
    return int(bool(reader.wrong or jobs["WRONG"]) or "at version" not in downgraded)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="old", type=Path, required=True, help="the binary of the release before")
    parser.add_argument("--isobar", dest="new", type=Path, required=True, help="the binary to upgrade to")
    parser.add_argument("--jar", type=Path, default=JAR, help="the Spark connector's runtime jar")
    parser.add_argument("--version", type=int, default=10, help="the cluster version that the new binary speaks")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="isobar-upgrade-") as folder:
        return upgrade(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
