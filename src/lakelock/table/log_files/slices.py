"""Which log files belong to which file slice, by what commits say: listings leave log files out, and names do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files.merged import LoggedSlice
from lakelock.table.log_files.names import LogFile
from lakelock.table.snapshot import Snapshot


class LoggedCommit(NamedTuple):
    """A visible commit, which may have written log files."""

    requested: str
    completion: str
    metadata: CommitMetadata


def with_logs(bases: Snapshot, commits: Iterable[LoggedCommit], *, named_after_base: bool) -> tuple[LoggedSlice, ...]:
    """The file slices that have log files, in order of partition and file id.

    `bases` are the newest visible base files. `commits` are all visible commits that wrote log files or replaced file groups,
    as far back as there are any: a file group may have log files only, older than every base file.

    A log file belongs to the base file that is older than its completion, as in Hudi since table version 8: what completed
    before has been compacted into it. Before version 8 it was `named_after_base`: the instant in its name is that of its base
    file, or of the compaction that is going to make the next one.
    """
    files = {file.group: file for file in bases.files}
    logs: dict[FileGroupId, dict[LogFile, set[str]]] = {}
    replaced: set[FileGroupId] = set()
    for requested, completion, metadata in commits:
        replaced |= metadata.replaced_groups
        for stat in metadata.stats:
            # A file of the old kind grows with each commit, so none of its sizes is known.
            log = LogFile.parse(stat.path or "", 0 if named_after_base else stat.file_size_bytes or 0)
            base = files.get(log.group) if log is not None else None
            if log is not None and (base is None or (log.instant if named_after_base else completion) >= base.instant):
                logs.setdefault(log.group, {}).setdefault(log, set()).add(requested)
    return tuple(
        LoggedSlice(
            *group,
            files.get(group),
            tuple(sorted(found, key=attrgetter("instant", "version", "token"))),
            frozenset().union(*found.values()),
        )
        for group, found in sorted(logs.items())
        if group not in replaced
    )
