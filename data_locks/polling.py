"""The part that is common to all data locks: queue up, look, wait, look again, within the bound."""

from __future__ import annotations

import os
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from lakelock.data_locks.base import DataLease, DataLocks, LockedData, timeout
from lakelock.data_locks.request import LockRequest
from lakelock.errors import LakelockError, LockError, ProviderUnavailable
from lakelock.events import Event, EventKind
from lakelock.providers.base import Lease, Opening
from lakelock.providers.polling import NO_ANSWER, NO_SERVICE

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.6
_GROWING_PAUSES = 30


@dataclass
class Waiting:
    """One `acquire`, and later the lease that it got; `grant` names it in the service.

    `until_s`: when it ends, the waiting or the lease, on the monotonic clock.
    """

    request: LockRequest
    grant: str
    until_s: float
    looks: int = field(default=0, kw_only=True)


W = TypeVar("W", bound=Waiting)


class PollingDataLocks(DataLocks, Generic[W]):
    """Data locks that only need to say how to queue up, to look, to renew and to leave."""

    def __init__(self, opening: Opening) -> None:
        self.table = opening.storage.uri
        self._runtime, self._writer, self._events = opening.runtime, opening.writer, opening.events
        self._settings = opening.settings.data_locks
        self._held: dict[str, tuple[DataLease, W]] = {}
        self._closed = False
        self._pid = os.getpid()

    @abstractmethod
    def _begin(self, request: LockRequest, grant: str, until_s: float) -> W:
        """What there is to know of a request that is about to be made."""

    @abstractmethod
    def _look(self, waiting: W) -> DataLease | None:
        """Queue up or see whether it is my turn by now: the lease if it is."""

    @abstractmethod
    def _blockers(self, waiting: W) -> tuple[LockedData, ...]:
        """Who was in the way at the latest look."""

    @abstractmethod
    def _leave(self, waiting: W) -> None:
        """Take the request out of the queue, held or not; nothing happens if it is not there."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Let go of connections. Never raises."""

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        self._notice_fork()
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        began_s = self._runtime.monotonic_s()
        waiting = self._begin(request, self._runtime.uuid(), began_s + wait_s)
        try:
            lease = self._wait(waiting, began_s, wait_s)
        except BaseException:
            with suppress(LakelockError):
                self._leave(waiting)
            raise
        self._held[lease.grant] = lease, waiting
        if self._closed:
            self.release(lease)
            self._ensure_open()
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here:
            return
        _, waiting = self._held.pop(lease.grant, (None, None))
        if waiting is None:
            return
        try:
            waiting.until_s = lease.deadline_s
            self._leave(waiting)
        except NO_SERVICE as error:
            self._warn(f"data locks were not given back; others wait up to {lease.lease_s:g} s: {error.message}")
        finally:
            lease.lose("released")

    def close(self) -> None:
        self._closed = True
        for lease, _ in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        self._disconnect()

    def _wait(self, waiting: W, began_s: float, wait_s: float) -> DataLease:
        failure: LakelockError | None = None
        told = False
        while True:
            self._ensure_open()
            try:
                lease, failure = self._look(waiting), None
                if lease is not None:
                    return lease
            except NO_ANSWER as error:
                failure = error
            left_s = wait_s - (self._runtime.monotonic_s() - began_s)
            if left_s <= 0:
                break
            if not told and (blockers := self._blockers(waiting)):
                told = True
                facts = {"holder": "; ".join(map(str, blockers)), "locks": str(waiting.request)}
                self._events.emit(Event(EventKind.WAITING_FOR_LOCK, self.table, facts=facts))
            self._pause(waiting, left_s)
        if failure is not None:
            raise ProviderUnavailable(
                f"the data locks of {self.table} could not be taken within {wait_s:g} s: {failure.message}", hint=failure.hint
            ) from failure
        raise timeout(self.table, waiting.request, self._blockers(waiting), wait_s)

    def _ensure_open(self) -> None:
        if self._closed:
            raise LockError(
                f"data locks of {self.table} cannot be taken any more: the table was closed in this process",
                hint="open the table anew; close it only when no thread uses it any more",
            )

    def _pause(self, waiting: W, at_most_s: float) -> None:
        """Wait until it is worth looking again: pauses that grow. A service that wakes its waiters ends this early."""
        pause_s = _FIRST_PAUSE_S * _PAUSE_GROWTH ** min(waiting.looks, _GROWING_PAUSES)
        waiting.looks += 1
        self._runtime.sleep(min(self._pause_s(pause_s), at_most_s))

    def _pause_s(self, wanted_s: float = float("inf")) -> float:
        """At most the configured pause, and never so long that my own request looks dead; not the same for everybody."""
        return min(self._settings.sleep_s, self._settings.renew_s, wanted_s) * (0.5 + 0.5 * self._runtime.random())

    def _lease(self, waiting: W, token: int, began_s: float) -> DataLease:
        return DataLease(
            self._runtime,
            self._writer,
            waiting.request,
            grant=waiting.grant,
            token=token,
            lease_s=self._settings.lease_s,
            began_s=began_s,
        )

    def _warn(self, problem: str) -> None:
        self._events.emit(Event(EventKind.ALERT, self.table, facts={"problem": problem}))

    def _notice_fork(self) -> None:
        """A forked process holds nothing and is another writer."""
        if self._pid != os.getpid():
            self._pid, self._held = os.getpid(), {}
            self._writer = replace(self._writer, writer_id=self._runtime.uuid(), pid=self._pid)
