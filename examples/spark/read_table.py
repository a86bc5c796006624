"""Reads one Isobar table with Spark and prints typed rows.

Spark fetches columns over Arrow Flight from the nodes that own the table's regions; JDBC is not involved.
See README.md beside this file for how to run it.
"""

import argparse
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

JAR = Path(__file__).resolve().parents[2] / "spark-connector/target/isobar-spark-runtime-4.2_2.13.jar"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--endpoints", required=True, help="Flight servers of columnar nodes: host:port,host:port")
    parser.add_argument("--table", required=True, help="the table, as database.table")
    parser.add_argument("--user", default="root", help="the password is taken from ISOBAR_PASSWORD")
    parser.add_argument("--snapshot", help="token of the snapshot to read; without it the query takes its own")
    parser.add_argument("--where", help="a condition in Spark SQL, e.g. \"id > 2\"")
    parser.add_argument("--limit", type=int, default=20, help="rows to print")
    parser.add_argument("--explain", action="store_true", help="print the plan, with what was pushed down")
    parser.add_argument("--master", default="local-cluster[2,1,1024]", help="where Spark runs")
    parser.add_argument("--jar", type=Path, default=JAR, help="the runtime jar")
    return parser.parse_args()


def session(options: argparse.Namespace) -> SparkSession:
    catalog = "spark.sql.catalog.isobar"
    builder = (
        SparkSession.builder.appName("isobar-read-table")
        .master(options.master)
        .config("spark.jars", str(options.jar))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(catalog, "org.isobar.spark.IsobarCatalog")
        .config(f"{catalog}.endpoints", options.endpoints)
        .config(f"{catalog}.user", options.user)
    )
    if options.snapshot:
        builder = builder.config(f"{catalog}.snapshot", options.snapshot)
    return builder.getOrCreate()


def main() -> int:
    options = arguments()
    if not options.jar.is_file():
        print(f"{options.jar} is missing: build it with project/sbt spark-connector/assembly", file=sys.stderr)
        return 1
    if options.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nothing of this needs the network
    spark = session(options)
    try:
        frame = spark.table(f"isobar.{options.table}")
        if options.where:
            frame = frame.where(options.where)
        if options.explain:
            frame.explain("formatted")
        for field in frame.schema.fields:
            print(f"{field.name}: {field.dataType.simpleString()}{'' if field.nullable else ' not null'}")
        for row in frame.limit(options.limit).collect():
            print(tuple(row))
        print(f"{frame.count()} rows")
        return 0
    finally:
        spark.stop()  # without it a local cluster's shutdown prints dozens of errors


if __name__ == "__main__":
    sys.exit(main())
