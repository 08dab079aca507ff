"""The files that may hold rows which satisfy a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

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
