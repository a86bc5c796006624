"""Prints what the tests noted of clients, scripts and column types (ISOBAR_RESULTS) as Markdown tables.

It must never count anything that a test did not note.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path


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
    print("\n| reader | agrees | differs | refused | not asked |\n|---|---|---|---|---|")
    for line in lines:
        if line["table"] == "scripts":
            print("| " + " | ".join(str(line[k]) for k in ("reader", "agrees", "differs", "refused", "not asked")) + " |")
    types = [line for line in lines if line["table"] == "types"]
    if types:
        readers = list(types[0]["cells"])
        print("\n| type | " + " | ".join(readers) + " |\n|" + "---|" * (1 + len(readers)))
    for line in types:
        print(f"| {line['type']} | " + " | ".join(line["cells"][reader] for reader in readers) + " |")


main(Path(sys.argv[1]))
