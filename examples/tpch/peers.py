"""The peers of `isobar bench tpch` and `isobar bench scan`: DuckDB, DataFusion and Spark over the same data.

The bench starts it and asks by lines of JSON, one answer a line; it ends when standard input does. Answers to queries
are compared here, each with the first that was given. It must print nothing else to standard output, and never report a
time of an answer that it did not fetch whole.
"""

import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tpch  # noqa: E402

Answer = list[tuple]
# How a column of a MySQL answer becomes a Python value.
READ: dict[str, Callable[[str], object]] = {
    "decimal": Decimal,
    "int": int,
    "float": float,
    "date": datetime.date.fromisoformat,
    "text": str,
}


class Absent(Exception):
    """A peer is not here; the text says how to get it."""


class DuckDb:
    """Its own tables in memory, or its views of Parquet files."""

    def __init__(self, request: dict, native: bool):
        try:
            import duckdb
        except ImportError:
            raise Absent("the Python package duckdb is missing: pip install duckdb") from None
        self.version = f"DuckDB {duckdb.__version__}"
        self.connection = duckdb.connect()
        self.connection.execute(f"SET threads = {int(request['threads'])}")
        for table, columns in tpch.TABLES.items():
            file = f"'{request['folder']}/{table}.parquet'"
            if native:
                self.connection.execute(f"CREATE TABLE {table} ({columns})")
                self.connection.execute(f"INSERT INTO {table} SELECT * FROM {file}")
            else:
                self.connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {file}")

    def answer(self, text: str) -> Answer:
        return self.connection.execute(text).fetchall()


class DataFusion:
    """Over Parquet files."""

    def __init__(self, request: dict):
        try:
            import datafusion
        except ImportError:
            raise Absent("the Python package datafusion is missing: pip install datafusion") from None
        self.version = f"DataFusion {datafusion.__version__}"
        config = datafusion.SessionConfig().with_target_partitions(int(request["threads"]))
        self.context = datafusion.SessionContext(config)
        for table in tpch.TABLES:
            self.context.register_parquet(table, f"{request['folder']}/{table}.parquet")

    def answer(self, text: str) -> Answer:
        batches = self.context.sql(text).collect()
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist(maps_as_pydicts=None)]


class Spark:
    """One Spark, with a session for each way of reading."""

    started = None

    @classmethod
    def start(cls, request: dict):
        """The session from which the others come."""
        if cls.started is not None:
            return cls.started
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            raise Absent("the Python package pyspark is missing: pip install pyspark") from None
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        jars = [jar for jar in (request.get("jar"), request.get("jdbc_jar")) if jar and Path(jar).is_file()]
        builder = (
            SparkSession.builder.appName("isobar-bench")
            .master(f"local[{int(request['threads'])}]")
            .config("spark.driver.memory", request.get("spark_memory", "3g"))
            .config("spark.jars", ",".join(jars))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", str(request["threads"]))
            .config("spark.sql.catalog.isobar", "org.isobar.spark.IsobarCatalog")
            .config("spark.sql.catalog.isobar.endpoints", request.get("endpoints", ""))
            .config("spark.sql.catalog.isobar.user", request.get("user", "root"))
        )
        cls.started = builder.getOrCreate()
        return cls.started

    def __init__(self, request: dict, connector: bool):
        if connector and not Path(request.get("jar", "")).is_file():
            raise Absent(f"the connector's jar {request.get('jar')} is missing: make jar, or --jar FILE")
        self.session = self.start(request).newSession()
        self.version = f"Spark {self.session.version}"
        if connector:
            self.session.sql(f"USE isobar.{request['database']}")
        else:
            for table in tpch.TABLES:
                file = Path(request["folder"]) / f"{table}.parquet"
                if file.is_file():
                    self.session.read.parquet(str(file)).createOrReplaceTempView(table)

    def answer(self, text: str) -> Answer:
        return [tuple(row) for row in self.session.sql(text).collect()]

    def scan(self) -> list:
        return observed(self.session.table("lineitem"))


