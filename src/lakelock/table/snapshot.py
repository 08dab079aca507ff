"""Snapshots: which base files make up the table at one moment, and what commits did to them.

Folding the effects of commits is a union in which the greater instant wins, so neither the order nor the grouping of the
commits matters: a commit that completes late with an early instant, as a Java writer's may, changes nothing but its own file
groups. Log files are a union, too: which of them lie on the newest base file is decided by their completion.

A checkpoint covers a set of instants, never a time. A commit may complete late with an early instant, and with an early
completion time if its writer's clock is slow. So a checkpoint names the instants whose effects it has. Only instants
older than all active ones, and older than any clock may be slow, are not named one by one: they are below `low`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from sys import intern
from typing import NamedTuple, Protocol

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError
from lakelock.storage import Listed, Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import STATISTICS, UNKNOWN, CommitMetadata, FileStatistics, statistics_by_path
from lakelock.table.instants import Action, Instant, format_instant, parse_instant
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.timeline import Timeline

_NAME = re.compile(r"([^_/]+)_([^_/]+)_([0-9]{17}|[0-9]{14})\.parquet", re.ASCII).fullmatch


Names = Callable[[str], frozenset[str]]
"""Keys of the data files that the commit of an instant names; empty if the commit cannot be read."""


class DataFile(NamedTuple):
    """One base file: a slice of a file group, written under an instant by the task that its write token names.

    With `logs`, in the order in which they are read, it is a slice of a merge-on-read table: its rows are those of the base
    file with what the log files change. A slice of log files only has no token, and the first one's instant.
    """

    partition: str
    file_id: str
    token: str
    instant: str
    size_bytes: int = 0
    logs: tuple[LogFile, ...] = ()

    @classmethod
    def parse(cls, path: str, size_bytes: int = 0) -> DataFile | None:
        """The base file that a relative path names, None for anything else."""
        partition, slash, name = path.rpartition("/")
        match = _NAME(name) if partition or not slash else None
        return cls(partition, match[1], match[2], match[3], size_bytes) if match else None

    @property
    def name(self) -> str:
        return f"{self.file_id}_{self.token}_{self.instant}.parquet"

    @property
    def key(self) -> str:
        """Where the file is; also its relative path in commit metadata."""
        return layout.in_partition(self.partition, self.name)

    @property
    def content(self) -> str:
        """Equal for slices with the same rows: the key of a base file, with the names of the log files on it."""
        return "\0".join([self.key, *(log.name for log in self.logs)]) if self.logs else self.key

    @property
    def newest_instant(self) -> str:
        """The greatest instant of its files."""
        return max([self.instant, *(log.instant for log in self.logs)])

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition, self.file_id)


class Slices(Protocol):
    """Where a snapshot has its files from: they may be read partition by partition, as they are asked for."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have files, in order."""
        ...

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        """The files of one partition, in order of their file ids."""
        ...

    def statistics(self, file: DataFile) -> FileStatistics:
        """What is known of a file's rows."""
        ...

    def preload(self) -> None:
        """Get ready for every partition."""
        ...


