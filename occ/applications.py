"""Which version of its own numbering each application has committed: what makes a replayed write harmless."""

from __future__ import annotations

from dataclasses import replace

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import ConflictError
from lakelock.occ.conflicts.footprint import AppTransaction
from lakelock.occ.conflicts.summary import CommitSummary, writer_of
from lakelock.occ.conflicts.window import read_commit
from lakelock.occ.open_table import OpenTable
from lakelock.table.timeline import Timeline


class AppliedVersions:
    """Asks the file index, which has the newest commit of every application. Where there is none, reads commits newest first
    until it meets the application, and never reads one twice.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._read: dict[str, tuple[AppTransaction, Party] | None] = {}

    def applied_by(self, application: AppTransaction, timeline: Timeline) -> Party | None:
        """The commit of this version or of a later one of the same application; None if there is none.

        Without the file index only the active timeline is asked.
        """
        state = self._table.index.state_at(timeline)
        if state is not None:
            applied = state.applications.get(application.app_id)
            if applied is None or applied.version < application.version:
                return None
            return Party(applied.instant, applied.operation, writer_of(applied.writer), applied.completion)
        for instant in sorted(timeline.commits, key=lambda i: i.completion or "", reverse=True):
            if instant.requested not in self._read:
                other = read_commit(self._table.storage, instant.file_name, instant.requested, instant.completion or "")
                self._read[instant.requested] = _application(other)
            found = self._read[instant.requested]
            if found is not None and found[0].app_id == application.app_id:
                return found[1] if found[0].version >= application.version else None
        return None

    def ensure_new(self, application: AppTransaction | None, timeline: Timeline, mine: Party) -> None:
        """Raise `ConflictError` if a commit of the timeline has applied this version, or a later one.

        With a transaction's baseline as the timeline no gap is left: what is decided after it meets the conflict rule.
        """
        other = None if application is None else self.applied_by(application, timeline)
        if application is None or other is None:
            return
        conflict = Conflict.over(
            ConflictRule.APPLICATION_TRANSACTION,
            mine,
            other,
            [str(application)],
            detail="the application has already applied this version",
        )
        raise ConflictError(replace(conflict, retry_helps=False))


def _application(other: CommitSummary) -> tuple[AppTransaction, Party] | None:
    return None if other.application is None else (other.application, other.party)
