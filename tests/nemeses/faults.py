"""What is done to nodes and links while a workload runs. Each fault is undone by `Hosts.heal`, and named with its victim.

A fault never takes more at a time than the cluster promises to survive: a minority of row nodes, and any others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from hosts import Hosts

Fault = Callable[[Hosts, random.Random], str]


def some(cluster: Hosts, chance: random.Random, role: str) -> str:
    return chance.choice([name for name, of in cluster.roles.items() if of == role])


def row(cluster: Hosts, chance: random.Random) -> str:
    """A row node: that with most leaders every other time."""
    return cluster.leader_of_most() if chance.random() < 0.5 else some(cluster, chance, "row")


def kill_row(cluster: Hosts, chance: random.Random) -> str:
    cluster.kill(name := row(cluster, chance))
    return name


def kill_columnar(cluster: Hosts, chance: random.Random) -> str:
    cluster.kill(name := some(cluster, chance, "columnar"))
    return name


def kill_sql(cluster: Hosts, chance: random.Random) -> str:
    cluster.kill(name := some(cluster, chance, "sql"))
    return name


def kill_all(cluster: Hosts, chance: random.Random) -> str:
    for name in cluster.roles:
        cluster.kill(name)
    return "every node"


def pause(cluster: Hosts, chance: random.Random) -> str:
    name = row(cluster, chance) if chance.random() < 0.6 else some(cluster, chance, "columnar")
    cluster.pause(name)
    return name


def isolate_row(cluster: Hosts, chance: random.Random) -> str:
    cluster.isolate(name := row(cluster, chance))
    return name


def cut_one_way(cluster: Hosts, chance: random.Random) -> str:
    """Nothing that one row node sends reaches the other row nodes; what they send reaches it."""
    name = row(cluster, chance)
    for other, role in cluster.roles.items():
        if role == "row" and other != name:
            cluster.cut(name, other)
    return name


def cut_columnar(cluster: Hosts, chance: random.Random) -> str:
    """A columnar node is cut off from the row nodes, not from SQL nodes: it must not answer with what it has."""
    name = some(cluster, chance, "columnar")
    for other, role in cluster.roles.items():
        if role == "row":
            cluster.cut(name, other)
            cluster.cut(other, name)
    return name


def clock(cluster: Hosts, chance: random.Random) -> str:
    name, offset = chance.choice(list(cluster.roles)), chance.choice(["+600", "-600", "+5", "-5"])
    cluster.set_clock(name, offset)
    return f"{name} {offset} s"


def empty_row(cluster: Hosts, chance: random.Random) -> str:
    cluster.empty(name := row(cluster, chance))
    return name


def empty_columnar(cluster: Hosts, chance: random.Random) -> str:
    cluster.empty(name := some(cluster, chance, "columnar"))
    return name


def put_back(cluster: Hosts, chance: random.Random) -> str:
    """What a node has on its disk is replaced by a copy from before the round's end."""
    cluster.put_back_later(name := row(cluster, chance) if chance.random() < 0.6 else some(cluster, chance, "columnar"))
    return name


def run_copy(cluster: Hosts, chance: random.Random) -> str:
    """A second process runs on a copy of a row node's disk, while the first one lives."""
    cluster.run_copy(name := row(cluster, chance))
    return name


def lose_power(cluster: Hosts, chance: random.Random) -> str:
    """Power is lost on one node, or on all of them at once: what was acknowledged was synced on a majority."""
    names = list(cluster.roles) if chance.random() < 0.5 else [row(cluster, chance)]
    lost = {name: cluster.lose_power(name, chance) for name in names}
    return ", ".join(f"{name}: {what}" for name, what in lost.items())


def fill_disk(cluster: Hosts, chance: random.Random) -> str:
    name = row(cluster, chance) if chance.random() < 0.6 else some(cluster, chance, "columnar")
    cluster.set_disk(name, "full")
    return name


def slow_disk(cluster: Hosts, chance: random.Random) -> str:
    cluster.set_disk(name := row(cluster, chance), "slow")
    return name


def flip_segment(cluster: Hosts, chance: random.Random) -> str:
    """A bit of a file of columns, while its node runs."""
    return flip(cluster, chance, some(cluster, chance, "columnar"), "**/*.parquet")


def flip(cluster: Hosts, chance: random.Random, name: str, pattern: str) -> str:
    files = sorted(path for path in (cluster.data / name).glob(pattern) if path.is_file() and path.stat().st_size)
    if not files:
        return f"{name}: no file yet"
    path: Path = chance.choice(files)
    with path.open("r+b") as file:
        at = chance.randrange(path.stat().st_size)
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1 << chance.randrange(8)]))
    return f"{name} {path.relative_to(cluster.data / name)} at {at}"


FAULTS: dict[str, Fault] = {
    "kill a row node": kill_row,
    "kill a columnar node": kill_columnar,
    "kill an SQL node": kill_sql,
    "kill every node": kill_all,
    "pause": pause,
    "isolate a row node": isolate_row,
    "cut one way": cut_one_way,
    "cut a columnar node off rows": cut_columnar,
    "set a clock": clock,
    "empty a row node": empty_row,
    "empty a columnar node": empty_columnar,
    "put an older disk back": put_back,
    "run a copy of a disk": run_copy,
    "lose power": lose_power,
    "fill a disk": fill_disk,
    "slow a disk": slow_disk,
    "flip a bit of columns": flip_segment,
}
