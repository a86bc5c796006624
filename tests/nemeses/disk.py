"""A node's disk under test: a power loss takes what was written and not synced, wholly or in parts; it can be full or slow.

`disk.c`, preloaded into the node, remembers unsynced changes; `lose`, after the node was killed, takes them back.
Of each file it first restores what was synced, then redoes a random choice of the changes, the last one possibly torn at a
sector: a disk may have written any of them. Names of files are lasting at once, which a real disk does not promise.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORD = struct.Struct("=II5Q")  # as in disk.c
CHANGE, SYNCED = 1, 2
SECTOR = 512


@dataclass
class Change:
    """Bytes at `offset` became others; a file's length before and after. With neither, only its length changed."""

    offset: int
    length_before: int
    length_after: int
    before: bytes
    after: bytes


def build(folder: Path) -> Path:
    """The library to preload, made by the C compiler that the project needs anyway."""
    library = folder / "disk.so"
    command = ["cc", "-O1", "-fPIC", "-shared", "-o", library, HERE / "disk.c", "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=60)
    return library


def environment(data: Path, logs: Path) -> dict[str, str]:
    """What a node needs in its environment beside the preloaded library."""
    logs.mkdir(parents=True, exist_ok=True)
    return {"ISOBAR_DISK_ROOT": str(data.resolve()), "ISOBAR_DISK_LOGS": str(logs.resolve())}


def unsynced(log: bytes) -> list[Change]:
    """A file's changes since its last sync, oldest first."""
    changes, at, synced = [], 0, 0
    while at + RECORD.size <= len(log):
        kind, _, offset, length_before, length_after, before, after = RECORD.unpack_from(log, at)
        start, end = at + RECORD.size, at + RECORD.size + before + after
        if end > len(log):
            break  # killed while it noted a change, which therefore was not made
        if kind == SYNCED:
            synced = max(synced, offset)
        else:
            held = log[start:end]
            changes.append((at, Change(offset, length_before, length_after, held[:before], held[before:])))
        at = end
    return [change for place, change in changes if place >= synced]


def restore(path: Path, changes: list[Change], chance: random.Random) -> int:
    """Takes changes of a file back, and redoes some; how many are lost."""
    with path.open("r+b") as file:
        for change in reversed(changes):
            file.seek(change.offset)
            file.write(change.before)
            file.truncate(change.length_before)
        # As often as not a disk has written nothing, or a beginning; else any of it.
        kind = chance.choice(["nothing", "nothing", "beginning", "any"])
        count = chance.randint(0, len(changes))
        kept = [kind == "any" and chance.random() < 0.5 or kind == "beginning" and at < count for at in range(len(changes))]
        for change, keep in zip(changes, kept):
            if not keep:
                continue
            after = change.after
            if len(after) > SECTOR and chance.random() < 0.2:
                after = after[: chance.randrange(0, len(after), SECTOR)]
            if change.after:
                file.seek(change.offset)
                file.write(after)
            else:
                file.truncate(change.length_after)
    return kept.count(False)


def lose(data: Path, logs: Path, chance: random.Random) -> str:
    """What a power loss does to a killed node's files; in words, for the report."""
    files = {path.stat().st_ino: path for path in data.rglob("*") if path.is_file()}
    lost, touched = 0, 0
    for log in sorted(path for path in logs.iterdir() if path.name.isdigit()):
        changes = unsynced(log.read_bytes())
        path = files.get(int(log.name))
        if changes and path is not None:
            lost += restore(path, changes, chance)
            touched += 1
        os.unlink(log)
    return f"{lost} unsynced writes of {touched} files"
