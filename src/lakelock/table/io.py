"""How a table's storage is reached, as one value for the steps that make several requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakelock.clock import Runtime, SystemRuntime
from lakelock.storage import Storage

T = TypeVar("T")


@dataclass(frozen=True)
class TableIO:
    """A table's storage, and how many requests this process has under way at once there."""

    storage: Storage
    runtime: Runtime = field(default_factory=SystemRuntime)
    concurrent_requests: int = 1

    def gather(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make requests, several at a time, and return their answers in order; the first error is raised."""
        return self.runtime.gather(calls, limit=self.concurrent_requests)
