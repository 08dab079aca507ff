"""Making a reservation, and waiting until it is its turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Party
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.markers.claims import Claim, all_claims, told
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.occ.conflicts.footprint import SERVICES
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.reservations import MOST_RESERVATIONS, Reservation
from lakelock.occ.reserving.waiting import is_over, remove, wait_until, wait_until_ended
from lakelock.occ.steps import Step, reached
from lakelock.table import layout

SWAPS = 10
"""How often the queue is changed anew because somebody else has changed it or the boundary."""


@dataclass(frozen=True)
class Claimant:
    """A transaction that has claims on what is reserved, and one of them: it lets all of them go at once."""

    claim: Claim
    key: str

    def __str__(self) -> str:
        return str(Party(self.claim.instant, self.claim.operation, self.claim.writer))

    def is_over(self, table: OpenTable, own_beat: str) -> bool:
        """Whether it has let its claims go, or is dead. One that was set aside still beats, and may wait for this one."""
        found = table.storage.get(self.key)
        held = Claim.from_bytes(found.data) if found is not None else None
        if held is None or held.instant != self.claim.instant:
            return True
        return is_over(table, layout.heartbeat(self.claim.instant), own_beat)


@dataclass(frozen=True)
class Turn:
    """A reservation of this process, and what it has to wait for: older reservations, and claims that were there."""

    table: OpenTable
    reservation: Reservation
    ahead: tuple[Reservation, ...]
    at_work: tuple[Claimant, ...]
    heartbeat: Heartbeat

    def wait(self) -> None:
        """Wait until it is the turn of this reservation, at most `retry.holder_wait_s`."""
        table, runtime, own_beat = self.table, self.table.runtime, self.heartbeat.key
        until_s = runtime.monotonic_s() + table.settings.retry.holder_wait_s
        for older in self.ahead:
            left_s = until_s - runtime.monotonic_s()
            wait_until_ended(table, older, own_beat, most_s=left_s, operation=self.reservation.operation)
        for claimant in self.at_work:
            wait_until(table, partial(claimant.is_over, table, own_beat), most_s=until_s - runtime.monotonic_s())

    def end(self) -> None:
        """Let the next one go on. Never raises for storage: without its heartbeat the reservation has ended, too."""
        self.heartbeat.stop(delete=False)
        remove(self.table, self.reservation.id)


def reserve(table: OpenTable, operation: str, places: frozenset[str] | None) -> Turn | None:
    """Reserve these partitions, None for the whole table: all or none. None if there is no room, or storage or lock refuse.

    A transaction that begins afterwards sees the reservation, and each one that did not see it when it looked last has
    published what it decided.
    """
    places = told(places)
    heartbeat: Heartbeat | None = None
    try:
        heartbeat = _heartbeat(table, operation)
        name, now_ms = heartbeat.record.instant, table.runtime.now_ms()
        turn = _joined(table, heartbeat, Reservation(name, table.writer, operation, places, since_ms=now_ms))
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
    is_there = False

    def join(queue: tuple[Reservation, ...]) -> tuple[Reservation, ...] | None:
        nonlocal turn, is_there
        # The answer to the change before was lost. Its place stands: whoever has joined since waits for it.
        is_there = any(each.id == mine.id for each in queue)
        if is_there or len(queue) >= MOST_RESERVATIONS:
            return None
        claims = all_claims(table.io)
        joined = replace(mine, before=frozenset(claim.instant for claim in claims.values()))
        older = tuple(each for each in queue if each.meets(joined))
        turn = Turn(table, joined, older, _at_work(joined, claims), heartbeat)
        return (*queue, joined)

    for _ in range(SWAPS):
        if table.log.change_reservations(join) or is_there:
            return turn
    return None


def _at_work(mine: Reservation, claims: Mapping[str, Claim]) -> tuple[Claimant, ...]:
    """The transactions that have claims in my places, or are about to make some. Services are left out: they yield."""
    folder = len(layout.CLAIMS) + 1

    def comes_here(key: str, claim: Claim) -> bool:
        return claim.places is None or any(map(mine.covers, {key[folder:].rpartition("/")[0], *claim.places}))

    found = {
        claim.instant: Claimant(claim, key)
        for key, claim in claims.items()
        if claim.operation not in SERVICES and comes_here(key, claim)
    }
    return tuple(found[instant] for instant in sorted(found))
