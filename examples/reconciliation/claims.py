"""At most one reconciliation of a table at a time.

A claim is a line for each table. It is taken from another run only when that run's heartbeat has stopped; and since
every batch of corrections locks the claim's line in its own transaction, a run whose tables were taken over cannot
write another row, however late it wakes up.
"""

import os
import socket
import threading
import time
import uuid

from pymysql.cursors import Cursor

from errors import AlreadyRunning, TargetGone
from journal import DATABASE
from target import Target

HEARTBEAT_SECONDS = 2
# A run without a heartbeat for so long is dead, or must not go on.
SILENT_SECONDS = 15


class Claims:
    """The tables of a run, held by this process."""

    def __init__(self, target: Target, run: str, tables: list[str]):
        self._target = target
        self._run = run
        self._tables = sorted(tables)
        self.owner = f"{socket.gethostname()[:60]}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, args=(target.another(HEARTBEAT_SECONDS),), daemon=True)

    def take(self) -> None:
        """Claims every table, or raises and claims none.

        The run's own earlier process, killed a moment ago, may still look alive: it is waited for.
        """
        deadline = time.monotonic() + SILENT_SECONDS + 2 * HEARTBEAT_SECONDS
        self._target.transaction(self._heartbeat)
        while True:
            held = self._target.transaction(self._try)
            if held is None:
                self._thread.start()
                return
            table, run, owner, silent = held
            if run != self._run or time.monotonic() > deadline:
                self._target.transaction(self._forget)
                raise AlreadyRunning(
                    f"{table} is being reconciled by run {run} ({owner}, last heartbeat {silent:.0f} s ago): "
                    f"wait for it, or stop it and try again {SILENT_SECONDS} s later"
                )
            time.sleep(HEARTBEAT_SECONDS / 4)

    def hold(self, cursor: Cursor, table: str) -> None:
        """Within a transaction: keeps the table from changing hands until COMMIT, or raises because it has."""
        cursor.execute(f"SELECT run, owner FROM {DATABASE}.claims WHERE target = %s FOR UPDATE", (table,))
        found = cursor.fetchone()
        if found is None or found[1] != self.owner:
            by = f"run {found[0]} ({found[1]})" if found else "somebody who has ended"
            raise AlreadyRunning(f"{table} was taken over by {by} while this run was silent: nothing more is written")

    def release(self) -> None:
        """Gives the tables back; those of a process that dies are free once it has been silent for long enough."""
        self._end.set()
        self._thread.join(60)
        try:
            self._target.another(retry_timeout=SILENT_SECONDS).transaction(self._forget)
        except TargetGone:
            pass

    def _forget(self, cursor: Cursor) -> None:
        cursor.execute(f"DELETE FROM {DATABASE}.claims WHERE owner = %s", (self.owner,))
        cursor.execute(f"DELETE FROM {DATABASE}.beats WHERE owner = %s", (self.owner,))

    def _try(self, cursor: Cursor) -> tuple[str, str, str, float] | None:
        for table in self._tables:
            cursor.execute(f"SELECT run, owner FROM {DATABASE}.claims WHERE target = %s FOR UPDATE", (table,))
            found = cursor.fetchone()
            if found is None:
                continue
            run, owner = found
            cursor.execute(
                f"SELECT TIMESTAMPDIFF(MICROSECOND, beat, NOW(6)) FROM {DATABASE}.beats WHERE owner = %s", (owner,)
            )
            heartbeat = cursor.fetchone()
            if heartbeat is not None and heartbeat[0] < SILENT_SECONDS * 1_000_000:
                return table, run, owner, heartbeat[0] / 1_000_000
            cursor.execute(f"DELETE FROM {DATABASE}.claims WHERE target = %s", (table,))
            cursor.execute(f"DELETE FROM {DATABASE}.beats WHERE owner = %s", (owner,))
        for table in self._tables:
            cursor.execute(
                f"INSERT INTO {DATABASE}.claims VALUES (%s, %s, %s, NOW(6))", (table, self._run, self.owner)
            )
        return None

    def _heartbeat(self, cursor: Cursor) -> None:
        cursor.execute(f"UPDATE {DATABASE}.beats SET beat = NOW(6) WHERE owner = %s", (self.owner,))
        if cursor.rowcount == 0:
            cursor.execute(f"INSERT INTO {DATABASE}.beats VALUES (%s, NOW(6))", (self.owner,))

    def _keep_alive(self, target: Target) -> None:
        while not self._end.wait(HEARTBEAT_SECONDS):
            try:
                target.transaction(self._heartbeat)
            except TargetGone:
                continue  # the job itself meets the same silence, and decides
        target.drop()
