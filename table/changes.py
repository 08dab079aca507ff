"""Incremental reads: where to find the rows that commits changed, in order of completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.storage import Storage
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline


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

    One read per commit, and of what is archived one per file of the archive. A commit that began long before it completed
    may be archived although it is among the latest, so the archive is always asked.
    """
    active = timeline.completed_after(since, until)
    found = {i.requested: (i, read_commit(storage, i)) for i in active}
    if timeline.has_archive:
        for _, writes in archived_writes(storage, after=since):
            for write in writes:
                if write.requested not in found and (until is None or write.completion <= until):
                    instant = Instant(write.requested, write.action, State.COMPLETED, write.completion)
                    found[write.requested] = instant, CommitMetadata.from_bytes(write.data, write.requested)
    return changed_files(sorted(found.values(), key=lambda each: (each[0].completion or "", each[0].requested)))