class Jdbc:
    """Spark's own JDBC source, which fetches by cursor, at a MySQL-protocol server."""

    def __init__(self, request: dict):
        if not Path(request.get("jdbc_jar") or "").is_file():
            raise Absent(
                "no JDBC driver: mvn dependency:get -Dartifact=com.mysql:mysql-connector-j:9.5.0, then --jdbc-jar"
                " ~/.m2/repository/com/mysql/mysql-connector-j/9.5.0/mysql-connector-j-9.5.0.jar"
            )
        self.session = Spark.start(request).newSession()
        self.version = f"Spark {self.session.version}, JDBC"
        options = {
            "url": f"jdbc:mysql://{request['address']}/{request['database']}?useCursorFetch=true",
            "dbtable": "lineitem",
            "user": request.get("user", "root"),
            "password": os.environ.get("ISOBAR_PASSWORD", ""),
            "driver": "com.mysql.cj.jdbc.Driver",
            "fetchsize": "10000",
        }
        if request["partitions"] > 1:
            options |= {
                "partitionColumn": "l_orderkey",
                "lowerBound": "1",
                "upperBound": str(request["highest"]),
                "numPartitions": str(request["partitions"]),
            }
        self.frame = self.session.read.format("jdbc").options(**options).load()

    def scan(self) -> list:
        return observed(self.frame)


def observed(frame) -> list:
    """Every value of every row is computed, and nothing is written anywhere; what was seen of them."""
    from pyspark.sql import Observation, functions

    seen = Observation()
    checks = [
        functions.count(functions.lit(1)).alias("n"),
        functions.sum("l_orderkey").alias("keys"),
        functions.sum("l_extendedprice").alias("price"),
        functions.max("l_shipdate").alias("day"),
        functions.max("l_comment").alias("comment"),
    ]
    frame.observe(seen, *checks).write.format("noop").mode("overwrite").save()
    return [str(seen.get[name]) for name in ("n", "keys", "price", "day", "comment")]


OPEN: dict[str, Callable[[dict], object]] = {
    "duckdb": lambda request: DuckDb(request, native=True),
    "duckdb-parquet": lambda request: DuckDb(request, native=False),
    "datafusion-parquet": DataFusion,
    "spark-parquet": lambda request: Spark(request, connector=False),
    "spark-connector": lambda request: Spark(request, connector=True),
    "jdbc": Jdbc,
}


class Peers:
    """Those that are open, and the answers that all others must equal."""

    def __init__(self) -> None:
        self.readers: dict[str, object] = {}
        self.expected: dict[int, tuple[str, Answer]] = {}

    def do(self, request: dict) -> dict:
        match request["do"]:
            case "open":
                began = time.monotonic()
                reader = OPEN[request["kind"]](request)
                self.readers[request["reader"]] = reader
                return {"version": reader.version, "seconds": time.monotonic() - began}
            case "query":
                began = time.monotonic()
                answer = self.readers[request["reader"]].answer(tpch.query(request["number"], request["scale"]))
                seconds = time.monotonic() - began
                against, problems = self.compare(request["number"], request["reader"], answer) if request["check"] else (None, [])
                return {"seconds": seconds, "against": against, "differences": problems}
            case "check":
                readers = [READ[kind] for kind in request["types"]]
                cells = lambda row: (None if text is None else read(text) for read, text in zip(readers, row))  # noqa: E731
                answer = [tuple(cells(row)) for row in request["rows"]]
                against, problems = self.compare(request["number"], request["reader"], answer)
                return {"seconds": 0.0, "against": against, "differences": problems}
            case "scan":
                began = time.monotonic()
                seen = self.readers[request["reader"]].scan()
                return {"seconds": time.monotonic() - began, "seen": seen}
            case other:
                raise ValueError(f"{other!r} is no request")

    def compare(self, number: int, who: str, answer: Answer) -> tuple[str | None, list[str]]:
        """Whose answer it was compared with, if with any, and how it differs."""
        if number not in self.expected:
            self.expected[number] = (who, answer)
            return None, []
        against, expected = self.expected[number]
        # DuckDB goes on where others round or cut off: with any other pair, the shorter decimal decides.
        exact = against.startswith("duckdb") and not who.startswith("datafusion")
        return against, tpch.differences(number, expected, answer, cut=not exact)[:3]


def main() -> int:
    # What libraries print is for standard error: standard output has answers only.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peers = Peers()
    for line in sys.stdin:
        try:
            answer = peers.do(json.loads(line))
        except Absent as absent:
            answer = {"absent": str(absent)}
        except Exception as error:  # whatever a peer throws is reported to the caller
            answer = {"error": f"{type(error).__name__}: {str(error)[:800]}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # Not through Spark's own goodbye, which waits for what nobody needs.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
