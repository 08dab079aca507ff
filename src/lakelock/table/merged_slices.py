"""File slices with log files: which log files belong to a slice, and its rows, those of the base file with the logs' changes.

Commits say which log files belong to a slice: listings leave log files out, and names do not tell.

Which version of a key counts, or that the row is gone, is decided by the rules of Hudi 1.2
(`BufferedRecordMergerFactory`): by commit time the later version counts; by event time the one with the greater value in
the ordering column, of equal ones the later. A delete without such a value always counts, and so does everything after
it.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, TableError
from lakelock.storage import Storage
from lakelock.table.base_files import BaseFile
from lakelock.table.column_types import arrow_fields
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import Block, BlockHeader, BlockKind, LogFile, blocks_of, deletes_in, records_in, schema_of
from lakelock.table.rows import read_as
from lakelock.table.schema import DELETED, RECORD_KEY, TableSchema
from lakelock.table.snapshot import DataFile, Snapshot

READ_OPTIMIZED = 'read(query_type="read_optimized") reads the base files, without what the log files have changed since'
OPERATION = "_hoodie_operation"
_AT_ONCE = 10_000
"""How many rows are Python objects at a time."""
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF


class LogChange(NamedTuple):
    """The last word on one key: the number of a row, None for a delete. `order`: its place by event time, None for none."""

    row: int | None
    order: Any = None

    @property
    def is_plain_delete(self) -> bool:
        """Whether it deletes whatever there is, as a statement DELETE does, instead of taking its place in time."""
        return self.row is None and self.order is None


class LogChanges:
    """The changes of one file slice, added in the order of its log files. `columns`: those to read, and the record key."""

    def __init__(self, columns: pa.Schema, ordering: str | None) -> None:
        self._columns, self.ordering = columns, ordering
        self._parts: list[pa.Table] = []
        self._rows = 0
        self.last: dict[str, LogChange] = {}

    @classmethod
    def of(
        cls, logs: Sequence[LogFile], instants: Set[str], columns: pa.Schema, ordering: str | None, storage: Storage
    ) -> LogChanges:
        """All changes that these instants made in these files. The bytes of the files are in memory meanwhile."""
        found, blocks = cls(columns, ordering), list(_blocks(logs, storage))
        undone = {block.header.get(BlockHeader.TARGET_INSTANT, "") for block in blocks if block.kind is BlockKind.COMMAND}
        for block in blocks:
            if block.kind is not BlockKind.COMMAND and block.instant in instants and block.instant not in undone:
                found.add(block)
        return found

    @property
    def rows(self) -> pa.Table:
        """The rows that `Change.row` numbers."""
        return pa.concat_tables(self._parts) if self._parts else self._columns.empty_table()

    def add(self, block: Block) -> None:
        """Add what one block of rows or deletes says."""
        if block.kind is BlockKind.DELETE:
            for key, order in deletes_in(block):
                self._delete(key, _in_javas_order(order) if isinstance(order, float) else order)
            return
        for rows in _rows_in(block):
            self._add(rows, block.source)

    def _add(self, found: pa.Table, source: str) -> None:
        rows = read_as(found, self._columns, source)
        gone = found.column(DELETED).to_pylist() if DELETED in found.column_names else [False] * rows.num_rows
        orders = comparable(rows.column(self.ordering)) if self.ordering is not None else [None] * rows.num_rows
        for number, (key, deleted, order) in enumerate(zip(rows.column(RECORD_KEY).to_pylist(), gone, orders, strict=True)):
            if key is None:
                raise CorruptTableError(f"{source} has a row without a record key", file=source)
            change = LogChange(None if deleted else self._rows + number, order)
            known = self.last.get(key)
            if known is None or self.counts(change, known):
                self.last[key] = change
        self._parts.append(rows)
        self._rows += rows.num_rows

    def counts(self, change: LogChange, known: LogChange) -> bool:
        """Whether a version of a row counts after another that was there before."""
        if self.ordering is None or change.is_plain_delete or known.is_plain_delete:
            return True
        return _rank(change.order) >= _rank(known.order)

    def _delete(self, key: str, order: Any) -> None:
        known = self.last.get(key)
        if self.ordering is not None and known is not None:
            if known.is_plain_delete:
                return
            if order is not None and type(order) is type(known.order) and known.order > order:
                return
        self.last[key] = LogChange(None, order if self.ordering is not None else None)


class _Floating(int):
    """A place in the order of `Double.compareTo`: NaN is the greatest, and -0.0 below 0.0."""


def _in_javas_order(value: float) -> _Floating:
    bits: int = struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
    return _Floating(bits if bits >= 0 else bits ^ _MAGNITUDE)


def comparable(column: pa.ChunkedArray) -> list[Any]:
    """The values of an ordering column as a delete states them, but in Java's order: times and floating points as numbers."""
    types = pa.types
    if types.is_timestamp(column.type) or types.is_time64(column.type):
        column = column.cast(pa.int64())
    elif types.is_date32(column.type) or types.is_time32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    if types.is_floating(column.type):
        return [None if value is None else _in_javas_order(value) for value in values]
    return values


