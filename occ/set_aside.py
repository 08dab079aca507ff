"""An attempt that was rejected although most of its files are still good, until the next attempt has them (ADR 18)."""

from __future__ import annotations

from lakelock.occ.recovery.ending import TransactionState
from lakelock.occ.transaction import Transaction


class SetAside:
    """Of the attempts of one write, the one from which the next may take files over; at most one at a time.

    Whoever makes it calls `drop` in the end.
    """

    def __init__(self, redos: int) -> None:
        """`redos`: how many attempts may take files over."""
        self._left = redos
        self._held: Transaction | None = None

    def offer(self, tx: Transaction) -> None:
        """Let this attempt, which has just begun, take over what there is, and be taken over in turn."""
        if self._held is not None and not self._held.is_alive:
            self.drop("its heartbeat stopped before the next attempt had its files")
        tx.keeps_files, tx.earlier = self._left > 0, self._held

    def follows(self, lost: Transaction | None) -> bool:
        """Whether the attempt after the one that was `lost` is a redo. None: it could not even begin."""
        if lost is not None and lost.state is TransactionState.SET_ASIDE:
            self.drop("the next attempt had its files")
            lost.earlier = None
            self._held = lost
        if self._held is not None and self._left == 0:
            self.drop("retry.redo_attempts redos have been lost")
        if self._held is None:
            return False
        self._left -= 1
        return True

    def drop(self, reason: str = "the next attempt has what it needs of it") -> None:
        """Withdraw the attempt that is held, if there is one. Never raises for storage."""
        held, self._held = self._held, None
        if held is not None:
            held.abort(reason)
