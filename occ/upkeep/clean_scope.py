"""Where a clean looks: only in the partitions in which something was superseded since the cleans before it, or everywhere.

A file is dead by a commit that wrote the next file of its group or replaced the group, and may go once the retention has
passed that commit. So what may go now and could not go before was superseded by a commit between the two limits; its
metadata says in which partitions. A commit that only adds file groups supersedes nothing. Looking at fewer partitions
never deletes more than looking at all would. The whole table is listed once a day, for what the metadata did not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import RESTORE_FILE, CorruptTableError, StorageError, StorageUnavailable
from lakelock.occ.open_table import OpenTable
from lakelock.occ.upkeep.clean_policy import VERSIONS, Retention
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.archive import completed_write, instants_in, writes_in
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import Action, Instant
from lakelock.table.service_metadata import CleanedUntil
from lakelock.table.timeline import Timeline

WHOLE_EACH_MS = 24 * 3_600_000
"""The whole table is listed by the first clean after this long."""

MOST_COMMITS = 1_000
"""Behind more commits than this, the whole table is listed."""

PAGE = 1_000
"""Objects in one answer of an object store to a listing."""


@dataclass(frozen=True)
class Scope:
    """The partitions to list, None for all. `note` is what is true once all dead files in them are deleted."""

    partitions: frozenset[str] | None
    note: CleanedUntil | None = None

    def objects(self, table: OpenTable) -> tuple[list[Listed], CleanedUntil | None]:
        """The objects of these partitions, and the note."""
        if self.partitions is None:
            objects = list(table.storage.list(""))
            return objects, replace(self.note, objects=len(objects)) if self.note is not None else None
        looks = [partial(files_of, table, partition) for partition in sorted(self.partitions)]
        found = table.io.gather(looks)
        return [item for items in found for item in items], self.note


NOWHERE = Scope(frozenset())


def everywhere(timeline: Timeline, kept: Retention, now_ms: int) -> Scope:
    """The whole table. A number of versions leaves nothing to note: what it keeps may have been superseded long ago."""
    if kept.policy == VERSIONS or not kept.limit:
        return Scope(None)
    # What is pending may yet supersede files under an instant that the retention has passed.
    until = min([kept.limit, *(i.requested for i in timeline.pending)])
    return Scope(None, CleanedUntil(until, _holds(timeline), now_ms))


def scope_of(table: OpenTable, timeline: Timeline, kept: Retention, now_ms: int) -> Scope:
    """Where dead files can be. One read of the note, and one of each commit that the retention has passed since.

    `now_ms` is the storage's time, taken before the table is listed. The whole table is listed if nothing is known, if a
    savepoint or a plan to cluster that kept files is gone, once a day, if the policy counts versions, and where it costs less.
    """
    if not kept.limit:
        return NOWHERE
    whole = everywhere(timeline, kept, now_ms)
    if whole.note is None:
        return whole
    stored = table.storage.get(layout.CLEANED_UNTIL)
    known = CleanedUntil.from_bytes(stored.data) if stored is not None else None
    if known is None or not known.holds <= whole.note.holds or not 0 <= now_ms - known.listed_ms < WHOLE_EACH_MS:
        return whole
    if kept.limit <= known.until:
        return NOWHERE
    partitions = _superseded_in(table, timeline, known.until, kept.limit)
    if partitions is None or len(partitions) > max(table.parallel_requests, known.objects // PAGE):
        return whole
    return Scope(partitions, replace(known, until=whole.note.until, holds=whole.note.holds))


def _holds(timeline: Timeline) -> frozenset[str]:
    return frozenset(f"{i.requested}.{i.action}" for i in protecting(timeline))


def protecting(timeline: Timeline) -> Iterator[Instant]:
    """What protects files from a clean, and may appear meanwhile: savepoints in any state, and plans to cluster."""
    yield from (i for i in timeline.instants if i.action == Action.SAVEPOINT)
    yield from timeline.pending_clustering


def files_of(table: OpenTable, partition: str) -> list[Listed]:
    """The objects of this partition, and of no folder inside it."""
    listed = table.storage.list(partition)
    return [item for item in listed if layout.split_path(item.key)[0] == partition]


def _superseded_in(table: OpenTable, timeline: Timeline, since: str, until: str) -> frozenset[str] | None:
    """The partitions in which commits requested from `since` to before `until` superseded files; None if nobody can tell,
    or it would take too long.
    """
    active = [i for i in timeline.commits if since <= i.requested < until]
    try:
        archived = _archived(table, timeline, since, until)
        if len(active) + sum(map(len, archived.values())) > MOST_COMMITS:
            return None
        reads = [partial(_superseded_by, table, timeline, instant.requested) for instant in active]
        old = [partial(_superseded_by_archived, table, name, instants) for name, instants in archived.items() if instants]
        found = table.io.gather([*reads, *old])
    except StorageUnavailable:
        raise
    except (StorageError, CorruptTableError):
        return None  # merged meanwhile, or damaged
    return frozenset().union(*found)


def _superseded_by(table: OpenTable, timeline: Timeline, instant: str) -> frozenset[str]:
    decided = table.log.known(instant)
    if decided is not None and decided.payload:
        return _partitions(decided.payload, instant)
    commit = completed_write(table.storage, timeline, instant)
    if commit is None:
        raise CorruptTableError(f"{instant} is on the timeline but cannot be read", hint=RESTORE_FILE)
    return _partitions(commit.data, instant)


def _archived(table: OpenTable, timeline: Timeline, since: str, until: str) -> dict[str, frozenset[str]]:
    """The instants of that time in each file of the history that may have some. One read for each such file."""
    files = (HistoryFile.parse(name) for name in timeline.archive)
    names = [file.name for file in files if file is not None and file.last >= since and file.first < until]
    found = table.io.gather([partial(instants_in, table.storage, name) for name in names])
    return {name: frozenset(i for i in instants if since <= i < until) for name, instants in zip(names, found, strict=True)}


def _superseded_by_archived(table: OpenTable, name: str, instants: frozenset[str]) -> frozenset[str]:
    writes = writes_in(table.storage, name, instants)
    return frozenset().union(*(_partitions(write.data, write.requested) for write in writes))


def _partitions(data: bytes, source: str) -> frozenset[str]:
    """Where a commit wrote the next file of a group, or replaced one."""
    metadata = CommitMetadata.from_bytes(data, source)
    return frozenset(group.partition for group in metadata.rewritten_groups | metadata.replaced_groups)
