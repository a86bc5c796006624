"""Three ways to read a snapshot: SQL on rows, SQL on columns, Spark.

All of them redeem the same token; none may answer from anywhere but its own engine.
"""

import os
import shutil
from pathlib import Path

import pymysql
from pymysql.connections import Connection

from queries import Query, Row

DATABASE = "nycflights"
READ_TIMEOUT = 300


def connect(port: int, database: str | None = DATABASE) -> Connection:
    """A connection to the MySQL port; every wait of it is bounded."""
    return pymysql.connect(
        host="127.0.0.1",
        port=port,
        user="root",
        database=database,
        autocommit=True,
        local_infile=True,
        connect_timeout=10,
        read_timeout=READ_TIMEOUT,
        write_timeout=READ_TIMEOUT,
    )


class SqlReader:
    """SQL with one engine allowed."""

    def __init__(self, port: int, name: str, engine: str, token: str):
        self.name = name
        self.connection = connect(port)
        with self.connection.cursor() as cursor:
            cursor.execute("SET isobar_snapshot = %s", (token,))
            cursor.execute("SET tidb_isolation_read_engines = %s", (engine,))

    def answer(self, query: Query) -> list[Row]:
        """The rows, in the query's order."""
        with self.connection.cursor() as cursor:
            cursor.execute(query.sql())
            return list(cursor.fetchall())

    def close(self) -> None:
        self.connection.close()


class SparkReader:
    """Spark that reads columns over Flight; by default a driver and two executor processes."""

    name = "Spark"

    def __init__(self, jar: Path, endpoints: list[str], master: str = "local-cluster[2,1,1024]"):
        from pyspark.sql import SparkSession  # slow to import, and not needed with --no-spark

        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        catalog = "spark.sql.catalog.isobar"
        self.spark = (
            SparkSession.builder.appName("isobar-quickstart")
            .master(master)
            .config("spark.jars", str(jar))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", "4")
            .config(catalog, "org.isobar.spark.IsobarCatalog")
            .config(f"{catalog}.endpoints", ",".join(endpoints))
            .config(f"{catalog}.user", "root")
            .getOrCreate()
        )

    def at(self, token: str) -> None:
        """Reads at this token from now on."""
        for table in ("airlines", "airports", "planes", "flights"):
            frame = self.spark.read.option("snapshot", token).table(f"isobar.{DATABASE}.{table}")
            frame.createOrReplaceTempView(table)

    def answer(self, query: Query) -> list[Row]:
        """The rows, in the query's order."""
        return [tuple(row) for row in self.spark.sql(query.spark()).collect()]

    def close(self) -> None:
        """Stops Spark and removes what its executors left in Spark's own folder."""
        import pyspark

        application = self.spark.sparkContext.applicationId
        try:
            self.spark.stop()
        except OSError:
            pass  # Java was interrupted, too
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)
