"""A client of the columnar nodes' Flight servers: what the job needs to know of tables, and the snapshot's lease.

Every call is bounded, and goes to the next node when one does not answer.
"""

import base64
import json
from dataclasses import dataclass

import pyarrow
from pyarrow import flight

from errors import BadTarget, TargetGone

CALL_SECONDS = 10
LOST = ("ISOBAR-LEASE_LOST", "ISOBAR-SNAPSHOT_TOO_OLD")
UNREACHABLE = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)


@dataclass(frozen=True)
class Column:
    """A column of a live table; `kind` as MySQL writes types."""

    name: str
    kind: str
    nullable: bool


@dataclass(frozen=True)
class LiveTable:
    """A live table as the catalog describes it."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]


class Gone(Exception):
    """No node gave an answer."""


class Refused(Exception):
    """A node answered with an error; the text begins with its code."""


class FlightClient:
    """Calls by name, to whichever node answers."""

    def __init__(self, endpoints: list[str], user: str, password: str):
        self.endpoints = endpoints
        basic = base64.b64encode(f"{user}:{password}".encode())
        self._options = flight.FlightCallOptions(
            headers=[(b"authorization", b"Basic " + basic)], timeout=CALL_SECONDS
        )
        self._clients: dict[str, flight.FlightClient] = {}

    def act(self, name: str, body: dict) -> object:
        """An action's answer."""
        action = flight.Action(name, json.dumps(body).encode())
        why: Exception | None = None
        for endpoint in self.endpoints:
            try:
                client = self._clients.setdefault(endpoint, flight.connect(f"grpc://{endpoint}"))
                results = [json.loads(r.body.to_pybytes()) for r in client.do_action(action, self._options)]
                return results[0] if results else None
            except UNREACHABLE as error:
                why = error
                self._clients.pop(endpoint, None)
            except (flight.FlightError, pyarrow.ArrowException) as error:
                if "ISOBAR-UNAVAILABLE" not in str(error) and "ISOBAR-TIMEOUT" not in str(error):
                    raise Refused(plain(error)) from error
                why = error
        raise Gone(plain(why))

    def table(self, name: str) -> LiveTable:
        """A table's columns and key."""
        database, table = name.split(".")
        try:
            found = self.act("catalog.table", {"database": database, "table": table})
        except Refused as error:
            raise BadTarget(f"live table {name} cannot be compared: {error}") from error
        except Gone as error:
            raise TargetGone(f"no Flight server of {', '.join(self.endpoints)} answers: {error}") from error
        columns = tuple(Column(c["name"], c["type"].lower(), c["nullable"]) for c in found["columns"])
        if not found["primary_key"]:
            raise BadTarget(f"live table {name} has no primary key: rows cannot be matched; give it one")
        if not found["columnar"]["replicas"]:
            raise BadTarget(
                f"live table {name} has no columnar replica: ALTER TABLE {name} SET COLUMNAR REPLICA 1 gives it one"
            )
        return LiveTable(name, columns, tuple(found["primary_key"]))


def plain(error: Exception | None) -> str:
    """What the server said, without gRPC's own frame around it."""
    text = str(error)
    start = text.find("ISOBAR-")
    return (text[start:] if start >= 0 else text).split(". gRPC client debug")[0].splitlines()[0]
