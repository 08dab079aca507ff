"""The files that may hold rows which satisfy a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.pruning.derived import sharpened
from lakelock.table.pruning.partition_values import PartitionValues, Values
from lakelock.table.pruning.predicates import NOTHING_KNOWN, Anything, Known, Predicate, may_hold
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.statistics import ColumnRange, FileStatistics

StatisticsOf = Callable[[DataFile], FileStatistics | None]
"""Looks up what is recorded about a file; None if nothing is."""


@dataclass(frozen=True)
class Pruning:
    """Rules files out by a condition: whole partitions first, then files by the recorded ranges of their columns."""

    predicate: Predicate
    values: PartitionValues

    @cached_property
    def _sharp(self) -> Predicate:
        """The condition with what it says about computed partition columns."""
        return sharpened(self.predicate, self.values.transforms)

    def concerns(self, partition: str) -> bool:
        """False if no row of this partition can satisfy the condition."""
        return may_hold(self._sharp, _knowledge(self.values.possible(partition)))

    def files_of(self, snapshot: Snapshot) -> tuple[DataFile, ...]:
        """The files of a snapshot that may hold such a row. Of partitions that are ruled out nothing is read."""
        if isinstance(self.predicate, Anything):
            return snapshot.files
        partitions = [partition for partition in snapshot.partitions if self.concerns(partition)]
        if len(partitions) == len(snapshot.partitions):
            return self.kept(snapshot.files, snapshot.stats_of)
        return tuple(
            file for partition in partitions for file in self.kept(snapshot.in_partition(partition), snapshot.stats_of)
        )

    def kept(self, files: Iterable[DataFile], statistics: StatisticsOf | None = None) -> tuple[DataFile, ...]:
        """The files that may hold such a row, in the same order."""
        if isinstance(self.predicate, Anything):
            return tuple(files)
        partitions: dict[str, Mapping[str, Values] | None] = {}
        found = []
        for file in files:
            if file.partition not in partitions:
                possible = self.values.possible(file.partition)
                partitions[file.partition] = possible if may_hold(self._sharp, _knowledge(possible)) else None
            values = partitions[file.partition]
            if values is None:
                continue
            recorded = statistics(file) if statistics is not None else None
            if recorded is None or may_hold(self._sharp, _knowledge(values, recorded)):
                found.append(file)
        return tuple(found)


def _knowledge(values: Mapping[str, Values], recorded: FileStatistics | None = None) -> Callable[[str], Known]:
    """What is known about a column: from the partition, otherwise from the file's statistics."""
    ranges: Mapping[str, ColumnRange] = recorded.columns if recorded is not None else {}
    rows = recorded.rows if recorded is not None else None

    def known(column: str) -> Known:
        if column in values:
            return Known(values[column])
        return Known(range=ranges[column], rows=rows) if column in ranges else NOTHING_KNOWN

    return known


def files_of_expression(
    condition: pc.Expression,
    files: Sequence[DataFile],
    schema: pa.Schema,
    values: PartitionValues,
    statistics: StatisticsOf = lambda file: None,
) -> list[DataFile]:
    """The files that may hold a row which satisfies a condition of Arrow, in the same order.

    Arrow compares it with what is certain of all rows of a file; nothing is opened. All files for a condition that does not
    fit the columns: who evaluates it tells what is wrong with it.
    """
    import pyarrow.dataset as ds  # which imports pandas, for a second, where that is installed
    from pyarrow.fs import LocalFileSystem

    by_partition: dict[str, list[pc.Expression]] = {}
    fragments, form, nowhere = [], ds.ParquetFileFormat(), LocalFileSystem()
    for number, file in enumerate(files):
        if file.partition not in by_partition:
            by_partition[file.partition] = [*_certain_in(file.partition, schema, values)]
        recorded = statistics(file)
        if recorded is not None and recorded.rows == 0:
            continue
        certain = [*by_partition[file.partition], *(() if recorded is None else _certain_of(recorded, schema))]
        known = reduce(pc.Expression.__and__, certain, pc.scalar(True))
        fragments.append(form.make_fragment(str(number), nowhere, partition_expression=known))
    try:
        left = ds.FileSystemDataset(fragments, schema, form, nowhere).get_fragments(filter=condition)
        return [files[int(fragment.path)] for fragment in left]
    except (pa.ArrowException, KeyError, TypeError):
        return list(files)


def _certain_in(partition: str, schema: pa.Schema, values: PartitionValues) -> Iterator[pc.Expression]:
    for name, value in values.exact(partition).items():
        column = pc.field(name)
        yield column.is_null() if value is None else column == pa.scalar(value, schema.field(name).type)


def _certain_of(recorded: FileStatistics, schema: pa.Schema) -> Iterator[pc.Expression]:
    """Not of columns that may hold a NaN, which is in no range."""
    for name, known in recorded.columns.items():
        at = schema.get_field_index(name)
        kind = schema.field(at).type if at >= 0 else pa.null()
        for bound, holds in ((known.least, pc.Expression.__ge__), (known.greatest, pc.Expression.__le__)):
            if bound is None or not _is_ordered_alike(kind, bound):
                continue
            try:
                within = holds(pc.field(name), pa.scalar(bound, kind))
            except (pa.ArrowException, OverflowError):
                continue  # a bound of the type that the column had before
            yield within if known.nulls == 0 else within | pc.field(name).is_null()


def _is_ordered_alike(kind: pa.DataType, bound: object) -> bool:
    """Whether Arrow compares values of this type as the writer did that recorded the bound."""
    types = pa.types
    if types.is_timestamp(kind):
        return isinstance(bound, datetime) and (bound.tzinfo is None) == (kind.tz is None)
    if types.is_date(kind):
        return not isinstance(bound, datetime)
    return bool(types.is_integer(kind) or types.is_decimal(kind) or types.is_string(kind) or types.is_large_string(kind))
