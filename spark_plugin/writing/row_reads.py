"""The rows that a transaction selected by a condition, as a question about the files of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.errors import StorageError
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.spark_plugin.conditions import SHOWN_CHARACTERS, Condition
from lakelock.table.snapshot import DataFile


class RowsRead:
    """The rows that satisfy a condition, as Spark understands it."""

    kind = ReadKind.ROWS

    def __init__(self, condition: Condition, read_files: Callable[[Sequence[DataFile]], DataFrame]) -> None:
        self._condition, self._read_files = condition, read_files

    @property
    def description(self) -> str:
        return str(self._condition)

    def concerns(self, partition: str) -> bool:
        return True

    def matches(self, files: Sequence[DataFile]) -> str | None:
        try:
            frame = self._read_files(files)
        except StorageError as error:
            return error.message
        found = frame.where(self._condition.on(frame)).limit(1).select(F.to_json(F.struct("*"))).head()
        return None if found is None else str(found[0])[:SHOWN_CHARACTERS]