class Snapshot:
    """The newest visible slice of every file group that is not replaced, in order of partition and file id.

    `in_partition`, `group` and `stats_of` read what is known of one partition; `files` reads all.
    """

    def __init__(self, files: Iterable[DataFile] = (), *, slices: Slices | None = None) -> None:
        self.slices: Slices = _Listed(tuple(files)) if slices is None else slices
        self._by_file_id: dict[str, Mapping[str, DataFile]] = {}

    def __eq__(self, other: object) -> bool:
        return self.files == other.files if isinstance(other, Snapshot) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.files)

    def __repr__(self) -> str:
        return f"Snapshot({self.files!r})"

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """Every file of the table. For some partitions only, `in_partition` reads less."""
        self.slices.preload()
        return tuple(file for partition in self.slices.partitions for file in self.slices.in_partition(partition))

    @classmethod
    def of(
        cls, timeline: Timeline, files: Iterable[Listed], replaced: Mapping[FileGroupId, str], names: Names | None = None
    ) -> Snapshot:
        """The snapshot of a timeline, a listing of the data files, and the replaced groups with the instants that did it.

        List the files after the timeline: then each file of a completed instant is in the listing. `names` is called only where
        two files claim to be one slice, of which the commit names one: a task that was killed late left the other.
        """
        visible: dict[str, bool] = {}
        newest: dict[tuple[str, str], DataFile] = {}
        for listed in files:
            file = DataFile.parse(listed.key, listed.size_bytes)
            if file is None:
                continue
            shown = visible.get(file.instant)
            if shown is None:
                shown = visible[file.instant] = timeline.is_visible(file.instant)
            if not shown:
                continue
            group = (file.partition, file.file_id)
            known = newest.get(group)
            if known is None or file.instant > known.instant:
                newest[group] = file
            elif file.instant == known.instant:
                newest[group] = _named_twin(known, file, names)
        gone = {group for group, instant in replaced.items() if timeline.is_visible(instant)}
        kept = [file for group, file in newest.items() if group not in gone]
        for file in kept:
            if file.size_bytes == 0:
                trouble = f"{file.key} is empty but its commit is completed"
                raise CorruptTableError(trouble, hint=RESTORE_OR_ROLL_BACK, file=file.key)
        return cls(tuple(sorted(kept)))

    def with_files(self, files: Mapping[DataFile, FileStatistics]) -> Snapshot:
        """This with other files of some file groups, or with new file groups, and what is known of their rows."""
        return Snapshot(slices=_Overlaid(self.slices, files))

    @property
    def partitions(self) -> tuple[str, ...]:
        """The paths of the partitions that have files, in order."""
        return self.slices.partitions

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        return self.slices.in_partition(partition)

    def group(self, group: FileGroupId) -> DataFile | None:
        """The newest slice of a file group, None when the table does not have the group."""
        if group.partition not in self._by_file_id:
            self._by_file_id[group.partition] = {file.file_id: file for file in self.in_partition(group.partition)}
        return self._by_file_id[group.partition].get(group.file_id)

    def stats_of(self, file: DataFile) -> FileStatistics:
        """What the writer of a file of this snapshot recorded of its rows: key range, ranges of columns. No request."""
        return self.slices.statistics(file)


@dataclass(frozen=True)
class _Listed:
    """Files that are all there, of whose rows nothing is known."""

    files: tuple[DataFile, ...]

    @cached_property
    def _by_partition(self) -> Mapping[str, tuple[DataFile, ...]]:
        found: defaultdict[str, list[DataFile]] = defaultdict(list)
        for file in self.files:
            found[file.partition].append(file)
        return {partition: tuple(found[partition]) for partition in sorted(found)}

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self._by_partition)

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        return self._by_partition.get(partition, ())

    def statistics(self, file: DataFile) -> FileStatistics:
        return UNKNOWN

    def preload(self) -> None:
        """They are there."""


@dataclass(frozen=True)
class _Overlaid:
    """Slices of which some file groups have other files."""

    below: Slices
    files: Mapping[DataFile, FileStatistics]

    @cached_property
    def _by_partition(self) -> Mapping[str, Mapping[str, DataFile]]:
        found: defaultdict[str, dict[str, DataFile]] = defaultdict(dict)
        for file in self.files:
            found[file.partition][file.file_id] = file
        return found

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(sorted({*self.below.partitions, *self._by_partition}))

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        below, mine = self.below.in_partition(partition), self._by_partition.get(partition, {})
        return tuple(sorted([*(file for file in below if file.file_id not in mine), *mine.values()])) if mine else below

    def statistics(self, file: DataFile) -> FileStatistics:
        return self.files[file] if file in self.files else self.below.statistics(file)

    def preload(self) -> None:
        self.below.preload()


def _named_twin(one: DataFile, other: DataFile, names: Names | None) -> DataFile:
    """The one of two files that the commit names."""
    named = names(one.instant) if names is not None else frozenset()
    counting = [file for file in (one, other) if file.key in named]
    if len(counting) == 1:
        return counting[0]
    raise CorruptTableError(
        f"two files claim to be the slice of one file group at one instant: {one.key} and {other.key}",
        hint="a failed task attempt left one of them: keep the one that the commit's metadata names",
        file=other.key,
    )


