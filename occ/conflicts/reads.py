"""What a transaction read, in a form that lets the commit ask: do the changes of others concern it?"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from lakelock.amounts import counted
from lakelock.conflict import WHOLE_TABLE
from lakelock.table.pruning.files import StatisticsOf
from lakelock.table.snapshot import DataFile


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
