"""Answers of two binaries to every statement of every script: rows, types, column names, warnings and errors.

    make answers FROM=/path/to/another/isobar

Each binary runs a cluster of its own, and each script runs on both, statement by statement, on rows. What the scripts
expect is not looked at: a difference is one between the binaries, and is printed with both answers. Rows are compared in
their order where the statement says one, else as a bag. Values that name the moment or the connection differ each time;
statements with them are in no script.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "examples/quickstart"), str(HERE / "cluster")]

import pymysql  # noqa: E402
from tqdm import tqdm  # noqa: E402

from harness import Cluster  # noqa: E402
from scripts import Record, Server, parse, scripts, text  # noqa: E402

FOLDERS = [HERE.parent / "engine/sql/tests/scripts", HERE / "scripts"]
ROWS = ["SET isobar_read_engines = 'rows'"]


@dataclass
class Said:
    """What a binary says to one statement, by part."""

    rows: list[tuple[str, ...]]
    count: int
    names: list[str]
    types: list[tuple]
    warnings: list[tuple]
    error: tuple | None

    def parts(self) -> dict[str, object]:
        return {
            "error": self.error,
            "rows": self.rows,
            "count": self.count,
            "column names": self.names,
            "types": self.types,
            "warnings": self.warnings,
        }


def ask(server: Server, record: Record) -> Said:
    """One statement in the session of a script."""
    assert server.session is not None
    server.note_user(record)
    with server.session.cursor() as cursor:
        error, count, rows = None, 0, []
        try:
            count = cursor.execute(record.sql)
            rows = [tuple(text(cell) for cell in row) for row in cursor.fetchall()]
        except pymysql.err.MySQLError as failure:
            error = failure.args
        described = cursor.description or ()
        names = [column[0] for column in described]
        # Type, length, digits behind the point, and whether it may be NULL.
        types = [(column[1], *column[3:]) for column in described]
        if record.is_bag():
            rows.sort()
        warnings = []
        if server.session.open:
            cursor.execute("SHOW WARNINGS")
            warnings = list(cursor.fetchall())
        return Said(rows, count, names, types, warnings, error)


def differences(old: Server, new: Server, path: Path) -> list[tuple[Record, str, Said, Said]]:
    """The statements of a script that the two say different things to, each with the first part that differs."""
    found = []
    for server in (old, new):
        server.begin("CREATE DATABASE d")
    for record in parse(path):
        # A script may end its own session.
        if not (old.session.open and new.session.open):
            break
        one, other = ask(old, record), ask(new, record)
        mine, theirs = one.parts(), other.parts()
        part = next((name for name in mine if mine[name] != theirs[name]), None)
        if part is not None:
            found.append((record, part, one, other))
    for server in (old, new):
        server.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="old", type=Path, required=True, help="the other binary")
    parser.add_argument("--isobar", dest="new", type=Path, required=True, help="this checkout's binary")
    parser.add_argument("--scripts", type=Path, help="a folder of scripts, instead of this checkout's")
    options = parser.parse_args()
    paths = list(scripts(*([options.scripts] if options.scripts else FOLDERS)))
    counts, statements = Counter(), 0
    with TemporaryDirectory(prefix="isobar-answers-") as folder:
        shape = dict(row=1, columnar=1, sql=1)
        before = Cluster(options.old, Path(folder) / "old", **shape)
        after = Cluster(options.new, Path(folder) / "new", **shape)
        with before, after:
            old, new = (Server(cluster.connect, ROWS, True) for cluster in (before, after))
            for path in tqdm(paths, unit="script", disable=None):
                statements += len(parse(path))
                for record, part, one, other in differences(old, new, path):
                    counts[part] += 1
                    print(f"{path.name}:{record.line}: {part}\n    {record.sql}")
                    print(f"    from: {one.parts()[part]}\n    to:   {other.parts()[part]}", flush=True)
    print(f"{statements} statements, {sum(counts.values())} answered differently: {dict(counts)}")
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
