"""Markdown documents whose examples are run: fences, links, and how each kind of fence is carried out.

Of CommonMark it knows what the documents use: fences of backquotes at the left margin, headings with `#`, links in
brackets. A fence of a kind that it does not know is an error: an example must never be passed over by a slip of the pen.
CONTRIBUTING.md says how to write examples.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pymysql
from pymysql.constants import FIELD_TYPE

from harness import Cluster

# What runs; what is only looked at; and what is no example: an answer, or a picture.
KINDS = ("sql", "python", "sh", "toml", "scala", "text", "mermaid", "")
NO_RUN = "no-run:"
SECONDS = 60  # of one fence
REPLICA = re.compile(r"ALTER TABLE (\S+) SET (?:COLUMNAR|TIFLASH) REPLICA [1-9]", re.IGNORECASE)
NUMBERS = {
    FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG, FIELD_TYPE.FLOAT,
    FIELD_TYPE.DOUBLE, FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.YEAR,
}
# What Spark does for large data costs seconds here. Set for each session: a Java machine is shared with other modules.
SMALL_DATA = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
HIDDEN = "…"  # a line of an answer that stands for any lines, or the end of a line for any text


@dataclass
class Fence:
    """One fenced block: where it begins, its kind, the rest of its first line, its text, and the answer behind it."""

    line: int
    kind: str
    words: str
    text: str
    answer: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it is not run; None if it is."""
        return self.words.removeprefix(NO_RUN).strip() if self.words.startswith(NO_RUN) else None


def fences(text: str) -> list[Fence]:
    """The fences of a document in order. A `text` fence right behind an example is its answer."""
    found: list[Fence] = []
    begun: Fence | None = None
    inside: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if begun is None:
            if line.startswith("```"):
                kind, _, words = line[3:].strip().partition(" ")
                begun, inside = Fence(number, kind, words.strip(), ""), []
            elif "```" in line:
                raise ValueError(f"line {number}: a fence begins at the left margin")
        elif line == "```":
            begun.text = "\n".join(inside)
            found.append(begun)
            begun = None
        else:
            inside.append(line)
    if begun is not None:
        raise ValueError(f"line {begun.line}: the fence does not end")
    for fence in found:
        if fence.kind not in KINDS:
            raise ValueError(f"line {fence.line}: '{fence.kind}' is no kind of fence: {', '.join(filter(None, KINDS))}")
        if fence.reason == "":
            raise ValueError(f"line {fence.line}: no-run without a reason")
    for fence, behind in zip(found, found[1:]):
        if behind.kind == "text" and fence.kind in ("sql", "python", "sh"):
            fence.answer = behind.text
    return found


