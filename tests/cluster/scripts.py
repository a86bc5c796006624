"""sqllogictest scripts over real servers: the parser, the readers, and what counts as the same answer.

The rules of sameness, and no others:
- text is compared letter by letter as the server sends it in the text protocol; NULL prints as NULL, nothing as (empty),
  and white space between words counts once (as sqllogictest has it);
- DOUBLE and FLOAT: two spellings of one number are the same (1e300, 1e+300), to 15 significant digits;
- DECIMAL: digits and scale must be the same: 1.50 is not 1.5;
- order: `rowsort`, and every query without ORDER BY, is compared as a bag of rows; others row by row;
- an error that is expected agrees by the script's pattern; on a server that is not Isobar also by the error's number.

It must never change what a reader said beyond these rules, nor leave a difference out of the count.
"""

import argparse
import datetime
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pymysql
from pymysql.constants import FIELD_TYPE

from harness import SYSTEM_DATABASES

FLOATING = {FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE}
ORDERED = re.compile(r"\bORDER\s+BY\b", re.IGNORECASE)
USER = re.compile(r"CREATE USER (?:IF NOT EXISTS )?(\S+)", re.IGNORECASE)
# Words of the libraries that plan and run queries, one a line.
MARKS = (Path(__file__).resolve().parents[1] / "scripts/library_marks.txt").read_text(encoding="utf-8").splitlines()
# A cell: its text, and whether it is of a floating type.
Cell = tuple[str, bool]


@dataclass
class Record:
    """One record of a script. `expected` is None unless it is a query that has an answer."""

    line: int
    kind: str
    sql: str
    sort: bool = False
    count: int | None = None
    error: str | None = None
    expected: list[str] | None = None
    spark: bool = False

    def is_bag(self) -> bool:
        """Whether no order of rows is promised."""
        return self.sort or not ORDERED.search(self.sql)


@dataclass
class Answer:
    """What a reader said: rows of cells, or a count, or an error."""

    rows: list[list[Cell]] = field(default_factory=list)
    count: int = 0
    error: tuple[int, str] | None = None


def parse(path: Path) -> list[Record]:
    """The records of a script. `# spark` on a line of its own asks Spark the next query, `# spark: all` every one;
    `# in memory` keeps the next record for the runner of the engine's own tests."""
    lines = path.read_text(encoding="utf-8").split("\n")
    found, at, spark, always, memory = [], 0, False, False, False
    while at < len(lines):
        line = lines[at].strip()
        at += 1
        if line == "# spark: all":
            always = True
        elif line == "# spark":
            spark = True
        elif line == "# in memory":
            memory = True
        if not line or line.startswith("#"):
            continue
        words = line.split()
        if words[0] == "halt":
            break
        if words[0] not in ("statement", "query"):
            raise ValueError(f"{path.name}:{at}: {words[0]} is no record")
        record = Record(at, words[0], "")
        sql = []
        while at < len(lines) and lines[at].strip() and lines[at].strip() != "----":
            sql.append(lines[at])
            at += 1
        record.sql = "\n".join(sql)
        if len(words) > 1 and words[1] == "error":
            record.error = line.split(None, 2)[2] if len(words) > 2 else ""
        elif words[0] == "query":
            record.sort, record.expected, record.spark = "rowsort" in words[2:], [], spark or always
            if at < len(lines) and lines[at].strip() == "----":
                at += 1
                while at < len(lines) and lines[at].strip():
                    record.expected.append(lines[at])
                    at += 1
        elif words[1] == "count":
            record.count = int(words[2])
        if not memory:
            found.append(record)
        spark = memory = False
    return found


def text(value: object) -> str:
    """A cell as a script prints it."""
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "backslashreplace")
    elif isinstance(value, bool):
        value = int(value)
    elif isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None).isoformat(" ")
    elif isinstance(value, datetime.timedelta):
        value = time(value)
    elif isinstance(value, Decimal):
        value = f"{value:f}"
    return str(value) or "(empty)"


