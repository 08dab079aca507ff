"""What a transaction read, in a form that lets the commit ask: do the changes of others concern it?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

from lakelock.conflict import WHOLE_TABLE
from lakelock.table.index import bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.pruning import StatisticsOf
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted


class ReadKind(str, Enum):
    """KEYS: record keys were looked up, found or not. ROWS: rows that satisfy a condition were selected."""

    KEYS = "keys"
    ROWS = "rows"


class Read(Protocol):
    """One read of a transaction. The engine that made it (Spark, Arrow) knows how to look into files."""

    @property
    def kind(self) -> ReadKind: ...

    @property
    def description(self) -> str:
        """For people: `keys of the upsert`, `tail_number = 'N14228'`, `the whole table`."""
        ...

    def concerns(self, partition: str) -> bool:
        """False when no row of this partition can matter. May err on the side of True."""
        ...

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        """Of files in partitions that concern it: those that may hold a row which it would see, as far as statistics tell."""
        ...

    def matches(self, files: Sequence[DataFile]) -> str | None:
        """Look into the files: the first row that this read would see, as text for people, or None.

        Looks at the footers before the rows. A file that has vanished counts as matching: its rows cannot be ruled out.
        """
        ...


class BucketsRead:
    """Keys that were looked up in a table with buckets, found or not: whoever wrote one wrote into its bucket.

    So no file is looked into. It matters where the write leaves the file group of a bucket as it is, since all rows there are
    newer.
    """

    kind = ReadKind.KEYS

    def __init__(self, description: str, groups: Iterable[FileGroupId]) -> None:
        """`groups`: the file groups of the buckets, or, of those that have none yet, the names under which they are claimed."""
        self.description = description
        self._buckets = frozenset(map(bucket_of_group, groups))
        self._partitions = frozenset(bucket.partition for bucket in self._buckets)

    def concerns(self, partition: str) -> bool:
        return partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return [file for file in files if bucket_of_group(file.group) in self._buckets]

    def matches(self, files: Sequence[DataFile]) -> str | None:
        found = next((file for file in files if bucket_of_group(file.group) in self._buckets), None)
        return None if found is None else f"{found.partition or 'the table'}: keys of the file group {found.file_id}"


class WholeTable:
    """The read of everything, or of everything in some partitions: any row matters, so nothing needs to be looked at."""

    def __init__(self, partitions: frozenset[str] | None = None) -> None:
        self._partitions = partitions

    kind = ReadKind.ROWS

    @property
    def description(self) -> str:
        return WHOLE_TABLE if self._partitions is None else counted(len(self._partitions), "whole partition")

    def concerns(self, partition: str) -> bool:
        return self._partitions is None or partition in self._partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        return f"rows in {files[0].partition or 'the table'}" if files else None
