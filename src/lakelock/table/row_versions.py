"""Which version of a row counts, of those in a base file and in the log files on it: by commit time, or by event time.

The rules are those of Hudi 1.2 (`BufferedRecordMergerFactory`). By commit time the later version counts, and log files are
merged column by column (`ByCommitTime`). By event time that one counts which has the greater value in the ordering column, of
equal ones the later; a delete without such a value always counts, and so does everything after it (`ByEventTime`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.rows import take_rows
from lakelock.table.schema import RECORD_KEY

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WrittenRows:
    """Rows of a log file: their keys, none of them null, and all their columns on demand.

    `gone`: which of them are deletes. `written`: the columns that they have, where the others of a row stay; None for all.
    """

    keys: pa.ChunkedArray
    load: Callable[[], pa.Table]
    gone: Flags | None = None
    written: frozenset[str] | None = None


class RowVersions(Protocol):
    """The versions of one file slice's rows. What log files say is added in their order, then the base file is merged.

    `columns` are those of all rows that come and go, the record key among them.
    """

    columns: pa.Schema

    def add_rows(self, rows: WrittenRows) -> None:
        """Add rows with these columns."""
        ...

    def add_deletes(self, deletes: Iterable[tuple[str, Any]]) -> None:
        """Add deleted keys, each with its value by event time, None for none."""
        ...

    def merged(self, stored: pa.Table) -> pa.Table:
        """Of the base file's next batch, the rows that are shown, and perhaps new versions of others."""
        ...

    def rest(self) -> pa.Table:
        """The rows that are shown and that no batch had: at the end."""
        ...


_BASE, _GONE = -2, -1
"""In place of the number of a row: the value is that of the base file, or there is none."""


class _Step(NamedTuple):
    """What one block says: for each of its keys the number of a row, or `_GONE`. `written`: the columns, None for all."""

    places: Places
    written: frozenset[str] | None


class ByCommitTime:
    """The later version counts. Everything is done for whole columns, and the order of rows is not kept.

    Of a block whose rows have all been written again, only the keys are read.
    """

    def __init__(self, columns: pa.Schema) -> None:
        self.columns = columns
        self._parts: list[WrittenRows] = []
        self._keys: list[pa.Array] = []
        self._steps: list[_Step] = []
        self._count = 0

    def add_rows(self, rows: WrittenRows) -> None:
        places = np.arange(self._count, self._count + len(rows.keys))
        if rows.gone is not None:
            places[rows.gone] = _GONE
        self._keys += rows.keys.chunks
        self._steps.append(_Step(places, rows.written))
        self._parts.append(rows)
        self._count += len(rows.keys)

    def add_deletes(self, deletes: Iterable[tuple[str, Any]]) -> None:
        keys = pa.array([key for key, _ in deletes], pa.string())
        self._keys.append(keys)
        self._steps.append(_Step(np.full(len(keys), _GONE), None))

    def merged(self, stored: pa.Table) -> pa.Table:
        """Without the rows that were written again, which `rest` has, unless values of theirs are in the base file."""
        if not len(self.keys):
            return stored
        numbers = pc.index_in(stored.column(RECORD_KEY), value_set=self.keys).fill_null(-1).to_numpy()
        named = np.flatnonzero(numbers >= 0)
        # A base file may hold a key twice: the change is to its first row, as in Java.
        first = np.empty(len(self.keys), np.int64)
        first[numbers[named[::-1]]] = named[::-1]
        changed = named[(first[numbers[named]] == named) & ~self._met[numbers[named]]]
        if not len(changed):
            return stored
        self._met[numbers[changed]] = True
        kept = np.ones(stored.num_rows, np.bool_)
        kept[changed] = False
        others = stored.filter(pa.array(kept))
        partly = changed[self._are_partial[numbers[changed]]]
        return pa.concat_tables([others, self._newest(numbers[partly], stored, partly)]) if len(partly) else others

    def rest(self) -> pa.Table:
        left = np.flatnonzero(~self._are_gone & ~(self._are_partial & self._met))
        left = left[np.argsort(self._places[0][1][left], kind="stable")]  # rows are taken faster in their order
        return self._newest(left, self.columns.empty_table(), np.array([], np.int64))

    def _newest(self, numbers: Places, stored: pa.Table, at: Places) -> pa.Table:
        """The newest versions of keys with these numbers; `at`: their places in the base file's batch, if they have any."""
        found: dict[str, pa.ChunkedArray] = {}
        rows, all_places = self._read
        for names, places in all_places:
            wanted, sources = places[numbers], [rows.select(names)]
            if len(wanted) and wanted.min() < 0:  # some values are not in the log files
                sources += [stored.select(names), _no_values(stored.select(names).schema)]
                nowhere = rows.num_rows + stored.num_rows
                wanted = np.where(wanted == _BASE, rows.num_rows + at if len(at) else nowhere, wanted)
                wanted[wanted == _GONE] = nowhere
            there = pa.concat_tables(sources)
            every = len(wanted) == there.num_rows and bool((wanted == np.arange(len(wanted))).all())
            taken = there if every else take_rows(there, wanted)
            found |= dict(zip(names, taken.columns, strict=True))
        return pa.table([found[name] for name in self.columns.names], schema=self.columns)

    @cached_property
    def _read(self) -> tuple[pa.Table, list[tuple[list[str], Places]]]:
        """The rows of all blocks that a last value is in, and for columns that were always written together, the place of each
        key's last value among them.
        """
        counts = [len(part.keys) for part in self._parts]
        needed, shift = np.zeros(self._count, np.bool_), np.zeros(self._count, np.int64)
        for _, places in self._places:
            needed[places[places >= 0]] = True
        loaded, start, skipped = [self.columns.empty_table()], 0, 0
        for part, count in zip(self._parts, counts, strict=True):
            if needed[start : start + count].any():
                loaded.append(part.load())
                shift[start : start + count] = skipped
            else:
                skipped += count
            start += count
        moved = []
        for names, places in self._places:
            there = places >= 0
            now = places.copy()
            now[there] -= shift[places[there]]
            moved.append((names, now))
        return pa.concat_tables(loaded).combine_chunks(), moved

    @cached_property
    def _coded(self) -> tuple[pa.Array, list[Places]]:
        """The keys, each once, and for each step the numbers of its keys."""
        chunks = pa.chunked_array(self._keys, pa.string()).dictionary_encode().chunks
        numbers = np.concatenate([np.array([], np.int64), *(chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks)])
        ends = np.cumsum([len(step.places) for step in self._steps])
        return chunks[-1].dictionary if chunks else pa.array([], pa.string()), np.split(numbers, ends)[:-1]

    @property
    def keys(self) -> pa.Array:
        """The keys of which log files say anything, each once."""
        return self._coded[0]

    @cached_property
    def _met(self) -> Flags:
        return np.zeros(len(self.keys), np.bool_)

    @cached_property
    def _are_gone(self) -> Flags:
        """Which keys have no row at last."""
        last: Flags = self._last(None) == _GONE
        return last

    @cached_property
    def _are_partial(self) -> Flags:
        """Which keys have a row some of whose values are in the base file."""
        found = np.zeros(len(self.keys), np.bool_)
        for _, places in self._places:
            found |= places == _BASE
        return found & ~self._are_gone

    @cached_property
    def _places(self) -> list[tuple[list[str], Places]]:
        """For columns that were always written together, the row with the last value of each key."""
        partly = [number for number, step in enumerate(self._steps) if step.written is not None]
        together: dict[tuple[int, ...], list[str]] = {}
        for name in self.columns.names:
            by = tuple(number for number in partly if name in (self._steps[number].written or ()))
            together.setdefault(by, []).append(name)
        return [(names, self._last(names[0])) for names in together.values()]

    def _last(self, column: str | None) -> Places:
        """The last place of each key, as far as blocks with this column tell; with None all do."""
        found = np.full(len(self.keys), _BASE)
        for step, numbers in zip(self._steps, self._coded[1], strict=True):
            if column is None or step.written is None or column in step.written:
                found[numbers] = step.places  # of several values for one place, NumPy assigns the last
        return found


