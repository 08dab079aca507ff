"""Which version of its own numbering each application has committed: what makes a replayed micro-batch harmless."""

from __future__ import annotations

from lakelock.occ.conflicts.footprint import ConcurrentCommit
from lakelock.occ.conflicts.window import read_commit
from lakelock.occ.open_table import OpenTable
from lakelock.table.timeline import Timeline


class AppliedVersions:
    """Reads commits newest first until it meets the application, and never reads one twice."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._read: dict[str, tuple[str, int] | None] = {}

    def version(self, timeline: Timeline, app_id: str) -> int | None:
        """The version of the application's newest commit, None if it has none in the active timeline."""
        found = self._newest(timeline, app_id)
        return None if found is None else found[1]

    def instant(self, timeline: Timeline, app_id: str) -> str:
        found = self._newest(timeline, app_id)
        return "" if found is None else found[0]

    def _newest(self, timeline: Timeline, app_id: str) -> tuple[str, int] | None:
        for instant in sorted(timeline.commits, key=lambda i: i.completion or "", reverse=True):
            if instant.requested not in self._read:
                other = read_commit(self._table.storage, instant.file_name, instant.requested, instant.completion or "")
                self._read[instant.requested] = _application(other)
            found = self._read[instant.requested]
            if found is not None and found[0] == app_id:
                return instant.requested, found[1]
        return None


def _application(other: ConcurrentCommit) -> tuple[str, int] | None:
    return None if other.application is None else (other.application.app_id, other.application.version)
