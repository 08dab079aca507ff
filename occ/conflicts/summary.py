"""A commit as rules and people see it, whichever engine made it and however its metadata is stored.

It is derived from commit metadata, so that a Java writer's commits can be judged like our own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from lakelock.conflict import Party
from lakelock.identity import WriterIdentity
from lakelock.occ.conflicts.footprint import CLUSTER, OVERWRITES
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.records.outcomes import TransactionName
from lakelock.parsing import JsonObject
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import STATISTICS, FileStatistics, column_ranges_in, statistics_by_path

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
    under the lock, seconds and requests. None where the commit does not tell.
    """

    took_s: float | None = None
    lock_wait_s: float | None = None
    lock_s: float | None = None
    lock_requests: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase, up to the decision."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_extra(cls, extra: Mapping[str, str]) -> CommitCost:
        try:
            told = JsonObject.parse(extra[keys.COMMIT_INFO])
        except (KeyError, ValueError):
            return cls()
        return cls(
            took_s=_told(told.number, "took_s"),
            lock_wait_s=_told(told.number, "lock_wait_s"),
            lock_s=_told(told.number, "lock_s"),
            lock_requests=_told(told.integer, "lock_requests"),
            phases=_told(lambda name: _seconds(told.child(name)), "phases") or {},
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
    """The base files that it wrote, by file group."""
    rewritten: frozenset[FileGroupId]
    """Existing file groups that got a new file."""
    replaced: frozenset[FileGroupId]
    """File groups that are not part of the table any more."""
    written_partitions: frozenset[str]
    overwritten_partitions: frozenset[str]
    """Partitions whose whole content it replaced; clustering replaces groups but overwrites nothing."""
    changes_no_row: bool
    """Whether it is known to have moved rows only, as clustering does, by whatever engine. Clustering replaces file groups by
    new ones and names itself as the operation; anything else counts as a change."""
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
    """Those of its files that hold no row: whoever deletes the last row of a file group leaves such a file."""
    transaction: TransactionName | None = None
    """The transaction over several tables that it is part of."""

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
        moved = metadata.operation == CLUSTER and bool(metadata.replaced) and not metadata.rewritten_groups
        overwrites = metadata.operation in OVERWRITES
        files = (DataFile.parse(s.path, s.file_size_bytes or 0) for s in stats if s.path is not None)
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
            files={file.group: file for file in files if file is not None},
            rewritten=metadata.rewritten_groups,
            replaced=metadata.replaced_groups,
            written_partitions=partitions,
            overwritten_partitions=partitions.union(metadata.replaced or ()) if overwrites else frozenset(),
            changes_no_row=moved,
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
            write_id=extra.get(keys.WRITE_ID, ""),
            cost=CommitCost.from_extra(extra),
            recorded=extra.get(STATISTICS, ""),
            emptied=frozenset(s.group for s in stats if s.num_writes == 0 and not (s.num_inserts or s.num_update_writes)),
            transaction=TransactionName.parse(extra[keys.TRANSACTION]) if keys.TRANSACTION in extra else None,
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


def _seconds(told: JsonObject) -> dict[str, float]:
    return {name: told.number(name) for name in told.fields}


def _told(read: Callable[[str], T], name: str) -> T | None:
    try:
        return read(name)
    except (KeyError, ValueError):
        return None
