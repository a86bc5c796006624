"""Three analytical queries, and what it means for two answers to be identical.

One text serves SQL and Spark: only the names of the 64-bit integer type differ. Sums of decimals are exact, and the
averages have few enough digits that every correct engine rounds them to the same value.
"""

from dataclasses import dataclass
from decimal import Decimal

Row = tuple[object, ...]

AVERAGE = "CAST(CAST(SUM({0}) AS DECIMAL(18,4)) / COUNT({0}) AS DECIMAL(12,2))"


@dataclass(frozen=True)
class Query:
    """A query: its title, its text, and how many leading columns name a row of the answer."""

    title: str
    text: str
    labels: int

    def sql(self) -> str:
        """The text for the MySQL port."""
        return self.text.replace("BIGINT", "SIGNED")

    def spark(self) -> str:
        """The text for Spark."""
        return self.text


QUERIES = (
    Query(
        "Departure delays by carrier and month",
        f"""
        SELECT f.carrier, f.month, a.name, COUNT(*) AS flights,
               CAST(SUM(f.dep_delay) AS BIGINT) AS minutes,
               CAST(SUM(CASE WHEN f.dep_delay > 15 THEN 1 ELSE 0 END) AS BIGINT) AS late,
               {AVERAGE.format("f.dep_delay")} AS average
        FROM flights f JOIN airlines a ON a.carrier = f.carrier
        WHERE f.dep_delay IS NOT NULL
        GROUP BY f.carrier, f.month, a.name
        ORDER BY f.carrier, f.month
        """,
        labels=2,
    ),
    Query(
        "Worst origin-destination pairs by arrival delay",
        f"""
        SELECT f.origin, f.dest, o.name AS from_airport, d.name AS to_airport, COUNT(*) AS flights,
               CAST(SUM(f.arr_delay) AS BIGINT) AS minutes,
               CAST(SUM(f.distance * 1.609344) AS DECIMAL(24,6)) AS kilometres
        FROM flights f JOIN airports o ON o.faa = f.origin JOIN airports d ON d.faa = f.dest
        WHERE f.arr_delay IS NOT NULL
        GROUP BY f.origin, f.dest, o.name, d.name
        HAVING COUNT(*) >= 100
        ORDER BY minutes DESC, f.origin, f.dest
        LIMIT 20
        """,
        labels=2,
    ),
    Query(
        "Age of the plane against delay",
        f"""
        SELECT CAST(f.year - p.year AS BIGINT) AS age, COUNT(*) AS flights,
               CAST(SUM(f.dep_delay) AS BIGINT) AS minutes,
               CAST(MAX(f.dep_delay) AS BIGINT) AS longest,
               {AVERAGE.format("f.dep_delay")} AS average
        FROM flights f JOIN planes p ON p.tailnum = f.tailnum
        WHERE f.dep_delay IS NOT NULL AND p.year IS NOT NULL
        GROUP BY f.year - p.year
        ORDER BY age
        """,
        labels=1,
    ),
)


def typed(rows: list[Row]) -> list[tuple[tuple[str, str], ...]]:
    """Rows as types and exact texts: 1, 1.0 and 1.00 are three different things."""
    return [tuple((type(value).__name__, exact(value)) for value in row) for row in rows]


def exact(value: object) -> str:
    """A value's text, all its digits kept."""
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def differences(left: list[Row], right: list[Row]) -> list[str]:
    """Where two answers differ, for people; empty if they are identical."""
    found = []
    if len(left) != len(right):
        found.append(f"{len(left)} rows against {len(right)}")
    for number, (a, b) in enumerate(zip(typed(left), typed(right)), start=1):
        if a != b:
            found.append(f"row {number}: {a} against {b}")
    return found
