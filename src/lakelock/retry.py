"""Bounded repetition: waits between attempts, spread at random so that losers do not collide again, and looks at a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from lakelock.clock import Runtime
from lakelock.errors import SnapshotTooOld

T = TypeVar("T")

OVERTAKEN_LOOKS = 3
"""How often a reader looks at a table whose cleaner keeps overtaking it."""


def retry_if_overtaken(look: Callable[[], T]) -> T:
    """What `look` finds. It looks again, a few times at most, if a cleaner has removed what it was about to read.

    The last `SnapshotTooOld` passes through.
    """
    for _ in range(OVERTAKEN_LOOKS - 1):
        try:
            return look()
        except SnapshotTooOld:
            continue
    return look()


@dataclass(frozen=True)
class Backoff:
    """Waits between `attempts` attempts: full jitter below a bound that doubles from `first_wait_s` to `longest_wait_s`."""

    attempts: int
    first_wait_s: float
    longest_wait_s: float

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_wait_s < 0 or self.longest_wait_s < self.first_wait_s:
            raise ValueError(f"{self} needs attempts >= 1 and 0 <= first_wait_s <= longest_wait_s")

    def bound_s(self, retry: int) -> float:
        """The longest wait before retry number `retry`, counted from 0."""
        # Beyond 2**62 the bound has long been reached, and a float would overflow.
        return float(min(self.longest_wait_s, self.first_wait_s * 2 ** min(retry, 62)))

    def waits(self, runtime: Runtime) -> Iterator[float]:
        """The seconds to wait before each retry: `attempts - 1` numbers, then the end. The caller does the waiting."""
        for retry in range(self.attempts - 1):
            yield runtime.random() * self.bound_s(retry)