def read_snapshot(
    io: TableIO,
    timeline: Timeline,
    as_of: str | None = None,
    *,
    only: frozenset[str] | None = None,
    files: Iterable[Listed] | None = None,
) -> Snapshot:
    """The snapshot of a timeline, or of its past as of an instant time.

    One read per replacecommit, and one listing unless `files` is a listing already. `only` names the files that count, all of
    them visible then; other files, and replacements, do not.

    Groups whose replacecommit was archived count as cleaned: Java archives a replacecommit only after the files of its groups
    are gone.
    """
    if as_of is not None:
        timeline = timeline.as_of(as_of)
    replaced = read_replaced(io, timeline) if only is None else {}
    listed = io.storage.list("") if files is None else files
    counting = (item for item in listed if only is None or item.key in only)
    return Snapshot.of(timeline, counting, replaced, lru_cache(partial(names_of, io.storage, timeline)))


def names_of(storage: Storage, timeline: Timeline, instant: str) -> frozenset[str]:
    """Keys of the data files that the commit of an instant names, for `Snapshot.of`; empty if the commit cannot be read."""
    commit = completed_write(storage, timeline, instant)
    stats = CommitMetadata.from_bytes(commit.data, instant).stats if commit is not None else ()
    return frozenset(stat.path for stat in stats if stat.path)


def read_replaced(io: TableIO, timeline: Timeline) -> dict[FileGroupId, str]:
    """Every replaced file group of the timeline and the instant that replaced it."""
    replacing = [i for i in timeline.commits if i.action == Action.REPLACE_COMMIT]

    def read(instant: Instant) -> frozenset[FileGroupId]:
        key = layout.timeline(instant.file_name)
        stored = io.storage.get(key)
        # Archived since the timeline was listed: its files are cleaned.
        return CommitMetadata.from_bytes(stored.data, key).replaced_groups if stored else frozenset()

    found = io.gather([partial(read, instant) for instant in replacing])
    return {group: instant.requested for instant, groups in zip(replacing, found, strict=True) for group in groups}


class Slice(NamedTuple):
    """One file slice and what its writer knew of it; `columns` is a text of `recorded.py`."""

    file: DataFile
    rows: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    columns: str | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Of two slices of a file group the greater one counts."""
        return self.file.instant, self.file.token


class CompletedLog(NamedTuple):
    """A log file, and when its commit completed: it lies on the base file that was the newest then."""

    file: LogFile
    completion: str


class Applied(NamedTuple):
    """The commit by which an application has applied a version of its own numbering; `writer` is an identity as JSON."""

    completion: str
    instant: str
    app_id: str
    version: int
    operation: str
    writer: str


class SchemaSeen(NamedTuple):
    """When a schema was last recorded: by completion time, and by the instants of the commits that recorded it."""

    completion: str
    instant: str


@dataclass(frozen=True)
class Effect:
    """What one completed commit says: slices and log files that it wrote, file groups that it replaced, schema, application."""

    instant: str
    completion: str
    slices: tuple[Slice, ...] = ()
    replaced: frozenset[FileGroupId] = frozenset()
    schema_json: str = ""
    applied: Applied | None = None
    logs: tuple[LogFile, ...] = ()

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, applied: Applied | None = None) -> Effect:
        """The effect of a commit by its metadata, whichever engine wrote it."""
        statistics = statistics_by_path(metadata.extra.get(STATISTICS, ""))
        slices, logs = [], []
        for stat in metadata.stats:
            path, size_bytes = stat.path or "", stat.file_size_bytes or 0
            file = DataFile.parse(path, size_bytes)
            log = LogFile.parse(path, size_bytes) if file is None else None
            if file is not None:
                slices.append(Slice(file, stat.num_writes, *statistics.get(file.key, ())))
            elif log is not None:
                logs.append(log)
        # Thousands of effects are remembered, nearly all with one schema.
        schema = intern(metadata.schema_json or "")
        return cls(instant, completion, tuple(slices), metadata.replaced_groups, schema, applied, tuple(logs))


@dataclass(frozen=True)
class Changes:
    """The sum of some effects. Slices, log files and replaced groups are kept by partition and file id; do not change them."""

    slices: dict[str, dict[str, Slice]] = field(default_factory=dict)
    replaced: dict[str, dict[str, str]] = field(default_factory=dict)
    """For each replaced file group, the instant that replaced it."""
    schemas: dict[str, SchemaSeen] = field(default_factory=dict)
    applications: dict[str, Applied] = field(default_factory=dict)
    logs: dict[str, dict[str, set[CompletedLog]]] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions in which anything changed."""
        return frozenset(self.slices) | frozenset(self.replaced) | frozenset(self.logs)


