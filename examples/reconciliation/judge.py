"""The judge of a rehearsal: what was planted and written, against what the job says and what the tables hold.

It believes nobody: planted differences come from the lake's ledger, online writes from the writer's, and the tables
themselves are read whole, without Spark, and compared in DuckDB.
"""

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import duckdb
from pyarrow import flight

import journal
from classify import EXTRA
from live_writer import LiveWriter, Write
from make_lake import Planted
from plan import Difference, Plan
from tables import Source
from target import Target

SHOWN = 5


@dataclass
class Verdict:
    """One table's, or the sum of all. Every list but the counts must be empty."""

    rows: int = 0
    planted: int = 0
    found: int = 0
    corrected: int = 0
    skipped_because_changed: int = 0
    refused: int = 0
    missed: list[str] = field(default_factory=list)
    found_without_reason: list[str] = field(default_factory=list)
    skipped_without_reason: list[str] = field(default_factory=list)
    wrongly_corrected: list[str] = field(default_factory=list)
    not_as_it_should_be: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Adds a table's verdict."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not any(value for value in asdict(self).values() if isinstance(value, list))

    def counts(self) -> dict:
        """Counts, and the first few of what is wrong."""
        return {
            name: value if isinstance(value, int) else {"count": len(value), "first": value[:SHOWN]}
            for name, value in asdict(self).items()
        }


def judge(
    work: Path,
    lake: Path,
    sources: list[Source],
    planted: list[Planted],
    writer: LiveWriter,
    target: Target,
    endpoints: list[str],
    token: str,
) -> Verdict:
    """Judges a run that has ended, at a token taken after the writer has stopped."""
    reported = json.loads((work / "report.json").read_text(encoding="utf-8"))["tables"]
    run = json.loads((work / "run.json").read_text(encoding="utf-8"))
    total = Verdict()
    for source, plant in zip(sources, planted):
        ledger = writer.ledger.get(source.name, {})
        records = journal.all_recorded(target, run["run"], source.name).values()
        skipped = {number for record in records for number, _, _ in record.details}
        taken = run["snapshot_taken"]
        total.add(_table(work, lake, source, plant, ledger, reported[source.name], skipped, taken, endpoints, token))
    return total


def _table(work, lake, source, plant, ledger, reported, skipped: set[int], taken: float, endpoints, token) -> Verdict:
    differences = {text(row.key): row for row in Plan(work, source.name).differences(source.key)}
    skipped_keys = {key for key, row in differences.items() if row.number in skipped}
    verdict = Verdict(
        rows=reported["live_rows"],
        found=len(differences),
        corrected=reported["corrected"],
        skipped_because_changed=reported["changed_meanwhile"],
        refused=reported["refused"],
    )
    keys = {tuple(key) for key in (*plant.missing, *plant.extra, *plant.changed)}
    verdict.planted = len(keys)
    name = lambda key: f"{source.name} {key}"  # noqa: E731
    verdict.missed = [name(key) for key in keys if key not in differences]
    early = {key for key, writes in ledger.items() if writes[0].began <= taken}
    verdict.found_without_reason = [name(key) for key in differences if key not in keys and key not in early]
    late = {key for key, writes in ledger.items() if writes[-1].ended >= taken or not writes[-1].acknowledged}
    verdict.skipped_without_reason = [name(key) for key in skipped_keys if key not in late]
    if len(skipped) != reported["changed_meanwhile"] + reported["refused"] or len(differences) != reported["corrected"] + reported["changed_meanwhile"] + reported["refused"]:
        verdict.not_as_it_should_be.append(f"{source.name}: the report's numbers do not add up")
    final, strange = _compare(lake, source, ledger, endpoints, token)
    verdict.not_as_it_should_be += [name(key) for key in strange if key not in skipped_keys]
    for key, writes in ledger.items():
        row = differences.get(key)
        corrected = row is not None and key not in skipped_keys
        wrong = _chain(source, writes, row if corrected else None, final.get(key), taken)
        if wrong:
            verdict.wrongly_corrected.append(f"{name(key)}: {wrong}")
    return verdict


