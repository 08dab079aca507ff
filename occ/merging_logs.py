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
from lakelock.table.eligibility import OLD_VERSION, why_not_merged
from lakelock.table.instants import Action
from lakelock.table.merged_slices import READ_OPTIMIZED, LoggedCommit, with_logs
from lakelock.table.properties import TableProperties
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline

LOG = b".log."
"""In the name of each log file, and so in the metadata of whoever wrote one."""


def with_log_files(table: OpenTable, properties: TableProperties, shown: Shown, timeline: Timeline) -> Shown:
    """What is shown, with the log files that a timeline shows; `TableError` if lakelock cannot merge the rows as Hudi does.

    A read of each commit of the timeline and, where there may be one, of the whole archive: nothing else tells of a file group
    that has log files only.
    """
    refusal = why_not_merged(properties)
    if refusal is not None:
        raise TableError(f"lakelock does not merge the log files of {properties.name}: {refusal}", hint=READ_OPTIMIZED)
    slices = with_logs(shown.snapshot, _commits(table, timeline), named_after_base=properties.version == OLD_VERSION)
    logged = {slice_.as_file.group for slice_ in slices}
    plain = Snapshot(file for file in shown.snapshot.files if file.group not in logged)
    return replace(shown, snapshot=plain, logged=slices, ordering=properties.ordering_field)


def _commits(table: OpenTable, timeline: Timeline) -> Iterator[LoggedCommit]:
    """Every visible commit that wrote log files or replaced file groups, and others."""
    seen = set()
    if timeline.has_archive:
        for _, writes in archived_writes(table.storage):
            for write in writes:
                if write.requested not in seen and timeline.is_visible(write.requested):
                    seen.add(write.requested)
                    if LOG in write.data or write.action == Action.REPLACE_COMMIT:
                        metadata = CommitMetadata.from_bytes(write.data, write.requested)
                        yield LoggedCommit(write.requested, write.completion, metadata)
    commits = [commit for commit in timeline.commits if commit.requested not in seen]
    reads = [partial(read_commit, table.storage, commit) for commit in commits]
    found = table.io.gather(reads)
    for commit, metadata in zip(commits, found, strict=True):
        yield LoggedCommit(commit.requested, commit.completion or "", metadata)
