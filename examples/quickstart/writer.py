"""An online writer: keeps changing flights until it is stopped, and counts what was acknowledged."""

import random
import threading
import time

import pymysql

from readers import connect

CONFLICT = 1213
PAUSE = 0.002


class OnlineWriter(threading.Thread):
    """Each transaction makes two random flights later."""

    def __init__(self, port: int, keys: list[tuple[str, ...]]):
        super().__init__(name="online-writer", daemon=True)
        self.port = port
        self.keys = keys
        self.commits = 0
        self.conflicts = 0
        self.error: Exception | None = None
        self.latencies: list[float] = []
        self._end = threading.Event()
        self._random = random.Random(13)

    def run(self) -> None:
        try:
            connection = connect(self.port)
            try:
                while not self._end.wait(PAUSE):
                    self._once(connection)
            finally:
                connection.close()
        except Exception as error:  # raised to whoever stops the writer
            self.error = error

    def _once(self, connection) -> None:
        started = time.monotonic()
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                for key in self._random.sample(self.keys, 2):
                    cursor.execute(
                        "UPDATE flights SET dep_delay = COALESCE(dep_delay, 0) + 7, arr_delay = COALESCE(arr_delay, 0)"
                        " + 5 WHERE time_hour = %s AND carrier = %s AND flight = %s",
                        key,
                    )
                cursor.execute("COMMIT")
        except pymysql.err.MySQLError as error:
            if error.args[0] != CONFLICT:
                raise
            self.conflicts += 1
            connection.rollback()
            return
        self.commits += 1
        self.latencies.append(time.monotonic() - started)

    def end(self) -> None:
        """Ends it, whatever happened in it."""
        self._end.set()
        if self.is_alive():
            self.join(30)

    def stop(self) -> None:
        """Ends it, and raises what went wrong in it."""
        self.end()
        if self.error is not None:
            raise RuntimeError(f"the online writer failed: {self.error}") from self.error
