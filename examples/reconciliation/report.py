"""The report of a run: `report.json` for programs, `report.html` (one page, nothing fetched) for people.

Values of rows are escaped and cut; the snapshot's token is never among them.
"""

import html
import json
from collections import Counter
from datetime import datetime
from pathlib import Path

from journal import BatchRecord
from plan import Difference, Plan, Summary, replace
from verification import LATER, SKIPPED, UNDONE, Remaining

EXAMPLES = 5  # of each kind
MOST_LISTED = 1_000  # rows that were not corrected
LONGEST_VALUE = 60


def table(plan: Plan, summary: Summary, records: dict[int, BatchRecord], left: Remaining | None) -> dict:
    """What happened to one table."""
    outcomes = {number: (outcome, why) for record in records.values() for number, outcome, why in record.details}
    columns: Counter[str] = Counter()
    examples: list[dict] = []
    not_corrected: list[dict] = []
    shown: Counter[str] = Counter()
    for row in plan.differences(summary.key):
        columns.update(row.changed)
        shown[row.kind] += 1
        if shown[row.kind] <= EXAMPLES:
            examples.append(example(row, summary))
        if row.number in outcomes and len(not_corrected) < MOST_LISTED:
            outcome, why = outcomes[row.number]
            not_corrected.append({"key": text(row.key), "kind": row.kind, "outcome": outcome, "why": why})
    return {
        "lake_rows": summary.lake_rows,
        "live_rows": summary.live_rows,
        "columns_ignored": list(summary.ignored),
        "comparison_seconds": round(summary.seconds, 1),
        "found": summary.kinds,
        "columns_changed": dict(columns.most_common()),
        "corrected": sum(record.corrected for record in records.values()),
        "changed_meanwhile": sum(record.changed_meanwhile for record in records.values()),
        "refused": sum(record.refused for record in records.values()),
        "remaining": left.counts if left else None,
        "undone": left.undone if left else [],
        "not_corrected": not_corrected,
        "examples": examples,
    }


def example(row: Difference, summary: Summary) -> dict:
    """A difference as people read it: only the columns that differ, or the whole row."""
    names = row.changed or [name for name in summary.columns if name not in summary.key]
    side = lambda values: values and {name: text(values[name]) for name in names}  # noqa: E731
    return {"key": text(row.key), "kind": row.kind, "lake": side(row.lake), "live": side(row.live)}


def text(value: object) -> str:
    """A value in a bounded number of characters."""
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else "NULL" if value is None else str(value)
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]}… ({len(shown)} characters)"


def whole(state: dict, ended: str, tables: dict[str, dict], counts: dict) -> dict:
    """The report of a run."""
    seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(state["started"])).total_seconds()
    return {
        "run": state["run"],
        "lake": state["lake"],
        "started": state["started"],
        "ended": ended,
        "seconds": round(seconds, 1),
        "starts": state["starts"],
        "snapshot": state["snapshot"],
        **counts,
        "tables": tables,
    }


def history(report: dict) -> list[dict[str, object]]:
    """The run's lines for reconciliation.history."""
    return [
        {
            "run": report["run"],
            "target": name,
            "started": report["started"],
            "ended": report["ended"],
            "snapshot": int(report["snapshot"]),
            "lake_rows": found["lake_rows"],
            "live_rows": found["live_rows"],
            **found["found"],
            "corrected": found["corrected"],
            "changed_meanwhile": found["changed_meanwhile"],
            "refused": found["refused"],
            "remaining": sum((found["remaining"] or {}).values()),
            "undone": len(found["undone"]),
            "starts": report["starts"],
            "seconds": report["seconds"],
        }
        for name, found in report["tables"].items()
    ]


def write(work: Path, report: dict) -> None:
    """Both files."""
    replace(work / "report.json", json.dumps(report, indent=1, ensure_ascii=False))
    replace(work / "report.html", page(report))


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 74em; padding: 0 1em; color: #1d2733 }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.15em; margin-top: 2em } p.sub { color: #667 ; margin-top: .2em }
table { border-collapse: collapse; width: 100%; margin: .6em 0 } th, td { padding: .3em .6em; border-bottom: 1px solid #dde }
th { text-align: left; font-weight: 600; background: #f4f6f9 } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
td code { font-size: .9em; overflow-wrap: break-word } .good { color: #14713d } .bad { color: #b3261e; font-weight: 600 }
"""


def page(report: dict) -> str:
    """The report as one HTML page."""
    tables = report["tables"]
    undone = sum(len(found["undone"]) for found in tables.values())
    verdict = (
        '<p class="bad">Corrections were undone: see below.</p>'
        if undone
        else '<p class="good">Every difference was corrected, or is listed here with its reason.</p>'
    )
    if report["dry_run"]:
        verdict = "<p>Nothing was corrected: a dry run.</p>"
    columns = ["lake rows", "live rows", "missing", "extra", "changed", "corrected", "changed meanwhile", "refused"]
    columns += [f"left: {why}" for why in (SKIPPED, LATER, UNDONE)]
    lines = []
    for name, found in tables.items():
        numbers = [found["lake_rows"], found["live_rows"], *found["found"].values()]
        numbers += [found["corrected"], found["changed_meanwhile"], found["refused"]]
        numbers += list((found["remaining"] or {}).values()) or ["–"] * 3
        lines.append([name, *numbers])
    about = (
        f"Run {report['run']}, {report['started']} to {report['ended']} UTC ({report['seconds']:,} s, started "
        f"{report['starts']} times), live tables at snapshot {report['snapshot']}; lease renewed "
        f"{report['lease_renewals']} times; {report['conflicts']} conflicts, {report['reconnects']} reconnects"
    )
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>Reconciliation</title>",
        f"<style>{STYLE}</style><h1>Reconciliation with {html.escape(report['lake'])}</h1>",
        f'<p class="sub">{html.escape(about)}</p>{verdict}',
        grid(["table", *columns], lines),
    ]
    for name, found in tables.items():
        parts.append(f"<h2>{html.escape(name)}</h2>")
        if found["undone"]:
            parts.append(f'<p class="bad">Undone: {html.escape("; ".join(found["undone"][:20]))}</p>')
        if found["columns_changed"]:
            parts.append(grid(["column that differs", "rows"], list(map(list, found["columns_changed"].items()))))
        if found["not_corrected"]:
            listed = [[row["key"], row["kind"], row["outcome"], row["why"]] for row in found["not_corrected"]]
            parts.append(grid(["not corrected: key", "kind", "outcome", "why"], listed))
            more = found["changed_meanwhile"] + found["refused"] - len(listed)
            if more:
                parts.append(f"<p>… and {more:,} more, in reconciliation.batches.</p>")
        if found["examples"]:
            rows = [[e["key"], e["kind"], values(e["lake"]), values(e["live"])] for e in found["examples"]]
            parts.append(grid(["example: key", "kind", "in the lake", "live"], rows))
    return "\n".join(parts) + "</html>\n"


def values(row: dict[str, str] | None) -> str:
    """One side of an example."""
    return "–" if row is None else ", ".join(f"{name} = {value}" for name, value in row.items())


def grid(head: list[str], rows: list[list[object]]) -> str:
    """A table; numbers to the right."""

    def cell(value: object) -> str:
        if isinstance(value, int):
            return f'<td class="n">{value:,}</td>'
        return f"<td><code>{html.escape(str(value))}</code></td>"

    right = [bool(rows) and isinstance(value, int) for value in (rows[0] if rows else head)]
    titles = "".join(f'<th{" class=n" if n else ""}>{html.escape(name)}</th>' for name, n in zip(head, right))
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"
