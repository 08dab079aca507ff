"""Slices as columns: one row for each live slice and each replaced file group, in order of partition and file id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.file_index.effects import Changes, Slice
from lakelock.table.snapshot import DataFile

ROWS = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("instant", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("key_min", pa.string()),
        pa.field("key_max", pa.string()),
        pa.field("columns", pa.string()),
        pa.field("replaced_by", pa.string()),
    ]
)
"""A row with `replaced_by` is a file group that is gone, by the instant that replaced it; it has no file."""

NO_ROWS = pa.Table.from_batches([], ROWS)  # to make an array here would have PyArrow import pandas with lakelock


@dataclass(frozen=True)
class Group:
    """What is known of one file group of one partition: its slice, or by which instant it was replaced."""

    slice: Slice | None
    replaced_by: str = ""


@dataclass(frozen=True)
class LoadedRows:
    """Rows that are all in memory."""

    table: pa.Table

    @cached_property
    def _ranges(self) -> Mapping[str, tuple[int, int]]:
        """The start and end of each partition's rows."""
        names = self.table.column("partition").combine_chunks()
        if not len(names):
            return {}
        codes = names.dictionary_encode()
        codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
        numbers = codes.indices.to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        ends = [*starts[1:], len(numbers)]
        words = codes.dictionary.to_pylist()
        return {words[int(numbers[start])]: (start, end) for start, end in zip(starts, ends, strict=True)}

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that have live slices, in order."""
        live = self.table.filter(pc.is_null(self.table.column("replaced_by")))
        return tuple(sorted(pc.unique(live.column("partition")).to_pylist()))

    def of(self, partition: str) -> pa.Table:
        """The rows of one partition."""
        start, end = self._ranges.get(partition, (0, 0))
        return self.table.slice(start, end - start)

    def all(self) -> pa.Table:
        return self.table


def groups_of(table: pa.Table) -> dict[str, Group]:
    """The file groups of rows of one partition, by file id."""
    return {file_id: group for _, file_id, group in _each(table)}


def _each(table: pa.Table) -> Iterator[tuple[str, str, Group]]:
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in ROWS.names]
    for partition, file_id, token, instant, size, rows, least, greatest, ranges, replaced_by in zip(*columns, strict=True):
        if replaced_by is not None:
            yield partition, file_id, Group(None, replaced_by)
        else:
            file = DataFile(partition, file_id, token, instant, size)
            yield partition, file_id, Group(Slice(file, rows, least, greatest, ranges))


def merged(groups: dict[str, Group], partition: str, changes: Changes) -> dict[str, Group]:
    """The file groups of a partition after the changes. A group that was ever replaced is gone, whatever arrives late."""
    found = dict(groups)
    for file_id, one in changes.slices.get(partition, {}).items():
        known = found.get(file_id)
        if known is None or (known.slice is not None and one.order > known.slice.order):
            found[file_id] = Group(one)
    for file_id, instant in changes.replaced.get(partition, {}).items():
        known = found.get(file_id)
        found[file_id] = Group(None, max(instant, known.replaced_by if known is not None else ""))
    return found


def with_changes(table: pa.Table, changes: Changes, *, forget_below: str) -> pa.Table:
    """All rows after the changes. Replaced groups are forgotten once nothing older than their end can still arrive."""
    written = {file_id for groups in changes.slices.values() for file_id in groups}
    touched = written.union(*(groups.keys() for groups in changes.replaced.values()))
    among = pc.is_in(table.column("file_id"), value_set=pa.array(sorted(touched), pa.string()))
    untouched = table.filter(pc.invert(among))
    by_partition: dict[str, dict[str, Group]] = {partition: {} for partition in changes.partitions}
    for partition, file_id, group in _each(table.filter(among)):
        by_partition.setdefault(partition, {})[file_id] = group
    fresh = table_of(
        (partition, file_id, group)
        for partition, groups in by_partition.items()
        for file_id, group in merged(groups, partition, changes).items()
    )
    both = pa.concat_tables([untouched, fresh])
    keep = pc.fill_null(pc.greater_equal(both.column("replaced_by"), forget_below), True)
    return both.filter(keep).sort_by([("partition", "ascending"), ("file_id", "ascending")]).combine_chunks()


def table_of(groups: Iterable[tuple[str, str, Group]]) -> pa.Table:
    """Rows of file groups, in the given order."""
    rows: list[tuple[object, ...]] = []
    for partition, file_id, group in groups:
        one = group.slice
        if one is None:
            rows.append((partition, file_id, *[None] * 7, group.replaced_by))
        else:
            file = one.file
            rows.append((partition, file_id, file.token, file.instant, file.size_bytes, *one[1:], None))
    columns: list[tuple[object, ...]] = list(zip(*rows, strict=True)) or [()] * len(ROWS)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, ROWS, strict=True)], schema=ROWS)
