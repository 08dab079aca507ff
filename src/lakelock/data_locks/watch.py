"""Telling the dead from the slow without comparing clocks: by watching, on my own monotonic clock."""

from __future__ import annotations

from collections.abc import Iterable

from lakelock.clock import Runtime
from lakelock.data_locks.lock_table import Entry
from lakelock.providers.base import DRIFT_MARGIN_S


def watch_s(lease_s: float) -> float:
    """How long a silent holder with this lease is watched before it is removed."""
    return lease_s + DRIFT_MARGIN_S


class Watch:
    """What I have seen of other entries, and since when they have not changed. Several threads may use it.

    Not the watches of the lock providers: those also use an age that their service reports, which a document does not have.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since_s: dict[str, tuple[tuple[int, int], float]] = {}

    def see(self, entries: Iterable[Entry]) -> None:
        """Start or continue watching these entries, and forget all others."""
        now_s, before = self._runtime.monotonic_s(), self._since_s
        seen = {}
        for entry in entries:
            version, since_s = before.get(entry.grant, (entry.version, now_s))
            seen[entry.grant] = (version, since_s) if version == entry.version else (entry.version, now_s)
        self._since_s = seen

    def over(self, entries: Iterable[Entry]) -> list[str]:
        """The grants of those that showed no sign of life for their whole lease."""
        now_s = self._runtime.monotonic_s()
        return [
            entry.grant
            for entry in entries
            if (seen := self._since_s.get(entry.grant)) is not None
            and seen[0] == entry.version
            and now_s - seen[1] >= watch_s(entry.lease_s)
        ]
