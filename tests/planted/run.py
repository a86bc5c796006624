"""Plants each bug of this folder in a copy of the tree, runs the test that should catch it, and prints a table.

    make planted                      # all of them
    make planted BUGS='raft-* sql-*'  # some

A patch begins with what it breaks, and a line `Caught by: …`: a command, run at the top of the copy; `{isobar}` stands for
the copy's own binary, which is built first where it occurs. A bug is caught if the command fails; one whose
command passes, or whose patch does not apply any more, fails the run. Nothing planted ever touches the checkout itself.
"""

import argparse
import fnmatch
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 1800  # seconds for one bug, the build included


class Bug:
    """One patch and what it says of itself."""

    def __init__(self, path: Path):
        self.path, self.name = path, path.stem
        head = path.read_text(encoding="utf-8").split("diff --git", 1)[0]
        found = re.search(r"^caught by: (.+)$", head, re.MULTILINE | re.IGNORECASE)
        if not found:
            raise SystemExit(f"{path}: no line `Caught by: …` above the patch")
        # Where several tests catch it, the first is run; what stands in brackets is for the reader.
        self.command = found[1].split(" (")[0].removesuffix(", and").strip()
        self.breaks = " ".join(head[: found.start()].split())


def run(command: str, where: Path, log: Path, seconds: float) -> int:
    """A command's exit code, or 124 when its time is up; what it prints goes to the log."""
    with log.open("a", encoding="utf-8") as output:
        print(f"$ {command}", file=output, flush=True)
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=where, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return 124


def judge(bug: Bug, copy: Path, log: Path) -> tuple[str, float]:
    """What became of a bug, and the seconds that its test took."""
    if run(f"git apply {shlex.quote(str(bug.path))}", copy, log, 60) != 0:
        return "does not apply", 0.0
    try:
        target = os.environ["CARGO_TARGET_DIR"]
        command = bug.command.replace("{isobar}", f"{target}/debug/isobar").replace("{python}", sys.executable)
        build = "cargo build --locked -p isobar" if "{isobar}" in bug.command else None
        if "cargo test" in bug.command:
            build = bug.command.split(" -- ")[0] + " --no-run"
        if build and run(build, copy, log, LIMIT) != 0:
            return "does not compile", 0.0
        began = time.monotonic()
        code = run(command, copy, log, LIMIT)
        return ("NOT CAUGHT" if code == 0 else "caught"), time.monotonic() - began
    finally:
        run("git checkout -q -- . && git clean -fdq", copy, log, 60)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--copy", type=Path, required=True, help="folder for the copy of the tree")
    options.add_argument("bugs", nargs="*", default=["*"], help="names, with * and ?")
    given = options.parse_args()
    bugs = [Bug(path) for path in sorted(HERE.glob("*.patch"))]
    bugs = [bug for bug in bugs if any(fnmatch.fnmatch(bug.name, wanted) for wanted in given.bugs)]
    subprocess.run(["git", "worktree", "remove", "--force", str(given.copy)], cwd=ROOT, capture_output=True)
    subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(given.copy), "HEAD"], cwd=ROOT, check=True)
    missed = 0
    try:
        for at, bug in enumerate(bugs, 1):
            verdict, seconds = judge(bug, given.copy, given.copy.with_suffix(".log"))
            missed += verdict != "caught"
            print(f"{at:3}/{len(bugs)}  {verdict:16} {seconds:6.1f} s  {bug.name}: {bug.breaks}", flush=True)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(given.copy)], cwd=ROOT, capture_output=True)
    print(f"{len(bugs) - missed} of {len(bugs)} caught; logs in {given.copy.with_suffix('.log')}")
    return 1 if missed or not bugs else 0


if __name__ == "__main__":
    sys.exit(main())
