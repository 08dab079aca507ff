"""Incremental reads: where to find the rows that commits changed, in order of completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.errors import InputError
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline, read_instant


@dataclass(frozen=True)
class Changes:
    """The changed rows are those in `files` whose `_hoodie_commit_time` is the requested time of one of `instants`."""

    instants: tuple[Instant, ...]
    files: tuple[DataFile, ...]


def changed_files(commits: Iterable[tuple[Instant, CommitMetadata]]) -> Changes:
    """The newest slice that the commits wrote of each file group, without the groups that they replaced."""
    newest: dict[FileGroupId, DataFile] = {}
    replaced: set[FileGroupId] = set()
    instants = []
    for instant, metadata in commits:
        instants.append(instant)
        replaced |= metadata.replaced_groups
        for stat in metadata.stats:
            file = DataFile.parse(stat.path, stat.file_size_bytes or 0) if stat.path else None
            if file and (file.group not in newest or file.instant > newest[file.group].instant):
                newest[file.group] = file
    return Changes(tuple(instants), tuple(sorted(file for group, file in newest.items() if group not in replaced)))


def read_changes(storage: Storage, timeline: Timeline, since: str, until: str | None = None) -> Changes:
    """What completed after `since` and not after `until` (instant times; completion decides, as in Hudi 1.x).

    One read per commit. A start before the archived part of the timeline is refused:
    part of the answer would be missing.
    """
    if since < timeline.first_active and any(file.key.endswith(".parquet") for file in storage.list(layout.HISTORY)):
        raise InputError(
            f"changes since {since} are no longer all on the timeline: older commits were archived",
            hint=f"start at {timeline.first_active} or later, or read the whole table",
        )
    return changed_files(
        (instant, CommitMetadata.from_bytes(read_instant(storage, instant), instant.file_name))
        for instant in timeline.completed_after(since, until)
    )
