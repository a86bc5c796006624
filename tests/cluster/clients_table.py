"""What clients did and whether it worked: the lines that `make tables` gathers.

It must never turn a failure into anything but a failure: a step that is known to fail has its reason, and fails the
test when it works.
"""

import json
import os
from collections.abc import Callable


class Steps:
    """The steps of one client."""

    def __init__(self, client: str, known: dict[str, str]):
        self.client, self.known = client, known
        self.wrong: list[str] = []
        self.seen: set[str] = set()

    def note(self, did: str, error: str) -> None:
        """One step that was done, and its error or nothing."""
        self.seen.add(did)
        reason = self.known.get(did)
        error = " ".join(error.split())[:300]
        line = {"table": "clients", "client": self.client, "did": did, "result": f"fails: {error}" if error else "works"}
        if reason:
            line["why"] = reason
        print(json.dumps(line, ensure_ascii=False))
        if os.environ.get("ISOBAR_RESULTS"):
            with open(os.environ["ISOBAR_RESULTS"], "a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        if error and not reason:
            self.wrong.append(f"{did}: {error}")
        if reason and not error:
            self.wrong.append(f"{did} works now: it is no known failure any more")

    def step(self, did: str, work: Callable[[], object]) -> None:
        try:
            work()
            error = ""
        except Exception as problem:  # noqa: BLE001: whatever it is, it is the outcome
            error = repr(problem)
        self.note(did, error)

    def lines(self, output: str) -> None:
        """The steps of a program that prints one line of JSON for each."""
        for line in output.splitlines():
            if line.startswith("{"):
                done = json.loads(line)
                self.note(done["did"], done["error"])

    def check(self, least: int) -> None:
        assert len(self.seen) >= least, f"{self.client}: only {sorted(self.seen)} were done"
        unknown = sorted(set(self.known) - self.seen)
        assert not unknown, f"{self.client}: no such steps: {unknown}"
        assert not self.wrong, f"{self.client}:\n" + "\n".join(self.wrong)
