"""One snapshot for all live tables, and its lease: renewed for as long as the job runs, checked before every write.

Once the lease is known to be lost it stays lost: nothing here ever takes a new one in its place.
"""

import threading
import time
from dataclasses import dataclass

from flight_client import LOST, FlightClient, Gone, Refused
from errors import LeaseLost, TargetGone

RENEWALS_PER_LEASE = 4
# A new snapshot's lease is this short until its token is saved, so that what a killed process cannot give back lapses
# soon; `Lease` prolongs it.
UNSAVED_LEASE_SECONDS = 30


@dataclass(frozen=True)
class Snapshot:
    """A token and what is known of it. The token opens the data: it is never printed."""

    token: str
    lease: str
    read_ts: str

    def __repr__(self) -> str:
        return f"Snapshot(lease {self.lease}, read_ts {self.read_ts})"


class Lease:
    """Holds a snapshot's lease. `ttl` in seconds."""

    def __init__(self, client: FlightClient, token: str, ttl: int):
        self._client = client
        self._ttl = ttl
        self._token = token
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._lost: str | None = None
        self.renewals = 0
        try:
            first = self._renew()
        except Gone as error:
            raise TargetGone(f"no node answers for the snapshot's lease: {error}; start the run again") from error
        self.snapshot = Snapshot(token, first["lease"], first["read_ts"])
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)
        self._thread.start()

    def require(self, seconds: float) -> None:
        """Asks the server whether the lease lives, and prolongs it, so that it outlasts the next `seconds`.

        Called right before COMMIT, whose own time limit must be no longer than `seconds`.
        """
        if self._lost is None:
            try:
                self._renew()
            except Gone as error:
                if self._deadline - time.monotonic() < seconds:
                    self._lost = f"it ends within {seconds:.0f} s and cannot be renewed: {error}"
        self.check()

    def check(self) -> None:
        """Raises if the lease is known to be lost; asks nobody."""
        if self._lost is not None:
            raise LeaseLost(
                f"the lease of the job's snapshot is lost ({self._lost}): nothing more is written; "
                "start a new run, with another --work folder, which compares anew"
            )

    def stop(self) -> None:
        """Stops renewing: the lease lives on until its time is over, for a run that is started again."""
        self._end.set()
        self._thread.join(60)

    def _renew(self) -> dict:
        with self._lock:
            started = time.monotonic()
            try:
                grant = self._client.act("snapshot.renew", {"snapshot": self._token, "ttl": f"{self._ttl}s"})
            except Refused as error:
                self._lost = str(error)
                if str(error).startswith(LOST):
                    self.check()
                raise LeaseLost(f"the lease of the job's snapshot cannot be renewed: {error}") from error
            # Counted from before the call, by this machine's clock: never longer than the server grants.
            self._deadline = started + self._ttl
            self.renewals += 1
            return grant

    def _keep(self) -> None:
        while not self._end.wait(self._ttl / RENEWALS_PER_LEASE):
            try:
                self._renew()
            except Gone as error:
                if time.monotonic() >= self._deadline:
                    self._lost = f"it ended while no node could be reached: {error}"
                    return
            except LeaseLost:
                return


def release(client: FlightClient, token: str) -> None:
    """Gives a snapshot back; one that cannot be given back lapses by itself."""
    try:
        client.act("snapshot.release", {"snapshot": token})
    except (Gone, Refused):
        pass
