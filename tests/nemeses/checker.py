"""Judges histories of list-append transactions: is there an order of commits that snapshot isolation allows?

A key holds a list; transactions append values that are unique and read whole lists, so the order of writes is seen in
what was read (Kingsbury and Alvaro, "Elle", VLDB 2020). By Cerone and Gotsman ("Analysing Snapshot Isolation", PODC
2016) a history is snapshot isolation's if no cycle has each of its anti-dependencies behind a dependency. Unknown
outcomes count as committed where a read shows them, and as nothing otherwise. It reads histories, and no server.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


@dataclass
class Transaction:
    """What a client did and got back; times are seconds of one monotonic clock."""

    operations: list[tuple[str, int, object]] = field(default_factory=list)  # ("append", key, value), ("read", key, [values])
    outcome: str = UNKNOWN
    began: float = 0.0
    ended: float = 0.0

    def appended(self, key: int) -> list[int]:
        return [value for kind, at, value in self.operations if kind == "append" and at == key]


def judge(history: list[Transaction]) -> list[str]:
    """What is wrong with a history, one line each: the anomaly's name, and what shows it."""
    writers = {
        (key, value): transaction
        for transaction in history
        for kind, key, value in transaction.operations
        if kind == "append"
    }
    found = [*internal(history), *reads(history, writers)]
    orders, wrong = longest(history)
    found += wrong
    seen = {(key, value) for key, order in orders.items() for value in order}
    found += stale(history)
    committed = [t for t in history if t.outcome == OK or any((k, v) in seen for kind, k, v in t.operations if kind == "append")]
    return found + cycles(committed, orders, writers)


def internal(history: list[Transaction]) -> list[str]:
    """A transaction's own appends must be at the end of what it reads afterwards, and reads of one key agree."""
    found = []
    for transaction in history:
        own, last = defaultdict(list), {}
        for kind, key, value in transaction.operations:
            if kind == "append":
                own[key].append(value)
                continue
            if value[len(value) - len(own[key]) :] != own[key]:
                found.append(f"internal: key {key} read as {value} after appending {own[key]}")
            base = value[: len(value) - len(own[key])]
            if last.setdefault(key, base) != base:
                found.append(f"internal: key {key} read as {last[key]} and then {base} in one transaction")
    return found


def reads(history: list[Transaction], writers: dict) -> list[str]:
    """Aborted, unknown, doubled and intermediate values in what was read."""
    found = []
    for transaction in history:
        for kind, key, values in transaction.operations:
            if kind != "read":
                continue
            found += [f"duplicate: {value} twice in key {key}" for value, n in Counter(values).items() if n > 1]
            for at, value in enumerate(values):
                writer = writers.get((key, value))
                if writer is None:
                    found.append(f"garbage: {value} in key {key} was never appended")
                elif writer.outcome == FAILED and writer is not transaction:
                    found.append(f"G1a aborted read: {value} in key {key}")
                elif writer is not transaction and at == len(values) - 1 and writer.appended(key)[-1] != value:
                    found.append(f"G1b intermediate read: {value} in key {key}")
    return found


def longest(history: list[Transaction]) -> tuple[dict[int, list[int]], list[str]]:
    """Each key's order of values, and reads that fit no common order."""
    orders: dict[int, list[int]] = {}
    everything = [(key, values) for t in history if t.outcome != FAILED for kind, key, values in t.operations if kind == "read"]
    for key, values in everything:
        if len(values) > len(orders.get(key, [])):
            orders[key] = values
    found = [
        f"incompatible order: key {key} read as {values}, and as {orders[key]}"
        for key, values in everything
        if values != orders.get(key, [])[: len(values)]
    ]
    return orders, found


def stale(history: list[Transaction]) -> list[str]:
    """A transaction sees every append that was acknowledged before it began."""
    found = []
    acknowledged = defaultdict(list)
    for transaction in history:
        if transaction.outcome == OK:
            for kind, key, value in transaction.operations:
                if kind == "append":
                    acknowledged[key].append((transaction.ended, value))
    for transaction in history:
        for kind, key, values in transaction.operations:
            if kind == "read":
                missing = [value for ended, value in acknowledged[key] if ended < transaction.began and value not in values]
                if missing:
                    found.append(f"lost or stale: key {key} read as {values} without {missing}, acknowledged before")
    return found


def cycles(committed: list[Transaction], orders: dict[int, list[int]], writers: dict) -> list[str]:
    """A cycle of dependencies with no two anti-dependencies beside each other, if there is one."""
    number = {id(transaction): at for at, transaction in enumerate(committed)}
    after, anti = defaultdict(set), defaultdict(set)
    writer = lambda key, value: number.get(id(writers.get((key, value))))  # noqa: E731
    for key, order in orders.items():
        for one, two in zip(order, order[1:]):
            after[writer(key, one)].add(writer(key, two))
    for transaction in committed:
        me = number[id(transaction)]
        for kind, key, values in transaction.operations:
            if kind != "read":
                continue
            order = orders.get(key, [])
            others = [value for value in values if writer(key, value) != me]
            if others:
                after[writer(key, others[-1])].add(me)
            if len(values) < len(order):
                anti[me].add(writer(key, order[len(values)]))
    graph: dict[int, set[int]] = defaultdict(set)  # successors, as TopologicalSorter's predecessors: cycles are the same
    for one, successors in after.items():
        for two in successors - {one, None}:
            graph[one].add(two)
            graph[one] |= anti[two] - {None}
    for at, successors in graph.items():
        if at in successors:
            return [f"G-single: transaction {committed[at].operations} both precedes and follows its dependency"]
    try:
        TopologicalSorter(graph).prepare()
        return []
    except CycleError as cycle:
        shown = " -> ".join(str(committed[at].operations) for at in cycle.args[1])
        single = any(two not in after[one] for one, two in zip(cycle.args[1], cycle.args[1][1:]))
        return [f"{'G-single or G-SI' if single else 'G0 or G1c'}: {shown}"]
