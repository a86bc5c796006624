"""Prints the twenty slowest parts of a test run: Rust's test binaries, Scala's suites, single tests of clusters.

It reads what the run left in a folder (rust.log, and JUnit reports) and must never fail a run that was green.
"""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

SHOWN = 20
BINARY = re.compile(r"^\s+(?:Running .*\(.*/deps/(?P<name>.+)-[0-9a-f]{16}\)|Doc-tests (?P<doc>\S+))$")
FINISHED = re.compile(r"^test result: .*; finished in (?P<seconds>[0-9.]+)s$")


def rust(log: Path) -> list[tuple[float, str]]:
    """Seconds of each test binary. Cargo does not report those of single tests."""
    found, name = [], "?"
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if started := BINARY.match(line):
            name = started["name"] or f"documentation of {started['doc']}"
        elif finished := FINISHED.match(line):
            found.append((float(finished["seconds"]), f"cargo test: {name}"))
    return found


def suites(report: Path) -> list[tuple[float, str]]:
    """Seconds of each Scala suite."""
    return [(float(suite.get("time", 0)), f"sbt: {suite.get('name')}") for suite in ElementTree.parse(report).iter("testsuite")]


def cases(report: Path) -> list[tuple[float, str]]:
    """Seconds of each test of a cluster, its fixtures included."""
    found = ElementTree.parse(report).iter("testcase")
    return [(float(case.get("time", 0)), f"{case.get('classname')}: {case.get('name')}") for case in found]


def main(folder: Path, scala: Path) -> None:
    times = []
    for path in folder.glob("rust.log"):
        times += rust(path)
    for path in scala.glob("TEST-*.xml"):
        times += suites(path)
    for path in folder.glob("cluster.xml"):
        times += cases(path)
    print(f"The {SHOWN} slowest of {len(times)}, in seconds:")
    for seconds, name in sorted(times, reverse=True)[:SHOWN]:
        print(f"{seconds:8.1f}  {name}")


main(Path(sys.argv[1]), Path(sys.argv[2]))
