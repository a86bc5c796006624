"""The comparison itself: one full outer join on the key, one null-safe comparison for each column.

It compares typed values, never their text, and nothing here writes anything.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MISSING = "missing"  # in the lake, not in the live table
EXTRA = "extra"  # in the live table, not in the lake
CHANGED = "changed"  # in both, and not the same
KINDS = (MISSING, EXTRA, CHANGED)


def differences(lake: DataFrame, live: DataFrame, key: list[str]) -> DataFrame:
    """The rows that differ: the key, `kind`, `changed` (names of columns), and both rows, `lake` and `live`."""
    columns = live.columns

    def side(frame: DataFrame, name: str) -> DataFrame:
        return frame.select(*key, F.struct(*columns).alias(name))

    joined = side(lake, "lake").join(side(live, "live"), key, "full_outer")
    changed = F.array_compact(
        F.array(
            *(
                F.when(~F.col(f"lake.{name}").eqNullSafe(F.col(f"live.{name}")), F.lit(name))
                for name in columns
                if name not in key
            )
        )
    )
    kind = F.when(F.col("live").isNull(), MISSING).when(F.col("lake").isNull(), EXTRA)
    return (
        joined.withColumn("changed", F.when(kind.isNull(), changed).otherwise(F.array().cast("array<string>")))
        .withColumn("kind", F.coalesce(kind, F.when(F.size("changed") > 0, CHANGED)))
        .where(F.col("kind").isNotNull())
        .select(*key, "kind", "changed", "lake", "live")
    )


def ambiguous(lake: DataFrame, key: list[str]) -> DataFrame:
    """Keys that the lake holds more than once, or with a NULL in them: such rows cannot be matched."""
    empty = F.lit(False)
    for name in key:
        empty = empty | F.col(name).isNull()
    return lake.groupBy(*key).count().where((F.col("count") > 1) | empty)
