"""Makes an archive of the classes that Spark loads at start, so that the tests' drivers do not each parse them again.

    shared_classes.py ARCHIVE

A driver starts in two thirds of the time with it. A Java machine that the archive does not fit ignores it; it must
never change what a test sees.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What JDK_JAVA_OPTIONS of the tests says, too: an archive fits machines with the same collector only.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SECONDS = 300


def use() -> None:
    """The job whose classes are kept: joins, groups, sorts and Parquet, as reconciliation and benchmarks have them."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    one = spark.range(2_000).selectExpr("id", "id % 7 AS n", "CAST(id AS STRING) AS s")
    two = spark.range(2_000).selectExpr("id", "id % 5 AS m", "CAST(id AS DECIMAL(18, 2)) AS d")
    joined = one.join(two, "id", "full_outer").where("n <> m").groupBy("n").agg({"d": "sum", "s": "max"})
    with tempfile.TemporaryDirectory() as folder:
        joined.repartition(1).sortWithinPartitions("n").write.parquet(f"{folder}/joined")
        assert spark.read.parquet(f"{folder}/joined").count() == 7
    spark.stop()


def make(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    environment = {
        **os.environ,
        "JDK_JAVA_OPTIONS": OPTIONS,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}",
    }
    # Java writes the archive once Python has left it, and has the pipes open until then.
    command = [sys.executable, __file__, "--use"]
    subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=SECONDS
    )
    made.replace(archive)


if __name__ == "__main__":
    if sys.argv[1:] == ["--use"]:
        use()
    elif not Path(sys.argv[1]).exists():
        make(Path(sys.argv[1]))