def fold(effects: Iterable[Effect]) -> Changes:
    """The sum of the effects, in whatever order they come."""
    sum_ = Changes()
    for effect in effects:
        for one in effect.slices:
            groups = sum_.slices.setdefault(one.file.partition, {})
            known = groups.get(one.file.file_id)
            if known is None or one.order > known.order:
                groups[one.file.file_id] = one
        for log in effect.logs:
            of_partition = sum_.logs.setdefault(log.partition, {})
            of_partition.setdefault(log.file_id, set()).add(CompletedLog(log, effect.completion))
        for partition, file_id in effect.replaced:
            gone = sum_.replaced.setdefault(partition, {})
            gone[file_id] = max(effect.instant, gone.get(file_id, ""))
        if effect.schema_json:
            seen = SchemaSeen(effect.completion, effect.instant)
            sum_.schemas[effect.schema_json] = later_schema(seen, sum_.schemas.get(effect.schema_json))
        if effect.applied is not None:
            sum_.applications[effect.applied.app_id] = later_applied(
                effect.applied, sum_.applications.get(effect.applied.app_id)
            )
    return sum_


def later_schema(one: SchemaSeen, other: SchemaSeen | None) -> SchemaSeen:
    """Both combined: the greater of each time."""
    if other is None:
        return one
    return SchemaSeen(max(one.completion, other.completion), max(one.instant, other.instant))


def later_applied(one: Applied, other: Applied | None) -> Applied:
    """The one that completed later."""
    return one if other is None else max(one, other)


GRACE_MS = 3_600_000
"""How slow a clock may be: instants younger than this, by the newest on the timeline, are covered one by one."""


@dataclass(frozen=True)
class Coverage:
    """All commits below `low`, and those in `instants`. Files of the archive in `archive` hold nothing else."""

    low: str = ""
    instants: frozenset[str] = frozenset()
    archive: frozenset[str] = frozenset()
    restores: frozenset[str] = frozenset()

    def covers(self, instant: str) -> bool:
        """Whether the effect of this commit is contained, if it has one."""
        return instant < self.low or instant in self.instants

    def is_within(self, timeline: Timeline) -> bool:
        """Whether the timeline shows everything covered, so its state can be reached by adding commits.

        That fails if the timeline is older, if commits were undone (a restore by another engine), or if
        an instant turned up among those that were considered settled.
        """
        writes = (i.requested for i in timeline.instants if i.is_write)
        if self.low > next(writes, self.low) or not self.restores >= restores_of(timeline):
            return False
        others = self.instants - timeline.completed_instants
        ranges = [name.split("_")[:2] for name in timeline.archive] if others else []
        return all(
            timeline.is_visible(instant) and any(first <= instant <= last for first, last in ranges) for instant in others
        )

    def with_all_of(self, timeline: Timeline, archived: Iterable[str] = ()) -> Coverage:
        """The coverage after the commits of the timeline, and those `archived` that it does not show, were added."""
        low = lowest_open(timeline)
        covered = self.instants | timeline.completed_instants | frozenset(archived)
        return Coverage(low, frozenset(i for i in covered if i >= low), frozenset(timeline.archive), restores_of(timeline))


def lowest_open(timeline: Timeline) -> str:
    """Below this instant nothing new can appear: it passes neither a pending nor an active instant, nor one of a slow clock."""
    writes = [i for i in timeline.instants if i.is_write]
    if not any(i.is_completed for i in writes):
        return ""
    grace = format_instant(max(0, parse_instant(timeline.newest_time) - GRACE_MS))
    return min(writes[0].requested, grace)


def restores_of(timeline: Timeline) -> frozenset[str]:
    """Completed restores, by which another engine has undone commits."""
    return frozenset(i.requested for i in timeline.restores if i.is_completed)