def _rank(order: Any) -> tuple[bool, Any]:
    return (False, 0) if order is None else (True, order)


def _blocks(logs: Iterable[LogFile], storage: Storage) -> Iterator[Block]:
    for log in logs:
        with storage.open_input(log.key, size_bytes=log.size_bytes) as file:
            yield from blocks_of(file, _size(file), log.key)


def _size(file: IO[bytes]) -> int:
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    return end


def _rows_in(block: Block) -> Iterator[pa.Table]:
    """The rows of a block with the columns that it has."""
    if BlockHeader.COMPACTED_INSTANTS in block.header or block.header.get(BlockHeader.IS_PARTIAL, "").lower() == "true":
        what = "parts of rows" if BlockHeader.IS_PARTIAL in block.header else "blocks that were compacted into one"
        raise TableError(f"{block.source}: lakelock does not read {what}", hint=READ_OPTIMIZED)
    if block.kind is BlockKind.PARQUET:
        yield from _from_parquet(block)
    elif block.kind is BlockKind.AVRO:
        yield from _from_avro(block)
    else:
        raise TableError(f"{block.source}: lakelock does not read log blocks with {block.kind.name}", hint=READ_OPTIMIZED)


def _from_parquet(block: Block) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(pa.BufferReader(block.content), coerce_int96_timestamp_unit="us") as file:
            _refuse_operations(file.schema_arrow.names, block)
            for batch in file.iter_batches(_AT_ONCE):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise CorruptTableError(f"{block.source} cannot be read: {error}", file=block.source) from error


def _from_avro(block: Block) -> Iterator[pa.Table]:
    definition, parsed = schema_of(block)
    fields = list(arrow_fields(definition, block.source))
    _refuse_operations([field.name for field in fields], block)
    schema, records = pa.schema(fields), records_in(block, parsed)
    while batch := list(islice(records, _AT_ONCE)):
        try:
            columns = [pa.array([record[field.name] for record in batch], field.type) for field in fields]
        except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptTableError(f"{block.source} does not hold what its schema says: {error}", file=block.source) from error
        yield pa.table(columns, schema=schema)


def _refuse_operations(names: Sequence[str], block: Block) -> None:
    if OPERATION in names:
        what = f"its rows are a change log ({OPERATION}), which lakelock does not merge"
        raise TableError(f"{block.source}: {what}", hint=READ_OPTIMIZED)


class LoggedSlice(NamedTuple):
    """A file slice with log files, in the order in which they are read; a file group may have no base file yet.

    `instants` are those of the visible commits that wrote these files: a file may also have blocks of others.
    """

    partition: str
    file_id: str
    base: DataFile | None
    logs: tuple[LogFile, ...]
    instants: frozenset[str]

    @property
    def as_file(self) -> DataFile:
        """A file in its place, for readers that choose files by their partitions."""
        return self.base or DataFile(self.partition, self.file_id, "", self.logs[0].instant)


