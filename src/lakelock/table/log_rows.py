"""What a block of a log file says of rows: whole rows, parts of rows, or deletes, as Arrow columns.

Blocks hold Avro, whose rows are Python objects for a moment, or a whole Parquet file, of which only the needed columns are
read: first the keys, and the others only if one of its rows is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError, TableError
from lakelock.table.base_files import with_dictionaries
from lakelock.table.column_types import DELETED, arrow_fields
from lakelock.table.log_files import Block, BlockHeader, BlockKind, deletes_in, records_in, schema_of
from lakelock.table.row_versions import ByEventTime, Flags, OtherPositions, Places, RowVersions, WrittenRows
from lakelock.table.rows import Fields, read_as
from lakelock.table.schema import RECORD_KEY

READ_OPTIMIZED = 'read(query_type="read_optimized") reads the base files, without what the log files have changed since'
OPERATION = "_hoodie_operation"
_KEY, _DELETED = pa.field(RECORD_KEY, pa.string()), pa.field(DELETED, pa.bool_())
_AT_ONCE = 10_000
"""How many rows of an Avro block are Python objects at a time."""


def add_block(block: Block, versions: RowVersions, positions: Places | None = None) -> None:
    """Add what a block of rows or deletes says. `TableError` for kinds of blocks that lakelock does not merge.

    With `positions` of its rows their keys are not read; `OtherPositions` if they are not as many.
    """
    if block.kind is BlockKind.DELETE:
        versions.add_deletes(deletes_in(block) if positions is None else positions)
        return
    is_partial = _is_partial(block)
    if is_partial and isinstance(versions, ByEventTime):
        raise _unread(block, "parts of rows where versions are ordered by event time")
    names = dict.fromkeys([*versions.columns.names, RECORD_KEY, DELETED])
    found = _rows_in(block, Fields(pa.field(name, pa.null()) for name in names))
    there = Fields(pa.field(name, pa.null()) for name in found.names)
    if positions is not None and len(positions) != found.count:
        raise OtherPositions
    gone = None
    if there.index(DELETED) >= 0:
        flags = read_as(found.read([DELETED]), pa.schema([_DELETED]), block.source).column(0)
        gone = np.asarray(pc.fill_null(flags, fill_value=False), np.bool_)
    written = frozenset(name for name in versions.columns.names if there.index(name) >= 0) if is_partial else None
    columns = versions.columns

    def load(flags: Flags | None) -> pa.Table:
        rows = found.read(columns.names)
        return read_as(rows if flags is None else rows.filter(pa.array(flags)), columns, block.source)

    versions.add_rows(WrittenRows(_keys(found, block) if positions is None else positions, load, gone, written))


def _keys(found: _Rows, block: Block) -> pa.ChunkedArray:
    keys = read_as(found.read([RECORD_KEY]), pa.schema([_KEY]), block.source).column(0)
    if keys.null_count:
        raise CorruptTableError(f"{block.source} has a row without a record key", hint=RESTORE_OR_ROLL_BACK, file=block.source)
    return keys


def whole_rows(block: Block, columns: Iterable[str]) -> pa.Table:
    """The rows of a block, with those of these columns that they have; as they are stored. None in a block of deletes.

    `TableError` for parts of rows, and for kinds of blocks that lakelock does not merge.
    """
    if block.kind is BlockKind.DELETE:
        return pa.table({})
    if _is_partial(block):
        raise _unread(block, "parts of rows as whole ones")
    found = _rows_in(block, Fields(pa.field(name, pa.null()) for name in (RECORD_KEY, *columns)))
    return found.read(found.names)


def _is_partial(block: Block) -> bool:
    return block.header.get(BlockHeader.IS_PARTIAL, "").lower() == "true"


class _Rows(Protocol):
    """The rows of a block; `names` are those of its columns that are wanted, `count` the number of its rows."""

    names: list[str]
    count: int

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The rows, with those of these columns that they have."""
        ...


def _rows_in(block: Block, wanted: Fields) -> _Rows:
    if BlockHeader.COMPACTED_INSTANTS in block.header:
        raise _unread(block, "blocks that were compacted into one")
    if block.kind is BlockKind.PARQUET:
        return _ParquetRows(block, wanted)
    if block.kind is BlockKind.AVRO:
        return _AvroRows(block, wanted)
    raise _unread(block, f"log blocks with {block.kind.name}")


class _ParquetRows:
    """Each column is read when it is asked for."""

    def __init__(self, block: Block, wanted: Fields) -> None:
        self._source = block.source
        with self._readable():
            self._file = with_dictionaries(pa.BufferReader(block.content), coerce_int96_timestamp_unit="us")
            names, self.count = self._file.schema_arrow.names, int(self._file.metadata.num_rows)
        _refuse_operations(names, block)
        self.names = [name for name in names if wanted.index(name) >= 0]

    def read(self, columns: Sequence[str]) -> pa.Table:
        asked = Fields(pa.field(name, pa.null()) for name in columns)
        with self._readable():
            return self._file.read([name for name in self.names if asked.index(name) >= 0])

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise CorruptTableError(
                f"{self._source} cannot be read: {error}", hint=RESTORE_OR_ROLL_BACK, file=self._source
            ) from error


class _AvroRows:
    """All columns are read at once: a row says only by its values how long they are."""

    def __init__(self, block: Block, wanted: Fields) -> None:
        definition, parsed = schema_of(block)
        fields = list(arrow_fields(definition, block.source))
        _refuse_operations([field.name for field in fields], block)
        schema, records = pa.schema([field for field in fields if wanted.index(field.name) >= 0]), records_in(block, parsed)
        parts = [schema.empty_table()]
        while batch := list(islice(records, _AT_ONCE)):
            try:
                columns = [pa.array([record[field.name] for record in batch], field.type) for field in schema]
            except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
                problem = f"{block.source} does not hold what its schema says: {error}"
                raise CorruptTableError(problem, hint=RESTORE_OR_ROLL_BACK, file=block.source) from error
            parts.append(pa.table(columns, schema=schema))
        self.names, self._rows = schema.names, pa.concat_tables(parts)
        self.count = sum(part.num_rows for part in parts)

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self._rows


def _refuse_operations(names: Sequence[str], block: Block) -> None:
    if OPERATION in names:
        what = f"its rows are a change log ({OPERATION}), which lakelock does not merge"
        raise TableError(f"{block.source}: {what}", hint=READ_OPTIMIZED)


def _unread(block: Block, what: str) -> TableError:
    return TableError(f"{block.source}: lakelock does not read {what}", hint=READ_OPTIMIZED)
