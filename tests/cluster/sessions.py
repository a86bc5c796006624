"""MySQL sessions whose statements can be left waiting.

It must never leave a connection or a thread behind, nor wait for an answer without a bound: connections time out.
"""

from concurrent.futures import Future, ThreadPoolExecutor

import pymysql
import pytest
from pymysql.connections import Connection


class Waiting:
    """A session, and a thread for the statement that waits."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.thread = ThreadPoolExecutor(1)

    def run(self, sql: str, *values: object) -> tuple:
        """All rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return cursor.fetchall()

    def later(self, sql: str, seconds: float = 0.5) -> Future:
        """Runs a statement in the background; it must still be waiting after a moment."""
        future = self.thread.submit(self.run, sql)
        with pytest.raises(TimeoutError):
            future.result(seconds)
        return future

    def error(self, sql: str) -> int:
        """The number of the error that a statement must end in."""
        with pytest.raises(pymysql.err.MySQLError) as raised:
            self.run(sql)
        return raised.value.args[0]

    def close(self) -> None:
        if self.connection.open:
            self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.thread.shutdown()
