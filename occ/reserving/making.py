"""Making a reservation, and waiting until it is its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakelock.conflict import Party
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.markers.claims import Claim, all_claims
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.occ.conflicts.footprint import SERVICES
from lakelock.occ.early.waiting import wait_for
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.reservations import MOST_RESERVATIONS, Reservation
from lakelock.occ.reserving.waiting import remove, wait_until_ended
from lakelock.occ.steps import Step, reached
from lakelock.table import layout

MOST_PLACES = 100
"""A reservation of more partitions is one of the whole table."""
SWAPS = 10
"""How often the queue is changed anew because somebody else has changed it or the boundary."""


@dataclass(frozen=True)
class Turn:
    """A reservation of this process, and what it has to wait for: older reservations, and claims that were there."""

    table: OpenTable
    reservation: Reservation
    ahead: tuple[Reservation, ...]
    at_work: tuple[Party, ...]
    heartbeat: Heartbeat

    def wait(self) -> None:
        """Wait until it is the turn of this reservation, at most `retry.holder_wait_s`."""
        table, runtime, operation = self.table, self.table.runtime, self.reservation.operation
        until_s = runtime.monotonic_s() + table.settings.retry.holder_wait_s
        for older in self.ahead:
            left_s = until_s - runtime.monotonic_s()
            wait_until_ended(table, older, self.heartbeat.key, most_s=left_s, operation=operation)
        for party in self.at_work:
            wait_for(table, party, most_s=until_s - runtime.monotonic_s())

    def end(self) -> None:
        """Let the next one go on. Never raises for storage: without its heartbeat the reservation has ended, too."""
        self.heartbeat.stop(delete=False)
        remove(self.table, self.reservation.id)


def reserve(table: OpenTable, operation: str, places: frozenset[str] | None) -> Turn | None:
    """Reserve these partitions, None for the whole table: all or none. None if there is no room, or storage or lock refuse.

    A transaction that begins afterwards sees the reservation, and each one that did not see it when it looked last has
    published what it decided.
    """
    if places is not None and len(places) > MOST_PLACES:
        places = None
    heartbeat: Heartbeat | None = None
    try:
        heartbeat = _heartbeat(table, operation)
        turn = _joined(table, heartbeat, Reservation(heartbeat.record.instant, table.writer, operation, places))
        if turn is not None:
            with table.locked(operation=operation):
                reached(Step.RESERVED)  # whoever looked at the queue before, and then decided, is done
            where = "the whole table" if places is None else sorted(places)
            table.emit(EventKind.RESERVED, "", operation, places=where, ahead=[*map(str, (*turn.ahead, *turn.at_work))])
            return turn
        problem = "the queue is full, or others change it all the time"
    except LakelockError as error:
        problem = error.message
    table.emit(EventKind.ALERT, "", operation, problem=f"no reservation could be made: {problem}")
    if heartbeat is not None:
        heartbeat.stop(delete=False)
        remove(table, heartbeat.record.instant)
    return None


def _heartbeat(table: OpenTable, operation: str) -> Heartbeat:
    name, settings = table.runtime.uuid(), table.settings.heartbeat
    record = HeartbeatRecord(name, table.writer, operation, 0, settings.interval_s, settings.tolerable_misses)
    heartbeat = Heartbeat.start(table.storage, record, table.runtime, key=layout.reservation(name))
    assert heartbeat is not None, "nobody else has this name"
    return heartbeat


def _joined(table: OpenTable, heartbeat: Heartbeat, mine: Reservation) -> Turn | None:
    """Join the queue at its end; None if that could not be.

    The claims are listed after the queue was read, and the queue is changed only if nobody else has changed it since. So
    whoever is behind me in the queue has listed them later than I have.
    """
    turn: Turn | None = None

    def join(queue: tuple[Reservation, ...]) -> tuple[Reservation, ...] | None:
        nonlocal turn
        queue = tuple(each for each in queue if each.id != mine.id)  # an answer may have been lost
        if len(queue) >= MOST_RESERVATIONS:
            return None
        claims = all_claims(table.storage, table.runtime, parallel=table.parallel_requests)
        joined = replace(mine, before=frozenset(claim.instant for claim in claims.values()))
        older = tuple(each for each in queue if each.meets(joined))
        turn = Turn(table, joined, older, _at_work(joined, claims), heartbeat)
        return (*queue, joined)

    for _ in range(SWAPS):
        if table.log.change_reservations(join):
            return turn
    return None


def _at_work(mine: Reservation, claims: Mapping[str, Claim]) -> tuple[Party, ...]:
    """The transactions that have claims in my places. Services are left out: they yield."""
    folder = len(layout.CLAIMS) + 1
    found = {
        claim.instant: Party(claim.instant, claim.operation, claim.writer)
        for key, claim in claims.items()
        if claim.operation not in SERVICES and mine.covers(key[folder:].rpartition("/")[0])
    }
    return tuple(found[instant] for instant in sorted(found))
