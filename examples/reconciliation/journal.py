"""What a run leaves in the live database, in `reconciliation`: who holds which table, which batches are in, history.

A batch's line is written in the transaction that makes its corrections: either both are there or neither is.
"""

import json
from dataclasses import dataclass

from pymysql.cursors import Cursor

from target import Target

DATABASE = "reconciliation"
TABLES = (
    # Written only when a table changes hands, so that a batch that holds the line conflicts with nothing else.
    f"CREATE TABLE IF NOT EXISTS {DATABASE}.claims (target VARCHAR(130) PRIMARY KEY, run CHAR(32) NOT NULL,"
    " owner VARCHAR(200) NOT NULL, since DATETIME(6) NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {DATABASE}.beats (owner VARCHAR(200) PRIMARY KEY, beat DATETIME(6) NOT NULL)",
    f"CREATE TABLE IF NOT EXISTS {DATABASE}.batches (run CHAR(32) NOT NULL, target VARCHAR(130) NOT NULL,"
    " batch INT NOT NULL, digest CHAR(64) NOT NULL, corrected INT NOT NULL, changed_meanwhile INT NOT NULL,"
    " refused INT NOT NULL, details MEDIUMTEXT NOT NULL, committed DATETIME(6) NOT NULL,"
    " PRIMARY KEY (run, target, batch))",
    f"CREATE TABLE IF NOT EXISTS {DATABASE}.history (run CHAR(32) NOT NULL, target VARCHAR(130) NOT NULL,"
    " started DATETIME(6) NOT NULL, ended DATETIME(6) NOT NULL, snapshot BIGINT UNSIGNED NOT NULL,"
    " lake_rows BIGINT NOT NULL, live_rows BIGINT NOT NULL, missing INT NOT NULL, extra INT NOT NULL,"
    " changed INT NOT NULL, corrected INT NOT NULL, changed_meanwhile INT NOT NULL, refused INT NOT NULL,"
    " remaining INT NOT NULL, undone INT NOT NULL, starts INT NOT NULL, seconds DOUBLE NOT NULL,"
    " PRIMARY KEY (run, target))",
)


@dataclass(frozen=True)
class BatchRecord:
    """A batch that is committed. `details`: number in the plan, outcome and reason of each row not corrected."""

    digest: str
    corrected: int
    changed_meanwhile: int
    refused: int
    details: tuple[tuple[int, str, str], ...]


def prepare(target: Target) -> None:
    """Creates the tables that are not there yet."""
    target.query(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    for statement in TABLES:
        target.query(statement)


def recorded(cursor: Cursor, run: str, table: str, batch: int) -> BatchRecord | None:
    """A batch's line, if it is committed."""
    cursor.execute(
        f"SELECT digest, corrected, changed_meanwhile, refused, details FROM {DATABASE}.batches"
        " WHERE run = %s AND target = %s AND batch = %s",
        (run, table, batch),
    )
    row = cursor.fetchone()
    return None if row is None else BatchRecord(*row[:4], _details(row[4]))


def record(cursor: Cursor, run: str, table: str, batch: int, made: BatchRecord) -> None:
    """Writes a batch's line, within the batch's own transaction."""
    cursor.execute(
        f"INSERT INTO {DATABASE}.batches VALUES (%s, %s, %s, %s, %s, %s, %s, %s, NOW(6))",
        (run, table, batch, made.digest, made.corrected, made.changed_meanwhile, made.refused, json.dumps(made.details)),
    )


def all_recorded(target: Target, run: str, table: str) -> dict[int, BatchRecord]:
    """Every committed batch of a run and table."""
    rows = target.query(
        f"SELECT batch, digest, corrected, changed_meanwhile, refused, details FROM {DATABASE}.batches"
        " WHERE run = %s AND target = %s",
        (run, table),
    )
    return {row[0]: BatchRecord(*row[1:5], _details(row[5])) for row in rows}


def remember(target: Target, lines: list[dict[str, object]]) -> None:
    """Adds a run's lines to the history, once however often it is asked to."""

    def work(cursor: Cursor) -> None:
        for line in lines:
            cursor.execute(
                f"SELECT run FROM {DATABASE}.history WHERE run = %s AND target = %s", (line["run"], line["target"])
            )
            if cursor.fetchone() is None:
                names, marks = ", ".join(line), ", ".join(["%s"] * len(line))
                cursor.execute(f"INSERT INTO {DATABASE}.history ({names}) VALUES ({marks})", tuple(line.values()))

    target.transaction(work)


def _details(text: str) -> tuple[tuple[int, str, str], ...]:
    return tuple(tuple(item) for item in json.loads(text))
