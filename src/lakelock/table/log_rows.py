"""What a block of a log file says of rows: whole rows, parts of rows, or deletes, as Arrow columns.

Blocks hold Avro, whose rows are Python objects for a moment, or a whole Parquet file, of which only the needed columns are
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError, TableError
from lakelock.table.column_types import arrow_fields
from lakelock.table.log_files import Block, BlockHeader, BlockKind, deletes_in, records_in, schema_of
from lakelock.table.row_versions import ByEventTime, RowVersions
from lakelock.table.rows import Fields, read_as
from lakelock.table.schema import DELETED, RECORD_KEY

READ_OPTIMIZED = 'read(query_type="read_optimized") reads the base files, without what the log files have changed since'
OPERATION = "_hoodie_operation"
_AVRO_ROWS = 10_000
"""How many rows are Python objects at a time."""
_PARQUET_ROWS = 131_072


def add_block(block: Block, versions: RowVersions) -> None:
    """Add what a block of rows or deletes says. `TableError` for kinds of blocks that lakelock does not merge."""
    if block.kind is BlockKind.DELETE:
        versions.add_deletes(deletes_in(block))
        return
    is_partial = block.header.get(BlockHeader.IS_PARTIAL, "").lower() == "true"
    if is_partial and isinstance(versions, ByEventTime):
        raise _unread(block, "parts of rows where versions are ordered by event time")
    wanted = versions.columns
    if DELETED not in wanted.names:
        wanted = pa.schema([*wanted, pa.field(DELETED, pa.bool_())])
    for found in _rows_in(block, Fields(wanted)):
        rows, there = read_as(found, wanted, block.source), Fields(found.schema)
        if rows.column(RECORD_KEY).null_count:
            raise CorruptTableError(f"{block.source} has a row without a record key", file=block.source)
        gone = None
        if there.index(DELETED) >= 0:
            gone = np.asarray(pc.fill_null(rows.column(DELETED), fill_value=False), np.bool_)
        written = [name for name in versions.columns.names if there.index(name) >= 0] if is_partial else None
        versions.add_rows(rows.select(versions.columns.names), gone, written)


def _rows_in(block: Block, wanted: Fields) -> Iterator[pa.Table]:
    """The rows of a block, with those of its columns that are wanted."""
    if BlockHeader.COMPACTED_INSTANTS in block.header:
        raise _unread(block, "blocks that were compacted into one")
    if block.kind is BlockKind.PARQUET:
        yield from _from_parquet(block, wanted)
    elif block.kind is BlockKind.AVRO:
        yield from _from_avro(block, wanted)
    else:
        raise _unread(block, f"log blocks with {block.kind.name}")


def _from_parquet(block: Block, wanted: Fields) -> Iterator[pa.Table]:
    try:
        with pq.ParquetFile(pa.BufferReader(block.content), coerce_int96_timestamp_unit="us") as file:
            names = file.schema_arrow.names
            _refuse_operations(names, block)
            present = [name for name in names if wanted.index(name) >= 0]
            for batch in file.iter_batches(_PARQUET_ROWS, columns=present):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        raise CorruptTableError(f"{block.source} cannot be read: {error}", file=block.source) from error


def _from_avro(block: Block, wanted: Fields) -> Iterator[pa.Table]:
    definition, parsed = schema_of(block)
    fields = list(arrow_fields(definition, block.source))
    _refuse_operations([field.name for field in fields], block)
    schema, records = pa.schema([field for field in fields if wanted.index(field.name) >= 0]), records_in(block, parsed)
    while batch := list(islice(records, _AVRO_ROWS)):
        try:
            columns = [pa.array([record[field.name] for record in batch], field.type) for field in schema]
        except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptTableError(f"{block.source} does not hold what its schema says: {error}", file=block.source) from error
        yield pa.table(columns, schema=schema)


def _refuse_operations(names: Sequence[str], block: Block) -> None:
    if OPERATION in names:
        what = f"its rows are a change log ({OPERATION}), which lakelock does not merge"
        raise TableError(f"{block.source}: {what}", hint=READ_OPTIMIZED)


def _unread(block: Block, what: str) -> TableError:
    return TableError(f"{block.source}: lakelock does not read {what}", hint=READ_OPTIMIZED)
