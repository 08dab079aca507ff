"""Log files as lakelock writes them: what one commit changes in one file group, as bytes, and as its commit tells of it.

Rows become a Parquet file, sorted by key, and deletes a list of keys; nothing of that knows of names and blocks. `log_bytes`
puts the envelope of table versions 8 and 9 around both: Hudi's log blocks. A Parquet block takes a third of the bytes of an
Avro block, Java's default, and a small part of its CPU; every reader of Hudi reads both.

Readers merge log files in the order of their instants, and go by the instant in a file's name, that in its blocks, and that in
its rows, each for something else. So all three come from one `LogStamp`, and one file says of a key one thing only.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.settings import WriteSettings
from lakelock.table.base_files import CONSTANT, Stamp, constant
from lakelock.table.commit_metadata import RuntimeStats, WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import BlockHeader, BlockKind, LogFile, block_bytes, deletes_bytes
from lakelock.table.record_keys import Keyed, numbered
from lakelock.table.rows import conform, take_rows
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY, TableSchema

_REPEATING = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)


@dataclass(frozen=True)
class LogStamp:
    """Who writes a log file: the instant of the commit, the file group, and the write token of the task."""

    instant: str
    group: FileGroupId
    token: str

    @property
    def file(self) -> LogFile:
        """The log file, of which the size is not known yet. A commit writes one for each file group."""
        return LogFile(*self.group, self.instant, 1, self.token)


@dataclass(frozen=True)
class LogChanges:
    """What a commit changes in one file group: whole rows by their keys, and the keys of deleted rows. No key comes twice."""

    upserts: Keyed | None = None
    deleted: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        upserted = [] if self.upserts is None else self.upserts.keys.chunks
        keys = pa.chunked_array([*upserted, pa.array(self.deleted, pa.string())])
        if not len(keys) or keys.null_count or pc.count_distinct(keys).as_py() < len(keys):
            raise ValueError("a log file says at least one thing, and one thing of each key")

    @property
    def rows(self) -> int:
        return 0 if self.upserts is None else len(self.upserts)


def rows_bytes(upserts: Keyed, schema: TableSchema, stamp: LogStamp, compression: str = "zstd") -> bytes:
    """The rows as a Parquet file with Hudi's meta columns, sorted by key. Their file is named by the id of its group."""
    order = np.asarray(pc.sort_indices(upserts.keys))
    rows, keys = take_rows(conform(upserts.rows, schema.arrow), order), upserts.keys.take(pa.array(order))
    values = {COMMIT_TIME: stamp.instant, PARTITION_PATH: stamp.group.partition, FILE_NAME: stamp.group.file_id}
    meta: dict[str, pa.Array] = {name: constant(value, len(order)) for name, value in values.items()}
    meta |= {COMMIT_SEQNO: numbered(f"{stamp.instant}_{stamp.token.split('-')[0]}_", 0, len(order)), RECORD_KEY: keys}
    columns = {**meta, **{name: rows.column(name) for name in schema.names}}
    types = [f.with_type(CONSTANT) if f.name in _REPEATING else f for f in schema.file_schema]
    output = io.BytesIO()
    with pq.ParquetWriter(
        output,
        pa.schema(types),
        store_schema=False,
        compression=compression,
        use_dictionary=list(_REPEATING),
        # A log file is read as a whole: statistics would be a quarter of a small one.
        write_statistics=False,
    ) as writer:
        writer.write_table(pa.table([columns[f.name] for f in types], schema=pa.schema(types)))
    return output.getvalue()


def log_bytes(changes: LogChanges, schema: TableSchema, table: str, stamp: LogStamp, compression: str = "zstd") -> bytes:
    """The log file: a block of rows, then one of deletes, as far as there are any. `table` is the table's name."""
    header: dict[int, str] = {BlockHeader.INSTANT: stamp.instant, BlockHeader.SCHEMA: schema.footer_json(table)}
    data = b""
    if changes.upserts is not None and len(changes.upserts):
        data += block_bytes(BlockKind.PARQUET, header, rows_bytes(changes.upserts, schema, stamp, compression))
    if changes.deleted:
        data += block_bytes(BlockKind.DELETE, header, deletes_bytes(changes.deleted, stamp.group.partition))
    return data


