"""What the log files of one file slice change: of each key the version that counts among them, or that the row is gone.

The rules are those of Hudi 1.2 (`BufferedRecordMergerFactory`): by commit time the later version counts; by event time the one
with the greater value in the ordering column, of equal ones the later. A delete without such a value always counts, and so
does whatever comes after it.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, TableError
from lakelock.storage import Storage
from lakelock.table.avro.types import arrow_fields
from lakelock.table.columns.fitting import read_as
from lakelock.table.log_files.avro_blocks import records_in, schema_of
from lakelock.table.log_files.blocks import Block, BlockKind, Header, blocks_of
from lakelock.table.log_files.deletes import deletes_in
from lakelock.table.log_files.names import LogFile
from lakelock.table.schema import DELETED, RECORD_KEY

READ_OPTIMIZED = 'read(query_type="read_optimized") reads the base files, without what the log files have changed since'
OPERATION = "_hoodie_operation"
_AT_ONCE = 10_000
"""How many rows are Python objects at a time."""
_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF


class Change(NamedTuple):
    """The last word on one key: the number of a row, None for a delete. `order`: its place by event time, None for none."""

    row: int | None
    order: Any = None

    @property
    def is_plain_delete(self) -> bool:
        """Whether it deletes whatever there is, as a statement DELETE does, instead of taking its place in time."""
        return self.row is None and self.order is None


class Changes:
    """The changes of one file slice, added in the order of its log files. `columns`: those to read, and the record key."""

    def __init__(self, columns: pa.Schema, ordering: str | None) -> None:
        self._columns, self.ordering = columns, ordering
        self._parts: list[pa.Table] = []
        self._rows = 0
        self.last: dict[str, Change] = {}

    @classmethod
    def of(
        cls, logs: Sequence[LogFile], instants: Set[str], columns: pa.Schema, ordering: str | None, storage: Storage
    ) -> Changes:
        """All changes that these instants made in these files. The bytes of the files are in memory meanwhile."""
        found, blocks = cls(columns, ordering), list(_blocks(logs, storage))
        undone = {block.header.get(Header.TARGET_INSTANT, "") for block in blocks if block.kind is BlockKind.COMMAND}
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
            change = Change(None if deleted else self._rows + number, order)
            known = self.last.get(key)
            if known is None or self.counts(change, known):
                self.last[key] = change
        self._parts.append(rows)
        self._rows += rows.num_rows

    def counts(self, change: Change, known: Change) -> bool:
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
        self.last[key] = Change(None, order if self.ordering is not None else None)


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
    if Header.COMPACTED_INSTANTS in block.header or block.header.get(Header.IS_PARTIAL, "").lower() == "true":
        what = "parts of rows" if Header.IS_PARTIAL in block.header else "blocks that were compacted into one"
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
