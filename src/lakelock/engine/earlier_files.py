"""The files of the attempt before, for the next attempt of the same write to take over (ADR 19); with Spark and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakelock.table.commit_metadata import WriteStat
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

Target = tuple[str, "int | None"]
"""Partition and, in a table with buckets, bucket of new rows."""


@dataclass
class Files:
    """The files that one attempt wrote: those that came of a base file, by its key, and the new ones with their rows' keys."""

    rewritten: dict[str, WriteStat] = field(default_factory=dict)
    new: dict[Target, tuple[object, Sequence[WriteStat]]] = field(default_factory=dict)
    adopted: dict[str, str] = field(default_factory=dict)
    """By partition, the key of the base file from which the file came that has the partition's new rows, too."""
    joined: dict[str, object] = field(default_factory=dict)
    """By the key of a base file whose bucket got new rows: what tells these rows."""

    def made_from(self, base: DataFile) -> WriteStat | None:
        """The file that was made from this base file."""
        return self.rewritten.get(base.key)

    def made_of(self, target: Target, keys: object) -> Sequence[WriteStat] | None:
        """The new files that were made of the rows with these keys; None if none were, or others."""
        if target not in self.new:
            return None
        before, stats = self.new[target]
        return stats if before == keys else None


class EarlierFiles:
    """Belongs to one call, whose rows or condition are the same in each attempt."""

    def __init__(self) -> None:
        self._written_by: tuple[TableSchema, TableProperties] | None = None
        self._files: dict[str, Files] = {}

    def begin(self, instant: str, earlier: str | None, schema: TableSchema, properties: TableProperties) -> tuple[Files, Files]:
        """For the attempt of an instant: the files of the earlier attempt that it may copy, and where it notes its own.

        Rows are not the same in another schema, nor keys by other properties: then nothing is remembered.
        """
        if self._written_by not in (None, (schema, properties)):
            self.forget()
        self._written_by = schema, properties
        before = self._files.get(earlier or "", Files())
        self._files = {earlier or "": before, instant: Files()}
        return before, self._files[instant]

    def forget(self) -> None:
        """Forget everything, since the table is not what it was."""
        self._files = {}
