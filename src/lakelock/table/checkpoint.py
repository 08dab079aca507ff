"""Checkpoints of the file index, each one Parquet file, and the state of a table: a checkpoint and the commits after it.

The file has one row for each live file group and each replaced one, in order of partition and file id, in row groups of
`GROUP_ROWS`, each page with a checksum. A reader loads only the part that it needs. Two entries of the file's metadata
hold the rest: `lakelock.header`, JSON with what the checkpoint covers, schemas, applications and which partitions each
row group holds, and `lakelock.checksum`, the header's SHA-256. Equal states give equal bytes: nothing in them tells who
wrote them when.

The state of a table is a checkpoint and the sum of the commits after it, partition by partition (`IndexState`).
"""

from __future__ import annotations

import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from sys import intern
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, LakelockError
from lakelock.parsing import JsonObject
from lakelock.table.commit_metadata import UNKNOWN, FileStatistics, column_ranges_in
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.snapshot import (
    Applied,
    Changes,
    CompletedLog,
    Coverage,
    DataFile,
    Effect,
    SchemaSeen,
    Slice,
    fold,
    later_applied,
    later_schema,
    lowest_open,
)
from lakelock.table.timeline import Timeline

ROWS = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("instant", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("key_min", pa.string()),
        pa.field("key_max", pa.string()),
        pa.field("columns", pa.string()),
        pa.field("replaced_by", pa.string()),
        pa.field("logs", pa.string()),
    ]
)
"""A row with `replaced_by` is a file group that is gone, by the instant that replaced it; it has no file.

`logs` is JSON, for each log file on the slice its instant, version, token, size in bytes, and the completion of its commit.
A file group that has only log files has no token. Tables without log files have no such column in their checkpoints.
"""

NO_ROWS = pa.Table.from_batches([], ROWS)  # to make an array here would have PyArrow import pandas with lakelock


@dataclass(frozen=True)
class Group:
    """What is known of one file group of one partition: its slice and log files, or by which instant it was replaced."""

    slice: Slice | None
    replaced_by: str = ""
    logs: frozenset[CompletedLog] = frozenset()

    @property
    def current(self) -> Group:
        """The group without log files that are compacted into its base file: they completed before that was begun."""
        if self.slice is None or not self.logs:
            return self
        kept = frozenset(log for log in self.logs if log.completion >= self.slice.file.instant)
        return Group(self.slice, self.replaced_by, kept)


UNKNOWN_GROUP = Group(None)