@dataclass(frozen=True)
class MergedRows:
    """Reads such slices; a task gets it. `ordering`: the column by which versions of a row are ordered, None for commit time.

    A task has the rows of one slice's log files in memory, and of its base file a batch at a time.
    """

    columns: pa.Schema
    ordering: pa.Field | None

    def read(self, slice_: LoggedSlice, storage: Storage) -> Iterator[pa.Table]:
        """The rows of a slice with these columns."""
        name = None if self.ordering is None else self.ordering.name
        changes = LogChanges.of(slice_.logs, slice_.instants, self._needed, name, storage)
        rows, unmatched = changes.rows, dict(changes.last)
        if slice_.base is not None:
            with BaseFile(storage.open_input(slice_.base.key), slice_.base.key) as base:
                for batch in base.batches(TableSchema(self._needed)):
                    yield self._merged(batch, changes, rows, unmatched).select(self.columns.names)
        added = [change.row for change in unmatched.values() if change.row is not None]
        yield rows.take(pa.array(added, pa.int64())).select(self.columns.names)

    @property
    def _needed(self) -> pa.Schema:
        extra = [field for field in (pa.field(RECORD_KEY, pa.string()), self.ordering) if field is not None]
        return pa.schema([*self.columns, *(field for field in extra if field.name not in self.columns.names)])

    def _merged(self, batch: pa.Table, changes: LogChanges, rows: pa.Table, unmatched: dict[str, LogChange]) -> pa.Table:
        """A batch of the base file after the changes to its keys, which are taken out of `unmatched`."""
        if not unmatched:
            return batch
        keys = batch.column(RECORD_KEY)
        touched = np.flatnonzero(np.asarray(pc.is_in(keys, value_set=pa.array(list(unmatched), pa.string()))))
        if not len(touched):
            return batch
        here = pa.array(touched)
        orders = comparable(batch.column(changes.ordering).take(here)) if changes.ordering is not None else [None] * len(here)
        kept, instead = np.ones(batch.num_rows, np.bool_), []
        for place, key, order in zip(touched.tolist(), keys.take(here).to_pylist(), orders, strict=True):
            change = unmatched.pop(key, None)
            if change is None:  # a base file may hold a key twice: a change is to its first row, as in Java
                continue
            if changes.counts(change, LogChange(place, order)):
                kept[place] = False
                instead += [change.row] if change.row is not None else []
        return pa.concat_tables([batch.filter(pa.array(kept)), rows.take(pa.array(instead, pa.int64()))])


class LoggedCommit(NamedTuple):
    """A visible commit, which may have written log files."""

    requested: str
    completion: str
    metadata: CommitMetadata


def with_logs(bases: Snapshot, commits: Iterable[LoggedCommit], *, named_after_base: bool) -> tuple[LoggedSlice, ...]:
    """The file slices that have log files, in order of partition and file id.

    `bases` are the newest visible base files. `commits` are all visible commits that wrote log files or replaced file groups,
    as far back as there are any: a file group may have log files only, older than every base file.

    A log file belongs to the base file that is older than its completion, as in Hudi since table version 8: what completed
    before has been compacted into it. Before version 8 it was `named_after_base`: the instant in its name is that of its base
    file, or of the compaction that is going to make the next one.
    """
    files = {file.group: file for file in bases.files}
    logs: dict[FileGroupId, dict[LogFile, set[str]]] = {}
    replaced: set[FileGroupId] = set()
    for requested, completion, metadata in commits:
        replaced |= metadata.replaced_groups
        for stat in metadata.stats:
            # A file of the old kind grows with each commit, so none of its sizes is known.
            log = LogFile.parse(stat.path or "", 0 if named_after_base else stat.file_size_bytes or 0)
            base = files.get(log.group) if log is not None else None
            if log is not None and (base is None or (log.instant if named_after_base else completion) >= base.instant):
                logs.setdefault(log.group, {}).setdefault(log, set()).add(requested)
    return tuple(
        LoggedSlice(
            *group,
            files.get(group),
            tuple(sorted(found, key=attrgetter("instant", "version", "token"))),
            frozenset().union(*found.values()),
        )
        for group, found in sorted(logs.items())
        if group not in replaced
    )
