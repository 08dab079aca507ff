"""Round trips: requests that a caller waits for one after the other. Of calls at the same time the longest chain counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lakelock.testing.runtime import ManualRuntime
from tests.api import Storage
from tests.faulty_storage import Wrapped

T = TypeVar("T")


class RoundTrips(Wrapped):
    """Counts each request as one round trip."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.waited_for = 0

    def carry(self, op: str, key: str, request: Callable[[], T], *, weight: int = 1) -> T:
        self.waited_for += 1
        return request()


class SideBySide(ManualRuntime):
    """Runs the calls of `gather` one by one, and has the storage count them as if they had run at once."""

    def __init__(self, storage: RoundTrips) -> None:
        super().__init__()
        self._storage = storage

    def gather(self, calls: Sequence[Callable[[], T]], *, limit: int) -> list[T]:
        lanes = [self._storage.waited_for] * max(1, min(limit, len(calls)))
        results: list[T] = []
        for call in calls:
            lane = lanes.index(min(lanes))
            self._storage.waited_for = lanes[lane]
            results.append(call())
            lanes[lane] = self._storage.waited_for
        self._storage.waited_for = max(lanes)
        return results
