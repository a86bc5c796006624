"""The live database: bounded connections, and transactions that are run again when that is safe.

A transaction may be run again only because its work begins by looking whether it was committed before.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from errors import TargetGone

T = TypeVar("T")

# The transaction lost against another one, waited too long for a lock, or was chosen to end a deadlock.
CONFLICTS = {1205, 1213}
# The server, or a part of the cluster behind it, cannot be reached right now.
GONE = {1053, 1158, 1159, 1160, 1161, 2002, 2003, 2006, 2013, 2014, 2055, 9002, 9005}
MOST_CONFLICTS = 50
COMMIT_SECONDS = 30
LOCK_SECONDS = 10
PAUSE = 0.2
LONGEST_PAUSE = 2.0


class Again(Exception):
    """Raised by a transaction's work: roll back and begin once more."""


class Target:
    """Where the live tables are. One connection, made when first needed and made anew when it breaks."""

    def __init__(self, host: str, port: int, user: str, password: str, retry_timeout: float):
        self.host, self.port, self.user = host, port, user
        self._password = password
        self.retry_timeout = retry_timeout
        self.conflicts = 0
        self.reconnects = 0
        self._connection: Connection | None = None

    def another(self, retry_timeout: float) -> "Target":
        """The same database by another connection."""
        return Target(self.host, self.port, self.user, self._password, retry_timeout)

    def transaction(self, work: Callable[[Cursor], T], before_commit: Callable[[], None] = lambda: None) -> T:
        """Runs `work` in one transaction; again after a conflict or a lost connection, within bounds.

        A connection that breaks at COMMIT leaves the outcome unknown: `work` finds out when it is run again.
        """
        since: float | None = None
        conflicts = 0
        while True:
            try:
                return self._once(work, before_commit)
            except Again:
                conflicts += 1
                why: Exception | str = "the work asked for another try"
            except (pymysql.err.MySQLError, OSError, EOFError) as error:
                code = error.args[0] if error.args else None
                why = error
                if code in CONFLICTS:
                    conflicts += 1
                    self.conflicts += 1
                elif code in GONE or isinstance(error, (OSError, EOFError, pymysql.err.InterfaceError)):
                    self.drop()
                    since = since or time.monotonic()
                    self.reconnects += 1
                else:
                    raise
            if conflicts > MOST_CONFLICTS:
                raise TargetGone(
                    f"a transaction at {self.host}:{self.port} lost {conflicts} times in a row against others ({why}): "
                    "start the run again when the tables are quieter, or with a smaller --batch-rows"
                )
            if since is not None and time.monotonic() - since > self.retry_timeout:
                raise TargetGone(
                    f"{self.host}:{self.port} did not answer for {self.retry_timeout:.0f} s ({why}): "
                    "start the run again when it does; what was committed is not repeated"
                )
            time.sleep(min(PAUSE * (1 + conflicts), LONGEST_PAUSE))

    def query(self, statement: str, arguments: tuple = ()) -> list[tuple]:
        """The rows of one statement that may be repeated."""

        def read(cursor: Cursor) -> list[tuple]:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

        return self.transaction(read)

    def _once(self, work: Callable[[Cursor], T], before_commit: Callable[[], None]) -> T:
        connection = self._connected()
        with connection.cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                result = work(cursor)
                before_commit()
                cursor.execute("COMMIT")
                return result
            except BaseException:
                self._roll_back(cursor)
                raise

    def _roll_back(self, cursor: Cursor) -> None:
        try:
            cursor.execute("ROLLBACK")
        except (pymysql.err.Error, OSError, EOFError):
            self.drop()  # the server rolls back what its client left behind

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self._password,
                autocommit=True,
                connect_timeout=10,
                read_timeout=COMMIT_SECONDS,
                write_timeout=COMMIT_SECONDS,
                # TIMESTAMP columns are read and written in UTC, as the lake holds them. A wait for a lock ends before
                # the connection's own timeout does, so that the error names it.
                init_command=f"SET time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_SECONDS}",
            )
        return self._connection

    def drop(self) -> None:
        """Forgets the connection."""
        if self._connection is not None:
            try:
                self._connection.close()
            except (pymysql.err.Error, OSError):
                pass
        self._connection = None


def quoted(name: str) -> str:
    """A name in backquotes, `database.table` part by part."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))
