"""What a transaction reads, writes and asks for, and what a commit did: the values that conflict rules compare.

`Read` says what a transaction read, in a form that lets the commit ask whether the changes of others concern it. `Isolation`
is the snapshot that it reads and the level that it asks for. `CommitSummary` is a commit as rules and people see it. It is
derived from commit metadata, whichever engine wrote it and however it is stored, so that commits of a Java writer are judged
like those of lakelock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Protocol, TypeVar

from lakelock.conflict import WHOLE_TABLE, Party
from lakelock.identity import WriterIdentity
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import AppTransaction, Member, members_of
from lakelock.occ.log import TransactionName
from lakelock.parsing import JsonObject
from lakelock.table.commit_metadata import (
    STATISTICS,
    CommitMetadata,
    FileStatistics,
    WriteStat,
    column_ranges_in,
    statistics_by_path,
)
from lakelock.table.index import bucket_of_group
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import Change
from lakelock.table.pruning import StatisticsOf
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.texts import StrEnum, counted


class ReadKind(str, Enum):
    """KEYS: record keys were looked up, found or not. ROWS: rows that satisfy a condition were selected."""

    KEYS = "keys"
    ROWS = "rows"


class Read(Protocol):
    """One read of a transaction. The engine that made it (Spark, Arrow) knows how to look into files."""

    @property
    def kind(self) -> ReadKind: ...

    @property
    def description(self) -> str:
        """For people: `keys of the upsert`, `tail_number = 'N14228'`, `the whole table`."""
        ...

    def concerns(self, partition: str) -> bool:
        """False when no row of this partition can matter. May err on the side of True."""
        ...

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        """Of files in partitions that concern it: those that may hold a row which it would see, as far as statistics tell."""
        ...

    def matches(self, files: Sequence[DataFile]) -> str | None:
        """Look into the files: the first row that this read would see, as text for people, or None.

        Looks at the footers before the rows. A file that has vanished counts as matching: its rows cannot be ruled out.
        """
        ...

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        """Look into the rows that were changed: the first that this read would see, before or after, or None; as `matches`."""
        ...


class BucketsRead:
    """Keys that were looked up in a table with buckets, found or not.

    Whoever writes one of these keys writes into its bucket, so no file needs to be read. This matters if the transaction leaves
    a bucket's file group as it is, because all stored rows are newer: no claim or file would show that it read there.
    """

    kind = ReadKind.KEYS

    def __init__(self, description: str, groups: Iterable[FileGroupId]) -> None:
        """`groups`: the file groups of the buckets, or, of those that have none yet, the names under which they are claimed."""
        self.description = description
        self._buckets = frozenset(map(bucket_of_group, groups))
        self._partitions = frozenset(bucket.partition for bucket in self._buckets)

    def concerns(self, partition: str) -> bool:
        return partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return [file for file in files if bucket_of_group(file.group) in self._buckets]

    def matches(self, files: Sequence[DataFile]) -> str | None:
        found = next((file for file in files if bucket_of_group(file.group) in self._buckets), None)
        return None if found is None else f"{found.partition or 'the table'}: keys of the file group {found.file_id}"

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        return self.matches([change.made for change in changes])


class WholeTable:
    """The read of everything, or of everything in some partitions: any row matters, so nothing needs to be looked at."""

    def __init__(self, partitions: frozenset[str] | None = None) -> None:
        self._partitions = partitions

    kind = ReadKind.ROWS

    @property
    def description(self) -> str:
        return WHOLE_TABLE if self._partitions is None else counted(len(self._partitions), "whole partition")

    def concerns(self, partition: str) -> bool:
        return self._partitions is None or partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        return f"rows in {files[0].partition or 'the table'}" if files else None

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        return self.matches([change.made for change in changes])


OVERWRITES = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})
"""Hudi's names of the operations that replace the whole content of partitions."""

CLUSTER = "CLUSTER"
"""What Hudi calls the operation of a commit that clusters (`WriteOperationType.CLUSTER`)."""
COMPACT = "COMPACT"
"""What Hudi calls the operation of a commit that compacts log files into base files."""
SERVICES: Mapping[str, Action] = {CLUSTER: Action.REPLACE_COMMIT, COMPACT: Action.DELTA_COMMIT}
"""Operations that change no row, and what they are on the timeline. They yield to every write of the same file groups, also
when they came first.
"""


