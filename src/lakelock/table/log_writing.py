"""Log files as lakelock writes them: what one commit changes in one file group, as bytes, and as the commit's metadata has it.

Rows become a Parquet file and deletes a list of keys. Both are in the order of their positions in the base file, which blocks
name, or in the order of their keys where a row has no position. `log_bytes` puts both into the log blocks of table versions 8
and 9; the rest does not know of blocks. A Parquet block takes a third of the bytes of an Avro block, Java's default,
and a small part of its CPU; every reader of Hudi reads both.

Readers merge log files in the order of their instants. They use the instant in a file's name, in its blocks and in its rows,
each for something else, so all three come from one `LogStamp`. One file has at most one change of a key.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.settings import WriteSettings
from lakelock.table.base_files import CONSTANT, Stamp, constant, encodings
from lakelock.table.commit_metadata import RuntimeStats, WriteStat
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import BlockHeader, BlockKind, LogFile, block_bytes, deletes_bytes, positions_text
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


class BasePositions(NamedTuple):
    """Where the base file of an instant has the rows that are upserted and those that are deleted: a place for each of them."""

    base_instant: str
    upserts: npt.NDArray[np.int64]
    deleted: npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogChanges:
    """What a commit changes in one file group: whole rows by their keys, and the keys of deleted rows. No key comes twice.

    `positions`: where the base file has these rows; None unless it is known for all of them.
    """

    upserts: Keyed | None = None
    deleted: Sequence[str] = field(default=())
    positions: BasePositions | None = None

    def __post_init__(self) -> None:
        upserted = [] if self.upserts is None else self.upserts.keys.chunks
        keys = pa.chunked_array([*upserted, pa.array(self.deleted, pa.string())])
        if not len(keys) or keys.null_count or pc.count_distinct(keys).as_py() < len(keys):
            raise ValueError("a log file needs at least one change, and one for each key")
        if self.positions is not None and [len(at) for at in self.positions[1:]] != [self.rows, len(self.deleted)]:
            raise ValueError("a log file needs one position for each row, or none at all")

    @property
    def rows(self) -> int:
        return 0 if self.upserts is None else len(self.upserts)


def rows_bytes(
    upserts: Keyed, schema: TableSchema, stamp: LogStamp, compression: str = "zstd", positions: npt.NDArray[Any] | None = None
) -> bytes:
    """The rows as a Parquet file with Hudi's meta columns, in the order of their positions in the base file, or else of their
    keys. Their file is named by the id of its group.
    """
    order = np.asarray(pc.sort_indices(upserts.keys) if positions is None else np.argsort(positions))
    rows, keys = take_rows(conform(upserts.rows, schema.arrow), order), upserts.keys.take(pa.array(order))
    values = {COMMIT_TIME: stamp.instant, PARTITION_PATH: stamp.group.partition, FILE_NAME: stamp.group.file_id}
    meta: dict[str, pa.Array] = {name: constant(value, len(order)) for name, value in values.items()}
    meta |= {COMMIT_SEQNO: numbered(f"{stamp.instant}_{stamp.token.split('-')[0]}_", 0, len(order)), RECORD_KEY: keys}
    columns = {**meta, **{name: rows.column(name) for name in schema.names}}
    types = [f.with_type(CONSTANT) if f.name in _REPEATING else f for f in schema.file_schema]
    output, table = io.BytesIO(), pa.table([columns[f.name] for f in types], schema=pa.schema(types))
    how = encodings(table, table.schema, schema.names, compression)
    # A log file is read as a whole: statistics would be a quarter of a small one.
    with pq.ParquetWriter(output, table.schema, store_schema=False, write_statistics=False, **how) as writer:
        writer.write_table(table)
    return output.getvalue()


def log_bytes(changes: LogChanges, schema: TableSchema, table: str, stamp: LogStamp, compression: str = "zstd") -> bytes:
    """The log file: a block of rows, then one of deletes, as far as there are any. `table` is the table's name."""
    header: dict[int, str] = {BlockHeader.INSTANT: stamp.instant, BlockHeader.SCHEMA: schema.footer_json(table)}
    at, data = changes.positions, b""
    if changes.upserts is not None and len(changes.upserts):
        mine = {} if at is None else _located(at.base_instant, at.upserts)
        rows = rows_bytes(changes.upserts, schema, stamp, compression, None if at is None else at.upserts)
        data += block_bytes(BlockKind.PARQUET, header | mine, rows)
    if changes.deleted:
        mine = {} if at is None else _located(at.base_instant, at.deleted)
        by: Sequence[Any] = changes.deleted if at is None else at.deleted.tolist()
        keys = [changes.deleted[number] for number in sorted(range(len(by)), key=by.__getitem__)]
        data += block_bytes(BlockKind.DELETE, header | mine, deletes_bytes(keys, stamp.group.partition))
    return data


