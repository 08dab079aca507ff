"""Which log files belong to which file slice, by what commits say: listings leave log files out, and names do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files.merged import LoggedSlice
from lakelock.table.log_files.names import LogFile
from lakelock.table.snapshot import Snapshot


def with_logs(bases: Snapshot, commits: Iterable[tuple[str, CommitMetadata]]) -> tuple[LoggedSlice, ...]:
    """The file slices that have log files, in order of partition and file id.

    `bases` are the newest visible base files. `commits`, with their completion times, are all visible ones that completed
    after the oldest of these. A log file belongs to the base file that is older than its completion, as in Hudi since table
    version 8: what completed before has been compacted into it.
    """
    files = {file.group: file for file in bases.files}
    logs: dict[FileGroupId, set[LogFile]] = {}
    replaced: set[FileGroupId] = set()
    for completion, metadata in commits:
        replaced |= metadata.replaced_groups
        for stat in metadata.stats:
            log = LogFile.parse(stat.path or "", stat.file_size_bytes or 0)
            base = files.get(log.group) if log is not None else None
            if log is not None and (base is None or completion >= base.instant):
                logs.setdefault(log.group, set()).add(log)
    return tuple(
        LoggedSlice(*group, files.get(group), tuple(sorted(found, key=attrgetter("instant", "version", "token"))))
        for group, found in sorted(logs.items())
        if group not in replaced
    )
