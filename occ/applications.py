"""Which version of its own numbering each application has committed: what makes a replayed write harmless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.footprint import CommitSummary, writer_of
from lakelock.occ.history import read_summary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.rules import rejection
from lakelock.occ.undone import rolled_back_commits, undone_commits, undone_error
from lakelock.table.archive import archive_keys, archived_writes
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.timeline import Timeline


@dataclass(frozen=True)
class _Applied:
    """The newest commit of one application in one file of the archive."""

    application: AppTransaction
    party: Party


class AppliedVersions:
    """Asks the file index, which has the newest commit of every application. Where there is none, reads commits newest first
    until it meets the application, then the archive; never reads a commit or a file twice.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._read: dict[str, tuple[AppTransaction, Party] | None] = {}
        self._archived: dict[str, dict[str, _Applied]] = {}

    def applied_by(self, application: AppTransaction, timeline: Timeline) -> Party | None:
        """The commit of this version or of a later one of the same application; None if there is none.

        The file index has the newest commit of each application. Without it the newest commits are read first: most
        applications are in one of them, a new one is in none. So each round reads twice as many as the one before, up to
        `listing.parallel_requests`, in parallel. An application that the active timeline does not show costs a listing of the
        archive, and a read of each of its files that this process has not read yet.
        """
        state = self._table.index.state_at(timeline)
        if state is not None:
            applied = state.applications.get(application.app_id)
            if applied is None or applied.version < application.version:
                return None
            if applied.version == application.version and self._is_taken_out(applied.instant, timeline):
                return None
            return Party(applied.instant, applied.operation, writer_of(applied.writer), applied.completion)
        commits = sorted(timeline.commits, key=lambda i: i.completion or "", reverse=True)
        at, width = 0, 1
        while at < len(commits):
            for found in self._applications(commits[at : at + width]):
                if found is not None and found[0].app_id == application.app_id:
                    undone = found[0].version == application.version and self._is_taken_out(found[1].instant, timeline)
                    return found[1] if found[0].version >= application.version and not undone else None
            at, width = at + width, min(2 * width, self._table.parallel_requests)
        archived = self._in_archive(application.app_id)
        return archived.party if archived is not None and archived.application.version >= application.version else None

    def _is_taken_out(self, instant: str, timeline: Timeline) -> bool:
        """Whether another engine has undone the commit, and it is out of the table: then its rows may be written again.

        `CommitUndone` if it is undone and not taken out. Reads the rollbacks since: a version is rarely asked for twice.
        """
        table = self._table
        if instant not in rolled_back_commits(table, timeline, since=instant):
            return False
        found = next((each for each in undone_commits(table, timeline) if each.instant == instant and each.gone), None)
        if found is not None and any(file.instant == instant for file in table.index.snapshot_at(timeline).files):
            raise undone_error(table, found)
        return found is not None

    def _in_archive(self, app_id: str) -> _Applied | None:
        """The newest archived commit of the application."""
        unread = archive_keys(self._table.storage) - self._archived.keys()
        if unread:
            for key, writes in archived_writes(self._table.storage, holding=keys.APPLICATION.encode(), only=unread):
                newest = self._archived.setdefault(key, {})
                for write in sorted(writes, key=lambda w: w.completion):
                    metadata = CommitMetadata.from_bytes(write.data, write.requested)
                    found = _application(CommitSummary.of(write.requested, write.completion, metadata, None))
                    if found is not None:
                        newest[found[0].app_id] = _Applied(*found)
        candidates = [file[app_id] for file in self._archived.values() if app_id in file]
        return max(candidates, key=lambda each: each.party.completion or "", default=None)

    def _applications(self, commits: Sequence[Instant]) -> list[tuple[AppTransaction, Party] | None]:
        unread = [instant for instant in commits if instant.requested not in self._read]
        reads = [partial(self._application_of, instant) for instant in unread]
        found = self._table.io.gather(reads)
        self._read.update(zip((instant.requested for instant in unread), found, strict=True))
        return [self._read[instant.requested] for instant in commits]

    def _application_of(self, instant: Instant) -> tuple[AppTransaction, Party] | None:
        return _application(read_summary(self._table.storage, instant))

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
        raise rejection(self._table.settings.concurrency, replace(conflict, retry_helps=False))


def _application(other: CommitSummary) -> tuple[AppTransaction, Party] | None:
    return None if other.application is None else (other.application, other.party)
