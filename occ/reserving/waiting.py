"""Waiting for the reservations of others: bounded, and never for a dead holder.

A reservation has a heartbeat, which its holder removes when it ends. Whoever waits looks at that file, and at a heartbeat
of its own, so that both times are the storage's. If it has stopped, whoever finds that out removes the reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakelock.errors import LakelockError, StorageUnavailable
from lakelock.events import EventKind
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.markers.liveness import StorageClock, is_too_old
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.reservations import Reservation, in_the_way
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
    """Whether nobody can have taken its holder for dead, and removed it."""
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

    One that was waited for the whole of `retry.holder_wait_s` has had its time: it is removed, so that nobody waits for it
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
    """Take it out of the queue, and remove its heartbeat. Never raises for storage: whoever waits for it tries again."""
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
