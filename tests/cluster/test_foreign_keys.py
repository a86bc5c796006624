"""Foreign keys over a cluster whose processes die: no child is ever without its parent, on rows or on columns."""

import os
import random
import threading
from collections import Counter

import pymysql
import pytest

from harness import Cluster, wait_until

pytestmark = pytest.mark.own_cluster

# A row without a parent, a parent with children, one that is there already; a lost race, and a table that has changed.
EXPECTED = (1452, 1451, 1062, 1213, 1205, 1412)
ROUNDS = int(os.environ.get("ISOBAR_KILL_ROUNDS", "1"))
PARENTS = 40
CHILDREN = ["restricted", "cascaded", "nulled"]


class Family:
    """Clients that add, move and end parents and children, each statement or short transaction at random."""

    def __init__(self, cluster: Cluster, database: str, keys: bool = True):
        self.cluster, self.database = cluster, database
        self.done: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.failure: BaseException | None = None
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        actions = {
            "restricted": "FOREIGN KEY (p) REFERENCES parent (id)",
            "cascaded": "FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE",
            "nulled": "FOREIGN KEY (p) REFERENCES parent (code) ON DELETE SET NULL ON UPDATE CASCADE",
        }
        cluster.sql(
            f"CREATE DATABASE {database}",
            f"USE {database}",
            "CREATE TABLE parent (id INT PRIMARY KEY, code INT UNIQUE)",
            *(
                f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, p INT, note INT, KEY (p)"
                f"{', CONSTRAINT ' + name + ' ' + actions[name] if keys else ''})"
                for name in CHILDREN
            ),
            f"INSERT INTO parent VALUES {','.join(f'({n}, {n})' for n in range(PARENTS))}",
        )

    def __enter__(self) -> "Family":
        for seed in range(4):
            thread = threading.Thread(target=self._run, args=(seed,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(70)
        assert not any(thread.is_alive() for thread in self._threads), "a statement hangs"
        if self.failure is not None:
            raise self.failure

    def wait_for(self, more: int, seconds: float = 60) -> None:
        target = self.done.total() + more
        ended = lambda: self.failure is not None or self.done.total() >= target  # noqa: E731
        wait_until(f"{more} more changes", ended, seconds)

    def orphans(self, engine: str = "tikv") -> dict[str, int]:
        """Children without a parent, by table."""
        found = {}
        for name in CHILDREN:
            column = "code" if name == "nulled" else "id"
            query = (
                f"SELECT COUNT(*) FROM {self.database}.{name} c LEFT JOIN {self.database}.parent p ON p.{column} = c.p "
                "WHERE c.p IS NOT NULL AND p.id IS NULL"
            )
            found[name] = self.cluster.read(engine, query)[0][0]
        return found

    def _run(self, seed: int) -> None:
        draw, connection = random.Random(seed), None
        while not self._end.is_set():
            kind, statements = self._change(draw)
            try:
                if connection is None:
                    connection = self.cluster.connect(database=self.database, read_timeout=40)
                with connection.cursor() as cursor:
                    for statement in statements:
                        cursor.execute(statement)
                self.done[kind] += 1
            except pymysql.err.MySQLError as error:
                code = error.args[0]
                if code in (1064, 1146, 1054, 1235):  # the statement itself is refused: a test's mistake
                    self.failure = error
                    return
                self.refused[code] += 1
                if code in EXPECTED:
                    with connection.cursor() as cursor:
                        cursor.execute("ROLLBACK")
                    continue
                connection = self._drop(connection)
            except (OSError, EOFError):
                connection = self._drop(connection)
        self._drop(connection)

    def _drop(self, connection: pymysql.connections.Connection | None) -> None:
        if connection is not None:
            try:
                connection.close()
            except (pymysql.err.Error, OSError):
                pass
        self._end.wait(0.1)

    def _change(self, draw: random.Random) -> tuple[str, list[str]]:
        one, other, child = draw.randrange(PARENTS), draw.randrange(PARENTS), draw.choice(CHILDREN)
        changes = {
            "child comes": [f"INSERT INTO {child} (p, note) VALUES ({one}, {other})"],
            "children come": [f"INSERT INTO {child} (p) VALUES ({one}), ({other}), (NULL)"],
            "child moves": [f"UPDATE {child} SET p = {one} WHERE p = {other} LIMIT 1"],
            "children go": [f"DELETE FROM {child} WHERE p = {one}"],
            "parent comes": [f"INSERT INTO parent VALUES ({one}, {one})"],
            "parent goes": [f"DELETE FROM parent WHERE id = {one}"],
            "parents go": [f"DELETE FROM parent WHERE id IN ({one}, {other})"],
            "code changes": [f"UPDATE parent SET code = {draw.randrange(PARENTS)} WHERE id = {one}"],
            "parent is replaced": [f"REPLACE INTO parent VALUES ({one}, {other})"],
        }
        kind = draw.choice(list(changes))
        statements = changes[kind]
        if draw.random() < 0.4:
            begin = draw.choice(["BEGIN", "BEGIN OPTIMISTIC"])
            statements = [begin, *statements, f"INSERT INTO {child} (p) VALUES ({other})", "COMMIT"]
        return kind, statements


@pytest.mark.timeout(120 + 180 * ROUNDS)
def test_no_child_is_without_its_parent_while_processes_die(cluster: Cluster):
    family = Family(cluster, "family")
    for table in ["parent", *CHILDREN]:
        cluster.replicate(f"family.{table}")
    with family:
        family.wait_for(200)
        for name in ["row-1", "row-2", "row-3", "sql"] * ROUNDS:
            pid = cluster.kill(name)
            family.wait_for(60)
            cluster.wait_restarted(name, pid)
            family.wait_for(60)
            assert family.orphans() == dict.fromkeys(CHILDREN, 0)
    none = dict.fromkeys(CHILDREN, 0)
    assert family.orphans() == none
    assert family.orphans("tiflash") == none
    print(f"{family.done.total()} changes, refused by number: {dict(family.refused)}")
    # Each of the changes came about, and each of the keys was in somebody's way.
    assert len(family.done) == 9, family.done
    assert family.refused[1451] > 0 and family.refused[1452] > 0, family.refused


@pytest.mark.timeout(240)
def test_a_key_that_is_added_beside_writers_holds_from_then_on(cluster: Cluster):
    family = Family(cluster, "later", keys=False)
    with family:
        family.wait_for(200)
        for name in CHILDREN:
            column = "code" if name == "nulled" else "id"
            added = False
            for _ in range(200):
                # What breaks it goes first; then others may be quicker again.
                cluster.sql(f"DELETE FROM later.{name} WHERE p NOT IN (SELECT {column} FROM later.parent WHERE {column} IS NOT NULL)")
                try:
                    cluster.sql(
                        "USE later",
                        f"ALTER TABLE {name} ADD CONSTRAINT k_{name} FOREIGN KEY (p) REFERENCES parent ({column}) ON DELETE CASCADE ON UPDATE CASCADE",
                    )
                    added = True
                    break
                except pymysql.err.MySQLError as error:
                    assert error.args[0] == 1452, error
            assert added, "the key was never added"
        family.wait_for(100)
    assert family.orphans() == dict.fromkeys(CHILDREN, 0)
    keys = cluster.sql("SELECT constraint_name FROM information_schema.referential_constraints WHERE constraint_schema = 'later' ORDER BY 1")
    assert keys == [("k_cascaded",), ("k_nulled",), ("k_restricted",)]
