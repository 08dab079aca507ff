"""How long a run of upkeep begins new work, and how it reports progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

    @property
    def is_spent(self) -> bool:
        return self.runtime.monotonic_s() >= self.until_s
