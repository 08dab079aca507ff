"""Lock services in the simulator: the real one over simulated storage, and three that break their promise.

A lock service, however bad, may cost a lakelock table nothing but time. The bad ones share one `LockRoom` per run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import inf

from lakelock.errors import LakelockError, LeaseLost, LockError, ProviderUnavailable
from lakelock.providers.base import Holder, Lease, LockState, Opening, Strength
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.providers.storage import Sighting, StorageLockProvider
from tests.simulator.scheduler import Hub, Process


class LockKind(str, Enum):
    """Which lock service a run uses."""

    STORAGE = "storage"
    GENEROUS = "grants everybody"
    FORGETFUL = "forgets"
    SILENT = "never answers"


_NONE = "none: a lock service of the simulator that breaks its promise"
_STRENGTH = Strength(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
_ACQUIRE_SLACK_S = 15.0
"""By how much an `acquire` may overrun its `wait_s`: requests in flight when time runs out, each with its delay."""

_SILENCE_S = 4.0
_REQUEST_S = 0.003
_FORGETS = 0.15


@dataclass
class LockRoom:
    """The state of a bad lock service, shared by all its clients."""

    hub: Hub
    kind: LockKind
    lease: Lease | None = None
    token: int = 0
    silent_from_s: float = inf
    calm: bool = False

    @property
    def silent(self) -> bool:
        """Silent most of the time: it answers in every third interval, until it falls silent permanently."""
        if self.kind is not LockKind.SILENT or self.calm:
            return False
        return self.hub.now_s >= self.silent_from_s or int(self.hub.now_s / _SILENCE_S) % 3 != 2


class _Timed(PollingProvider):
    """Reports a wait for the lock that exceeded its bound."""

    hub: Hub
    process: Process
    overran: Callable[[str], None]

    def acquire(self, *, wait_s: float) -> Lease:
        began_s, paused_s = self.hub.now_s, self.process.paused_s
        try:
            return super().acquire(wait_s=wait_s)
        except LakelockError:
            self._check(began_s, paused_s, wait_s)
            raise

    def _check(self, began_s: float, paused_s: float, wait_s: float) -> None:
        took_s = self.hub.now_s - began_s - (self.process.paused_s - paused_s)
        if took_s > wait_s + _ACQUIRE_SLACK_S:
            self.overran(f"{self.process} waited {took_s:.1f} s for a lock with wait_s={wait_s:g}")


class SimStorageLock(_Timed, StorageLockProvider):
    """The lock next to the table as in production, without the facts that only people read."""

    def _left_s(self, seen: Sighting) -> float | None:
        # It would cost requests, and operators here break the lock whatever the answer; without it, seeds keep their histories.
        return None


class BadLock(_Timed):
    """A lock service that grants everybody, forgets, or does not answer."""

    def __init__(self, opening: Opening, room: LockRoom) -> None:
        super().__init__(opening)
        self._room = room

    @property
    def identity(self) -> str:
        return "simulated:"

    @property
    def strength(self) -> Strength:
        return _STRENGTH

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        began_s = self.runtime.monotonic_s()
        self._answer()
        room = self._room
        forgot = room.kind is LockKind.FORGETFUL and self.runtime.random() < _FORGETS
        held = room.lease is not None and room.lease.lost is None
        if held and room.kind is not LockKind.GENEROUS and not forgot:
            return Holder("somebody", token=room.token)
        room.token += 1
        lease_s = self._settings.lease_s
        lease = Lease(self.runtime, self.writer, grant=attempt.grant, token=room.token, lease_s=lease_s, began_s=began_s)
        room.lease = lease
        return lease

    def extend(self, lease: Lease) -> None:
        began_s = self.runtime.monotonic_s()
        self._answer()
        if self._room.kind is not LockKind.GENEROUS and self._room.lease is not lease:
            raise LeaseLost("the lock went to another writer", reason="taken-over", token=lease.token)
        lease.extend(began_s)

    def give_back(self, lease: Lease) -> None:
        self._answer()
        if self._room.lease is lease:
            self._room.lease = None

    def inspect(self) -> LockState:
        lease = self._room.lease
        held = lease is not None and lease.lost is None
        return LockState(Holder("somebody", token=self._room.token) if held else None, self._room.token)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        if self._room.token != token or not force:
            raise LockError("another grant has followed, or the lease still runs", hint="look again")
        self._room.lease = None

    def probe(self) -> None:
        """Always passes: the service claims to be fine."""

    def _answer(self) -> None:
        self._room.hub.wait(_REQUEST_S)
        if self._room.silent:
            self._room.hub.wait(0.5)
            raise ProviderUnavailable("simulated: the lock service does not answer", hint="run again")


def open_lock(
    kind: LockKind, room: LockRoom, opening: Opening, process: Process, overran: Callable[[str], None]
) -> SimStorageLock | BadLock:
    """One process's client of the run's lock service."""
    lock = SimStorageLock(opening) if kind is LockKind.STORAGE else BadLock(opening, room)
    lock.hub, lock.process, lock.overran = room.hub, process, overran
    return lock
