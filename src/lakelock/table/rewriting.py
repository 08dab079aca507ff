"""Rewriting base files: new, changed and deleted rows, by batches, and the kernels that do all this to rows.

Kernels know nothing of transactions, and transactions touch rows only through kernels. So markers, claims, reads and commits
are the same whatever rows are made of, and the simulator can run them on rows that cost next to nothing to encode.

A rewrite goes by batches, so that memory holds a batch, the changes and a row group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.settings import MissingColumns, WriteSettings
from lakelock.storage import Storage
from lakelock.storage.location import TableIO
from lakelock.table.base_files import BaseFile, BaseFileWriter, Stamp, sequence_numbers
from lakelock.table.index import BucketIndex
from lakelock.table.key_search import Holding, by_bucket, possible_files, tag
from lakelock.table.log_files import LogFile
from lakelock.table.log_writing import (
    BasePositions,
    Collector,
    DoesNotFit,
    Found,
    LogChanges,
    LogStamp,
    log_bytes,
    places_once,
)
from lakelock.table.merged_slices import Change, LoggedSlice, MergedRows, changes_in, open_slice
from lakelock.table.partitions import PartitionValues, partition_paths
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import StatisticsOf, files_of_expression
from lakelock.table.record_keys import Keyed, dedupe
from lakelock.table.restamp import restamp
from lakelock.table.rows import conform, lacking, rows_within, spelled, take_rows, updated
from lakelock.table.schema import RECORD_KEY, TableSchema, check_write, columns_of_keys, columns_of_upserts, require_columns
from lakelock.table.snapshot import DataFile
from lakelock.table.spark_conditions import as_in_spark

DeleteMask = Callable[[pa.Table], Any]
"""Which rows of a batch to delete: a mask for a table with the table's columns and the record key; null means keep."""


@dataclass(frozen=True)
class Counts:
    """What a rewrite did; `written` are all rows of the new file."""

    written: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def changes(self) -> int:
        """Rows that are not what they were."""
        return self.inserted + self.updated + self.deleted


@dataclass(frozen=True)
class Placed:
    """New values of some columns for rows of a base file, row by row, and the positions of these rows: ascending, distinct."""

    rows: pa.Table
    positions: npt.NDArray[Any]


@dataclass(frozen=True)
class Located(Keyed):
    """Rows with keys, and where a file stores these keys: `at`, ascending and distinct, and `nth`, the row here for each place.

    No other row of the file has one of the keys.
    """

    at: npt.NDArray[np.int64]
    nth: npt.NDArray[np.int64]


class keys_among:  # noqa: N801 - a function that tells its keys
    """Delete the rows with these record keys."""

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        self.keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys

    def __call__(self, batch: pa.Table) -> Any:
        return pc.is_in(batch.column(RECORD_KEY), value_set=self.keys)


def rewrite(
    base: BaseFile,
    writer: BaseFileWriter | Collector,
    schema: TableSchema,
    *,
    upserts: Keyed | Placed | None = None,
    delete_mask: DeleteMask | None = None,
    added: Keyed | None = None,
    ordering_field: str | None = None,
) -> Counts:
    """Write the rows of `base` that `delete_mask` does not select, with `upserts` (one per key) in place of those they match.

    The `added` rows come last, whatever their keys. `Placed` upserts name the rows that they replace by position: these are
    replaced whatever their keys and ordering values, and must not be selected by `delete_mask`.

    An upsert replaces every stored row of its key unless `ordering_field` says that the stored one is newer (null is the
    oldest, equal means replace); one that matches nothing is appended. Rows that stay keep their commit time and number.
    Columns that the `upserts` lack keep the values of the row that is replaced, and are null in one that is appended; so do
    fields of structs (`lakelock.table.rows`).
    """
    by_place = _PlacedChanges(upserts, writer) if isinstance(upserts, Placed) else None
    changes = _Changes(upserts, writer, ordering_field) if isinstance(upserts, Keyed) and len(upserts) else None
    deleted = 0
    for batch in base.stamped_batches(schema, min(base.batch_rows_within(BATCH_BYTES), _rows_within_batch(upserts))):
        kept, keep = batch, None
        if delete_mask is not None:
            keep = pc.invert(_positions_mask(delete_mask, batch))
            kept = batch.filter(keep)
            deleted += batch.num_rows - kept.num_rows
        if changes is not None:
            kept = changes.applied(kept, batch.num_rows, keep)
        elif by_place is not None:
            kept = by_place.applied(kept, batch.num_rows, keep)
        writer.add_stored(kept)
    inserted = changes.append_rest() if changes is not None else 0
    for part in added.slices(writer.batch_rows) if added is not None else ():
        writer.add_new(part.rows, part.keys)
        inserted += len(part)
    updated_rows = next((each.updated for each in (changes, by_place) if each is not None), 0)
    return Counts(writer.rows, inserted, updated_rows, deleted)