def links(text: str) -> Iterator[str]:
    """Targets of links outside of fences."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    yield from re.findall(r"\]\(([^)\s]+)\)", prose)


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def same(expected: str, found: str) -> bool:
    """Whether an answer is what the document shows: line by line, but for what `…` hides and blanks at the ends."""

    def agree(shown: list[str], lines: list[str]) -> bool:
        if not shown:
            return not lines
        if shown[0] == HIDDEN:
            return any(agree(shown[1:], lines[at:]) for at in range(len(lines) + 1))
        pattern = ".*".join(map(re.escape, shown[0].split(HIDDEN)))
        return bool(lines) and re.fullmatch(pattern, lines[0]) is not None and agree(shown[1:], lines[1:])

    return agree(*([line.rstrip() for line in text.strip("\n").split("\n")] for text in (expected, found)))


def statements(text: str) -> list[str]:
    """The statements of a fence: cut at semicolons that are in no quotes and no comment."""
    token = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^;'\"`/-]+|.", re.DOTALL)
    found, begun = [], ""
    for part in token.findall(text):
        if part == ";":
            found.append(begun.strip())
            begun = ""
        elif not part.startswith("--"):
            begun += part
    if begun.strip():
        raise ValueError(f"a statement without a semicolon: {begun.strip()}")
    return found


def commands(text: str) -> list[str]:
    """The simple commands of a shell script: cut at ends of lines, `;`, `|` and `&` in no quotes, without comments."""
    text = re.sub(r"<<'?(\w+)'?\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE).replace("\\\n", " ")
    token = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|(?:(?<=\s)|^)#[^\n]*|[\n;|&]+|.", re.DOTALL | re.MULTILINE)
    found = [""]
    for part in token.findall(text):
        if part[0] in "\n;|&":
            found.append("")
        elif part[0] != "#" or found[-1].strip() and not found[-1][-1].isspace():
            found[-1] += part
    return found


def cell(value: object) -> str:
    return "NULL" if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


def table(cursor: pymysql.cursors.Cursor) -> str:
    """Rows as the `mysql` client draws them; nothing for none, as the client has it."""
    rows = [[cell(value) for value in row] for row in cursor.fetchall()]
    if not rows:
        return ""
    names = [column[0] for column in cursor.description]
    right = [column[1] in NUMBERS for column in cursor.description]
    # The client leaves room for a NULL.
    least = [4 if column[6] else 0 for column in cursor.description]
    widths = [max(least, *map(len, column)) for least, *column in zip(least, names, *rows)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: list[str], right: list[bool]) -> str:
        aligned = (c.rjust(width) if r else c.ljust(width) for c, width, r in zip(cells, widths, right))
        return "| " + " | ".join(aligned) + " |"

    return "\n".join([rule, line(names, [False] * len(names)), rule, *(line(row, right) for row in rows), rule])


class Examples:
    """Runs one document's fences in order, over one cluster: SQL in one session (others by name), Python in one
    namespace, shell commands in one folder."""

    def __init__(self, cluster: Cluster, jar: Path, folder: Path, clients: dict[str, str]):
        self.cluster, self.jar, self.folder = cluster, jar, folder
        self.sessions: dict[str, pymysql.connections.Connection] = {}
        self.namespace: dict[str, object] = {"__name__": "example"}
        self.helps: dict[tuple[str, ...], str] = {}
        programs = folder / "programs"
        programs.mkdir()
        for name, program in {"isobar": cluster.isobar, **clients}.items():
            (programs / name).symlink_to(program)
        (folder / "home").mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "ISOBAR_PASSWORD": "",
        }

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        spark = self.namespace.get("spark")
        if spark is not None:
            spark.stop()

    def here(self, text: str) -> str:
        """The text with this cluster's addresses in the place of a playground's, and Spark set for little data."""
        base = self.cluster.port_base
        text = re.sub(r"(?<=127\.0\.0\.1:)4(0\d\d)\b", lambda found: str(base + int(found[1])), text)
        text = re.sub(r"(-P |port=)4000\b", rf"\g<1>{base}", text)
        text = text.replace("spark-connector/target/isobar-spark-runtime-4.2_2.13.jar", str(self.jar))
        return text.replace(".getOrCreate()", f".config(map={SMALL_DATA}).getOrCreate()")

    def run(self, fence: Fence) -> str | None:
        """What an example prints; None if nothing of it is run."""
        if fence.kind == "sh":
            self.check_commands(fence.text)
        if fence.kind == "toml":
            self.check_settings(fence.text)
            return None
        if fence.reason is not None or fence.kind not in ("sql", "python", "sh"):
            return None
        return {"sql": self.run_sql, "python": self.run_python, "sh": self.run_shell}[fence.kind](fence)

    def session(self, name: str) -> pymysql.connections.Connection:
        if name not in self.sessions:
            # Without decoders, cells are shown as the server wrote them.
            self.sessions[name] = self.cluster.connect(
                database="doc", conv=dict(pymysql.converters.encoders), read_timeout=SECONDS
            )
        return self.sessions[name]

    def run_sql(self, fence: Fence) -> str:
        session, shown = self.session(fence.words), []
        for statement in statements(self.here(fence.text)):
            with session.cursor() as cursor:
                try:
                    cursor.execute(statement)
                    if cursor.description:
                        shown.append(table(cursor))
                except pymysql.err.MySQLError as error:
                    code, message = error.args[:2]
                    shown.append(f"ERROR {code}: {message}")
                    continue
            if replicated := REPLICA.match(statement):
                name = replicated[1].replace("`", "")
                self.cluster.wait_available(name if "." in name else f"{self.database(session)}.{name}")
        return "\n".join(filter(None, shown))

    @staticmethod
    def database(session: pymysql.connections.Connection) -> str:
        with session.cursor() as cursor:
            cursor.execute("SELECT DATABASE()")
            return cursor.fetchone()[0]

    def run_python(self, fence: Fence) -> str:
        output = io.StringIO()
        code = compile("\n" * fence.line + self.here(fence.text), "example", "exec")
        with contextlib.redirect_stdout(output):
            exec(code, self.namespace)  # noqa: S102: the documents of this repository
        return output.getvalue()

    def run_shell(self, fence: Fence) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.here(fence.text)],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
        )
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def check_commands(self, text: str) -> None:
        """Each subcommand and flag of `isobar` is one that its --help knows."""
        for command in commands(text):
            words = shlex.split(command)
            if words and Path(words[0]).name == "isobar":
                self.check_words(words[1:])

    def check_words(self, words: list[str]) -> None:
        path: tuple[str, ...] = ()
        while words and re.search(rf"^  {re.escape(words[0])}(?:  |$)", self.help(path).partition("Commands:")[2], re.MULTILINE):
            path, words = (*path, words[0]), words[1:]
        shown = self.help(path)
        complete = not re.search(r"^Usage: .*<COMMAND>", shown, re.MULTILINE)
        assert complete or words[:1] in (["--help"], ["--version"]), f"isobar {' '.join([*path, *words])}: no such command"
        for word in words:
            if re.match(r"--?[a-z]", word):
                flag = word.partition("=")[0]
                assert re.search(rf"(?:^|\s){re.escape(flag)}(?![\w-])", shown), f"isobar {' '.join(path)} has no {flag}"

    def help(self, path: tuple[str, ...]) -> str:
        if path not in self.helps:
            command = [self.cluster.isobar, *path, "--help"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
            self.helps[path] = done.stdout
        return self.helps[path]

    def check_settings(self, text: str) -> None:
        """A node's settings: `isobar serve` reads and checks the whole file, and refuses to be what it is not."""
        role = tomllib.loads(text)["role"]
        other = "row" if role != "row" else "sql"
        path = self.folder / "node.toml"
        path.write_text(text, encoding="utf-8")
        command = [self.cluster.isobar, "serve", "--config", path, "--role", other]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode != 0 and f'not "{other}"' in done.stderr, done.stderr
