"""Time from packet to plan, of two binaries by turns: EXPLAIN of a point select, as text and prepared, and of TPC-H queries.

    make planning FROM=/path/to/another/isobar

Each binary runs a cluster of its own: a row node, a columnar node and a SQL node. The tables are empty, so that what is measured is
parsing, binding, planning and the way there and back. A round asks each statement of one binary and then of the other; the
figures are medians over all rounds, in milliseconds, and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
TPCH = HERE.parent / "examples/tpch"
sys.path[:0] = [str(HERE.parent / "examples/quickstart"), str(HERE / "cluster")]

from tqdm import tqdm  # noqa: E402

from harness import Cluster  # noqa: E402

QUERIES = ("q01", "q05", "q09")


def statements() -> dict[str, str]:
    """What is asked, by name; one literal differs each time, as in an application."""
    asked = {
        "point select, text": "EXPLAIN SELECT * FROM customer WHERE c_custkey = {n}",
        "point select, prepared": "EXECUTE point USING @n",
    }
    for query in QUERIES:
        text = (TPCH / f"queries/{query}.sql").read_text().strip().rstrip(";")
        asked[f"TPC-H {query}"] = "EXPLAIN " + text.replace("{", "{{").replace("}", "}}")
    return asked


def prepared(cluster: Cluster):
    cluster.sql("CREATE DATABASE tpch")
    cluster.sql("USE tpch", *[part for part in (TPCH / "schema.sql").read_text().split(";") if part.strip()])
    cursor = cluster.connect(database="tpch").cursor()
    for table in ("customer", "orders", "lineitem", "supplier", "nation", "region", "part", "partsupp"):
        cluster.replicate(f"tpch.{table}")
    cursor.execute("PREPARE point FROM 'EXPLAIN SELECT * FROM customer WHERE c_custkey = ?'")
    return cursor


def ask(cursor, statement: str, number: int) -> float:
    """Milliseconds of one answer."""
    cursor.execute(f"SET @n = {number}")
    begun = time.perf_counter()
    cursor.execute(statement.format(n=number))
    cursor.fetchall()
    return 1_000 * (time.perf_counter() - begun)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="old", type=Path, required=True, help="the other binary")
    parser.add_argument("--isobar", dest="new", type=Path, required=True, help="this checkout's binary")
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="isobar-planning-") as folder:
        shape = dict(row=1, columnar=1, sql=1)
        old = Cluster(options.old, Path(folder) / "old", **shape)
        new = Cluster(options.new, Path(folder) / "new", **shape)
        with old, new:
            cursors = {"old": prepared(old), "new": prepared(new)}
            times = {(name, which): [] for name in statements() for which in cursors}
            for number in tqdm(range(options.rounds), unit="round", disable=None):
                for name, statement in statements().items():
                    for which, cursor in cursors.items():
                        times[name, which].append(ask(cursor, statement, number))
    print(f"{'':<24}{'from':>10}{'to':>10}{'ratio':>8}")
    for name in statements():
        before, after = (statistics.median(times[name, which]) for which in ("old", "new"))
        print(f"{name:<24}{before:>10.2f}{after:>10.2f}{after / before:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