def _located(base_instant: str, positions: npt.NDArray[Any]) -> dict[int, str]:
    """The entries of a block's header that say where its rows are. Readers take them in the order of their positions."""
    return {BlockHeader.RECORD_POSITIONS: positions_text(np.sort(positions)), BlockHeader.BASE_INSTANT: base_instant}


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
    """What a rewrite would change; `changes` is None if it is nothing."""

    changes: LogChanges | None


class DoesNotFit(Exception):
    """The change is not one for a log file."""


class Collector:
    """Stands in for the writer of a base file, and collects the changes: rows with the new instant, and keys of deleted rows.

    `DoesNotFit` ends the rewrite at more than `most_rows` changes, or at a new key, which belongs in a base file.
    """

    def __init__(self, schema: TableSchema, stamp: Stamp, settings: WriteSettings, most_rows: int) -> None:
        self.stamp, self.rows, self.batch_rows = stamp, 0, settings.batch_rows
        self._schema, self._left = schema, most_rows
        self._keys: list[pa.Array] = []
        self._changed: list[pa.Table] = []
        self._deleted: list[pa.Array] = []
        self._read_rows = 0
        self._kept: npt.NDArray[np.bool_] | None = None
        self._changed_at: list[npt.NDArray[np.int64]] = [np.array([], np.int64)]
        self._deleted_at: list[npt.NDArray[np.int64]] = [np.array([], np.int64)]

    def add_stored(self, rows: pa.Table) -> None:
        """Add those of the next rows that are kept; the mask from `noting` has already recorded the others as deleted."""
        self.rows += rows.num_rows
        self._keys += rows.column(RECORD_KEY).chunks
        is_new = pc.equal(rows.column(COMMIT_TIME).cast(pa.string()), self.stamp.instant)
        changed = rows.filter(is_new)
        self._count(changed.num_rows)
        self._changed.append(changed)
        kept = np.ones(rows.num_rows, np.bool_) if self._kept is None else self._kept
        self._changed_at.append(self._read_rows + np.flatnonzero(kept)[np.asarray(is_new)])
        self._read_rows, self._kept = self._read_rows + len(kept), None

    def add_new(self, rows: pa.Table, keys: pa.ChunkedArray) -> None:
        raise DoesNotFit

    def noting(self, delete_mask: Any) -> Any:
        """A copy of the mask that also records the rows it selects; a mask may keep its place in a file, hence the copy."""
        mine = copy.copy(delete_mask)

        def noted(batch: pa.Table) -> Any:
            mask = pc.fill_null(mine(batch), False)
            gone = batch.column(RECORD_KEY).filter(mask)
            self._count(len(gone))
            self._deleted += gone.chunks
            self._kept = ~np.asarray(mask, np.bool_)
            self._deleted_at.append(self._read_rows + np.flatnonzero(~self._kept))
            return mask

        return noted

    def _count(self, more: int) -> None:
        self._left -= more
        if self._left < 0:
            raise DoesNotFit

    def found(self, base_instant: str = "", base: Iterable[pa.Table] | None = None) -> Found:
        """What the rewrite changes. `DoesNotFit` for a key that is stored twice: readers apply a log file to one of its rows.

        `base_instant`: that of the base file, if there is one. `base`: its keys, if log files lie on it. One of these may have
        deleted one of two rows with the same key, and the next one would bring it back.
        """
        deleted = pa.chunked_array(self._deleted, pa.string())
        rows = pa.concat_tables(self._changed) if self._changed else None
        changed = pa.chunked_array([] if rows is None else rows.column(RECORD_KEY).chunks, pa.string())
        named = pa.chunked_array([*changed.chunks, *deleted.chunks], pa.string()).combine_chunks()
        if not len(named):
            return Found(None)
        stored = pa.chunked_array([*self._keys, *deleted.chunks], pa.string())
        if pc.sum(pc.is_in(stored, value_set=named)).as_py() != pc.count_distinct(named).as_py():
            raise DoesNotFit
        at: npt.NDArray[np.int64] | None = np.concatenate([*self._changed_at, *self._deleted_at])
        if base is not None:
            at = places_once(named, (rows.column(RECORD_KEY) for rows in base))
            at = at if (at >= 0).all() else None
        positions = None
        if base_instant and at is not None:
            positions = BasePositions(base_instant, at[: len(changed)], at[len(changed) :])
        upserts = None
        if rows is not None and rows.num_rows:
            upserts = Keyed(rows.select(self._schema.names), changed)
        return Found(LogChanges(upserts, deleted.to_pylist(), positions))


def places_once(named: pa.Array, stored: Iterable[pa.ChunkedArray]) -> npt.NDArray[np.int64]:
    """Where the keys of some rows have each of these keys, -1 for one that is not there. `DoesNotFit` if one is there twice."""
    found, start, count = np.full(len(named), -1, np.int64), 0, 0
    for keys in stored:
        numbers = pc.index_in(keys, value_set=named).fill_null(-1).to_numpy()
        at = np.flatnonzero(numbers >= 0)
        found[numbers[at]] = start + at
        start, count = start + len(keys), count + len(at)
    if count > (found >= 0).sum():
        raise DoesNotFit
    return found
