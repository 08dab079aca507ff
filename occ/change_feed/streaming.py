"""A table as a stream: from offset to offset, each commit exactly once.

An offset says which commits were read, so what lies between two offsets is the same whenever it is asked for. Commits come
whole, in the order in which they completed; one that becomes visible later than others with a later completion time comes in
a later batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import InputError, StorageError, StorageUnavailable
from lakelock.occ.change_feed.planning import ensure_kept, plan_units
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records import commit_keys as keys
from lakelock.table.archive import archive_names, archived_write, archived_writes, instants_in, read_commit
from lakelock.table.change_feed import Commit, StreamOffset, Unit, version_of
from lakelock.table.commit_effects import Coverage, lowest_open, restores_of
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import Instant, State
from lakelock.table.snapshot import DataFile
from lakelock.table.timeline import Timeline


@dataclass(frozen=True)
class Appended:
    """Rows that a commit appended: those in `file` with its commit time, or all where that is None."""

    file: DataFile
    commit_time: str | None


@dataclass
class TableStream:
    """Reads a table from offset to offset. What it remembers never changes: the instants in the files of the archive.

    `feed`: the changes of each commit; without it only appended rows, and a commit that changed or deleted rows is an
    `InputError`, unless such commits are to be left out (`skip_change_commits`).
    """

    table: OpenTable
    feed: bool = False
    skip_change_commits: bool = False
    ensure_fits: Callable[[Timeline, Sequence[Commit]], None] | None = None
    """Refuses commits whose rows do not fit the columns that the stream has."""
    is_wanted: Callable[[str], bool] = lambda _: True
    """Whether a partition is one of those that the stream is about: what commits did elsewhere is nothing to it."""

    def __post_init__(self) -> None:
        self._archived: dict[str, frozenset[str]] = {}

    def first(self, since: str | None) -> StreamOffset:
        """Where a new stream begins: before the rows that the table has now, or, with `since`, after that position."""
        timeline = self.table.timeline_of_one_moment()
        if since is None:
            return replace(StreamOffset.after_all(timeline, self._archived_above(timeline, ""), ()), first_files=0)
        later = {i.requested: i for i in timeline.completed_after(since)}
        for _, writes in archived_writes(self.table.storage, after=since) if timeline.has_archive else ():
            for write in writes:
                later.setdefault(write.requested, Instant(write.requested, write.action, State.COMPLETED, write.completion))
        low = min([lowest_open(timeline), *later])
        offset = StreamOffset.after_all(timeline, self._archived_above(timeline, low), later.values())
        return replace(offset, position=since)

    def latest(self) -> StreamOffset:
        """After everything that there is now."""
        timeline = self.table.timeline_of_one_moment()
        return StreamOffset.after_all(timeline, self._archived_above(timeline, ""), ())

    def next(self, start: StreamOffset, most_files: int | None = None, target: StreamOffset | None = None) -> StreamOffset:
        """The end of the batch that begins at `start`: the same offset if there is nothing new.

        A batch has at most `most_files` files, but at least one commit. With a `target` it does not pass that.
        """
        timeline = self._timeline(start)
        unread = self._open(timeline, start.covered)
        if start.first_files is not None:
            count = len(self._first_state(timeline, unread))
            end = count if most_files is None else start.first_files + most_files
            if start.first_files < count:
                return replace(start, first_files=end if end < count else None)
        wanted = [i for i in unread if target is None or target.covered.covers(i.requested)]
        taken = list(self._within(wanted, most_files))
        if not taken:
            return start
        names = {instant.requested for instant in taken}
        return replace(start, first_files=None).and_(taken, timeline, [i for i in unread if i.requested not in names])

    def units(self, start: StreamOffset, end: StreamOffset) -> tuple[Unit, ...]:
        """What to compare for the changes between two offsets; rows of the first state count as inserted."""
        timeline, unread, commits = self._between(start, end)
        first = tuple(Unit(None, file, start.position or file.instant) for file in self._first(timeline, start, end, unread))
        return first + plan_units(self.table, timeline, commits, unread, "commits")

    def appended(self, start: StreamOffset, end: StreamOffset) -> tuple[Appended, ...]:
        """Where the rows are that were appended between two offsets, those of the first state included."""
        timeline, unread, commits = self._between(start, end)
        found = [Appended(file, None) for file in self._first(timeline, start, end, unread)]
        ensure_kept(self.table, timeline, [commit.instant for commit in commits])
        for commit in commits:
            stats = [stat for stat in commit.metadata.stats if self.is_wanted(stat.partition_path or "")]
            replaced = [group for group in commit.metadata.replaced_groups if self.is_wanted(group.partition)]
            if commit.is_service or not (stats or replaced):
                continue
            if replaced or not _is_append(commit, stats):
                if self.skip_change_commits:
                    continue
                raise _changed(commit)
            for stat in stats:
                file = DataFile.parse(stat.path, stat.file_size_bytes or 0) if stat.path else None
                if file is not None and (stat.num_inserts or stat.is_new_group):
                    found.append(Appended(file, None if stat.is_new_group else commit.instant.requested))
        return tuple(found)

    def _between(self, start: StreamOffset, end: StreamOffset) -> tuple[Timeline, list[Instant], list[Commit]]:
        timeline = self._timeline(end)
        unread = self._open(timeline, start.covered)
        mine = [instant for instant in unread if end.covered.covers(instant.requested)]
        commits = self._read(mine)
        if self.ensure_fits is not None:
            self.ensure_fits(timeline, commits)
        return timeline, unread, commits

    def _timeline(self, offset: StreamOffset) -> Timeline:
        """The timeline as it is now. `InputError` if it does not contain what was read: then nobody can tell what is new."""
        timeline = self.table.timeline_of_one_moment()
        if not offset.covered.is_within(timeline):
            undone = not offset.covered.restores >= restores_of(timeline)
            raise InputError(
                f"{self.table.storage.uri}: the stream cannot go on from {offset.position}, because "
                + (
                    "Hudi's restore has removed commits that it may have read"
                    if undone
                    else "commits that it has read are gone, or one appeared that is older than all that it has read"
                ),
                hint="start a new query with a new checkpoint, which begins with the rows that the table has now",
            )
        return timeline

    def _first(
        self, timeline: Timeline, start: StreamOffset, end: StreamOffset, unread: Sequence[Instant]
    ) -> tuple[DataFile, ...]:
        if start.first_files is None:
            return ()
        return self._first_state(timeline, unread)[start.first_files : end.first_files]

    def _first_state(self, timeline: Timeline, unread: Sequence[Instant]) -> tuple[DataFile, ...]:
        """The files with which the stream began, in an order that stays."""
        files = self.table.index.snapshot_at(timeline.before(unread)).files
        if unread:
            ensure_kept(self.table, self.table.timeline(), unread)
        return files

    def _within(self, unread: Sequence[Instant], most_files: int | None) -> Iterator[Instant]:
        files = 0
        for number, instant in enumerate(unread):
            if most_files is not None:
                files += len(self._read([instant])[0].metadata.stats)
                if number and files > most_files:
                    return
            yield instant

    def _read(self, instants: Sequence[Instant]) -> list[Commit]:
        reads = [partial(read_commit, self.table.storage, instant) for instant in instants]
        found = self.table.io.gather(reads)
        return [Commit(instant, metadata) for instant, metadata in zip(instants, found, strict=True)]

    def _open(self, timeline: Timeline, covered: Coverage) -> list[Instant]:
        """The commits that the timeline shows, or has archived, and that are not covered, in order of completion."""
        found = {i.requested: i for i in timeline.commits if not covered.covers(i.requested)}
        for requested in self._archived_above(timeline, covered.low):
            if requested not in found and not covered.covers(requested):
                write = archived_write(self.table.storage, requested)
                if write is not None:
                    found[requested] = Instant(write.requested, write.action, State.COMPLETED, write.completion)
        return sorted(found.values(), key=lambda i: (i.completion or i.requested, i.requested))

    def _archived_above(self, timeline: Timeline, low: str) -> frozenset[str]:
        """The visible instants at or above `low` that were archived; `""` stands for the lowest that may be open."""
        low = low or lowest_open(timeline)
        try:
            found = self._instants(timeline.archive, low)
        except StorageUnavailable:
            raise
        except StorageError:
            # Its files were merged since the timeline was listed; their content is in the present files.
            found = self._instants(tuple(archive_names(self.table.storage)), low)
        return frozenset(instant for instant in found if instant >= low and timeline.is_visible(instant))

    def _instants(self, names: Sequence[str], low: str) -> list[str]:
        found: list[str] = []
        for name in names:
            file = HistoryFile.parse(name)
            if file is None or file.last < low:
                continue
            if name not in self._archived:
                self._archived[name] = instants_in(self.table.storage, name)
            found += self._archived[name]
        return found


def _is_append(commit: Commit, stats: Sequence[WriteStat]) -> bool:
    changed = any(stat.num_update_writes or stat.num_deletes for stat in stats)
    return not changed and keys.RESTORED not in commit.metadata.extra


def _changed(commit: Commit) -> InputError:
    operation = commit.metadata.extra.get(keys.OPERATION) or commit.metadata.operation or "write"
    return InputError(
        f"commit {commit.instant.requested} ({operation}) changed or deleted rows, and the stream tells only appended ones",
        hint='.option("change_feed", "true") tells changes, too: start a new query with it, and a new checkpoint. '
        '.option("skip_change_commits", "true") leaves such commits out. To begin after this one: '
        f'.option("since", "{version_of(commit.position)}")',
        instant=commit.instant.requested,
    )
