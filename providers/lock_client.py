"""What lock providers and data locks have in common: one writer's access to the locks of one table.

Waiting within a bound, closing, forks and events are the same under both contracts. The pauses between two checks are
not: a waiter for the table lock is one of many that poll a lock held for milliseconds, and spreads out with the crowd; a
waiter for data locks waits for a whole write, and shows a sign of life meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Protocol, TypeVar

from lakelock.errors import LakelockError, LockError, ProviderRefused, ProviderUnavailable, StorageUnavailable
from lakelock.events import Event, EventKind
from lakelock.providers.base import Lease, Opening

NO_ANSWER = (StorageUnavailable, ProviderUnavailable)
NO_SERVICE = (*NO_ANSWER, ProviderRefused)

_SHORTEST_WAIT_S = 1e-6
"""A clock may be too coarse to measure less than this, and a wait for it would never end."""

L = TypeVar("L", bound=Lease)


class LeaseSettings(Protocol):
    """A section of the settings that says how long leases are: `lock` or `data_locks`."""

    section: ClassVar[str]

    @property
    def lease_s(self) -> float: ...
    @property
    def renew_s(self) -> float: ...


class LockClient:
    """One writer in one process, which waits for locks of one table. A forked process is another writer."""

    what: ClassVar[str]
    """`the lock` or `the data locks`, for messages."""

    def __init__(self, opening: Opening, leasing: LeaseSettings) -> None:
        self.table = opening.storage.uri
        self.runtime, self.writer, self._events = opening.runtime, opening.writer, opening.events
        self._leasing = leasing
        self._start_afresh()

    def _wait_for(
        self, look: Callable[[], L | None], pause: Callable[[float], None], began_s: float, wait_s: float
    ) -> L | None:
        """Look, pause and look again until there is a lease; None when the time is over.

        `pause` is given the seconds left. `ProviderUnavailable` if the last look got no answer; `LockError` once closed.
        """
        failure: LakelockError | None = None
        while True:
            self._ensure_open()
            try:
                lease, failure = look(), None
                if lease is not None:
                    return lease
            except NO_ANSWER as error:
                failure = error
            left_s = wait_s - (self.runtime.monotonic_s() - began_s)
            if left_s < _SHORTEST_WAIT_S:
                break
            pause(left_s)
        if failure is not None:
            raise ProviderUnavailable(
                f"{self.what} of {self.table} could not be taken within {wait_s:g} s: {failure.message}", hint=failure.hint
            ) from failure
        return None

    def _ensure_open(self) -> None:
        if self._closed:
            raise LockError(
                f"{self.what} of {self.table} can no longer be taken: the table was closed in this process",
                hint="open the table again; close it only after every thread has finished with it",
            )

    def _tell(self, kind: EventKind, **facts: object) -> None:
        self._events.emit(Event(kind, self.table, facts=facts))

    def _warn(self, problem: str) -> None:
        self._tell(EventKind.ALERT, problem=problem)

    def _start_afresh(self) -> None:
        """Begin with nothing held, connected or closed: at the start, and in a forked process."""
        self._pid, self._closed = os.getpid(), False

    def _notice_fork(self) -> None:
        """A forked process holds nothing, must not wait for threads that it does not have, and is another writer."""
        if self._pid != os.getpid():
            self._start_afresh()
            self.writer = replace(self.writer, writer_id=self.runtime.uuid(), pid=self._pid)
