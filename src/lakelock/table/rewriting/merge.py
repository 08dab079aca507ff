"""Rewriting one base file: changed and deleted rows by batches, so that memory holds a batch, the changes and a row group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.base_files.reader import BaseFile
from lakelock.table.base_files.writer import BaseFileWriter, sequence_numbers
from lakelock.table.keys.keyed import Keyed
from lakelock.table.partial import updated
from lakelock.table.schema import RECORD_KEY, TableSchema
from lakelock.table.taking import rows_within, taken

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


def keys_among(keys: pa.Array | pa.ChunkedArray) -> DeleteMask:
    """Delete the rows with these record keys."""
    values = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return lambda batch: pc.is_in(batch.column(RECORD_KEY), value_set=values)


def rewrite(
    base: BaseFile,
    writer: BaseFileWriter,
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
    fields of structs (`lakelock.table.partial`).
    """
    by_place = _PlacedChanges(upserts, writer) if isinstance(upserts, Placed) else None
    changes = _Changes(upserts, writer, ordering_field) if isinstance(upserts, Keyed) and len(upserts) else None
    deleted = 0
    for batch in base.stamped_batches(schema, min(base.batch_rows_within(BATCH_BYTES), _rows_within_batch(upserts))):
        kept, keep = batch, None
        if delete_mask is not None:
            keep = pc.invert(_mask(delete_mask, batch))
            kept = batch.filter(keep)
            deleted += batch.num_rows - kept.num_rows
        if changes is not None:
            kept = changes.applied(kept)
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

    def __init__(self, upserts: Keyed, writer: BaseFileWriter, ordering_field: str | None) -> None:
        self._rows = upserts.rows.combine_chunks()
        self._keys = upserts.keys.combine_chunks()
        self._writer, self._ordering_field = writer, ordering_field
        self._matched = np.zeros(len(upserts), np.bool_)
        self.updated = 0

    def applied(self, batch: pa.Table) -> pa.Table:
        """`batch` (three stamp columns first) with the new version of each row that has one."""
        found = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys).combine_chunks()
        at = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        if not len(at):
            return batch
        source = found.drop_null().to_numpy()
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
        new = taken(self._rows.select([self._ordering_field]), source).column(0).combine_chunks()
        wins = pc.fill_null(pc.greater_equal(new, old), False)
        if pa.types.is_floating(old.type):
            # Java orders NaN above every number.
            wins = pc.or_(wins, pc.fill_null(pc.is_nan(new), False))
        return pc.or_(wins, old.is_null()).to_numpy(zero_copy_only=False)


class _PlacedChanges:
    """The new values of one file, and how far its rows were read."""

    def __init__(self, placed: Placed, writer: BaseFileWriter) -> None:
        self._rows, self._positions = placed.rows.combine_chunks(), placed.positions
        self._writer, self._at = writer, 0
        self.updated = 0

    def applied(self, kept: pa.Table, count: int, keep: Any) -> pa.Table:
        """The rows that are `kept` of the next `count`, with their new values; `keep` says which these are, None: all."""
        start, self._at = self._at, self._at + count
        first, last = np.searchsorted(self._positions, [start, self._at])
        if first == last:
            return kept
        at = self._positions[first:last] - start
        if keep is not None:
            at = (np.cumsum(np.asarray(keep)) - 1)[at]
        self.updated += len(at)
        return _replaced(kept, at, self._rows, np.arange(first, last), self._writer)


def _replaced(batch: pa.Table, at: Any, rows: pa.Table, source: Any, writer: BaseFileWriter) -> pa.Table:
    """`batch` (three stamp columns first) with the values of `rows` at `source` in its rows `at`."""
    mask = np.zeros(batch.num_rows, np.bool_)
    mask[at] = True
    order = np.arange(batch.num_rows)
    order[mask] = batch.num_rows + np.arange(len(at))
    selected, places = pa.array(mask), pa.array(order)
    wanted = taken(rows, source)
    stamp = writer.stamp
    times, seqnos, keys, *columns = (column.combine_chunks() for column in batch.columns)
    numbers = pc.if_else(selected, sequence_numbers(stamp, writer.rows, batch.num_rows), seqnos)
    replaced, given = [], {name: number for number, name in enumerate(rows.column_names)}
    for column, field in zip(columns, list(batch.schema)[-len(columns) :], strict=True):
        if field.name in given:
            values = wanted.column(given[field.name])
            new = values.chunks
            if values.type != column.type:
                new = [updated(column.filter(selected), pa.concat_arrays(new), field)]
            # Taking from old and new rows together is faster than replacing by mask, and knows nested types.
            column = pa.concat_arrays([column, *new]).take(places)
        replaced.append(column)
    return pa.table([_retimed(times, selected, stamp.instant), numbers, keys, *replaced], schema=batch.schema)


def _retimed(times: pa.DictionaryArray, selected: pa.Array, instant: str) -> pa.DictionaryArray:
    values = times.dictionary.to_pylist()
    if instant not in values:
        values.append(instant)
    code = pa.scalar(values.index(instant), times.indices.type)
    return pa.DictionaryArray.from_arrays(pc.if_else(selected, code, times.indices), pa.array(values, pa.string()))


def _mask(delete_mask: DeleteMask, batch: pa.Table) -> Any:
    return pc.fill_null(delete_mask(batch), False)
