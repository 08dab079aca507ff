"""What a commit cost under the lock: how long it held it, and how much it asked of storage meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakelock.occ.held_lock import HeldLock
from lakelock.occ.open_table import OpenTable
from lakelock.occ.phases import Phase, Phases
from lakelock.storage.counted import Tally, counting


@dataclass
class LockUse:
    """Seconds and requests of one commit, over all times that it took the lock. The lock service's own are not counted."""

    table: OpenTable
    phases: Phases
    wait_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    _held_s: float = 0.0
    _since_s: float | None = None

    @contextmanager
    def holding(self, instant: str, operation: str, beside: Sequence[Callable[[], Any]] = ()) -> Iterator[HeldLock]:
        """Hold the table's commit lock, and count; see `OpenTable.holding`."""
        try:
            with ExitStack() as stack:
                with self.phases.during(Phase.LOCK_WAIT):
                    lock = stack.enter_context(self.table.holding(instant, operation, beside))
                self._since_s = lock.since_s
                self.wait_s += lock.waited_s
                with counting(self.tally):
                    yield lock
        finally:
            self._held_s, self._since_s = self.held_s, None

    @property
    def held_s(self) -> float:
        """For how long the lock has been held so far, to the end of its release."""
        return self._held_s + (0.0 if self._since_s is None else self.table.runtime.monotonic_s() - self._since_s)

    @property
    def requests(self) -> int:
        """How many requests were made of the table's storage under the lock so far."""
        return self.tally.requests
