"""The log files of a merge-on-read table at one moment, and the file slices that have them.

The file index has them. Where it does not (as of an earlier time, and in version 6), every commit on the timeline is read, and
the whole archive if there is one: nothing else shows a file group that consists of log files only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

from lakelock.occ.open_table import OpenTable
from lakelock.storage.location import TableIO
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import UNKNOWN, CommitMetadata
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import LoggedCommit, LoggedSlice, logs_of, with_logs, with_logs_of_version_6
from lakelock.table.snapshot import CompletedLog, DataFile, Snapshot
from lakelock.table.timeline import Timeline

LOG_INFIX = b".log."
"""In the name of each log file, and so in the metadata of each commit that wrote one."""


def slices_of_version_6(table: OpenTable, bases: Snapshot, timeline: Timeline) -> tuple[LoggedSlice, ...]:
    """The slices that have log files, of a table of version 6."""
    return with_logs_of_version_6(bases, logging_commits(table.io, timeline))


def slices_as_of(table: OpenTable, bases: Snapshot, timeline: Timeline, as_of: str) -> tuple[LoggedSlice, ...]:
    """The slices that have log files as of an earlier time, on the base files as of then; `timeline` is that of now."""
    return with_logs(bases, logs_of(logging_commits(table.io, timeline, as_of), as_of))


def logged_slices(table: OpenTable, bases: Snapshot, timeline: Timeline) -> tuple[LoggedSlice, ...]:
    """The slices that have log files now, on the newest base files that the timeline shows."""
    return with_logs(bases, completed_logs(table, timeline))


def completed_logs(table: OpenTable, timeline: Timeline) -> Mapping[FileGroupId, Collection[CompletedLog]]:
    """The log files that a timeline shows on the newest base files, and perhaps others of the same file groups."""
    known = table.index.logs_at(timeline)
    return logs_of(logging_commits(table.io, timeline)) if known is None else known


def logged_files(table: OpenTable) -> list[DataFile]:
    """The file slices that have log files now."""
    if not table.is_merge_on_read:
        return []
    snapshot, timeline = table.shown_now()
    return [slice_.as_file for slice_ in logged_slices(table, snapshot, timeline)]


def bases_below(table: OpenTable, timeline: Timeline) -> Mapping[LogFile, str]:
    """The log files that readers merge, without their sizes, each with the instant of the base file below it, `""` for none."""
    found = logged_slices(table, table.index.snapshot_at(timeline), timeline)
    return {log._replace(size_bytes=0): each.base.instant if each.base else "" for each in found for log in each.logs}


def slices_at(table: OpenTable, timeline: Timeline) -> Snapshot:
    """The snapshot of a timeline; on a merge-on-read table its files have their logs."""
    return with_their_logs(table, table.index.snapshot_at(timeline), timeline)


def with_their_logs(table: OpenTable, bases: Snapshot, timeline: Timeline, as_of: str | None = None) -> Snapshot:
    """The base files with their log files, at that timeline or as of an earlier time."""
    if not table.is_merge_on_read:
        return bases
    found = logged_slices(table, bases, timeline) if as_of is None else slices_as_of(table, bases, timeline, as_of)
    return bases.with_files(dict.fromkeys((slice_.as_file for slice_ in found), UNKNOWN))


def with_committed_logs(table: OpenTable, bases: Snapshot, timeline: Timeline) -> Snapshot:
    """The base files with their log files, at a timeline with some commits left out: each of its commits is read."""
    if not table.is_merge_on_read:
        return bases
    found = with_logs(bases, logs_of(logging_commits(table.io, timeline)))
    return bases.with_files(dict.fromkeys((slice_.as_file for slice_ in found), UNKNOWN))


def logging_commits(io: TableIO, timeline: Timeline, as_of: str | None = None) -> Iterator[LoggedCommit]:
    """Every visible commit that wrote log files or replaced file groups, those requested after `as_of`, and others."""
    seen = set()
    if timeline.has_archive:
        for _, writes in archived_writes(io.storage):
            for write in writes:
                if write.requested not in seen and timeline.is_visible(write.requested):
                    seen.add(write.requested)
                    is_later = as_of is not None and write.requested > as_of
                    if is_later or LOG_INFIX in write.data or write.action == Action.REPLACE_COMMIT:
                        metadata = CommitMetadata.from_bytes(write.data, write.requested)
                        yield LoggedCommit(write.requested, write.completion, metadata)
    commits = [commit for commit in timeline.commits if commit.requested not in seen]
    reads = [partial(read_commit, io.storage, commit) for commit in commits]
    found = io.gather(reads)
    for commit, metadata in zip(commits, found, strict=True):
        yield LoggedCommit(commit.requested, commit.completion or "", metadata)
