"""Snapshots: which base files make up the table at one moment."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, Protocol

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError
from lakelock.storage import Listed, Storage
from lakelock.table import layout
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action, Instant
from lakelock.table.io import TableIO
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.statistics import UNKNOWN, FileStatistics
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


def read_snapshot(io: TableIO, timeline: Timeline, as_of: str | None = None, *, only: frozenset[str] | None = None) -> Snapshot:
    """The snapshot of a timeline, or of its past as of an instant time. One listing, and one read per replacecommit.

    `only` names the files that count, all of them visible then; other files, and replacements, do not.

    Groups whose replacecommit was archived count as cleaned: Java archives a replacecommit only after the files of its groups
    are gone.
    """
    if as_of is not None:
        timeline = timeline.as_of(as_of)
    replaced = read_replaced(io, timeline) if only is None else {}
    files = (item for item in io.storage.list("") if only is None or item.key in only)
    return Snapshot.of(timeline, files, replaced, lru_cache(partial(names_of, io.storage, timeline)))


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
