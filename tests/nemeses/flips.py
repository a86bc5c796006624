"""Flips bits in and truncates files of stopped nodes, starts them again, and judges what is answered and what becomes whole.

    make flips FLIPS=1000 SEED=5

A round: a few rows are written; one node is killed with SIGKILL; some of its files are damaged; it is started again. What rows
and columns answer is compared with what was written until every replica is back without a fault. A node that refuses to
start says why: it is emptied, as its message asks, and counted. The exit code is 1 if an answer is wrong or a round does not
become whole. Every node is a process of this program on loopback.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples/quickstart"), str(HERE.parent / "cluster")]

import pymysql  # noqa: E402
from tqdm import tqdm  # noqa: E402

from harness import FLIGHT_ERRORS, StatusError  # noqa: E402
from nodes import Nodes  # noqa: E402

WHOLE = 120.0  # most seconds until every replica is back
CHECKS = 0.3  # seconds between two looks at answers and status
ERRORS = (pymysql.err.MySQLError, OSError, StatusError, *FLIGHT_ERRORS)
QUERY = "SELECT COUNT(*), SUM(n), SUM(id), MAX(text) FROM flips.t"


@dataclass
class Round:
    """What one round showed. Times are in seconds."""

    number: int
    node: str
    damage: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    detected: bool = False
    refused: str = ""
    whole: float = 0.0
    wrong: list[str] = field(default_factory=list)


def kind(path: Path) -> str:
    """What a file is for, by its place."""
    name, parts = path.name, path.parts
    if path.suffix in (".raftlog", ".rewrite"):
        return "Raft log"
    if "tables" in parts:
        return "key-value table"
    if path.suffix == ".jnl":
        return "key-value journal"
    if "fjall" in parts:
        return "key-value catalog"
    if path.suffix in (".parquet", ".keys"):
        return "columns"
    return name


def files(nodes: Nodes, node: str) -> dict[str, list[Path]]:
    """A node's files that hold anything, by kind; what is kept aside is nobody's any more."""
    folder = nodes.data / node
    found: dict[str, list[Path]] = {}
    for top in (folder, nodes.log_dir(folder)):
        for path in sorted(top.rglob("*")):
            if path.is_file() and path.stat().st_size and not any(part.endswith(".damaged") for part in path.parts):
                found.setdefault(kind(path), []).append(path)
    return found


def written(path: Path) -> int:
    """Bytes of a file up to the last that is not zero: journals end in megabytes of nothing."""
    with path.open("rb") as file:
        return max(1, len(file.read(4 << 20).rstrip(b"\0")))


def damage(path: Path, chance: random.Random) -> str:
    at = chance.randrange(written(path))
    with path.open("r+b") as file:
        if chance.random() < 0.2:
            file.truncate(at)
            return f"{path.name} cut at {at}"
        file.seek(at)
        # One that an earlier cut has emptied gets a byte.
        byte = file.read(1) or b"\0"
        file.seek(at)
        file.write(bytes([byte[0] ^ (1 << chance.randrange(8))]))
        return f"{path.name} flipped at {at}"


class Expected:
    """The rows that are there, and their answer."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, nodes: Nodes, count: int) -> None:
        """Writes rows; one statement may be repeated, so it replaces."""
        first, self.rows = self.rows, self.rows + count
        values = ",".join(f"({n}, {n % 97}, 'text {n % 1000:04}')" for n in range(first, self.rows))
        until = time.monotonic() + 60
        while True:
            try:
                nodes.sql(f"REPLACE INTO flips.t VALUES {values}")
                return
            except ERRORS:
                if time.monotonic() > until:
                    raise
                time.sleep(CHECKS)

    def answer(self) -> list[tuple]:
        rows = range(self.rows)
        largest = max(n % 1000 for n in rows)
        return [(self.rows, sum(n % 97 for n in rows), sum(rows), f"text {largest:04}")]


def look(nodes: Nodes, expected: Expected, one: Round) -> bool:
    """Asks rows and columns, and whether everything is there without a fault. Notes wrong answers."""
    right, good = expected.answer(), True
    for engine in ("tikv", "tiflash"):
        try:
            got = nodes.read(engine, QUERY)
        except ERRORS:
            good = False
            continue
        if got != right:
            one.wrong.append(f"{engine} answered {got}, not {right}")
    try:
        status = nodes.status()
        up = sum(node["up"] for node in status["nodes"]) >= len(nodes.names())
        return good and up and nodes.is_whole() and not any(node["faults"] for node in status["nodes"])
    except ERRORS:
        return False


