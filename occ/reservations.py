"""Reservations: a writer that has lost too often is served before those that come later (ADR 20).

Making a reservation puts it into the queue and waits for its turn. Waiting for the reservations of others is bounded, and
never for a dead holder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Party
from lakelock.errors import LakelockError, StorageUnavailable
from lakelock.events import EventKind
from lakelock.markers.claims import Claim, all_claims, capped
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.markers.liveness import StorageClock, is_too_old
from lakelock.occ.crash_points import Step, reached
from lakelock.occ.footprint import SERVICES
from lakelock.occ.log import MOST_RESERVATIONS, Reservation, in_the_way
from lakelock.occ.open_table import OpenTable
from lakelock.storage import Stored
from lakelock.table import layout

LONGEST_PAUSE_S = 1.0
"""The longest pause between two looks."""
REMOVALS = 5
"""How often a removal from the queue is tried while others change it."""


@dataclass(frozen=True)
class OwnReservation:
    """The reservation that a transaction has itself."""

    reservation: Reservation
    beats: Callable[[], bool]
    """Whether no process can have taken its holder for dead, and removed it."""
    end: Callable[[], None]
    """Gives it back."""


class OthersReservations:
    """What one transaction still has to wait for, `retry.holder_wait_s` in all. Not for several threads at once."""

    def __init__(self, table: OpenTable, instant: str, operation: str) -> None:
        self._table, self._instant, self._operation = table, instant, operation
        self._left_s = table.settings.retry.holder_wait_s if table.provider is not None else 0.0
        self._ended: set[str] = set()
        self.own: OwnReservation | None = None
        """Never waited for."""

    def in_the_way(self, queue: Sequence[Reservation], partitions: Iterable[str]) -> Reservation | None:
        """The first reservation that this has to wait for before it writes there; None once it has waited long enough."""
        if not queue or self._left_s <= 0:
            return None
        own = "" if self.own is None else self.own.reservation.id
        return in_the_way(queue, partitions, instant=self._instant, own=own, ended=self._ended)

    @property
    def standing(self) -> Reservation | None:
        """The reservation that this transaction has itself, as long as others respect it."""
        return self.own.reservation if self.own is not None and self.own.beats() else None

    def overrules(self, instant: str, partition: str) -> bool:
        """Whether this may write although that instant has a claim there: it came later, so it waits until this has ended."""
        own = self.standing
        return own is not None and own.covers(partition) and instant not in own.before

    def wait_for(self, reservation: Reservation) -> None:
        """Wait until it has ended, or for as long as is left. Afterwards it is not `in_the_way` any more."""
        own_beat = layout.heartbeat(self._instant)
        self._left_s -= wait_until_ended(
            self._table, reservation, own_beat, most_s=self._left_s, instant=self._instant, operation=self._operation
        )
        self._ended.add(reservation.id)


def wait_until_ended(
    table: OpenTable, reservation: Reservation, own_beat: str, *, most_s: float, instant: str = "", operation: str = ""
) -> float:
    """Wait until the reservation has ended or its holder is dead, at most `most_s`; how long this took.

    One that was waited for the whole of `retry.holder_wait_s` has had its time: it is removed, so that no writer waits for it
    again as long.
    `own_beat`: a heartbeat of the waiting. `instant` and `operation` tell in events who waits.
    """
    began_s = table.runtime.monotonic_s()
    table.emit(EventKind.WAITING_FOR_RESERVATION, instant, operation, holder=str(reservation))
    ended = wait_until(table, lambda: is_over(table, layout.reservation(reservation.id), own_beat), most_s=most_s)
    waited_s = table.runtime.monotonic_s() - began_s
    if ended or waited_s >= table.settings.retry.holder_wait_s:
        remove(table, reservation.id)
    if not ended:
        problem = f"{reservation} has still not ended after {waited_s:.0f} s, so this goes on (retry.holder_wait_s)"
        table.emit(EventKind.ALERT, instant, operation, problem=problem, waited_s=round(waited_s, 3))
    return waited_s


def wait_until(table: OpenTable, is_so: Callable[[], bool], *, most_s: float) -> bool:
    """Look again and again, for at most `most_s`; whether it is so. A look without an answer is repeated."""
    runtime, policy = table.runtime, table.settings.retry
    until_s, pause_s = runtime.monotonic_s() + most_s, policy.first_wait_s
    while (left_s := until_s - runtime.monotonic_s()) > 0:
        with suppress(StorageUnavailable):
            if is_so():
                return True
        runtime.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, policy.longest_wait_s, LONGEST_PAUSE_S)
    return False


def is_over(table: OpenTable, beat_key: str, own_beat: str) -> bool:
    """Whether the owner of this heartbeat has ended or is dead, by the age of one's own."""
    beat = table.storage.get(beat_key)
    mine = table.storage.get(own_beat)
    if beat is None or mine is None:
        return beat is None
    return is_too_old(mine.modified_ms - beat.modified_ms, limit_s(table, beat))


def end_dead(table: OpenTable) -> None:
    """Remove the reservations of dead holders, and heartbeats that they left. Two requests where there is none."""
    queue = {reservation.id for reservation in table.log.reservations()}
    # A heartbeat is older than its place in the queue, so a place without one has ended.
    beats = {item.key.rpartition("/")[2]: item for item in table.storage.list(layout.RESERVATIONS)}
    ended = queue - beats.keys()
    if beats:
        now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
        limits_s = {name: limit_s(table, table.storage.get(item.key)) for name, item in beats.items()}
        ended |= {name for name, item in beats.items() if is_too_old(now_ms - item.modified_ms, limits_s[name])}
    for name in sorted(ended):
        remove(table, name)


def remove(table: OpenTable, reservation_id: str) -> None:
    """Take it out of the queue, and remove its heartbeat. Never raises for storage: a writer that waits for it tries again."""
    try:
        for _ in range(REMOVALS):
            if all(each.id != reservation_id for each in table.log.reservations()):
                break
            table.log.change_reservations(lambda queue: tuple(each for each in queue if each.id != reservation_id))
        table.storage.delete([layout.reservation(reservation_id)])
    except LakelockError as error:
        table.emit(EventKind.ALERT, problem=f"a reservation could not be removed yet: {error.message}")


def limit_s(table: OpenTable, beat: Stored | None) -> float:
    """The age at which the heartbeat's owner is dead."""
    record = HeartbeatRecord.from_bytes(beat.data) if beat is not None else None
    return (record or table.settings.heartbeat).limit_s


SWAPS = 10
"""How often a change of the queue is repeated because another process changed it or the boundary."""


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
    places = capped(places)
    heartbeat: Heartbeat | None = None
    try:
        heartbeat = _heartbeat(table, operation)
        name, now_ms = heartbeat.record.instant, table.runtime.now_ms()
        turn = _joined(table, heartbeat, Reservation(name, table.writer, operation, places, since_ms=now_ms))
        if turn is not None:
            with table.locked(operation=operation):
                reached(Step.RESERVED)  # a writer that looked at the queue before, and then decided, is done
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
    assert heartbeat is not None, "no other reservation has this name"
    return heartbeat


def _joined(table: OpenTable, heartbeat: Heartbeat, mine: Reservation) -> Turn | None:
    """Join the queue at its end; None if that could not be.

    The claims are listed after the queue was read, and the queue is changed only if it is unchanged since. So
    those behind me in the queue have listed them later than I have.
    """
    turn: Turn | None = None
    is_there = False

    def join(queue: tuple[Reservation, ...]) -> tuple[Reservation, ...] | None:
        nonlocal turn, is_there
        # The answer to the change before was lost. Its place stands: those that have joined since wait for it.
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
