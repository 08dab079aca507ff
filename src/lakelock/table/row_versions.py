"""Which version of a row counts, of those in a base file and in the log files on it: by commit time, or by event time.

The rules are those of Hudi 1.2 (`BufferedRecordMergerFactory`). By commit time the later version counts, and log files are
merged column by column (`ByCommitTime`). By event time that one counts which has the greater value in the ordering column, of
equal ones the later; a delete without such a value always counts, and so does everything after it (`ByEventTime`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.rows import take_rows
from lakelock.table.schema import RECORD_KEY

Places = npt.NDArray[np.signedinteger[Any]]
Flags = npt.NDArray[np.bool_]


Load = Callable[[Flags | None], pa.Table]
"""Gives some rows with all their columns: all of them, or those that are flagged."""


class OtherPositions(ValueError):
    """A block names positions of rows, but not one for each of its rows."""


@dataclass(frozen=True)
class WrittenRows:
    """Rows of a log file: their keys, none of them null, or their positions in the base file; and all their columns on demand.

    `gone`: which of them are deletes. `written`: the columns that they have, where the others of a row stay; None for all.
    """

    names: pa.ChunkedArray | Places
    load: Load
    gone: Flags | None = None
    written: frozenset[str] | None = None


class RowVersions(Protocol):
    """Merges the versions of one file slice's rows. What log files say is added in their order, then the base file is merged.

    `columns` are the columns of all rows that are added and returned.
    """

    columns: pa.Schema

    def add_rows(self, rows: WrittenRows) -> None:
        """Add rows with these columns."""
        ...

    def add_deletes(self, deletes: Iterable[tuple[str, Any]] | Places) -> None:
        """Add deleted keys, each with its value by event time, None for none; or the positions of deleted rows."""
        ...

    def passes(self, count: int) -> bool:
        """Skip the base file's next `count` rows if no value of them is shown any more; whether it did."""
        ...

    def merged(self, count: int, load: Load) -> pa.Table:
        """The rows that are shown of the base file's next `count`, and perhaps new versions of others."""
        ...

    def rest(self) -> Iterator[pa.Table]:
        """The rows that are shown and that `merged` did not return; to be called last."""
        ...


_BASE, _GONE = -2, -1
"""Stand for the number of a row: the value is that of the base file; the row is deleted."""
_HASHED_BYTES = 64 << 20
"""How many bytes of the base file's keys are looked up at a time: for each time, the keys of the log files are hashed."""


class _Step(NamedTuple):
    """One block: the number of each of its rows among those of all blocks, or `_GONE`. `written`: its columns, None for all."""

    places: Places
    written: frozenset[str] | None