def log_stat(changes: LogChanges, stamp: LogStamp, size_bytes: int) -> WriteStat:
    """What the commit says of the file, as Java 1.2 says it: the previous commit of a log file is its own."""
    log = stamp.file
    return WriteStat(
        log.file_id,
        log.key,
        stamp.instant,
        num_writes=changes.rows,
        num_update_writes=changes.rows,
        num_deletes=len(changes.deleted),
        total_write_bytes=size_bytes,
        file_size_bytes=size_bytes,
        partition_path=log.partition,
        log_version=log.version,
        log_offset=0,
        base_file="",
        log_files=(log.name,),
        runtime=RuntimeStats(),
    )


@dataclass(frozen=True)
class Found:
    """What changes; `changes` is None if nothing does."""

    changes: LogChanges | None


class DoesNotFit(Exception):
    """The change is not one for a log file."""


class Collector:
    """Takes the place of the writer of a base file, and keeps the rows that have its instant.

    `most_rows`: with more changes, or with a new key, which belongs into a base file, `DoesNotFit` ends the rewrite.
    """

    def __init__(self, schema: TableSchema, stamp: Stamp, settings: WriteSettings, most_rows: int) -> None:
        self.stamp, self.rows, self.batch_rows = stamp, 0, settings.batch_rows
        self._schema, self._left = schema, most_rows
        self._keys: list[pa.Array] = []
        self._changed: list[pa.Table] = []
        self._deleted: list[pa.Array] = []

    def add_stored(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self._keys += rows.column(RECORD_KEY).chunks
        changed = rows.filter(pc.equal(rows.column(COMMIT_TIME).cast(pa.string()), self.stamp.instant))
        self._count(changed.num_rows)
        self._changed.append(changed)

    def add_new(self, rows: pa.Table, keys: pa.ChunkedArray) -> None:
        raise DoesNotFit

    def noting(self, delete_mask: Any) -> Any:
        """The same mask, whose rows are noted; it may be one that goes through a file once."""
        mine = copy.copy(delete_mask)

        def noted(batch: pa.Table) -> Any:
            mask = pc.fill_null(mine(batch), False)
            gone = batch.column(RECORD_KEY).filter(mask)
            self._count(len(gone))
            self._deleted += gone.chunks
            return mask

        return noted

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise DoesNotFit

    def found(self, base: Iterable[pa.Table] = ()) -> Found:
        """What changes. `DoesNotFit` for a key that stands twice: readers would apply a log file to one of its rows.

        `base`: where log files lie on the base file, the keys of that. Such a log file may have deleted one row of a key that
        stands there twice, and the next one would bring it back.
        """
        deleted = pa.chunked_array(self._deleted, pa.string())
        rows = pa.concat_tables(self._changed) if self._changed else None
        changed = pa.chunked_array([] if rows is None else rows.column(RECORD_KEY).chunks, pa.string())
        named = pa.chunked_array([*changed.chunks, *deleted.chunks], pa.string())
        if not len(named):
            return Found(None)
        stored = pa.chunked_array([*self._keys, *deleted.chunks], pa.string())
        if pc.sum(pc.is_in(stored, value_set=named.combine_chunks())).as_py() != pc.count_distinct(named).as_py():
            raise DoesNotFit
        below = [rows.column(RECORD_KEY).filter(pc.is_in(rows.column(RECORD_KEY), named.combine_chunks())) for rows in base]
        keys = pa.chunked_array([chunk for column in below for chunk in column.chunks], pa.string())
        if len(keys) > pc.count_distinct(keys).as_py():
            raise DoesNotFit
        upserts = None
        if rows is not None and rows.num_rows:
            upserts = Keyed(rows.select(self._schema.names), changed)
        return Found(LogChanges(upserts, deleted.to_pylist()))