def _chain(source: Source, writes: list[Write], row: Difference | None, final, taken: float) -> str | None:
    """Follows one row from write to write; what is wrong, if anything.

    Between two writes the row must stay as the first left it, but for one correction, made out of the very state that
    the snapshot showed.
    """
    state = None
    wanted = None if row is None or row.kind == EXTRA else tuple(row.lake[name] for name in source.columns)
    seen = None if row is None or row.live is None else tuple(row.live[name] for name in source.columns)
    pending = row is not None
    last: Write | None = None
    for write in [*writes, Write(0, 0, final, final, True)]:
        possible = [write.before] if last is None else [state] if last.acknowledged else [last.before, last.after]
        if not any(one == write.before for one in possible):
            if not pending or write.before != wanted:
                return "an acknowledged write is gone, and no correction explains it"
            if not any(one == seen for one in possible):
                return "the correction overwrote a write that the snapshot did not show"
            if last is not None and last.acknowledged and last.began > taken:
                return "the correction overwrote a write that began after the snapshot"
            pending = False
        state, last = write.after, write
    return None


def text(key: tuple) -> tuple[str, ...]:
    """A key as the ledgers write it."""
    return tuple(map(str, key))


def _compare(lake: Path, source: Source, ledger: dict, endpoints: list[str], token: str) -> tuple[dict, list[tuple]]:
    """The final rows of keys that the writer touched; and keys of other rows that are not as in the lake."""
    folder = lake / Path(*source.name.split("."))
    scratch = lake.parent / "judge.duckdb"
    scratch.unlink(missing_ok=True)
    database = duckdb.connect(str(scratch))
    database.execute("SET memory_limit = '2GB'; SET TimeZone = 'UTC'; SET threads = 2")
    columns = ", ".join(f'"{name}" {source.duck(name)}' for name in source.columns)
    database.execute(f"CREATE TABLE live ({columns})")
    names = ", ".join(f'"{name}"' for name in source.columns)
    for batch in _scan(source, endpoints, token):
        database.execute(f"INSERT INTO live SELECT {names} FROM batch")
    database.execute(f"CREATE VIEW lake AS SELECT {names} FROM read_parquet('{folder}/*.parquet')")
    parts = ", ".join(f"p{at} VARCHAR" for at in range(len(source.key)))
    database.execute(f"CREATE TABLE touched ({parts})")
    if ledger:
        marks = ", ".join(["?"] * len(source.key))
        database.executemany(f"INSERT INTO touched VALUES ({marks})", [list(key) for key in ledger])
    own = lambda side: " AND ".join(f't.p{at} = CAST({side}"{name}" AS VARCHAR)' for at, name in enumerate(source.key))  # noqa: E731
    plain = ", ".join(
        f"timezone('UTC', \"{name}\")" if source.duck(name) == "TIMESTAMPTZ" else f'"{name}"' for name in source.columns
    )
    found = database.execute(
        f"SELECT {plain} FROM live AS l WHERE EXISTS (SELECT 1 FROM touched AS t WHERE {own('l.')})"
    ).fetchall()
    key = [f'"{name}"' for name in source.key]
    differs = " OR ".join(f'l."{name}" IS DISTINCT FROM r."{name}"' for name in source.columns)
    shown = ", ".join(f"CAST(coalesce(l.{name}, r.{name}) AS VARCHAR)" for name in key)
    strange = database.execute(
        f"SELECT {shown} FROM live AS l FULL JOIN lake AS r ON {' AND '.join(f'l.{n} = r.{n}' for n in key)} WHERE {differs}"
    ).fetchall()
    database.close()
    scratch.unlink()
    places = [list(source.columns).index(name) for name in source.key]
    final = {text(tuple(row[at] for at in places)): row for row in found}
    return final, [key for key in strange if tuple(key) not in ledger]


def _scan(source: Source, endpoints: list[str], token: str):
    """Record batches of a whole table, from the columnar nodes."""
    basic = base64.b64encode(b"root:")
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Basic " + basic)], timeout=600)
    database, table = source.name.split(".")
    scan = {"database": database, "table": table, "columns": list(source.columns), "snapshot": token, "filter": None}
    command = flight.FlightDescriptor.for_command(json.dumps({"scan": scan}))
    for endpoint in flight.connect(f"grpc://{endpoints[0]}").get_flight_info(command, options).endpoints:
        client = flight.connect(endpoint.locations[0])
        for chunk in client.do_get(endpoint.ticket, options):
            yield chunk.data
