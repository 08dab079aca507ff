"""What all data locks have in common: queue up, look, wait, look again, within the bound."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lakelock.data_locks.base import DataLease, DataLocks, LockedData, still_renewed, timeout
from lakelock.data_locks.request import LockRequest
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.identity import WriterIdentity
from lakelock.providers.base import DRIFT_MARGIN_S, Lease, Opening
from lakelock.providers.lock_client import NO_ANSWER, NO_SERVICE, LockClient
from lakelock.providers.taking_back import TakingBack

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.6
_GROWING_PAUSES = 30


@dataclass
class Waiting:
    """One `acquire`, and later the lease that it got; `grant` names it in the service.

    `until_s`: when the waiting or the lease ends, on the monotonic clock. `doubt`: a request got no answer, and may be carried
    out yet.
    """

    request: LockRequest
    grant: str
    until_s: float
    looks: int = field(default=0, kw_only=True)
    doubt: bool = field(default=False, kw_only=True)


W = TypeVar("W", bound=Waiting)


class PollingDataLocks(LockClient, DataLocks, Generic[W]):
    """Data locks that only need to say how to queue up, to look, to renew and to leave."""

    what = "the data locks"
    _held: dict[str, tuple[DataLease, W]]

    def __init__(self, opening: Opening) -> None:
        self._settings = opening.settings.data_locks
        super().__init__(opening, self._settings)

    @abstractmethod
    def _begin(self, request: LockRequest, grant: str, until_s: float) -> W:
        """The state of a request that is about to be made."""

    @abstractmethod
    def _look(self, waiting: W) -> DataLease | None:
        """Queue up, or see whether it is my turn: the lease if it is."""

    @abstractmethod
    def _blockers(self, waiting: W) -> tuple[LockedData, ...]:
        """Whoever was in the way at the latest look."""

    @abstractmethod
    def abandon(self, waiting: W) -> None:
        """Take the request out of the queue, held or not; nothing happens if it is not there."""

    def take_back(self, waiting: W) -> None:
        """Abandon it once more, in a thread of its own: a request may have been carried out since."""
        self.abandon(waiting)

    @abstractmethod
    def _extend(self, lease: Lease) -> str:
        """Renew in the service and call `lease.extend`, and return ""; or why the locks are no longer this lease's."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections. Never raises."""

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        self._notice_fork()
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        began_s = self.runtime.monotonic_s()
        waiting = self._begin(request, self.runtime.uuid(), began_s + wait_s)
        try:
            lease = self._wait(waiting, began_s, wait_s)
        except BaseException:
            try:
                self.abandon(waiting)
            except LakelockError:
                waiting.doubt = True
            if waiting.doubt:
                self._taking_back.add(lambda: self.take_back(waiting), self._settings.lease_s, waiting.grant)
            if self._closed:  # another thread closed them while this one waited, and it may have connected since
                self._disconnect()
            raise
        self._held[lease.grant] = lease, waiting
        if self._closed:
            self.release(lease)
            self._disconnect()
            self._ensure_open()
        return lease

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        if gone := self._extend(lease):
            lease.lose("taken-over", gone)
            lease.ensure_not_lost()
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here:
            return
        _, waiting = self._held.pop(lease.grant, (None, None))
        if waiting is None:
            return
        try:
            waiting.until_s = lease.deadline_s
            self.abandon(waiting)
        except NO_SERVICE as error:
            self._warn(f"data locks were not given back; others wait up to {lease.lease_s:g} s: {error.message}")
        finally:
            lease.lose("released")

    def close(self) -> None:
        self._closed = True
        for lease, _ in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        self._taking_back.end()
        self._disconnect()

    def _wait(self, waiting: W, began_s: float, wait_s: float) -> DataLease:
        told = False

        def pause(left_s: float) -> None:
            nonlocal told
            if not told and (blockers := self._blockers(waiting)):
                told = True
                self._tell(EventKind.WAITING_FOR_LOCK, holder="; ".join(map(str, blockers)), locks=str(waiting.request))
            self._pause(waiting, left_s)

        def look() -> DataLease | None:
            try:
                return self._look(waiting)
            except NO_ANSWER:
                waiting.doubt = True
                raise

        lease = self._wait_for(look, pause, began_s, wait_s)
        if lease is None:
            blockers = self._blockers(waiting)
            watch_s = max((self.watch_s(blocker.lease_s or 0.0) for blocker in blockers), default=0.0)
            raise timeout(self.table, waiting.request, blockers, wait_s, watch_s)
        return lease

    def _pause(self, waiting: W, at_most_s: float) -> None:
        """Pause until it is worth looking again; the pauses grow. A service that wakes its waiters ends them early."""
        pause_s = _FIRST_PAUSE_S * _PAUSE_GROWTH ** min(waiting.looks, _GROWING_PAUSES)
        waiting.looks += 1
        self.runtime.sleep(min(self._pause_s(pause_s), at_most_s))

    def _pause_s(self, wanted_s: float = float("inf")) -> float:
        """At most the configured pause, and never so long that my own request looks dead; different for every waiter."""
        return min(self._settings.sleep_s, self._settings.renew_s, wanted_s) * (0.5 + 0.5 * self.runtime.random())

    def _lease(self, waiting: W, token: int, began_s: float) -> DataLease:
        return DataLease(
            self.runtime,
            self.writer,
            waiting.request,
            grant=waiting.grant,
            token=token,
            lease_s=self._settings.lease_s,
            began_s=began_s,
        )

    def _outwait(
        self, token: int, writer: WriterIdentity | None, lease_s: float, seen: object, look: Callable[[], object]
    ) -> None:
        """Return once a holder has shown no sign of life for its whole lease, or has gone; `LockError` once it renewed.

        `look` returns a value that changes with each renewal, None once the holder is gone; `seen` is the latest value.
        """
        over_s = self.runtime.monotonic_s() + lease_s + DRIFT_MARGIN_S
        while self.runtime.monotonic_s() < over_s:
            self.runtime.sleep(min(self._settings.sleep_s, lease_s / 10))
            now = look()
            if now is None:
                return
            if now != seen:
                raise still_renewed(token, writer)

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._taking_back = TakingBack(self.runtime)
        self._held = {}