def _no_values(schema: pa.Schema) -> pa.Table:
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


class Change(NamedTuple):
    """The last word on one key: the number of a row, None for a delete. `order`: its place by event time, None for none."""

    row: int | None
    order: Any = None

    @property
    def is_plain_delete(self) -> bool:
        """Whether it deletes whatever there is, as a statement DELETE does, instead of taking its place in time."""
        return self.row is None and self.order is None


def counts(change: Change, known: Change) -> bool:
    """Whether a version of a row counts after another that was there before."""
    if change.is_plain_delete or known.is_plain_delete:
        return True
    return _rank(change.order) >= _rank(known.order)


class ByEventTime:
    """The version with the greater value in the column `ordering` counts, row by row. No row is written in part."""

    def __init__(self, columns: pa.Schema, ordering: str) -> None:
        self.columns, self._ordering = columns, ordering
        self._parts: list[pa.Table] = []
        self._count = 0
        self._last: dict[str, Change] = {}

    def add_rows(self, rows: WrittenRows) -> None:
        table = rows.load()
        deleted = np.zeros(table.num_rows, np.bool_) if rows.gone is None else rows.gone
        orders = comparable(table.column(self._ordering))
        for number, (key, is_gone, order) in enumerate(zip(rows.keys.to_pylist(), deleted.tolist(), orders, strict=True)):
            change = Change(None if is_gone else self._count + number, order)
            known = self._last.get(key)
            if known is None or counts(change, known):
                self._last[key] = change
        self._parts.append(table)
        self._count += table.num_rows

    def add_deletes(self, deletes: Iterable[tuple[str, Any]]) -> None:
        for key, value in deletes:
            order = _in_javas_order(value) if isinstance(value, float) else value
            known = self._last.get(key)
            if known is not None:
                if known.is_plain_delete:
                    continue
                if order is not None and type(order) is type(known.order) and known.order > order:
                    continue
            self._last[key] = Change(None, order)

    def merged(self, stored: pa.Table) -> pa.Table:
        if not self._last:
            return stored
        keys = stored.column(RECORD_KEY)
        touched = np.flatnonzero(np.asarray(pc.is_in(keys, value_set=pa.array(list(self._last), pa.string()))))
        if not len(touched):
            return stored
        here = pa.array(touched)
        orders = comparable(stored.column(self._ordering).take(here))
        kept, instead = np.ones(stored.num_rows, np.bool_), []
        for place, key, order in zip(touched.tolist(), keys.take(here).to_pylist(), orders, strict=True):
            change = self._last.pop(key, None)
            if change is None:  # a base file may hold a key twice: a change is to its first row, as in Java
                continue
            if counts(change, Change(place, order)):
                kept[place] = False
                instead += [change.row] if change.row is not None else []
        return pa.concat_tables([stored.filter(pa.array(kept)), self._numbered(instead)])

    def rest(self) -> pa.Table:
        return self._numbered([change.row for change in self._last.values() if change.row is not None])

    def _numbered(self, rows: Sequence[int]) -> pa.Table:
        return take_rows(self._rows, np.array(rows, np.int64))

    @cached_property
    def _rows(self) -> pa.Table:
        return pa.concat_tables([self.columns.empty_table(), *self._parts]).combine_chunks()


_MAGNITUDE = 0x7FFF_FFFF_FFFF_FFFF


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