def play(nodes: Nodes, expected: Expected, number: int, each: int, chance: random.Random) -> Round:
    one = Round(number, chance.choice(nodes.names()))
    expected.write(nodes, chance.randrange(1, 200))
    nodes.kill(one.node)
    by_kind = files(nodes, one.node)
    for _ in range(each):
        chosen = chance.choice(sorted(by_kind))
        one.kinds.append(chosen)
        one.damage.append(damage(chance.choice(by_kind[chosen]), chance))
    seen = len(nodes.log(one.node))
    process = nodes.run(one.node)
    began = time.monotonic()
    # For some seconds placement still counts a node as up that was killed: this process has to have come up.
    while not ("is listening" in nodes.log(one.node)[seen:] and process.poll() is None and look(nodes, expected, one)):
        if time.monotonic() - began > WHOLE:
            one.wrong.append(f"not whole after {WHOLE:.0f} s: {nodes.status_text()[:2000]}")
            break
        if process.poll() is not None and not one.refused:
            one.refused = nodes.log(one.node)[seen:].strip().splitlines()[-1][-300:]
            nodes.empty(one.node)
            process = nodes.run(one.node)
        time.sleep(CHECKS)
    one.whole = time.monotonic() - began
    said = nodes.log(one.node)[seen:]
    one.detected = bool(one.refused) or any(word in said for word in ("damaged", "quarantined", "corrupt", "torn", "lost"))
    return one


def summary(rounds: list[Round]) -> str:
    kinds: Counter[str] = Counter(kind for one in rounds for kind in one.kinds)
    undetected = Counter(kind for one in rounds if not one.detected for kind in one.kinds)
    lines = ["| file | damaged | of these in rounds where nothing was noticed |", "|---|---|---|"]
    lines += [f"| {kind} | {count} | {undetected[kind]} |" for kind, count in sorted(kinds.items())]
    wrong = sum("answered" in what for one in rounds for what in one.wrong)
    stuck = sum("not whole" in what for one in rounds for what in one.wrong)
    refused = Counter(one.refused.split("ERROR")[-1][:100] for one in rounds if one.refused)
    lines += [
        "",
        f"{len(rounds)} rounds, {sum(kinds.values())} times damaged: {sum(one.detected for one in rounds)} rounds noticed it, "
        f"{wrong} answers wrong, {stuck} rounds not whole again, {sum(refused.values())} nodes refused to start; "
        f"slowest to be whole {max((one.whole for one in rounds), default=0):.1f} s",
    ]
    lines += [f"refused {count} times: {why}" for why, count in refused.most_common()]
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--isobar", type=Path, required=True, help="the isobar binary")
    options.add_argument("--flips", type=int, default=100, help="how many flips and truncations in all")
    options.add_argument("--each", type=int, default=4, help="of these in one round")
    options.add_argument("--seed", type=int, default=1, help="what all choices come from")
    options.add_argument("--json", type=Path, help="file for a line of each round")
    given = options.parse_args()
    chance, rounds = random.Random(given.seed), []
    with TemporaryDirectory(prefix="isobar-flips-") as folder:
        # Two: damage to one columnar node leaves a replica, and its peers are made anew beside it.
        nodes = Nodes(given.isobar, Path(folder) / "nodes", columnar=2)
        try:
            nodes.start()
            nodes.sql("CREATE DATABASE flips", "CREATE TABLE flips.t (id INT PRIMARY KEY, n INT, text VARCHAR(20))")
            expected = Expected()
            expected.write(nodes, 5_000)
            nodes.sql("SPLIT TABLE flips.t REGIONS 4", "ALTER TABLE flips.t SET COLUMNAR REPLICA 2")
            nodes.wait_available("flips.t")
            number = given.flips // given.each
            with tqdm(total=number, unit="round", disable=None) as bar:
                for at in range(number):
                    one = play(nodes, expected, at, given.each, chance)
                    rounds.append(one)
                    if given.json:
                        with given.json.open("a") as file:
                            print(json.dumps(asdict(one)), file=file)
                    if one.wrong:
                        print(f"round {at}: {one}", file=sys.stderr)
                    bar.update()
        except KeyboardInterrupt:
            print("interrupted: what was found up to here", file=sys.stderr)
        finally:
            nodes.stop()
    print(summary(rounds))
    return int(any(one.wrong for one in rounds))


if __name__ == "__main__":
    sys.exit(main())