BATCH_BYTES = 64 << 20
"""What a batch of stored rows takes in memory, about, and at most what their new values take."""


def _rows_within_batch(upserts: Keyed | Placed | None) -> int:
    """How many stored rows a batch may have, so that their new values, which may be far wider, take no more than a batch."""
    rows = None if upserts is None else upserts.rows
    return 1 << 30 if rows is None or not rows.nbytes else max(64, rows_within(rows, BATCH_BYTES))


class _Changes:
    """The upserts of one file that are still to be written."""

    def __init__(self, upserts: Keyed, writer: BaseFileWriter | Collector, ordering_field: str | None) -> None:
        self._rows = upserts.rows.combine_chunks()
        self._keys = upserts.keys.combine_chunks()
        self._writer, self._ordering_field = writer, ordering_field
        self._places = _Places(upserts.at) if isinstance(upserts, Located) else None
        self._nth = upserts.nth if isinstance(upserts, Located) else None
        self._matched = np.zeros(len(upserts), np.bool_)
        self.updated = 0

    def applied(self, batch: pa.Table, count: int, keep: Any) -> pa.Table:
        """`batch` (three stamp columns first) with the new version of each row that has one.

        It has the rows that are kept of the file's next `count`; `keep` says which these are, None for all.
        """
        if self._places is not None and self._nth is not None:
            at, taken = self._places.among_next(count, keep)
            source = self._nth[taken]
        else:
            found = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys).combine_chunks()
            at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
            source = found.drop_null().to_numpy()
        if not len(at):
            return batch
        self._matched[source] = True
        if self._ordering_field is not None:
            newer = self._newer(batch.column(self._ordering_field), at, source)
            at, source = at[newer], source[newer]
        self.updated += len(at)
        return _replaced(batch, at, self._rows, source, self._writer) if len(at) else batch

    def append_rest(self) -> int:
        """Add the upserts that matched no row, and return how many."""
        rest = np.flatnonzero(~self._matched)
        everything = Keyed(self._rows, pa.chunked_array([self._keys], type=pa.string()))
        inserts = everything if len(rest) == len(everything) else everything.pick(rest)
        for part in inserts.slices(self._writer.batch_rows):
            self._writer.add_new(part.rows, part.keys)
        return len(rest)

    def _newer(self, stored: pa.ChunkedArray, at: Any, source: Any) -> Any:
        """Which incoming rows are at least as new as the stored ones."""
        old = stored.take(pa.array(at)).combine_chunks()
        new = take_rows(self._rows.select([self._ordering_field]), source).column(0).combine_chunks()
        wins = pc.fill_null(pc.greater_equal(new, old), False)
        if pa.types.is_floating(old.type):
            # Java orders NaN above every number.
            wins = pc.or_(wins, pc.fill_null(pc.is_nan(new), False))
        return pc.or_(wins, old.is_null()).to_numpy(zero_copy_only=False)


