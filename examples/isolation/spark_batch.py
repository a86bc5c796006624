"""The Spark batch of the proof of isolation: scans and aggregates over columnar replicas, one after the other.

`isobar bench isolation` starts it and reads its lines of JSON; it ends when standard input does. It must print
nothing else to standard output, and never read tables other than by the connector.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

JAR = Path(__file__).resolve().parents[2] / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoints", required=True, help="Flight servers of columnar nodes: host:port,host:port")
    parser.add_argument("--database", required=True)
    parser.add_argument("--tables", required=True, help="names with commas")
    parser.add_argument("--jar", type=Path, default=JAR, help="the connector's runtime jar")
    parser.add_argument("--master", default=f"local[{len(os.sched_getaffinity(0))}]", help="where Spark runs")
    return parser.parse_args()


def emit(**event: object) -> None:
    print(json.dumps(event), flush=True)


def end_with_input() -> None:
    """Ends this process, and Spark with it, when whoever started it closes the pipe or is gone."""
    sys.stdin.read()
    os._exit(0)


def session(options: argparse.Namespace):
    from pyspark.sql import SparkSession  # slow to import

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    catalog = "spark.sql.catalog.isobar"
    builder = (
        SparkSession.builder.appName("isobar-isolation")
        .master(options.master)
        .config("spark.jars", str(options.jar))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .config(catalog, "org.isobar.spark.IsobarCatalog")
        .config(f"{catalog}.endpoints", options.endpoints)
        .config(f"{catalog}.user", "root")
    )
    return builder.getOrCreate()


def rows_of(spark, kind: str, table: str) -> int:
    """Reads a table: every column of every row, or the same brought down to one row."""
    frame = spark.table(table)
    from pyspark.sql import Observation, functions

    if kind == "scan":
        # Every value is computed and counted, and nothing is written anywhere.
        seen = Observation()
        counted = frame.observe(seen, functions.count(functions.lit(1)).alias("n"))
        counted.write.format("noop").mode("overwrite").save()
        return seen.get["n"]
    values = [functions.max(name) for name in frame.columns]
    return frame.agg(*values, functions.count("*").alias("n")).collect()[0]["n"]


def main() -> int:
    options = arguments()
    threading.Thread(target=end_with_input, daemon=True).start()
    if not options.jar.is_file():
        print(f"{options.jar} is missing: build it with `make jar`", file=sys.stderr)
        return 1
    spark = session(options)
    tables = [f"isobar.{options.database}.{table}" for table in options.tables.split(",")]
    warm = False
    while True:
        for table in tables:
            for kind in ("aggregate", "scan"):
                started = time.monotonic()
                try:
                    rows = rows_of(spark, kind, table)
                except Exception as error:  # whatever Spark throws is reported, and tried again
                    emit(event="error", text=f"{kind} of {table}: {str(error)[:500]}")
                    time.sleep(0.5)
                    continue
                if not warm:
                    warm = True
                    emit(event="ready")
                seconds = time.monotonic() - started
                emit(event="query", kind=kind, rows=rows, seconds=seconds, end_ms=int(time.time() * 1000))


if __name__ == "__main__":
    sys.exit(main())