@dataclass(frozen=True)
class LoadedRows:
    """Rows that are all in memory."""

    table: pa.Table

    @cached_property
    def _ranges(self) -> Mapping[str, tuple[int, int]]:
        """The start and end of each partition's rows."""
        names = self.table.column("partition").combine_chunks()
        if not len(names):
            return {}
        codes = names.dictionary_encode()
        codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
        numbers = codes.indices.to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        ends = [*starts[1:], len(numbers)]
        words = codes.dictionary.to_pylist()
        return {words[int(numbers[start])]: (start, end) for start, end in zip(starts, ends, strict=True)}

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have live slices, in order."""
        live = self.table.filter(pc.is_valid(self.table.column("token")))
        return tuple(sorted(pc.unique(live.column("partition")).to_pylist()))

    def of(self, partition: str) -> pa.Table:
        """The rows of one partition."""
        start, end = self._ranges.get(partition, (0, 0))
        return self.table.slice(start, end - start)

    def all(self) -> pa.Table:
        return self.table


def groups_of(table: pa.Table) -> dict[str, Group]:
    """The file groups of rows of one partition, by file id."""
    return {file_id: group for _, file_id, group in _each(table)}


def _each(table: pa.Table) -> Iterator[tuple[str, str, Group]]:
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in ROWS.names]
    for partition, file_id, token, instant, size, rows, least, greatest, ranges, replaced_by, logs in zip(
        *columns, strict=True
    ):
        file = DataFile(partition, file_id, token, instant, size) if token is not None else None
        one = Slice(file, rows, least, greatest, ranges) if file is not None else None
        there = frozenset(_logs_in(partition, file_id, logs)) if logs is not None else frozenset()
        yield partition, file_id, Group(one, replaced_by or "", there)


def _logs_in(partition: str, file_id: str, text: str) -> Iterator[CompletedLog]:
    for instant, version, token, size_bytes, completion in json.loads(text):
        yield CompletedLog(LogFile(partition, file_id, instant, version, token, size_bytes), completion)


def _text_of(logs: Iterable[CompletedLog]) -> str | None:
    found = [[*log.file[2:], log.completion] for log in sorted(logs)]
    return json.dumps(found, separators=(",", ":")) if found else None


def merged_groups(groups: dict[str, Group], partition: str, changes: Changes) -> dict[str, Group]:
    """The file groups of a partition after the changes. A group that was ever replaced is gone, whatever arrives late."""
    found = dict(groups)
    for file_id, one in changes.slices.get(partition, {}).items():
        known = found.get(file_id, UNKNOWN_GROUP)
        if not known.replaced_by and (known.slice is None or one.order > known.slice.order):
            found[file_id] = Group(one, logs=known.logs).current
    for file_id, logs in changes.logs.get(partition, {}).items():
        known = found.get(file_id, UNKNOWN_GROUP)
        if not known.replaced_by:
            found[file_id] = Group(known.slice, logs=known.logs | logs).current
    for file_id, instant in changes.replaced.get(partition, {}).items():
        found[file_id] = Group(None, max(instant, found.get(file_id, UNKNOWN_GROUP).replaced_by))
    return found


def with_changes(table: pa.Table, changes: Changes, *, forget_below: str) -> pa.Table:
    """All rows after the changes, without groups that were replaced before `forget_below`: nothing older can still arrive."""
    maps = (changes.slices, changes.logs, changes.replaced)
    touched = {file_id for by_partition in maps for groups in by_partition.values() for file_id in groups}  # type: ignore[attr-defined]
    among = pc.is_in(table.column("file_id"), value_set=pa.array(sorted(touched), pa.string()))
    untouched = table.filter(pc.invert(among))
    by_partition: dict[str, dict[str, Group]] = {partition: {} for partition in changes.partitions}
    for partition, file_id, group in _each(table.filter(among)):
        by_partition.setdefault(partition, {})[file_id] = group
    fresh = table_of(
        (partition, file_id, group)
        for partition, groups in by_partition.items()
        for file_id, group in merged_groups(groups, partition, changes).items()
    )
    both = pa.concat_tables([untouched, fresh])
    keep = pc.fill_null(pc.greater_equal(both.column("replaced_by"), forget_below), True)
    return both.filter(keep).sort_by([("partition", "ascending"), ("file_id", "ascending")]).combine_chunks()


def table_of(groups: Iterable[tuple[str, str, Group]]) -> pa.Table:
    """Rows of file groups, in the given order."""
    rows: list[tuple[object, ...]] = []
    for partition, file_id, group in groups:
        one = group.slice
        known = [None] * 7 if one is None else [one.file.token, one.file.instant, one.file.size_bytes, *one[1:]]
        rows.append((partition, file_id, *known, group.replaced_by or None, _text_of(group.logs)))
    columns: list[tuple[object, ...]] = list(zip(*rows, strict=True)) or [()] * len(ROWS)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, ROWS, strict=True)], schema=ROWS)


FORMAT, PLAIN_FORMAT = 2, 1
"""The newest; and that of checkpoints without log files, which earlier versions of lakelock read, too."""
GROUP_ROWS = 8_192
"""Rows of a row group: the least that is read for one partition."""
HEADER, CHECKSUM = b"lakelock.header", b"lakelock.checksum"

_HINT = "nothing to do: lakelock reads an earlier checkpoint or the timeline instead, and the next checkpoint replaces this one"


class DamagedCheckpoint(CorruptTableError):
    """The checkpoint cannot be read; its content is available elsewhere."""


class LaterFormat(CorruptTableError):
    """The checkpoint is of a later version of lakelock."""


class Rows(Protocol):
    """The rows of a checkpoint, loaded or not; both raise `DamagedCheckpoint`, or what the storage raises."""

    @property
    def partitions(self) -> tuple[str, ...]: ...
    def of(self, partition: str) -> pa.Table: ...
    def all(self) -> pa.Table: ...


@dataclass(frozen=True)
class Checkpoint:
    """The state of the index after the commits that `coverage` names."""

    coverage: Coverage = field(default_factory=Coverage)
    rows: Rows = field(default_factory=lambda: LoadedRows(NO_ROWS))
    schemas: Mapping[str, SchemaSeen] = field(default_factory=dict)
    applications: Mapping[str, Applied] = field(default_factory=dict)
    knows_logs: bool = True
    """Whether it has all log files: not if it, or one before it, was made by a version of lakelock that passed them over."""

    def to_bytes(self) -> bytes:
        """The file of the checkpoint."""
        table, output = self.rows.all(), io.BytesIO()
        has_logs = table.column("logs").null_count < table.num_rows
        table = table if has_logs else table.drop_columns(["logs"])
        fields = self._header(table.column("partition"), FORMAT if has_logs else PLAIN_FORMAT)
        header = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
        with pq.ParquetWriter(
            output, table.schema, compression="zstd", store_schema=False, write_page_checksum=True, version="2.6"
        ) as writer:
            if table.num_rows:  # else it would write an empty row group
                writer.write_table(table, row_group_size=GROUP_ROWS)
            writer.add_key_value_metadata({HEADER: header, CHECKSUM: sha256(header).hexdigest()})
        return output.getvalue()

    def _header(self, partitions: pa.ChunkedArray, format_: int) -> dict[str, Any]:
        starts, count = range(0, len(partitions), GROUP_ROWS), len(partitions)
        return {
            "format": format_,
            "logs": self.knows_logs,
            "low": self.coverage.low,
            "instants": sorted(self.coverage.instants),
            "archive": sorted(self.coverage.archive),
            "restores": sorted(self.coverage.restores),
            "schemas": sorted([*seen, text] for text, seen in self.schemas.items()),
            "applications": sorted(self.applications.values()),
            "groups": [[partitions[i].as_py(), partitions[min(i + GROUP_ROWS, count) - 1].as_py()] for i in starts],
        }

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file, read as a whole."""
        lazy = cls.opened(lambda: pa.BufferReader(data), source)
        return replace(lazy, rows=LoadedRows(lazy.rows.all()))

    @classmethod
    def opened(cls, open_input: Callable[[], IO[bytes]], source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file; each partition's rows are read on demand.

        `LaterFormat`, or `DamagedCheckpoint`, also later from its rows.
        """
        rows = StoredRows(open_input, source)
        found = rows.header
        try:
            coverage = Coverage(
                # Interned: a process keeps several checkpoints, and each names nearly the same instants.
                found.text("low"),
                *(frozenset(map(intern, found.fields[name])) for name in ("instants", "archive", "restores")),
            )
            schemas = {text: SchemaSeen(completion, instant) for completion, instant, text in found.fields["schemas"]}
            applications = {one.app_id: one for one in (Applied(*values) for values in found.fields["applications"])}
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(source, error) from error
        return cls(coverage, rows, schemas, applications, found.fields.get("logs") is True)


class StoredRows:
    """Rows that are read from the file on demand; the latest few row groups are kept."""

    def __init__(self, open_input: Callable[[], IO[bytes]], source: str) -> None:
        self._open, self._source = open_input, source
        self._group = lru_cache(maxsize=4)(self._read_group)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        return self._guarded(lambda: pq.ParquetFile(self._open(), page_checksum_verification=True, pre_buffer=True))

    @cached_property
    def header(self) -> JsonObject:
        """The content of the file's metadata."""
        entries = self._file.metadata.metadata or {}
        text = entries.get(HEADER, b"")
        if sha256(text).hexdigest().encode() != entries.get(CHECKSUM):
            raise _damaged(self._source, "its header does not match its checksum")
        try:
            found = JsonObject.parse(text.decode())
            version = found.integer("format")
        except ValueError as error:
            raise _damaged(self._source, error) from error
        if version > FORMAT:
            hint = "upgrade lakelock here; until then the commits themselves are read"
            raise LaterFormat(f"{self._source} has format {version}; this lakelock reads {FORMAT}", hint=hint)
        return found

    @cached_property
    def _bounds(self) -> tuple[list[str], list[str]]:
        """The first and the last partition of each row group."""
        groups = self.header.fields["groups"]
        if len(groups) != self._file.metadata.num_row_groups:
            raise _damaged(self._source, "row groups are missing")
        return [str(first) for first, _ in groups], [str(last) for _, last in groups]

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        table = self._guarded(lambda: self._file.read(columns=["partition", "token"]))
        live = table.filter(pc.is_valid(table.column("token")))
        return tuple(sorted(pc.unique(live.column("partition")).to_pylist()))

    def of(self, partition: str) -> pa.Table:
        firsts, lasts = self._bounds
        # Rows are in order, so the groups that may hold the partition follow each other.
        start, end = bisect_left(lasts, partition), bisect_right(firsts, partition)
        tables = [self._group(number) for number in range(start, end)]
        found = [table.filter(pc.equal(table.column("partition"), partition)) for table in tables]
        return pa.concat_tables(found) if found else NO_ROWS

    def all(self) -> pa.Table:
        several = len(self._bounds[0]) > 1  # to hand one group to threads costs more than they save
        return _as_rows(self._guarded(lambda: self._file.read(use_threads=several)), self._source)

    def _read_group(self, number: int) -> pa.Table:
        return _as_rows(self._guarded(lambda: self._file.read_row_group(number)), self._source)

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except LakelockError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(self._source, error) from error


def _as_rows(table: pa.Table, source: str) -> pa.Table:
    if table.schema.equals(ROWS):
        return table
    try:
        if "logs" not in table.column_names:
            table = table.append_column(ROWS.field("logs"), pa.nulls(table.num_rows, pa.string()))
        return table.select(ROWS.names).cast(ROWS)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise _damaged(source, error) from error


def _damaged(source: str, why: object) -> DamagedCheckpoint:
    return DamagedCheckpoint(f"{source} cannot be read: {why}", hint=_HINT)


@dataclass(frozen=True)
class IndexState:
    """The live slices after a checkpoint and some commits. Reads of the checkpoint's rows raise what those raise."""

    base: Checkpoint
    changes: Changes
    effects: tuple[Effect, ...] = ()
    _known: dict[str, Mapping[str, Group]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def after(cls, base: Checkpoint, effects: Iterable[Effect]) -> IndexState:
        """The state after the commits, each of which the checkpoint does not cover."""
        effects = tuple(effects)
        return cls(base, fold(effects), effects)

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have live slices, in order."""
        found = set(self.base.rows.partitions) - self.changes.partitions
        found.update(partition for partition in self.changes.partitions if self.in_partition(partition))
        return tuple(sorted(found))

    def in_partition(self, partition: str) -> tuple[DataFile, ...]:
        """The live slices of one partition, in order of their file ids."""
        groups = self._groups(partition)
        return tuple(groups[file_id].slice.file for file_id in sorted(groups) if groups[file_id].slice)  # type: ignore[union-attr]

    def is_replaced(self, group: FileGroupId) -> bool:
        """Whether the file group is known to have been replaced."""
        found = self._groups(group.partition).get(group.file_id)
        return found is not None and bool(found.replaced_by)

    def logs(self) -> dict[FileGroupId, frozenset[CompletedLog]] | None:
        """The log files of each live file group that has any; None if the checkpoint does not know them.

        Reads all rows of the checkpoint.
        """
        if not self.base.knows_logs:
            return None
        self.preload()
        table = self.base.rows.all()
        stored = pc.unique(table.filter(pc.is_valid(table.column("logs"))).column("partition")).to_pylist()
        return {
            FileGroupId(partition, file_id): group.logs
            for partition in sorted({*stored, *self.changes.logs})
            for file_id, group in self._groups(partition).items()
            if group.logs
        }

    def statistics(self, file: DataFile) -> FileStatistics:
        """What the writer of a live slice knew about it."""
        group = self._groups(file.partition).get(file.file_id)
        one = group.slice if group is not None else None
        if one is None or one.file != file:
            return UNKNOWN
        return FileStatistics(one.rows, one.key_min, one.key_max, column_ranges_in(one.columns))

    def preload(self) -> None:
        """Read all of the checkpoint's rows at once, for readers of every partition."""
        if not isinstance(self.base.rows, LoadedRows):
            object.__setattr__(self, "base", replace(self.base, rows=LoadedRows(self.base.rows.all())))

    @cached_property
    def schemas(self) -> Mapping[str, SchemaSeen]:
        """When each schema was last recorded."""
        found = dict(self.base.schemas)
        for text, seen in self.changes.schemas.items():
            found[text] = later_schema(seen, found.get(text))
        return found

    @cached_property
    def applications(self) -> Mapping[str, Applied]:
        """The newest commit of each application that numbers its writes."""
        found = dict(self.base.applications)
        for app_id, applied in self.changes.applications.items():
            found[app_id] = later_applied(applied, found.get(app_id))
        return found

    def checkpoint(self, timeline: Timeline) -> Checkpoint:
        """The state as a checkpoint; the timeline is the one whose commits it has."""
        coverage = self.base.coverage.with_all_of(timeline, (effect.instant for effect in self.effects))
        rows = with_changes(self.base.rows.all(), self.changes, forget_below=lowest_open(timeline))
        return Checkpoint(coverage, LoadedRows(rows), self.schemas, self.applications, self.base.knows_logs)

    def _groups(self, partition: str) -> Mapping[str, Group]:
        if partition not in self._known:
            self._known[partition] = merged_groups(groups_of(self.base.rows.of(partition)), partition, self.changes)
        return self._known[partition]
