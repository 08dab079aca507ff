"""A lock between the threads of one process, for tests and for programs that are the only writer."""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakelock.clock import ForkSafeMutex
from lakelock.errors import SettingsError
from lakelock.providers.base import Holder, Lease, LockState, Opening, Strength, for_up_to
from lakelock.providers.polling import Attempt, PollingProvider

STRENGTH = Strength(
    exclusion="between threads of one process only",
    token="a counter of this process",
    crash_release="at once, the lock dies with its process",
    failover="none",
    clock_assumption="none",
    fairness="in order of arrival for one provider object; polling between several",
    cost="none",
)

_LOCAL = ("file://", "memory://")


@dataclass
class _Slot:
    """The lock of one table; `lease` is the latest holder's, even when it is over."""

    lease: Lease | None = None
    token: int = 0
    since_ms: int = 0

    @property
    def holder(self) -> Holder | None:
        """Who holds the lock now."""
        if self.lease is None or self.lease.lost is not None:
            return None
        lease = self.lease
        left_s = lease.remaining_s()
        return Holder(lease.grant, lease.owner, lease.token, lease.lease_s, since_ms=self.since_ms, left_s=left_s)


_slots: dict[tuple[int, str], _Slot] = {}
_slots_mutex = ForkSafeMutex()


class MemoryLockProvider(PollingProvider):
    """The table lock as a variable that all providers of one table in this process share."""

    strength = STRENGTH
    lies_in_table = True
    between_processes = False

    def __init__(self, opening: Opening) -> None:
        if not opening.storage.uri.startswith(_LOCAL):
            raise SettingsError(
                f"the memory lock keeps no other machine away from {opening.storage.uri}",
                hint='use the lock next to the table: lock.provider = "storage:"',
                key="lock.provider",
            )
        super().__init__(opening)

    @property
    def identity(self) -> str:
        return "memory:"

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        with _slots_mutex:
            slot = self._slot()
            holder = slot.holder
            if holder is not None:
                return holder
            slot.token, slot.since_ms = slot.token + 1, self.runtime.now_ms()
            slot.lease = self.new_lease(attempt, slot.token, self.runtime.monotonic_s())
            return slot.lease

    def extend(self, lease: Lease) -> None:
        with _slots_mutex:
            if self._slot().lease is not lease:
                raise self.taken_over(lease, "was taken away")
            lease.extend(self.runtime.monotonic_s())

    def give_back(self, lease: Lease) -> None:
        with _slots_mutex:
            slot = self._slot()
            if slot.lease is lease:
                slot.lease = None

    def inspect(self) -> LockState:
        with _slots_mutex:
            slot = self._slot()
            return LockState(slot.holder, slot.token)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        with _slots_mutex:
            slot = self._slot()
            self.ensure_latest(token, slot.token)
            holder = slot.holder
            if holder is None or slot.lease is None:
                return
            if not force:
                raise self.still_held(holder, f"whose lease runs {for_up_to(holder.left_s or 0.0)}")
            slot.lease.lose("taken-over", "broken by an operator")
            slot.lease = None

    def probe(self) -> None:
        """Always passes: there is no service that could lack anything."""

    def _slot(self) -> _Slot:
        return _slots.setdefault((os.getpid(), self.table), _Slot())