@dataclass(frozen=True)
class Footprint:
    """What this transaction read and wrote, as far as the rules need it."""

    party: Party
    added: frozenset[FileGroupId] = frozenset()
    rewritten: frozenset[FileGroupId] = frozenset()
    replaced: frozenset[FileGroupId] = frozenset()
    overwritten_partitions: frozenset[str] = frozenset()
    reads: tuple[Read, ...] = ()
    application: AppTransaction | None = None
    new_buckets: frozenset[FileGroupId] = frozenset()
    """In a table whose rows lie in buckets: those that get their first file group, as they are claimed."""
    appended: frozenset[FileGroupId] = frozenset()
    """Those of the rewritten file groups that get log files only."""

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """The existing file groups that this transaction rewrites or replaces."""
        return self.rewritten | self.replaced

    @property
    def written_partitions(self) -> frozenset[str]:
        return frozenset(g.partition for g in self.added | self.rewritten)

    @property
    def all_partitions(self) -> frozenset[str]:
        """Where this transaction writes, replaces or removes rows."""
        return self.written_partitions | self.overwritten_partitions | {group.partition for group in self.replaced}

    def wrote(
        self, stats: Sequence[WriteStat], replaced: Mapping[str, Sequence[str]] | None, *, in_buckets: bool = False
    ) -> Footprint:
        """This footprint with the files that were written in the end instead of those that were announced."""
        added = frozenset(s.group for s in stats if s.is_new_group)
        return replace(
            self,
            added=added,
            new_buckets=frozenset(map(bucket_of_group, added)) if in_buckets else frozenset(),
            rewritten=frozenset(s.group for s in stats if not s.is_new_group),
            appended=frozenset(s.group for s in stats if s.log_files),
            replaced=frozenset(FileGroupId(p, f) for p, ids in (replaced or {}).items() for f in ids),
        )


class Level(StrEnum):
    """Delta's isolation levels by Delta's names. With WRITE_SERIALIZABLE a blind append never causes a conflict: it may be
    ordered after transactions that were decided later.
    """

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"


@dataclass(frozen=True)
class Isolation:
    """`before` gives a file group's file in the snapshot, `statistics` what is recorded about such a file, `schema` the columns
    as of the snapshot. None where it is not known.
    """

    before: Callable[[FileGroupId], DataFile | None] = lambda group: None
    statistics: Callable[[DataFile], FileStatistics | None] = lambda file: None
    level: Level = Level.SERIALIZABLE
    schema: TableSchema | None = None
    after: Callable[[CommitSummary, FileGroupId], DataFile | None] = lambda other, group: None
    """A file group's slice once another has committed."""


T = TypeVar("T")

_NOTHING: Mapping[FileGroupId, str] = MappingProxyType({})


@dataclass(frozen=True)
class RowCounts:
    """Rows that a commit inserted, updated and deleted, and the files and bytes that it wrote; `files_kept` of the files are
    copies of those of an attempt before that was rejected.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: int = 0
    size_bytes: int = 0
    files_kept: int = 0


@dataclass(frozen=True)
class CommitCost:
    """What a commit had cost when its decision was sent: seconds in all, seconds until it had the lock, and, of the time
    under the lock, seconds and requests. `retries`: the attempts before it, which others rejected. None where the commit does
    not tell.
    """

    took_s: float | None = None
    lock_wait_s: float | None = None
    lock_s: float | None = None
    lock_requests: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, up to the decision."""
    retries: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_extra(cls, extra: Mapping[str, str]) -> CommitCost:
        try:
            info = JsonObject.parse(extra[keys.COMMIT_INFO])
        except (KeyError, ValueError):
            return cls()
        return cls(
            took_s=_if_valid(info.number, "took_s"),
            lock_wait_s=_if_valid(info.number, "lock_wait_s"),
            lock_s=_if_valid(info.number, "lock_s"),
            lock_requests=_if_valid(info.integer, "lock_requests"),
            retries=_if_valid(info.integer, "retries"),
            phases=_if_valid(lambda name: _seconds(info.child(name)), "phases") or {},
        )


