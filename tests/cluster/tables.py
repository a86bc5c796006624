"""Prints what the tests noted of clients, scripts and column types (ISOBAR_RESULTS) as Markdown tables.

It must never count anything that a test did not note.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

KINDS = ("agrees", "differs", "refused", "not run")


def main(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    print("| client | works | fails | what fails |\n|---|---|---|---|")
    clients = defaultdict(list)
    for line in lines:
        if line["table"] == "clients":
            clients[line["client"]].append(line)
    for client, steps in clients.items():
        failed = [step for step in steps if step["result"] != "works"]
        reasons = "; ".join(f"{step['did']}: {step.get('why', step['result'])}" for step in failed)
        print(f"| {client} | {len(steps) - len(failed)} | {len(failed)} | {reasons} |")
    print("\n| reader | agrees | differs | refused | not run |\n|---|---|---|---|---|")
    readers: dict[str, Counter] = defaultdict(Counter)
    for line in lines:
        if line["table"] == "scripts":
            readers[line["reader"]].update({kind: line[kind] for kind in KINDS})
    for reader, counts in readers.items():
        print(f"| {reader} | " + " | ".join(str(counts[kind]) for kind in KINDS) + " |")
    types = [line for line in lines if line["table"] == "types"]
    if types:
        names = list(types[0]["cells"])
        print("\n| type | " + " | ".join(names) + " |\n|" + "---|" * (1 + len(readers)))
    for line in types:
        print(f"| {line['type']} | " + " | ".join(line["cells"][reader] for reader in names) + " |")


main(Path(sys.argv[1]))
