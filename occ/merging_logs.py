"""What readers of a merge-on-read table are shown: file slices with their log files, beside those that have none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from lakelock.errors import TableError
from lakelock.occ.open_table import OpenTable
from lakelock.occ.shown import Shown
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import why_not_merged
from lakelock.table.log_files.changes import READ_OPTIMIZED
from lakelock.table.log_files.slices import with_logs
from lakelock.table.properties import TableProperties
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline


def with_log_files(table: OpenTable, properties: TableProperties, shown: Shown, timeline: Timeline) -> Shown:
    """What is shown, with the log files that a timeline shows; `TableError` if lakelock cannot merge the rows as Hudi does.

    A read of each commit of the timeline, and of the archive what completed after the oldest base file.
    """
    refusal = why_not_merged(properties)
    if refusal is not None:
        raise TableError(f"lakelock does not merge the log files of {properties.name}: {refusal}", hint=READ_OPTIMIZED)
    slices = with_logs(shown.snapshot, _commits(table, timeline, shown.snapshot))
    logged = {slice_.as_file.group for slice_ in slices}
    plain = Snapshot(file for file in shown.snapshot.files if file.group not in logged)
    return replace(shown, snapshot=plain, logged=slices, ordering=properties.ordering_field)


def _commits(table: OpenTable, timeline: Timeline, bases: Snapshot) -> Iterator[tuple[str, CommitMetadata]]:
    """Every visible commit that may have written log files for these base files, with its completion time."""
    oldest = min((file.instant for file in bases.files), default="")
    seen = set()
    if timeline.has_archive:
        for _, writes in archived_writes(table.storage, after=oldest):
            for write in writes:
                if write.requested not in seen and timeline.is_visible(write.requested):
                    seen.add(write.requested)
                    yield write.completion, CommitMetadata.from_bytes(write.data, write.requested)
    commits = [commit for commit in timeline.commits if (commit.completion or "") >= oldest and commit.requested not in seen]
    reads = [partial(read_commit, table.storage, commit) for commit in commits]
    found = table.runtime.gather(reads, limit=table.parallel_requests)
    yield from ((commit.completion or "", metadata) for commit, metadata in zip(commits, found, strict=True))