class ByCommitTime:
    """The later version counts. Everything is done for whole columns, and the order of rows is not kept.

    A row is known by its position in the base file, where all blocks name positions; else the keys of all blocks are looked up
    in the base file once, and a key that it lacks gets a number behind its rows. Of a block whose rows have all been written
    again, only keys or positions are read. `stored_rows` and `stored_keys` are the base file's.
    """

    def __init__(self, columns: pa.Schema, stored_rows: int = 0, stored_keys: Iterable[pa.ChunkedArray] = ()) -> None:
        self.columns = columns
        self._stored_rows, self._stored_keys = stored_rows, stored_keys
        self._read_rows = 0
        self._parts: list[WrittenRows] = []
        self._names: list[Any] = []
        self._steps: list[_Step] = []
        self._count = 0

    def add_rows(self, rows: WrittenRows) -> None:
        places = np.arange(self._count, self._count + len(rows.names), dtype=np.int32)
        if rows.gone is not None:
            places[rows.gone] = _GONE
        self._add(rows.names, _Step(places, rows.written))
        self._parts.append(rows)
        self._count += len(rows.names)

    def add_deletes(self, deletes: Iterable[tuple[str, Any]] | Places) -> None:
        if isinstance(deletes, np.ndarray):
            names: pa.ChunkedArray | Places = deletes
        else:
            names = pa.chunked_array([pa.array([key for key, _ in deletes], pa.string())])
        self._add(names, _Step(np.full(len(names), _GONE, np.int32), None))

    def _add(self, names: pa.ChunkedArray | Places, step: _Step) -> None:
        self._names.append(names)
        self._steps.append(step)

    def passes(self, count: int) -> bool:
        start = self._read_rows
        whole = self._are_in_logs[start : start + count] & ~self._are_partial[start : start + count]
        if not whole.all():
            return False
        self._read_rows += count
        return True

    def merged(self, count: int, load: Load) -> pa.Table:
        """Without the rows that were written again, which `rest` has, unless values of theirs are in the base file."""
        start = self._read_rows
        self._read_rows = end = start + count
        named, partly = self._are_in_logs[start:end], np.flatnonzero(self._are_partial[start:end])
        if not len(partly):
            return load(~named if named.any() else None)
        stored = load(None)
        return pa.concat_tables([stored.filter(pa.array(~named)), self._newest(start + partly, stored, partly)])

    def rest(self) -> Iterator[pa.Table]:
        left = self._are_in_logs & ~self._are_gone
        left[: self._stored_rows] &= ~self._are_partial[: self._stored_rows]
        numbers = np.flatnonzero(left)
        if self._has_partial:
            numbers = numbers[np.argsort(self._places[0][1][numbers], kind="stable")]  # rows are taken faster in their order
            yield self._newest(numbers, self.columns.empty_table(), np.array([], np.int64))
            return
        are_newest, start = np.zeros(self._count, np.bool_), 0
        are_newest[self._places[0][1][numbers]] = True
        for part in self._parts:
            start, mine = start + len(part.names), are_newest[start : start + len(part.names)]
            if mine.any():
                yield part.load(None if mine.all() else mine)

    def _newest(self, numbers: Places, stored: pa.Table, at: Places) -> pa.Table:
        """The newest versions of rows with these numbers; `at`: their places in the base file's batch, if they have any."""
        found: dict[str, pa.ChunkedArray] = {}
        rows, all_places = self._read
        for names, places in all_places:
            wanted, sources = places[numbers], [rows.select(names)]
            if len(wanted) and wanted.min() < 0:  # some values are not in the log files
                sources += [stored.select(names), _no_values(stored.select(names).schema)]
                nowhere = rows.num_rows + stored.num_rows
                wanted = np.where(wanted == _BASE, rows.num_rows + at if len(at) else nowhere, wanted)
                wanted[wanted == _GONE] = nowhere
            found |= dict(zip(names, take_rows(pa.concat_tables(sources), wanted).columns, strict=True))
        return pa.table([found[name] for name in self.columns.names], schema=self.columns)

    @cached_property
    def _read(self) -> tuple[pa.Table, list[tuple[list[str], Places]]]:
        """The rows of all blocks that a last value is in, and for columns that were always written together, the place of each
        row's last value among them.
        """
        counts = [len(part.names) for part in self._parts]
        needed, shift = np.zeros(self._count, np.bool_), np.zeros(self._count, np.int64)
        for _, places in self._places:
            needed[places[places >= 0]] = True
        loaded, start, skipped = [self.columns.empty_table()], 0, 0
        for part, count in zip(self._parts, counts, strict=True):
            if needed[start : start + count].any():
                loaded.append(part.load(None))
                shift[start : start + count] = skipped
            else:
                skipped += count
            start += count
        moved = []
        for names, places in self._places:
            there = places >= 0
            now = places.astype(np.int64)
            now[there] -= shift[places[there]]
            moved.append((names, now))
        return pa.concat_tables(loaded).combine_chunks(), moved

    @cached_property
    def _coded(self) -> tuple[pa.Array, list[Places]]:
        """The keys, each once, and for each step the numbers of its keys among them."""
        chunks = (
            pa.chunked_array([chunk for keys in self._names for chunk in keys.chunks], pa.string()).dictionary_encode().chunks
        )
        numbers = np.concatenate([np.array([], np.int32), *(chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks)])
        ends = np.cumsum([len(step.places) for step in self._steps])
        return chunks[-1].dictionary if chunks else pa.array([], pa.string()), np.split(numbers, ends)[:-1]

    @property
    def keys(self) -> pa.Array:
        """The keys of which log files say anything, each once."""
        return self._coded[0]

    @cached_property
    def _numbers(self) -> list[Places]:
        """For each step, the numbers of its rows."""
        if all(isinstance(names, np.ndarray) for names in self._names):
            return self._names
        found = self._found
        return [found[numbers] for numbers in self._coded[1]]

    @cached_property
    def _found(self) -> Places:
        """For each key the position in the base file, or a number behind its rows."""
        found, start = self._stored_rows + np.arange(len(self.keys)), 0
        for stored in _together(self._stored_keys, _HASHED_BYTES) if len(self.keys) else ():
            numbers = pc.index_in(stored, value_set=self.keys).fill_null(-1).to_numpy()
            at = np.flatnonzero(numbers >= 0)
            at = at[found[numbers[at]] >= self._stored_rows][::-1]
            # A base file may hold a key twice: the change is to its first row, as in Java. NumPy assigns the last of several.
            found[numbers[at]] = start + at
            start += len(stored)
        return found

    @cached_property
    def _are_in_logs(self) -> Flags:
        """Of which rows log files say anything."""
        end = max((int(numbers.max()) + 1 for numbers in self._numbers if len(numbers)), default=0)
        found = np.zeros(max(self._stored_rows, end), np.bool_)
        for numbers in self._numbers:
            found[numbers] = True
        return found

    @cached_property
    def _are_gone(self) -> Flags:
        """Which rows are deleted at last."""
        last: Flags = (self._last(None) if self._has_partial else self._places[0][1]) == _GONE
        return last

    @cached_property
    def _are_partial(self) -> Flags:
        """Which of the rows that log files change still have values in the base file."""
        found = np.zeros(len(self._are_in_logs), np.bool_)
        if not self._has_partial:
            return found
        for _, places in self._places:
            found |= places == _BASE
        return found & self._are_in_logs & ~self._are_gone

    @property
    def _has_partial(self) -> bool:
        return any(step.written is not None for step in self._steps)

    @cached_property
    def _places(self) -> list[tuple[list[str], Places]]:
        """For columns that were always written together, the place of each row's last value."""
        partly = [number for number, step in enumerate(self._steps) if step.written is not None]
        together: dict[tuple[int, ...], list[str]] = {}
        for name in self.columns.names:
            by = tuple(number for number in partly if name in (self._steps[number].written or ()))
            together.setdefault(by, []).append(name)
        return [(names, self._last(names[0])) for names in together.values()]

    def _last(self, column: str | None) -> Places:
        """The place of each row's last value in this column; with None, in any block."""
        found = np.full(len(self._are_in_logs), _BASE, np.int32)
        for step, numbers in zip(self._steps, self._numbers, strict=True):
            if column is None or step.written is None or column in step.written:
                found[numbers] = step.places  # of several values for one place, NumPy assigns the last
        return found


