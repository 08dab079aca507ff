"""Incremental reads: where to find the rows that commits changed, in order of completion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.storage import Storage
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline

Gather = Callable[[Sequence[Callable[[], CommitMetadata]]], Sequence[CommitMetadata]]
"""Runs reads, perhaps several at a time."""


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


@dataclass(frozen=True)
class Range:
    """The commits of a range, in order of completion, and the instants of those that completed after it."""

    commits: tuple[tuple[Instant, CommitMetadata], ...]
    later: tuple[Instant, ...]


def read_range(
    storage: Storage, timeline: Timeline, since: str, until: str | None = None, gather: Gather | None = None
) -> Range:
    """What completed after `since` and not after `until` (instant times; completion decides, as in Hudi 1.x).

    One read per commit, and of what is archived one per file of the archive. A commit that began long before it completed
    may be archived although it is among the latest, so the archive is always asked.
    """
    active = timeline.completed_after(since, until)
    reads = [partial(read_commit, storage, instant) for instant in active]
    read = gather(reads) if gather is not None else [each() for each in reads]
    found = {instant.requested: (instant, metadata) for instant, metadata in zip(active, read, strict=True)}
    later = {instant.requested: instant for instant in (timeline.completed_after(until) if until is not None else ())}
    for _, writes in archived_writes(storage, after=since) if timeline.has_archive else ():
        for write in writes:
            instant = Instant(write.requested, write.action, State.COMPLETED, write.completion)
            if until is not None and write.completion > until:
                later.setdefault(write.requested, instant)
            elif write.requested not in found:
                found[write.requested] = instant, CommitMetadata.from_bytes(write.data, write.requested)
    ordered = sorted(found.values(), key=lambda each: (each[0].completion or "", each[0].requested))
    return Range(tuple(ordered), tuple(later.values()))


def read_changes(storage: Storage, timeline: Timeline, since: str, until: str | None = None) -> Changes:
    """Where the rows are that the commits of a range have changed; the range and its cost are those of `read_range`."""
    return changed_files(read_range(storage, timeline, since, until).commits)