@dataclass(frozen=True)
class CommitSummary:
    """One commit: by whom, which files it added and removed in which partitions, how many rows, what it had read.

    `decision` orders it in the window, None if no decision there does; `number` is the decision that it names itself.
    """

    party: Party
    decision: int | None
    number: int | None
    is_foreign: bool
    """Whether another engine made it: no decision orders it."""
    files: Mapping[FileGroupId, DataFile]
    """The files that it wrote, by file group: base files, and where it wrote log files only, these as a slice of their own."""
    rewritten: frozenset[FileGroupId]
    """Existing file groups that got a new file: a base file, or a log file."""
    replaced: frozenset[FileGroupId]
    """File groups that are not part of the table any more."""
    written_partitions: frozenset[str]
    overwritten_partitions: frozenset[str]
    """Partitions whose whole content it replaced; clustering replaces groups but overwrites nothing."""
    changes_no_row: bool
    """Whether it is known to have moved rows only, by whatever engine. Clustering replaces file groups by new ones, compaction
    rewrites them, and both name themselves as the operation; anything else counts as a change."""
    rows: RowCounts = RowCounts()
    built_on: Mapping[FileGroupId, str] = field(default_factory=lambda: _NOTHING)
    """The instant of the file from which it made the new one, by rewritten file group."""
    application: AppTransaction | None = None
    reads: str = ""
    """What it had read, as JSON for people; empty for other engines."""
    saw: str = ""
    """The newest completion time in its baseline."""
    newest_foreign: str = ""
    """The newest commit of another engine that its writer knew of."""
    repaired: frozenset[str] = frozenset()
    """The undone commits that it took out of the table."""
    schema_json: str = ""
    """The table's Avro schema as of this commit, if it holds one."""
    tag: str = ""
    write_id: str = ""
    cost: CommitCost = CommitCost()
    recorded: str = ""
    """What its writer recorded about the files, as text."""
    emptied: frozenset[FileGroupId] = frozenset()
    """Those of its files that hold no row: a delete of the last row of a file group leaves such a file."""
    transaction: TransactionName | None = None
    """The transaction over several tables that it is part of."""
    members: tuple[Member, ...] = ()
    """The writes of which it is made, if it is a group commit."""
    ran_on: str = ""
    """Where a write by Spark has run."""
    appended: frozenset[FileGroupId] = frozenset()
    """Those of the rewritten file groups that got log files only."""

    @property
    def touched(self) -> frozenset[FileGroupId]:
        """The existing file groups that it rewrote or replaced."""
        return self.rewritten | self.replaced

    @property
    def is_blind_append(self) -> bool:
        """Whether it is known to have added files without a look at the table: it would have done so at any moment."""
        return not (self.is_foreign or self.touched or self.overwritten_partitions or self.reads)

    def statistics_of(self, file: DataFile) -> FileStatistics | None:
        """What its writer recorded about one of its files, and whether it holds a row; None for nothing."""
        if file.group in self.emptied:
            return FileStatistics(rows=0)
        found = self._statistics.get(file.key)
        if found is None:
            return None
        least, greatest, columns = found
        return FileStatistics(key_min=least, key_max=greatest, columns=column_ranges_in(columns))

    @cached_property
    def _statistics(self) -> Mapping[str, tuple[str | None, str | None, str | None]]:
        return statistics_by_path(self.recorded)

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, decision: int | None) -> CommitSummary:
        """The summary of Hudi's metadata of the commit of an instant."""
        extra, stats = metadata.extra, metadata.stats
        partitions = frozenset(metadata.write_stats)
        clustered = metadata.operation == CLUSTER and bool(metadata.replaced) and not metadata.rewritten_groups
        compacted = metadata.operation == COMPACT and not metadata.replaced
        overwrites = metadata.operation in OVERWRITES
        named = [(s.path, s.file_size_bytes or 0) for s in stats if s.path is not None]
        files = {file.group: file for file in (DataFile.parse(*each) for each in named) if file is not None}
        logs = [log for log in (LogFile.parse(*each) for each in named) if log is not None and log.group not in files]
        appended = frozenset(log.group for log in logs)
        for group in appended:
            mine = tuple(sorted(log for log in logs if log.group == group))
            files[group] = DataFile(*group, "", instant, 0, mine)
        return cls(
            party=Party(
                instant,
                extra.get(keys.OPERATION) or metadata.operation or "write",
                writer_of(extra.get(keys.WRITER, "")),
                completion,
            ),
            decision=decision,
            number=_number_of(extra, keys.DECISION),
            is_foreign=keys.DECISION not in extra,
            files=files,
            appended=appended,
            rewritten=metadata.rewritten_groups,
            replaced=metadata.replaced_groups,
            written_partitions=partitions,
            overwritten_partitions=partitions.union(metadata.replaced or ()) if overwrites else frozenset(),
            changes_no_row=clustered or compacted,
            rows=RowCounts(
                inserted=sum(s.num_inserts or 0 for s in stats),
                updated=sum(s.num_update_writes or 0 for s in stats),
                deleted=sum(s.num_deletes or 0 for s in stats),
                files=len(stats),
                size_bytes=sum(s.file_size_bytes or 0 for s in stats),
                files_kept=_number_of(extra, keys.KEPT) or 0,
            ),
            built_on={s.group: s.prev_commit or "" for s in stats if not s.is_new_group},
            application=AppTransaction.from_extra(extra),
            reads=extra.get(keys.READS, ""),
            saw=extra.get(keys.SAW, ""),
            newest_foreign=extra.get(keys.NEWEST_FOREIGN, ""),
            repaired=frozenset(filter(None, extra.get(keys.REPAIRED, "").split(","))),
            schema_json=extra.get(keys.SCHEMA, ""),
            tag=extra.get(keys.TAG, ""),
            ran_on=extra.get(keys.RAN_ON, ""),
            write_id=extra.get(keys.WRITE_ID, ""),
            cost=CommitCost.from_extra(extra),
            recorded=extra.get(STATISTICS, ""),
            emptied=frozenset(s.group for s in stats if s.num_writes == 0 and not (s.num_inserts or s.num_update_writes)),
            transaction=TransactionName.parse(extra[keys.TRANSACTION]) if keys.TRANSACTION in extra else None,
            members=members_of(extra),
        )


def writer_of(text: str) -> WriterIdentity | None:
    """The writer that a commit names as JSON, None if it names none."""
    try:
        return WriterIdentity.from_dict(JsonObject.parse(text).fields)
    except (KeyError, ValueError):
        return None


def _number_of(extra: Mapping[str, str], key: str) -> int | None:
    try:
        return int(extra[key])
    except (KeyError, ValueError):
        return None


def _seconds(info: JsonObject) -> dict[str, float]:
    return {name: info.number(name) for name in info.fields}


def _if_valid(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except (KeyError, ValueError):
        return None
