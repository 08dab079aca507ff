"""Checkpoints of the file index, each one Parquet file, and the state of a table: a checkpoint and the commits after it.

The file has one row for each live slice and each replaced file group, in order of partition and file id, in row groups of
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
from dataclasses import dataclass, field
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
from lakelock.table.commit_effects import (
    Applied,
    Changes,
    Coverage,
    Effect,
    SchemaSeen,
    Slice,
    fold,
    later_applied,
    later_schema,
    lowest_open,
)
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import UNKNOWN, FileStatistics, column_ranges_in
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
    ]
)
"""A row with `replaced_by` is a file group that is gone, by the instant that replaced it; it has no file."""

NO_ROWS = pa.Table.from_batches([], ROWS)  # to make an array here would have PyArrow import pandas with lakelock


@dataclass(frozen=True)
class Group:
    """What is known of one file group of one partition: its slice, or by which instant it was replaced."""

    slice: Slice | None
    replaced_by: str = ""


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
        live = self.table.filter(pc.is_null(self.table.column("replaced_by")))
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
    for partition, file_id, token, instant, size, rows, least, greatest, ranges, replaced_by in zip(*columns, strict=True):
        if replaced_by is not None:
            yield partition, file_id, Group(None, replaced_by)
        else:
            file = DataFile(partition, file_id, token, instant, size)
            yield partition, file_id, Group(Slice(file, rows, least, greatest, ranges))


def merged_groups(groups: dict[str, Group], partition: str, changes: Changes) -> dict[str, Group]:
    """The file groups of a partition after the changes. A group that was ever replaced is gone, whatever arrives late."""
    found = dict(groups)
    for file_id, one in changes.slices.get(partition, {}).items():
        known = found.get(file_id)
        if known is None or (known.slice is not None and one.order > known.slice.order):
            found[file_id] = Group(one)
    for file_id, instant in changes.replaced.get(partition, {}).items():
        known = found.get(file_id)
        found[file_id] = Group(None, max(instant, known.replaced_by if known is not None else ""))
    return found


def with_changes(table: pa.Table, changes: Changes, *, forget_below: str) -> pa.Table:
    """All rows after the changes. Replaced groups are forgotten once nothing older than their end can still arrive."""
    written = {file_id for groups in changes.slices.values() for file_id in groups}
    touched = written.union(*(groups.keys() for groups in changes.replaced.values()))
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
        if one is None:
            rows.append((partition, file_id, *[None] * 7, group.replaced_by))
        else:
            file = one.file
            rows.append((partition, file_id, file.token, file.instant, file.size_bytes, *one[1:], None))
    columns: list[tuple[object, ...]] = list(zip(*rows, strict=True)) or [()] * len(ROWS)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, ROWS, strict=True)], schema=ROWS)


FORMAT = 1
GROUP_ROWS = 8_192
"""Rows of a row group: the least that is read for one partition."""
HEADER, CHECKSUM = b"lakelock.header", b"lakelock.checksum"

_HINT = "nothing to do: the checkpoint before it, or the timeline, says the same, and the next one replaces it"


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

    def to_bytes(self) -> bytes:
        """The file of the checkpoint."""
        table, output = self.rows.all(), io.BytesIO()
        header = json.dumps(self._header(table.column("partition")), separators=(",", ":"), sort_keys=True).encode()
        with pq.ParquetWriter(
            output, ROWS, compression="zstd", store_schema=False, write_page_checksum=True, version="2.6"
        ) as writer:
            if table.num_rows:  # else it would write an empty row group
                writer.write_table(table, row_group_size=GROUP_ROWS)
            writer.add_key_value_metadata({HEADER: header, CHECKSUM: sha256(header).hexdigest()})
        return output.getvalue()

    def _header(self, partitions: pa.ChunkedArray) -> dict[str, Any]:
        starts, count = range(0, len(partitions), GROUP_ROWS), len(partitions)
        return {
            "format": FORMAT,
            "low": self.coverage.low,
            "instants": sorted(self.coverage.instants),
            "archive": sorted(self.coverage.archive),
            "restores": sorted(self.coverage.restores),
            "schemas": sorted([*told, text] for text, told in self.schemas.items()),
            "applications": sorted(self.applications.values()),
            "groups": [[partitions[i].as_py(), partitions[min(i + GROUP_ROWS, count) - 1].as_py()] for i in starts],
        }

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file, read as a whole."""
        lazy = cls.opened(lambda: pa.BufferReader(data), source)
        return cls(lazy.coverage, LoadedRows(lazy.rows.all()), lazy.schemas, lazy.applications)

    @classmethod
    def opened(cls, open_input: Callable[[], IO[bytes]], source: str = "a checkpoint") -> Checkpoint:
        """The checkpoint in a file; each partition's rows are read on demand.

        `LaterFormat`, or `DamagedCheckpoint`, also later from its rows.
        """
        rows = StoredRows(open_input, source)
        found = rows.header
        try:
            coverage = Coverage(
                # Each checkpoint names nearly the same as the one before it, of which a process remembers some.
                found.text("low"),
                *(frozenset(map(intern, found.fields[name])) for name in ("instants", "archive", "restores")),
            )
            schemas = {text: SchemaSeen(completion, instant) for completion, instant, text in found.fields["schemas"]}
            applications = {one.app_id: one for one in (Applied(*values) for values in found.fields["applications"])}
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(source, error) from error
        return cls(coverage, rows, schemas, applications)


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
        table = self._guarded(lambda: self._file.read(columns=["partition", "replaced_by"]))
        live = table.filter(pc.is_null(table.column("replaced_by")))
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
        return found is not None and found.slice is None

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
            loaded = LoadedRows(self.base.rows.all())
            object.__setattr__(self, "base", Checkpoint(self.base.coverage, loaded, self.base.schemas, self.base.applications))

    @cached_property
    def schemas(self) -> Mapping[str, SchemaSeen]:
        """When each schema was last recorded."""
        found = dict(self.base.schemas)
        for text, told in self.changes.schemas.items():
            found[text] = later_schema(told, found.get(text))
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
        return Checkpoint(coverage, LoadedRows(rows), self.schemas, self.applications)

    def _groups(self, partition: str) -> Mapping[str, Group]:
        if partition not in self._known:
            self._known[partition] = merged_groups(groups_of(self.base.rows.of(partition)), partition, self.changes)
        return self._known[partition]