class _Places:
    """Ascending places of rows in a file, and how far its rows were read."""

    def __init__(self, places: npt.NDArray[np.int64]) -> None:
        self._places, self._read = places, 0

    def among_next(self, count: int, keep: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which rows are at these places, counting only those that are kept of the next `count`; and the numbers of the places.

        `keep` says which rows are kept, None for all.
        """
        start, self._read = self._read, self._read + count
        first, last = np.searchsorted(self._places, [start, self._read])
        at, taken = self._places[first:last] - start, np.arange(first, last)
        if keep is None or first == last:
            return at, taken
        flags = np.asarray(keep)
        there = flags[at]
        return (np.cumsum(flags) - 1)[at[there]], taken[there]


class _PlacedChanges:
    """The new values of one file."""

    def __init__(self, placed: Placed, writer: BaseFileWriter | Collector) -> None:
        self._rows, self._places = placed.rows.combine_chunks(), _Places(placed.positions)
        self._writer = writer
        self.updated = 0

    def applied(self, kept: pa.Table, count: int, keep: Any) -> pa.Table:
        """The rows that are `kept` of the next `count`, with their new values; `keep` says which these are, None: all."""
        at, source = self._places.among_next(count, keep)
        self.updated += len(at)
        return _replaced(kept, at, self._rows, source, self._writer) if len(at) else kept


def _replaced(batch: pa.Table, at: Any, rows: pa.Table, source: Any, writer: BaseFileWriter | Collector) -> pa.Table:
    """`batch` (three stamp columns first) with the values of `rows` at `source` in its rows `at`."""
    mask = np.zeros(batch.num_rows, np.bool_)
    mask[at] = True
    order = np.arange(batch.num_rows)
    order[at] = batch.num_rows + np.arange(len(at))
    selected, places = pa.array(mask), pa.array(order)
    wanted = take_rows(rows, source)
    times, seqnos, keys, *columns = (column.combine_chunks() for column in batch.columns)
    numbers = pc.if_else(selected, sequence_numbers(writer.stamp, writer.rows, batch.num_rows), seqnos)
    replaced, given = [], {name: number for number, name in enumerate(rows.column_names)}
    for column, field in zip(columns, list(batch.schema)[-len(columns) :], strict=True):
        if field.name in given:
            values = wanted.column(given[field.name])
            new = pa.concat_arrays(values.chunks) if values.num_chunks != 1 else values.chunk(0)
            if values.type != column.type:
                new = updated(column.filter(selected), new, field)
            column = _with_values(column, new, at, places)
        replaced.append(column)
    return pa.table([_retimed(times, selected, writer.stamp.instant), numbers, keys, *replaced], schema=batch.schema)


_WORDS: dict[int, Any] = {32: np.uint32, 64: np.uint64}


def _with_values(column: pa.Array, new: pa.Array, at: Any, places: pa.Array) -> pa.Array:
    """The column with new values in its rows `at`: what is at these `places` in it and the new values after it."""
    plain = pa.types.is_primitive(column.type) and not column.null_count and not new.null_count
    word = _WORDS.get(column.type.bit_width) if plain else None
    if word is None:
        # Taking from old and new rows together is faster than replacing by mask, and knows nested types.
        return pa.concat_arrays([column, new]).take(places)
    changed = _words(column, word).copy()
    changed[at] = _words(new, word)
    return pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(changed)])


def _words(column: pa.Array, word: Any) -> npt.NDArray[Any]:
    return np.frombuffer(column.buffers()[1], word)[column.offset : column.offset + len(column)]


def _retimed(times: pa.DictionaryArray, selected: pa.Array, instant: str) -> pa.DictionaryArray:
    values = times.dictionary.to_pylist()
    if instant not in values:
        values.append(instant)
    code = pa.scalar(values.index(instant), times.indices.type)
    return pa.DictionaryArray.from_arrays(pc.if_else(selected, code, times.indices), pa.array(values, pa.string()))


def _keys_that_change(
    schema: TableSchema, upserts: Keyed | Placed | None, delete_mask: DeleteMask | None, ordering_field: str | None
) -> pa.Array | None:  # fmt: skip
    """The keys of the rows that change, if the keys alone tell what becomes of the stored rows; else None."""
    if upserts is None and isinstance(delete_mask, keys_among):
        return delete_mask.keys.unique()
    if delete_mask is not None or not isinstance(upserts, Keyed) or ordering_field is not None:
        return None
    return None if any(lacking(schema.arrow, upserts.rows.schema)) else upserts.keys.combine_chunks()


def _rows_in_share(share: float, rows: int) -> int:
    """This share of the rows, which may be infinite."""
    return sys.maxsize if share == inf else int(share * rows)


def _changes_by_keys(source: DataFile, storage: Storage, share: float, named: pa.Array, upserts: Keyed | None) -> Found:
    """What an upsert of whole rows, or else a delete, of these keys changes in a file slice, of which only keys are read.

    `DoesNotFit` as `Collector` raises it.
    """
    with BaseFile(storage.open_input(source.key, size_bytes=source.size_bytes), source.key) as base:
        most_rows = _rows_in_share(share, base.rows)
        if isinstance(upserts, Located) and not source.logs:
            at = np.full(len(named), -1, np.int64)
            at[upserts.nth] = upserts.at
            if len(upserts.nth) > (at >= 0).sum():
                raise DoesNotFit
        else:
            at = places_once(named, base.key_batches())
    there = at >= 0
    if source.logs:
        rows = MergedRows(pa.schema([(RECORD_KEY, pa.string())]), None).read(LoggedSlice.of(source), storage)
        there = places_once(named, (each.column(RECORD_KEY) for each in rows)) >= 0
    chosen = np.flatnonzero(there)
    if len(chosen) > most_rows or (upserts is not None and not there.all()):
        raise DoesNotFit
    if not len(chosen):
        return Found(None)
    nothing, at = np.array([], np.int64), at[chosen]
    places = (nothing, at) if upserts is None else (at, nothing)
    positions = BasePositions(source.instant, *places) if (at >= 0).all() else None
    return Found(LogChanges(upserts, named.take(pa.array(chosen)).to_pylist() if upserts is None else (), positions))


def _positions_mask(delete_mask: DeleteMask, batch: pa.Table) -> Any:
    return pc.fill_null(delete_mask(batch), False)


Rows = Any
"""Rows in memory: to Arrow a `pyarrow.Table`."""

StoredRows = Any
"""Rows as a base file holds them, with the meta columns that they keep when they are moved: to Arrow a `pyarrow.Table`."""

KeyedRows = Any
"""Rows with their record keys: to Arrow a `Keyed`."""

Condition = Any
"""Says which rows are meant; its text is for people. To Arrow a `pyarrow.compute.Expression`."""

_ROW = "number of the row"
"""With spaces, as no column of a table has."""


def selected(rows: pa.Table, condition: pc.Expression) -> pa.Table:
    """The rows that satisfy a condition of Arrow, in which floating-point numbers compare as in Spark."""
    return rows.filter(as_in_spark(condition, rows.schema))


def _mask(rows: pa.Table, condition: pc.Expression) -> pa.ChunkedArray:
    numbered = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, np.bool_)
    found[np.asarray(selected(numbered, condition).column(_ROW))] = True
    return pa.chunked_array([pa.array(found)])


def _located(keyed: Keyed, held: Holding) -> Keyed:
    """The rows that a file holds; of a slice with log files the order of rows depends on the columns that are read."""
    found = keyed.pick(held.positions)
    return found if held.file.logs else Located(found.rows, found.keys, held.at, held.nth)


class Kernels:
    """All that touches rows: they are Arrow tables, and base files are Parquet; the simulator has kernels of its own.

    Each file in question is opened once, in the order in which the files are given.
    """

    def fitted(self, rows: pa.Table, schema: TableSchema, *, merge: bool) -> tuple[TableSchema, pa.Table]:
        """The schema that a write of these rows gives the table, and the rows in it; `SchemaError` if they do not fit."""
        wanted = check_write(schema, rows.schema, merge)
        return wanted, conform(rows, wanted.arrow)

    def fitted_upserts(
        self, rows: pa.Table, schema: TableSchema, properties: TableProperties, *, merge: bool, missing: MissingColumns
    ) -> tuple[TableSchema, pa.Table]:
        """As `fitted`, for rows of which some replace stored ones; with "keep", columns that the rows lack are not added."""
        require_columns(rows.column_names, properties.needed_columns)
        wanted = check_write(schema, rows.schema, merge, missing)
        return wanted, conform(rows, columns_of_upserts(wanted, rows.schema, missing).arrow)

    def fitted_keys(self, rows: pa.Table, schema: TableSchema, properties: TableProperties) -> pa.Table:
        """The key and partition columns in the table's types; `SchemaError` if one is missing, or does not fit."""
        needed = [(name, role) for name, role in properties.needed_columns if role in ("key", "partition")]
        require_columns(rows.column_names, needed)
        names = dict.fromkeys(name for name, _ in needed)
        chosen = rows.select([spelled(name, rows.column_names) for name in names]).rename_columns([*names])
        return self.fitted(chosen, columns_of_keys(schema, properties), merge=False)[1]

    def keyed(self, rows: pa.Table, properties: TableProperties) -> Keyed:
        return Keyed.of(rows, properties)

    def batches(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows in pieces that take no more memory than a batch may."""
        most = rows_within(rows, BATCH_BYTES)
        return (rows.slice(start, most) for start in range(0, rows.num_rows, most))

    def packed(self, rows: pa.Table) -> bytes:
        """Fitted rows as bytes, for another process of the same or a later release."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(rows)
        return bytes(sink.getvalue())

    def unpacked(self, packed: Sequence[bytes], schema: TableSchema) -> list[pa.Table]:
        """The rows that were packed, in the columns of the schema; `ValueError` for anything else."""
        try:
            found = [pa.ipc.open_stream(each).read_all() for each in packed]
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"its rows cannot be read: {error}") from error
        if any(rows.schema != schema.arrow for rows in found):
            raise ValueError("its rows have other columns than the table")
        return found

    def together(self, rows: Sequence[pa.Table]) -> pa.Table:
        """All of these fitted rows, in order."""
        return pa.concat_tables(rows)

    def by_partition(self, rows: pa.Table, properties: TableProperties) -> Mapping[str, Keyed]:
        """The rows by partition path."""
        if not rows.num_rows:
            return {}
        paths = partition_paths(rows, properties)
        keyed, indices, names = Keyed.of(rows, properties), np.asarray(paths.indices), paths.dictionary.to_pylist()
        if len(names) == 1:
            return {names[0]: keyed}
        return {names[n]: keyed.pick(np.flatnonzero(indices == n)) for n in sorted(set(indices.tolist()))}

    def by_bucket(self, keyed: Keyed, index: BucketIndex, properties: TableProperties) -> dict[int, Keyed]:
        """The rows of one partition by bucket."""
        return by_bucket(keyed, index, properties.record_keys)

    def dedupe(self, keyed: Keyed, ordering_field: str | None, *, take_any: bool) -> Keyed:
        """One row per key; see `lakelock.table.record_keys.dedupe`."""
        return dedupe(keyed, ordering_field, take_any=take_any)

    def may_hold(self, keyed: Keyed, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        """The files of the rows' partition that may hold one of the keys, by what is recorded of them."""
        keys = dict.fromkeys((file.partition for file in files), keyed.keys.combine_chunks())
        return [files[number] for number in possible_files(files, keys, statistics)]

    def tag(self, keyed: Keyed, files: Sequence[DataFile], storage: Storage) -> tuple[list[tuple[DataFile, Keyed]], Keyed]:
        """For each file that holds some of the keys the rows with these keys, and the rows whose keys no file holds."""
        tags = tag(keyed.keys, files, TableIO(storage))
        return [(held.file, _located(keyed, held)) for held in tags.holdings], keyed.pick(tags.missing)

    def without(self, keyed: Keyed, others: Sequence[Keyed]) -> Keyed:
        """The rows whose keys none of the others has, in their order."""
        return keyed.without(others)

    def first_held(self, keyed: Keyed, file: DataFile, storage: Storage) -> str | None:
        """The first of these keys that a file holds; None if it holds none."""
        for holding in tag(keyed.keys, [file], TableIO(storage)).holdings:
            return str(keyed.keys[int(holding.positions[0])].as_py())
        return None

    def first_changed(self, keyed: Keyed, change: Change, storage: Storage) -> str | None:
        """The first of these keys of which a commit has changed a row; None if it has changed others only."""
        found = keyed.keys.filter(pc.is_in(keyed.keys, value_set=change.keys(storage)))
        return str(found[0].as_py()) if len(found) else None

    def changed_example(
        self, change: Change, schema: TableSchema, condition: pc.Expression | None, storage: Storage
    ) -> str | None:  # fmt: skip
        """The first row that a commit has changed and that satisfies the condition, before or after, as text; None: none."""
        for rows in change.rows(storage, schema):
            found = rows if condition is None else selected(rows, condition)
            if found.num_rows:
                return str(found.slice(0, 1).to_pylist()[0])
        return None

    def among(self, keyed: Keyed) -> DeleteMask:
        """The rows with these keys, for a rewrite to leave out."""
        return keys_among(keyed.keys)

    def satisfying(self, condition: pc.Expression) -> DeleteMask:
        """The rows that satisfy a condition, for a rewrite to leave out."""
        return lambda rows: _mask(rows, condition)

    def possible(
        self, condition: pc.Expression, files: Sequence[DataFile], schema: TableSchema, values: PartitionValues,
        statistics: StatisticsOf,
    ) -> Sequence[DataFile]:  # fmt: skip
        """The files that may hold a row which satisfies the condition, by their partitions and what is recorded of them."""
        try:
            condition = as_in_spark(condition, schema.arrow)
        except (pa.ArrowException, KeyError):
            return files  # the evaluation reports what is wrong with the condition
        return files_of_expression(condition, files, schema.arrow, values, statistics)

    def example(self, file: DataFile, schema: TableSchema, condition: pc.Expression | None, storage: Storage) -> str | None:
        """The first row of a file that satisfies the condition, as text for people; None if there is none."""
        with BaseFile(open_slice(file, storage, schema), file.key) as base:
            for batch in base.batches(schema):
                found = batch if condition is None else selected(batch, condition)
                if found.num_rows:
                    return str(found.slice(0, 1).to_pylist()[0])
        return None

    def read(
        self, files: Iterable[DataFile], schema: TableSchema, condition: pc.Expression | None, storage: Storage
    ) -> pa.Table:
        """The rows of these files that satisfy the condition, in the table's columns."""
        found = [schema.arrow.empty_table()]
        for file in files:
            with BaseFile(open_slice(file, storage, schema), file.key) as base:
                found += [batch if condition is None else selected(batch, condition) for batch in base.batches(schema)]
        return pa.concat_tables(found)

    def stored(self, files: Sequence[DataFile], schema: TableSchema, storage: Storage) -> Iterator[pa.Table]:
        """All rows of these files, in batches, in the table's columns; columns that a file lacks are null."""
        for file in files:
            with BaseFile(open_slice(file, storage, schema), file.key) as base:
                yield from base.stamped_batches(schema, base.batch_rows_within(BATCH_BYTES))

    def in_order(self, batches: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table:
        """The rows of all batches at once, sorted by these columns, nulls last."""
        rows = pa.concat_tables(batches)
        return take_rows(rows, np.asarray(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in columns])))

    def new_file(self, output: IO[bytes], schema: TableSchema, stamp: Stamp, settings: WriteSettings) -> BaseFileWriter:
        return BaseFileWriter(output, schema, stamp, settings)

    def rewrite(
        self, source: DataFile, storage: Storage, file: BaseFileWriter, schema: TableSchema, *,
        upserts: Keyed | Placed | None, delete_mask: DeleteMask | None, added: Keyed | None, ordering_field: str | None,
    ) -> Counts:  # fmt: skip
        """Fill a `new_file` with the rows of the file slice `source`, changed; see `lakelock.table.rewriting.rewrite`."""
        with BaseFile(open_slice(source, storage, schema), source.key) as stored:
            file.continues(stored)
            return rewrite(
                stored, file, schema, upserts=upserts, delete_mask=delete_mask, added=added, ordering_field=ordering_field
            )

    def changed_in(
        self, source: DataFile, storage: Storage, schema: TableSchema, stamp: Stamp, settings: WriteSettings, share: float, *,
        upserts: Keyed | Placed | None, delete_mask: DeleteMask | None, ordering_field: str | None,
    ) -> Found | None:  # fmt: skip
        """What a rewrite of a file slice would change; None if that is more than a share of its rows, or not for a log file."""
        named = _keys_that_change(schema, upserts, delete_mask, ordering_field) if source.token else None
        if named is not None:
            try:
                return _changes_by_keys(source, storage, share, named, upserts if isinstance(upserts, Keyed) else None)
            except DoesNotFit:
                return None
        with BaseFile(open_slice(source, storage, schema), source.key) as stored:
            collector = Collector(schema, stamp, settings, _rows_in_share(share, stored.rows))
            mask = None if delete_mask is None else collector.noting(delete_mask)
            try:
                rewrite(stored, collector, schema, upserts=upserts, delete_mask=mask, ordering_field=ordering_field)
                if not (source.logs and source.token):
                    return collector.found(source.instant if source.token else "")
                with BaseFile(storage.open_input(source.key), source.key) as base:
                    return collector.found(source.instant, base.stamps())
            except DoesNotFit:
                return None

    def log(self, changes: LogChanges, schema: TableSchema, table: str, stamp: LogStamp, settings: WriteSettings) -> bytes:
        """A log file with what `changed_in` has found."""
        return log_bytes(changes, schema, table, stamp, settings.compression)

    def logged(self, log: LogFile, schema: TableSchema, storage: Storage) -> LogChanges:
        """What a log file of this writer says, for `log`."""
        return changes_in(log, schema, storage)

    def restamp(self, source: IO[bytes], output: IO[bytes], old: Stamp, new: Stamp) -> None:
        """Copy a base file for another instant; `CannotRestamp` if it has to be written again."""
        restamp(source, output, old, new)


ARROW = Kernels()
