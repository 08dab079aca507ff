"""An attempt that was rejected although most of its files are still good, until the next attempt has them (ADR 19)."""

from __future__ import annotations

from lakelock.occ.recovery.ending import TransactionState
from lakelock.occ.redo import Redo
from lakelock.occ.transaction import Transaction


class SetAside:
    """Of the attempts of one write, the one from which the next may take files over; at most one at a time.

    Whoever makes it calls `drop` in the end.
    """

    def __init__(self, redos: int) -> None:
        """`redos`: how many attempts may take files over."""
        self._left = redos
        self._held: Transaction | None = None
        self._offered: Transaction | None = None

    def offer(self, tx: Transaction) -> None:
        """Let this attempt, which has just begun, take over what there is, and be taken over in turn."""
        if self._held is not None and not self._held.is_alive:
            self._withdraw("its heartbeat stopped before the next attempt had its files")
        tx.redo = Redo(keeps_files=self._left > 0, earlier=self._held.instant if self._held is not None else None)
        self._offered = tx

    def follows(self) -> bool:
        """Whether the attempt after the one that was offered last, and that was lost, is a redo."""
        lost, self._offered = self._offered, None
        if lost is not None and lost.state is TransactionState.SET_ASIDE:
            self._withdraw("the next attempt had its files")
            self._held = lost
        if self._held is not None and self._left == 0:
            self._withdraw("as many redos as a write may have were lost")
        if self._held is None:
            return False
        self._left -= 1
        return True

    def drop(self) -> None:
        """Withdraw whatever is set aside. Never raises for storage."""
        self._withdraw("the next attempt has what it needs of it")
        if self._offered is not None and self._offered.state is TransactionState.SET_ASIDE:
            self._offered.abort("an error ended the write before its next attempt")

    def _withdraw(self, reason: str) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.abort(reason)
