"""One write that loses again and again gets a reservation (ADR 20)."""

from __future__ import annotations

from lakelock.occ.open_table import OpenTable
from lakelock.occ.reserving.making import Turn, reserve
from lakelock.occ.reserving.waiting import OwnReservation
from lakelock.occ.transaction import Transaction


class Turns:
    """Counts the losses of one call, and reserves what it lost after `RetrySettings.reserve_after` of them.

    Whoever makes it calls `end` in the end.
    """

    def __init__(self, table: OpenTable, operation: str) -> None:
        self._table, self._operation = table, operation
        self._losses = 0
        self._places: frozenset[str] | None = frozenset()
        self._turn: Turn | None = None

    def lost(self, tx: Transaction) -> None:
        """Note that this attempt was rejected for what others did.

        A reservation that does not cover all that the attempt touched is given back: the next one queues anew. Otherwise its
        holder would wait for somebody who waits for it.
        """
        self._losses += 1
        self._places = tx.places()
        if self._turn is not None and not self._turn.reservation.covers_all(self._places):
            self.end()

    def take(self) -> None:
        """Before the next attempt begins: reserve if it is time to, and wait until it is this write's turn."""
        after = self._table.settings.retry.reserve_after
        if self._turn is not None or self._table.provider is None or not 0 < after <= self._losses:
            return
        if self._places is None or self._places:
            self._turn = reserve(self._table, self._operation, self._places)
            if self._turn is not None:
                self._turn.wait()

    def begun(self, tx: Transaction) -> None:
        """Let the attempt, which has just begun, know its reservation."""
        if self._turn is not None:
            tx.reserved.own = OwnReservation(self._turn.reservation, self._turn.heartbeat.alive, self.end)

    def end(self) -> None:
        """Give the reservation back. Never raises for storage."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()
