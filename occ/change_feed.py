"""The change feed of a table: the file slices to compare for a range of commits, and the table as a stream.

The slices are found in commits and in the listing of the partitions that they touched. A stream goes from offset to offset,
each commit exactly once. An offset says which commits were read, so what lies between two offsets is the same whenever it is
asked for. Commits come whole, in the order in which they completed; one that becomes visible later than others with a later
completion time comes in a later batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from lakelock.errors import InputError, StorageError, StorageUnavailable, TableError
from lakelock.occ import commit_keys
from lakelock.occ import commit_keys as keys
from lakelock.occ.live_logs import completed_logs, slices_at
from lakelock.occ.log import Resolution, resolve
from lakelock.occ.open_table import OpenTable
from lakelock.occ.retention import newest_readable_from
from lakelock.occ.schema import SchemaHistory
from lakelock.storage import Listed
from lakelock.table import layout
from lakelock.table.archive import (
    CompletedWrite,
    archive_names,
    archived_write,
    archived_writes,
    instants_in,
    read_commit,
    writes_in,
)
from lakelock.table.change_feed import (
    Commit,
    FeedMode,
    MissingSlice,
    Shown,
    StreamOffset,
    Unit,
    read_range,
    units_of,
    version_of,
)
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.eligibility import require_slices
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import Action, Instant, State
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import with_logs
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema, is_readable_as
from lakelock.table.service_metadata import RollbackMetadata
from lakelock.table.snapshot import Coverage, DataFile, Snapshot, lowest_open, names_of, read_replaced, restores_of
from lakelock.table.timeline import Timeline

MOST_LISTED_ALONE = 64
"""Up to this many partitions are listed one by one; for more, the whole table is listed once."""


@dataclass(frozen=True)
class Feed:
    """The units to compare, and the position up to which they bring their reader."""

    units: tuple[Unit, ...]
    until: str


def feed_between(
    table: OpenTable,
    properties: TableProperties,
    schema: TableSchema,
    since: str,
    until: str | None = None,
    mode: FeedMode = "commits",
) -> Feed:
    """What commits changed that completed after position `since`, and not after `until`; to be read in the columns of `schema`.

    `InputError` that says from when on the feed is whole, if slices that it needs were cleaned, or have other columns.
    `TableError` for a table without meta columns.
    """
    ensure_comparable(properties)
    timeline = table.timeline_of_one_moment()
    ensure_nothing_undone(table, timeline, since)
    gather = table.io.gather
    found = read_range(table.storage, timeline, since, until, gather)
    commits = [Commit(*each) for each in found.commits]
    ensure_columns_fit(table, properties, schema, timeline, commits)
    units = plan_units(table, timeline, commits, [*(commit.instant for commit in commits), *found.later], mode)
    return Feed(units, commits[-1].position if commits else since)


def plan_units(
    table: OpenTable, timeline: Timeline, commits: Sequence[Commit], hidden: Sequence[Instant], mode: FeedMode
) -> tuple[Unit, ...]:
    """The units of some commits. `hidden`: these, and all others that were not visible before the first of them.

    Lists the partitions where a file group was rewritten or replaced; appends cost nothing more than their commits.
    """
    if not commits:
        return ()
    before = timeline.before(hidden)
    touched = {group.partition for _, data in commits for group in (*data.rewritten_groups, *data.replaced_groups)}
    replaced = read_replaced(table.io, before) if touched else {}
    names = lru_cache(partial(names_of, table.storage, timeline))
    snapshot = Snapshot.of(before, _listed(table, touched), replaced, names)
    # A clean is on the timeline before it deletes anything, so a clean that deleted files from this listing shows there now.
    instants = [commit.instant for commit in commits]
    ensure_kept(table, table.timeline() if touched else timeline, instants)
    gone = {group for group, by in replaced.items() if before.is_visible(by)}
    shown = Shown({file.group: file for file in snapshot.files}, gone)
    if touched and table.is_merge_on_read:
        shown.logs |= {group: set(logs) for group, logs in completed_logs(table, before).items() if group.partition in touched}
        shown.slices |= {each.as_file.group: each.as_file for each in with_logs(snapshot, shown.logs)}
    try:
        return units_of(shown, commits, mode)
    except MissingSlice as error:
        raise _cleaned(table, instants[0], commits[-1].position) from error


def _listed(table: OpenTable, partitions: set[str]) -> Iterator[Listed]:
    if "" in partitions or len(partitions) > MOST_LISTED_ALONE:
        yield from (item for item in table.storage.list("") if _partition(item) in partitions)
        return
    reads = [partial(lambda path: list(table.storage.list(path)), path) for path in sorted(partitions)]
    for path, items in zip(sorted(partitions), table.io.gather(reads), strict=True):
        yield from (item for item in items if _partition(item) == path)


def _partition(item: Listed) -> str | None:
    file = DataFile.parse(item.key)
    return file.partition if file is not None else None


def position_at(table: OpenTable, timeline: Timeline, moment: str) -> str:
    """The position that a moment means: that of the commit with this instant, if there is one, otherwise the time itself."""
    found = timeline.write_at(moment) or (archived_write(table.storage, moment) if timeline.has_archive else None)
    return (found.completion if found is not None else None) or moment


def ensure_comparable(properties: TableProperties) -> None:
    """`TableError` for a table whose rows do not say by which commit they were written, or are not ordered by commit time."""
    require_slices(properties, "a change feed")
    if not properties.flag("hoodie.populate.meta.fields", default=True):
        raise TableError(
            f"the table {properties.name} has no change feed: its rows lack record keys (hoodie.populate.meta.fields=false)",
            hint="compare two reads of it: table.read(as_of=...)",
        )


def ensure_kept(table: OpenTable, timeline: Timeline, commits: Sequence[Instant]) -> None:
    """`InputError` if a clean deleted, or may be deleting, slices from before or after one of the commits."""
    first = newest_readable_from(table, timeline) if commits else ""
    gone = [commit for commit in commits if commit.requested <= first]
    if gone:
        raise _cleaned(table, gone[0], max(commit.completion or commit.requested for commit in gone))


def ensure_columns_fit(
    table: OpenTable, properties: TableProperties, schema: TableSchema, timeline: Timeline, commits: Sequence[Commit]
) -> None:
    """`InputError` if the columns were replaced by others after, or by, one of the commits."""
    schemas = [(commit, commit.metadata.extra.get(commit_keys.SCHEMA, "")) for commit in commits]
    late = [commit for commit, text in schemas if text and not is_readable_as(TableSchema.of_commit(text), schema)]
    last = commits.index(late[-1]) + 1 if late else 0
    if last < len(commits) and commits[last].metadata.replaced is not None:
        # This commit itself replaced the columns, so the slices that it replaced have the old ones.
        before = SchemaHistory(table).before(timeline, properties, commits[last].instant.requested)
        if before is not None and not is_readable_as(before, schema):
            late.append(commits[last])
    if late:
        since = version_of(late[-1].position)
        raise InputError(
            f"{table.storage.uri}: the columns were replaced, and now do not fit the rows of {late[-1].instant.requested}",
            hint=f"read the table, table.read(), and its changes from there on: table.changes(since={since})",
            since=since,
        )


def ensure_nothing_undone(table: OpenTable, timeline: Timeline, since: str) -> None:
    """`InputError` if another engine has undone commits after the position: their files and metadata are gone.

    A rollback counts if the log still has the decision of its target, and that was visible at the position.
    """
    later = [i for i in timeline.instants if (i.completion or i.requested) > since]
    restores = [i for i in later if i.action == Action.RESTORE]
    found = [i for i in later if i.action == Action.ROLLBACK and i.is_completed]
    committed = _committed_by(table, since) if found else frozenset[str]()
    undone = [*restores, *(i for i in found if committed and _target_of(table, i) in committed)]
    if undone:
        last = max(undone, key=lambda instant: instant.completion or instant.requested)
        raise InputError(
            f"{table.storage.uri}: Hudi's {last.action} of {last.requested} removed commits, so what it undid cannot be told",
            hint="read the table, table.read(), and its changes from there on: "
            f"table.changes(since={version_of(last.completion or last.requested)})",
        )


def _committed_by(table: OpenTable, position: str) -> frozenset[str]:
    """The instants that were decided to be committed by then, of the decisions that are not collected yet."""
    decisions = table.log.peek(after=table.log.boundary())
    return frozenset(d.instant for d in decisions if resolve(d) is Resolution.COMMITTED and d.completion <= position)


def _target_of(table: OpenTable, rollback: Instant) -> str:
    stored = table.storage.get(layout.timeline(rollback.file_name))
    return RollbackMetadata.from_bytes(stored.data, rollback.file_name).target_instant if stored is not None else ""


def _cleaned(table: OpenTable, commit: Instant, whole_from: str) -> InputError:
    since = version_of(whole_from)
    return InputError(
        f"{table.storage.uri}: the changes of commit {commit.requested} cannot be told any more: file slices from "
        "before or after it were cleaned",
        hint=f"the feed is whole from {since} on: table.changes(since={since}), or a new stream with the option since; to keep "
        "old slices for longer, raise clean.keep_commits or clean.keep_hours",
        since=since,
    )


@dataclass(frozen=True)
class Appended:
    """Rows that a commit appended: those in `file` with its commit time, or all where that is None."""

    file: DataFile
    commit_time: str | None


@dataclass
class TableStream:
    """Reads a table from offset to offset. It remembers what never changes: which instants are in the files of the archive that
    are ahead, and when those completed; and which commits fitted the columns.

    `feed`: the changes of each commit; without it only appended rows, and a commit that changed or deleted rows is an
    `InputError`, unless such commits are to be left out (`skip_change_commits`).
    """

    table: OpenTable
    feed: bool = False
    skip_change_commits: bool = False
    ensure_fits: Callable[[Timeline, Sequence[Commit]], None] | None = None
    """Refuses commits whose rows do not fit the columns that the stream has."""
    is_wanted: Callable[[str], bool] = lambda _: True
    """Whether the stream reads this partition. Changes in other partitions are ignored."""

    def __post_init__(self) -> None:
        self._archived: dict[str, frozenset[str]] = {}
        self._ahead: dict[str, Instant] = {}
        self._fit: frozenset[str] = frozenset()

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
            if start.first_files is not None:
                # The first state is read in the columns of now, which a commit that is told later may have brought.
                self.ensure_fits(timeline, self._read([i for i in unread if i.requested not in self._fit]))
                self._fit = frozenset(instant.requested for instant in unread)
        return timeline, unread, commits

    def _timeline(self, offset: StreamOffset) -> Timeline:
        """The timeline as it is now. `InputError` if it does not contain what was read: then no one can tell what is new."""
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
        files = slices_at(self.table, timeline.before(unread)).files
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
        above = self._archived_above(timeline, covered.low)
        self._archived = {name: its for name, its in self._archived.items() if _reaches(name, covered.low)}
        self._ahead = self._of_archive({i for i in above if i not in found and not covered.covers(i)})
        return sorted((found | self._ahead).values(), key=lambda i: (i.completion or i.requested, i.requested))

    def _of_archive(self, wanted: set[str]) -> dict[str, Instant]:
        """These archived commits; one read of each file of the archive that has some which were not read before."""
        found = {i: self._ahead[i] for i in wanted if i in self._ahead}
        unread = {name: its & wanted - found.keys() for name, its in self._archived.items()}
        reads = [partial(self._writes_of, name, its) for name, its in unread.items() if its]
        writes = [write for writes in self.table.io.gather(reads) for write in writes]
        return found | {w.requested: Instant(w.requested, w.action, State.COMPLETED, w.completion) for w in writes}

    def _writes_of(self, name: str, instants: Set[str]) -> list[CompletedWrite]:
        try:
            return writes_in(self.table.storage, name, instants)
        except StorageUnavailable:
            raise
        except StorageError:  # merged since
            looks = (archived_write(self.table.storage, each) for each in instants)
            return [write for write in looks if write is not None]

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

    def _instants(self, names: Sequence[str], low: str) -> frozenset[str]:
        wanted = [name for name in names if _reaches(name, low)]
        unread = [name for name in wanted if name not in self._archived]
        read = self.table.io.gather([partial(instants_in, self.table.storage, name) for name in unread])
        known = self._archived | {name: its for name, its in zip(unread, read, strict=True) if its is not None}
        self._archived = {name: known[name] for name in names if name in known}
        return frozenset().union(*(known[name] for name in wanted if name in known))


def _reaches(name: str, instant: str) -> bool:
    """Whether a file of the archive may have this instant or later ones."""
    file = HistoryFile.parse(name)
    return file is not None and file.last >= instant


def _is_append(commit: Commit, stats: Sequence[WriteStat]) -> bool:
    changed = any(stat.num_update_writes or stat.num_deletes or LogFile.parse(stat.path or "") for stat in stats)
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
