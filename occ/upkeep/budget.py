"""How long a run of upkeep begins new work, and how it reports progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lakelock.clock import Runtime

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def _silent(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Budget:
    """A deadline on the monotonic clock. Work that has begun is finished; the next run does the rest."""

    runtime: Runtime
    until_s: float
    progress: Progress = _silent

    @classmethod
    def of(cls, runtime: Runtime, budget_s: float, progress: Progress | None = None) -> Budget:
        return cls(runtime, runtime.monotonic_s() + budget_s, progress or _silent)

    def half(self) -> Budget:
        """A budget of half the time that is left, for a step that must leave time for those after it."""
        now_s = self.runtime.monotonic_s()
        return replace(self, until_s=now_s + max(0.0, self.until_s - now_s) / 2)

    @property
    def is_spent(self) -> bool:
        return self.runtime.monotonic_s() >= self.until_s
