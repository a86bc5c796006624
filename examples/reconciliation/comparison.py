"""Spark: the lake's files and the live tables at one snapshot, and the differences between them.

Spark only reads here. A failure is reported as what it is: a lost lease, a file that cannot be read, or Spark itself.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import classify
from flight_client import LOST, LiveTable
from errors import BadLake, LeaseLost, SparkFailed, TargetGone, TooManyDifferences
from lake import LakeTable
from lease import Lease
from plan import Plan

T = TypeVar("T")
SHOWN_KEYS = 5
BROKEN_FILE = ("CANNOT_READ_FILE", "FAILED_READ_FILE", "ParquetDecodingException", "is not a Parquet file")


class Comparison:
    """A Spark session that compares."""

    def __init__(self, jar: Path, endpoints: list[str], user: str, master: str, memory: str, partitions: int):
        from pyspark.sql import SparkSession  # starts Java's machinery: only when the cheap checks have passed

        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1" if master.startswith("local") else os.environ.get("SPARK_LOCAL_IP", "")
        catalog = "spark.sql.catalog.isobar"
        self.spark = (
            SparkSession.builder.appName("isobar-reconciliation")
            .master(master)
            .config("spark.jars", str(jar))
            .config("spark.driver.memory", memory)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "ERROR")
            .config("spark.sql.shuffle.partitions", str(partitions))
            .config("spark.sql.session.timeZone", "UTC")
            # Plain microseconds, and no guessing about calendars.
            .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            .config("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
            .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
            .config(catalog, "org.isobar.spark.IsobarCatalog")
            .config(f"{catalog}.endpoints", ",".join(endpoints))
            .config(f"{catalog}.user", user)
            .getOrCreate()
        )

    def live(self, table: LiveTable, lease: Lease):
        """A live table at the lease's snapshot."""
        return self.spark.read.option("snapshot", lease.snapshot.token).table(f"isobar.{table.name}")

    def differences(self, lake: LakeTable, live: LiveTable, lease: Lease):
        """The classified differences, not yet computed."""
        files = self.spark.read.parquet(*map(str, lake.files)).select(*(column.name for column in live.columns))
        return classify.differences(files, self.live(live, lease), list(live.key))

    def save(self, lake: LakeTable, live: LiveTable, lease: Lease, plan: Plan, most: int) -> int:
        """Writes the differences into the plan's folder, one Parquet file in key order; the live rows compared.

        Keys that do not identify the lake's rows are noticed by counting: they make no second pass necessary.
        """
        found = self.differences(lake, live, lease).limit(most + 1)
        ordered = found.repartition(1).sortWithinPartitions(*live.key)
        guarded(lease, lambda: ordered.write.mode("overwrite").parquet(str(plan.folder)))
        rows = guarded(lease, lambda: self.live(live, lease).count())
        kinds = plan.count()
        if sum(kinds.values()) > most:
            raise TooManyDifferences(
                f"{live.name}: more than {most:,} rows differ from {lake.files[0].parent}: look at the differences in "
                f"{plan.folder}, and raise --most-differences if they are real"
            )
        if lake.rows - kinds[classify.MISSING] + kinds[classify.EXTRA] != rows or not plan.has_unique_keys(live.key):
            self._refuse_ambiguous(lake, live, lease)
        return rows

    def _refuse_ambiguous(self, lake: LakeTable, live: LiveTable, lease: Lease) -> None:
        files = self.spark.read.parquet(*map(str, lake.files))
        bad = guarded(lease, lambda: classify.ambiguous(files, list(live.key)).limit(SHOWN_KEYS).collect())
        folder = lake.files[0].parent
        if not bad:
            raise SparkFailed(f"{live.name}: the rows of {folder} and of the live table do not add up; start a new run")
        shown = "; ".join(", ".join(f"{name}={row[name]}" for name in live.key) for row in bad)
        raise BadLake(f"{folder}: rows that share a key, or have none, among them {shown}: export the table again")

    def close(self) -> None:
        """Stops Spark and removes what executors left in Spark's own folder."""
        import pyspark

        try:
            application = self.spark.sparkContext.applicationId
            self.spark.stop()
        except Exception:  # Java is gone: nothing is left to stop, and what the job says matters more
            return
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / application, ignore_errors=True)


def guarded(lease: Lease, action: Callable[[], T]) -> T:
    """Runs a Spark action; a failure becomes one of the job's own errors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    lease.check()
    try:
        result = action()
    except (PySparkException, Py4JError, OSError) as error:
        lease.check()
        text = str(error)
        line = next((part.strip() for part in text.splitlines() if "ISOBAR-" in part), text.splitlines()[0])
        if any(code in text for code in LOST):
            raise LeaseLost(f"Spark cannot read the snapshot any more: {line}") from error
        if any(mark in text for mark in BROKEN_FILE):
            raise BadLake(f"Spark cannot read a lake file: {line}") from error
        if "ISOBAR-UNAVAILABLE" in text or "ISOBAR-TIMEOUT" in text:
            raise TargetGone(f"the columnar nodes do not answer: {line}; start the run again when they do") from error
        raise SparkFailed(f"Spark gave up: {line}; start the run again") from error
    lease.check()
    return result
