"""The rows that a transaction selected by a condition, as a question about the files of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakelock.errors import StorageError
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.table.snapshot import DataFile

SHOWN_CHARACTERS = 200


class RowsRead:
    """The rows that satisfy a condition, as Spark understands it."""

    kind = ReadKind.ROWS

    def __init__(self, condition: str | Column, read_files: Callable[[Sequence[DataFile]], DataFrame]) -> None:
        self._condition, self._read_files = condition, read_files

    @property
    def description(self) -> str:
        return condition_text(self._condition)

    def concerns(self, partition: str) -> bool:
        return True

    def matches(self, files: Sequence[DataFile]) -> str | None:
        try:
            frame = self._read_files(files)
        except StorageError as error:
            return error.message
        found = frame.where(self._condition).limit(1).select(F.to_json(F.struct("*"))).head()
        return None if found is None else str(found[0])[:SHOWN_CHARACTERS]


def condition_text(condition: str | Column) -> str:
    """A condition for people; Spark shows a Column as `Column<'(a > 1)'>`."""
    text = str(condition)
    if not isinstance(condition, str) and text.startswith("Column<'"):
        text = text.removeprefix("Column<'").removesuffix("'>")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