def time(span: datetime.timedelta) -> str:
    """A TIME as MySQL writes it."""
    seconds, micros = divmod(abs(span) // datetime.timedelta(microseconds=1), 1_000_000)
    sign, fraction = "-" if span < datetime.timedelta() else "", f".{micros:06}" if micros else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


def words(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Rows as lists of words: what a line of a script can be compared with."""
    return [[(word, floating) for cell, floating in row for word in cell.split()] for row in rows]


def number(word: str) -> str:
    """One spelling for a floating number."""
    try:
        return f"{float(word):.14e}"
    except ValueError:
        return word


def same_rows(expected: list[str], rows: list[list[Cell]], bag: bool) -> bool:
    """Whether an answer is what a script says, by the rules above."""
    theirs = words(rows)
    floating = {at for row in theirs for at, (_, is_floating) in enumerate(row) if is_floating}
    ours = [line.split() for line in expected]
    left = [[number(word) if at in floating else word for at, word in enumerate(row)] for row in ours]
    right = [[number(word) if at in floating else word for at, (word, _) in enumerate(row)] for row in theirs]
    if bag:
        left.sort()
        right.sort()
    return left == right


def library_words(message: str) -> str | None:
    """What a message has of the libraries that plan and run queries: none of their texts may reach a client."""
    return next((mark for mark in MARKS if mark in message), None)


def verdict(record: Record, answer: Answer, own: bool, number_of_ours: int | None) -> str | None:
    """None if the answer is the script's; else `refused: …` or `differs: …`."""
    if own and answer.error and answer.error[0] and (mark := library_words(answer.error[1])):
        return f"differs: '{mark}' is a library's: error {answer.error[0]} {answer.error[1]}"
    if record.error is not None:
        if answer.error is None:
            return "differs: no error"
        code, message = answer.error
        if re.search(record.error, f"{code} {message}") or (not own and code == number_of_ours):
            return None
        return f"differs: error {code} {message}"
    if answer.error is not None:
        return f"refused: error {answer.error[0]} {answer.error[1]}"
    if record.count is not None and record.count != answer.count:
        return f"differs: {answer.count} rows affected"
    if record.expected is not None and not same_rows(record.expected, answer.rows, record.is_bag()):
        return "differs: " + " / ".join(" ".join(cell for cell, _ in row) for row in answer.rows)
    return None


class Server:
    """A server with the MySQL protocol, and one session of it."""

    def __init__(self, connect: Callable[..., pymysql.connections.Connection], first: list[str], own: bool):
        self._connect, self._first, self.own = connect, first, own
        self.session: pymysql.connections.Connection | None = None
        self._users: set[str] = set()

    def admin(self, sql: str) -> list[tuple]:
        """Rows of a statement in a session of its own."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def begin(self, create: str) -> None:
        """No databases but a new, empty `d`, and a new session in it."""
        self.end()
        for (name,) in self.admin("SHOW DATABASES"):
            if name.lower() not in SYSTEM_DATABASES:
                self.admin(f"DROP DATABASE `{name}`")
        self.admin(create)
        # Without decoders, cells come as the server wrote them.
        self.session = self._connect(database="d", conv=dict(pymysql.converters.encoders))
        with self.session.cursor() as cursor:
            for statement in self._first:
                cursor.execute(statement)

    def note_user(self, record: Record) -> None:
        """Remembers a user that a record makes, who goes with the script."""
        if created := USER.match(record.sql):
            self._users.add(created[1])

    def run(self, record: Record) -> Answer:
        """The answer to one record."""
        self.note_user(record)
        with self.session.cursor() as cursor:
            try:
                count = cursor.execute(record.sql)
                floats = [column[1] in FLOATING for column in cursor.description or ()]
                rows = [[(text(cell), floats[at]) for at, cell in enumerate(row)] for row in cursor.fetchall()]
                return Answer(rows, count)
            except pymysql.err.MySQLError as error:
                code, message = (error.args + (0, ""))[:2]
                return Answer(error=(code if isinstance(code, int) else 0, str(message)))

    def end(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None
        while self._users:
            self.admin(f"DROP USER IF EXISTS {self._users.pop()}")


def scripts(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(folder.glob("*.slt"))


def record_answers(server: Server, create: str, path: Path) -> None:
    """Writes a server's answers into a script as what is expected: for new scripts, to be read by a person then."""
    lines, done = path.read_text(encoding="utf-8").split("\n"), []
    server.begin(create)
    records = {record.line: record for record in parse(path)}
    at = 0
    while at < len(lines):
        record = records.get(at + 1)
        if record is None:
            done.append(lines[at])
            at += 1
            continue
        answer = server.run(record)
        shown = "statement error " + str(answer.error[0]) if answer.error else lines[at]
        done += [shown, *record.sql.split("\n")]
        at += 1 + len(record.sql.split("\n"))
        if at < len(lines) and lines[at].strip() == "----":
            while at < len(lines) and lines[at].strip():
                at += 1
        if record.expected is not None and answer.error is None:
            shown = [" ".join(" ".join(cell.split()) if cell.strip() else cell for cell, _ in row) for row in answer.rows]
            done += ["----", *(sorted(shown) if record.sort else shown)]
    path.write_text("\n".join(done), encoding="utf-8")
    server.end()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Write a server's answers into scripts.")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--create", default="CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
    options.add_argument("--first", action="append", default=[], help="a statement that begins the session")
    options.add_argument("scripts", type=Path, nargs="+")
    given = options.parse_args(sys.argv[1:])

    def to(**more) -> pymysql.connections.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=given.port, user="root", autocommit=True, charset="utf8mb4", **more
        )

    for script in given.scripts:
        record_answers(Server(to, given.first, True), given.create, script)