def _together(parts: Iterable[pa.ChunkedArray], size_bytes: int) -> Iterator[pa.ChunkedArray]:
    """The same values in arrays of this size, about."""
    found: list[pa.Array] = []
    for part in parts:
        found += part.chunks
        if sum(chunk.nbytes for chunk in found) >= size_bytes:
            yield pa.chunked_array(found)
            found = []
    if found:
        yield pa.chunked_array(found)


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
        table, keys = rows.load(None), pa.chunked_array(rows.names, pa.string())
        deleted = np.zeros(table.num_rows, np.bool_) if rows.gone is None else rows.gone
        orders = comparable(table.column(self._ordering))
        for number, (key, is_gone, order) in enumerate(zip(keys.to_pylist(), deleted.tolist(), orders, strict=True)):
            change = Change(None if is_gone else self._count + number, order)
            known = self._last.get(key)
            if known is None or counts(change, known):
                self._last[key] = change
        self._parts.append(table)
        self._count += table.num_rows

    def add_deletes(self, deletes: Iterable[tuple[str, Any]] | Places) -> None:
        for key, value in deletes:
            order = _in_javas_order(value) if isinstance(value, float) else value
            known = self._last.get(key)
            if known is not None:
                if known.is_plain_delete:
                    continue
                if order is not None and type(order) is type(known.order) and known.order > order:
                    continue
            self._last[key] = Change(None, order)

    def passes(self, count: int) -> bool:
        return False

    def merged(self, count: int, load: Load) -> pa.Table:
        stored = load(None)
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

    def rest(self) -> Iterator[pa.Table]:
        yield self._numbered([change.row for change in self._last.values() if change.row is not None])

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
