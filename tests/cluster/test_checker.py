"""The checker of list-append histories, on anomalies that are known and on histories that are right."""

import random

import pytest

from checker import FAILED, OK, UNKNOWN, Transaction, judge


def t(*operations, outcome=OK, began=0.0, ended=1000.0) -> Transaction:
    return Transaction(list(operations), outcome, began, ended)


def append(key, value):
    return ("append", key, value)


def read(key, *values):
    return ("read", key, list(values))


ANOMALIES = {
    "garbage": [t(read(1, 7))],
    "G1a": [t(append(1, 1), outcome=FAILED), t(read(1, 1))],
    "G1b": [t(append(1, 1), append(1, 2)), t(read(1, 1)), t(read(1, 1, 2))],
    "duplicate": [t(append(1, 1)), t(read(1, 1, 1))],
    "internal": [t(append(1, 1)), t(append(1, 2), read(1, 1))],
    "incompatible": [t(append(1, 1)), t(append(1, 2)), t(read(1, 1, 2)), t(read(1, 2))],
    "G1c": [t(append(1, 1), read(2, 2)), t(append(2, 2), read(1, 1))],
    "G0": [t(append(1, 1), append(2, 1)), t(append(1, 2), append(2, 2)), t(read(1, 1, 2), read(2, 2, 1))],
    # One read before the other's write of key 1, and after its write of key 2.
    "G-single": [t(append(1, 1), append(2, 1)), t(read(1), read(2, 1)), t(read(1, 1))],
    # Both read the list, both append to it: one update is lost.
    "lost update": [t(read(1), append(1, 1)), t(read(1), append(1, 2)), t(read(1, 1, 2))],
    "lost or stale": [t(append(1, 1), ended=1.0), t(read(1), began=2.0)],
    # Four transactions whose two anti-dependencies are apart: forbidden, though no cycle has one alone.
    "long fork": [t(append(1, 1)), t(append(2, 1)), t(read(1, 1), read(2)), t(read(1), read(2, 1))],
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_known_anomalies_are_found(name):
    assert judge(ANOMALIES[name])


def test_write_skew_and_unknown_outcomes_are_allowed():
    skew = [t(read(1), append(2, 1)), t(read(2), append(1, 1)), t(read(1, 1), read(2, 1))]
    assert judge(skew) == []
    assert judge([t(append(1, 1), outcome=UNKNOWN), t(read(1, 1))]) == []
    assert judge([t(append(1, 1), outcome=UNKNOWN), t(read(1))]) == []


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_snapshot_store_are_right_and_broken_ones_are_not(seed):
    """A store of snapshots, first committer wins; then the same history with one value missing in one read."""
    chance, lists, versions, clock, history, value = random.Random(seed), [{}], {}, 0.0, [], 0
    running: list[tuple[Transaction, int, dict, set]] = []
    for _ in range(400):
        clock += 1
        if len(running) < 4:
            running.append((Transaction(began=clock), len(lists) - 1, {k: list(v) for k, v in lists[-1].items()}, set()))
        transaction, start, mine, written = chance.choice(running)
        key = chance.randrange(4)
        if chance.random() < 0.25:
            running = [entry for entry in running if entry[0] is not transaction]
            wins = all(versions.get(k, 0) <= start for k in written)
            transaction.outcome, transaction.ended = (OK if wins else FAILED), clock
            if wins and written:
                lists.append({**lists[-1], **{k: mine[k] for k in written}})
                versions.update(dict.fromkeys(written, len(lists) - 1))
            history.append(transaction)
        elif chance.random() < 0.5:
            value += 1
            mine.setdefault(key, []).append(value)
            written.add(key)
            transaction.operations.append(append(key, value))
        else:
            transaction.operations.append(read(key, *mine.get(key, [])))
    assert judge(history) == []
    victims = [
        (operation[2], at)
        for transaction in history
        if transaction.outcome == OK
        for operation in transaction.operations
        if operation[0] == "read" and len(operation[2]) > 2
        for at in range(len(operation[2]) - 1)
    ]
    values, at = chance.choice(victims)
    del values[at]
    assert judge(history)
