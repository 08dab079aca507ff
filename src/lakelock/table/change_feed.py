"""Incremental reads: from commits to the files and the pairs of file slices where rows changed, and a stream's offsets.

A commit changes what readers see of a file group in three ways: it adds the group, gives it another slice, or replaces it
by nothing. The rows before and after are those of two files, or of one, so every unit can be compared on its own. Table
services change which files hold the rows, and no row.

How far a stream has read is a set of commits, never a time. A commit that completes late may have an early instant, and
if its writer's clock is slow, or it takes no lock, even an early completion time. So an offset names the commits that
were read, as a checkpoint of the file index names those that it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple, get_args

from lakelock.errors import InputError
from lakelock.storage import Storage
from lakelock.table.archive import archived_writes, read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant, State, as_of_time
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import slice_of
from lakelock.table.snapshot import CompletedLog, Coverage, DataFile, lowest_open, restores_of
from lakelock.table.timeline import Timeline

FeedMode = Literal["commits", "net"]
"""`commits`: what each commit changed. `net`: what they changed together, from the first state to the last."""

FEED_MODES: tuple[FeedMode, ...] = get_args(FeedMode)

SERVICES = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT", "INDEX"})
"""Hudi's names of operations that move rows without changing any."""


class Commit(NamedTuple):
    """A completed write and what it did."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def position(self) -> str:
        """When it became visible, which is its place in the feed."""
        return self.instant.completion or self.instant.requested

    @property
    def is_service(self) -> bool:
        """Whether it changed no row."""
        return (self.metadata.operation or "").upper() in SERVICES


class Unit(NamedTuple):
    """A file group `before` and `after` the commits up to `position`; None where it does not exist.

    If there is no `before`, all rows of the group were inserted; if there is no `after`, all were deleted.
    """

    before: DataFile | None
    after: DataFile | None
    position: str

    @property
    def partition(self) -> str:
        file = self.after or self.before
        assert file is not None, "a unit has a file"
        return file.partition

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in (self.before, self.after) if file is not None)


class MissingSlice(Exception):
    """The slice that a commit rewrote is not in the listing."""


@dataclass
class Shown:
    """What readers see of some file groups, as commit after commit becomes visible."""

    slices: dict[FileGroupId, DataFile]
    replaced: set[FileGroupId]
    logs: dict[FileGroupId, set[CompletedLog]] = field(default_factory=dict)
    """Of a merge-on-read table: the log files that may lie on these slices, and on those that follow."""

    @classmethod
    def before(cls, files: Iterable[DataFile], is_before: Callable[[DataFile], bool]) -> Shown:
        """What they see before the first commit: of each group the newest slice that was visible then."""
        newest: dict[FileGroupId, DataFile] = {}
        for file in filter(is_before, files):
            known = newest.get(file.group)
            if known is None or (file.instant, file.token) > (known.instant, known.token):
                newest[file.group] = file
        return cls(newest, set())

    def add(self, commit: Commit) -> dict[FileGroupId, tuple[DataFile | None, DataFile | None]]:
        """Make a commit visible; the slices before and after of each group of which readers see another slice now.

        `MissingSlice` if it rewrote a group whose slice is not known.
        """
        changed: dict[FileGroupId, tuple[DataFile | None, DataFile | None]] = {}
        written = [stat for stat in commit.metadata.stats if stat.path and stat.group not in self.replaced]
        bases = dict[FileGroupId, DataFile]()
        for stat in written:
            size_bytes, group = stat.file_size_bytes or 0, stat.group
            log = LogFile.parse(stat.path or "", size_bytes)
            if log is not None:
                self.logs.setdefault(group, set()).add(CompletedLog(log, commit.position))
            file = DataFile.parse(stat.path or "", size_bytes)
            if file is None:
                continue
            known = self.slices.get(group)
            if not stat.is_new_group and (known is None or known.instant < (stat.prev_commit or "")):
                raise MissingSlice(file.key)
            bases[group] = file
        for group in dict.fromkeys(stat.group for stat in written):
            known, file = self.slices.get(group), bases.get(group)
            there = known._replace(logs=()) if known is not None and known.token else None
            newest = file if there is None or (file is not None and file.instant > there.instant) else there
            shown = slice_of(group, newest, self.logs.get(group, ()))
            if shown is not None and shown != known:
                changed[group] = (known, shown)
                self.slices[group] = shown
        for group in commit.metadata.replaced_groups - self.replaced:
            self.replaced.add(group)
            gone = self.slices.pop(group, None)
            first = changed.pop(group, (gone, None))[0]
            if first is not None:
                changed[group] = (first, None)
        return changed


def units_of(shown: Shown, commits: Sequence[Commit], mode: FeedMode) -> tuple[Unit, ...]:
    """The units of some commits, in the order in which they became visible, and of each in order of the file groups.

    In mode `net` all have the position of the last commit. `MissingSlice` as above.
    """
    if mode == "net":
        return _net(shown, commits, commits[-1].position if commits else "")
    units = []
    for commit in commits:
        changed = shown.add(commit)
        if not commit.is_service:
            units += [Unit(*changed[group], commit.position) for group in sorted(changed)]
    return tuple(units)


def _net(shown: Shown, commits: Sequence[Commit], position: str) -> tuple[Unit, ...]:
    first: dict[FileGroupId, DataFile | None] = {}
    for commit in commits:
        for group, (before, _) in shown.add(commit).items():
            first.setdefault(group, before)
    ends = ((before, shown.slices.get(group)) for group, before in sorted(first.items()))
    return tuple(Unit(before, after, position) for before, after in ends if before != after)


def checked_mode(mode: str) -> FeedMode:
    """`InputError` for anything but a mode."""
    if mode not in FEED_MODES:
        raise InputError(
            f"there is no change feed of the kind {mode!r}",
            hint='use feed="commits" for what each commit changed, or feed="net" for what they changed together',
        )
    return mode


def in_need_of_pairs(units: Sequence[Unit]) -> frozenset[str]:
    """The partitions where one unit may delete and another insert the same row, or one with the same key."""
    counts: dict[str, int] = {}
    losing: set[str] = set()
    for unit in units:
        counts[unit.partition] = counts.get(unit.partition, 0) + 1
        if unit.before is not None:
            losing.add(unit.partition)
    return frozenset(partition for partition in losing if counts[partition] > 1)


def version_of(position: str) -> int:
    """A position as the number in `_commit_version`: 17 digits, so that they sort as the commits do."""
    return int(as_of_time(position)) if position else 0


def position_of(version: int) -> str:
    """The position with this number."""
    return as_of_time(str(version)) if version else ""


_FORMAT = 1


@dataclass(frozen=True)
class StreamOffset:
    """How far a stream has read: `covered` are the commits that it has read.

    A stream may begin with the first state of the table: `first_files` is how many of its files were read, None for all.
    `position` is that of the last commit; it tells people how far the stream is.
    """

    covered: Coverage
    position: str = ""
    first_files: int | None = None

    @classmethod
    def after_all(cls, timeline: Timeline, archived: Iterable[str], unread: Iterable[Instant]) -> StreamOffset:
        """The offset at which everything that the timeline shows was read, but the `unread` commits. `archived` are the
        archived instants that were read, as far back as a clock may be slow.
        """
        left = {instant.requested for instant in unread}
        low = min([lowest_open(timeline), *left])
        read = (timeline.completed_instants | frozenset(archived)) - left
        position = max((i.completion or i.requested for i in timeline.commits if i.requested in read), default="")
        kept = frozenset(instant for instant in read if instant >= low)
        return cls(Coverage(low, kept, restores=restores_of(timeline)), position)

    def and_(self, commits: Iterable[Instant], timeline: Timeline, unread: Iterable[Instant]) -> StreamOffset:
        """The offset after some more commits; `unread` are those that are left.

        It stops naming commits that are older than every instant that may still appear.
        """
        added = tuple(commits)
        names = {instant.requested for instant in added}
        low = max(self.covered.low, min([lowest_open(timeline), *names, *(instant.requested for instant in unread)]))
        kept = frozenset(instant for instant in self.covered.instants | names if instant >= low)
        position = max([self.position, *(i.completion or i.requested for i in added)])
        return replace(self, covered=replace(self.covered, low=low, instants=kept), position=position)

    def to_json(self) -> dict[str, object]:
        """As Spark keeps it in a checkpoint."""
        found: dict[str, object] = {
            "format": _FORMAT,
            "position": self.position,
            "low": self.covered.low,
            "instants": ",".join(sorted(self.covered.instants)),
            "restores": ",".join(sorted(self.covered.restores)),
        }
        return found if self.first_files is None else {**found, "first_files": self.first_files}

    @classmethod
    def from_json(cls, found: Mapping[str, object]) -> StreamOffset:
        """The offset that `to_json` wrote; `InputError` for one of another source, or of a newer release."""
        if found.get("format") != _FORMAT:
            raise InputError(
                f"the checkpoint has an offset that this release does not know: {dict(found)}",
                hint="use the checkpoint of a stream from a lakelock table, and the release that wrote it or a newer one",
            )
        instants, restores = (
            frozenset(filter(None, str(found.get(name) or "").split(","))) for name in ("instants", "restores")
        )
        first = found.get("first_files")
        return cls(
            Coverage(str(found.get("low") or ""), instants, restores=restores),
            str(found.get("position") or ""),
            first if isinstance(first, int) else None,
        )


Gather = Callable[[Sequence[Callable[[], CommitMetadata]]], Sequence[CommitMetadata]]
"""Runs reads, perhaps several at a time."""


@dataclass(frozen=True)
class Changes:
    """The changed rows are those in `files` whose `_hoodie_commit_time` is the requested time of one of `instants`.

    On a merge-on-read table: in the slices of the file groups `written`, as they were before the `later` commits.
    """

    instants: tuple[Instant, ...]
    files: tuple[DataFile, ...]
    written: frozenset[FileGroupId] = frozenset()
    later: tuple[Instant, ...] = ()


def changed_files(commits: Iterable[tuple[Instant, CommitMetadata]]) -> Changes:
    """The newest slice that the commits wrote of each file group, without the groups that they replaced."""
    newest: dict[FileGroupId, DataFile] = {}
    replaced: set[FileGroupId] = set()
    written: set[FileGroupId] = set()
    instants = []
    for instant, metadata in commits:
        instants.append(instant)
        replaced |= metadata.replaced_groups
        written |= {stat.group for stat in metadata.stats}
        for stat in metadata.stats:
            file = DataFile.parse(stat.path, stat.file_size_bytes or 0) if stat.path else None
            if file and (file.group not in newest or file.instant > newest[file.group].instant):
                newest[file.group] = file
    files = tuple(sorted(file for group, file in newest.items() if group not in replaced))
    return Changes(tuple(instants), files, frozenset(written))


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
    found = read_range(storage, timeline, since, until)
    return replace(changed_files(found.commits), later=found.later)
