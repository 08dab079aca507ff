"""What a transaction is isolated by: the snapshot that it reads, and the level that it asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakelock.str_enum import StrEnum
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import FileStatistics


class Level(StrEnum):
    """Delta's isolation levels by Delta's names. With WRITE_SERIALIZABLE a blind append never conflicts: it may count as if it
    had come later than it did.
    """

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"


@dataclass(frozen=True)
class Isolation:
    """`before` gives a file group's file in the snapshot, `statistics` what is recorded about such a file, `schema` the columns
    as of the snapshot. None where it is not known.
    """

    before: Callable[[FileGroupId], DataFile | None] = lambda group: None
    statistics: Callable[[DataFile], FileStatistics | None] = lambda file: None
    level: Level = Level.SERIALIZABLE
    schema: TableSchema | None = None
