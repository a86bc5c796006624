"""After the corrections, at a new snapshot: what still differs, and why.

It compares everything again, as if nothing had been corrected, and then explains each difference that is left.
"""

from dataclasses import dataclass, field

from corrections import same
from journal import BatchRecord
from plan import Difference, Plan, Summary

SKIPPED = "not corrected"  # reported when it was met: changed meanwhile, or refused
LATER = "changed later"  # was corrected, or did not differ, and was changed since
UNDONE = "undone"  # was corrected, and is again exactly what it was before: by whom, the tables do not say


@dataclass
class Remaining:
    """What still differs in one table."""

    counts: dict[str, int] = field(default_factory=lambda: {SKIPPED: 0, LATER: 0, UNDONE: 0})
    undone: list[str] = field(default_factory=list)


def explain(plan: Plan, summary: Summary, batch_rows: int, records: dict[int, BatchRecord], left: Plan) -> Remaining:
    """Sorts the differences that a new comparison (`left`) found by what the run did to them."""
    skipped = {number for record in records.values() for number, _, _ in record.details}
    corrected: dict[tuple, Difference] = {}
    known: set[tuple] = set()
    for number, batch in enumerate(plan.batches(summary.key, batch_rows)):
        for row in batch:
            if row.number in skipped:
                known.add(row.key)
            elif number in records:
                corrected[row.key] = row
    remaining = Remaining()
    for row in left.differences(summary.key):
        before = corrected.get(row.key)
        if row.key in known:
            why = SKIPPED
        elif before is not None and row.kind == before.kind and same(before.live, row.live, summary.columns):
            why = UNDONE
            remaining.undone.append(repr(row.key))
        else:
            why = LATER
        remaining.counts[why] += 1
    return remaining
