"""What one write remembers from attempt to attempt, so that none does again what would come out the same (ADR 19).

Everything here is a fact about files that never change: which of the call's rows a file holds, and what file came of it. An
attempt on a later snapshot asks for the files that it finds there, so it knows everything about those that are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakelock.occ.conflicts.reads import Read
from lakelock.storage import Storage
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.properties import TableProperties
from lakelock.table.rewriting.kernels import Kernels, KeyedRows
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

Target = tuple[str, "int | None"]
"""Partition and, in a table with buckets, bucket of new rows."""


@dataclass
class Files:
    """The files that one attempt wrote: those that came of a base file, by its key, and the new ones with their rows."""

    rewritten: dict[str, WriteStat] = field(default_factory=dict)
    new: dict[Target, tuple[KeyedRows, list[WriteStat]]] = field(default_factory=dict)

    def made_from(self, base: DataFile) -> WriteStat | None:
        """The file that was made from this base file."""
        return self.rewritten.get(base.key)

    def made_of(self, target: Target, rows: KeyedRows) -> Sequence[WriteStat]:
        """The new files that were made of these rows; none if they were made of others."""
        before, stats = self.new.get(target, (None, []))
        return stats if before is not None and before.keys == rows.keys else ()


class Memory:
    """Belongs to one call, whose rows or condition are the same in each attempt. Rows are kept by reference."""

    def __init__(self) -> None:
        self._written_by: tuple[TableSchema, TableProperties] | None = None
        self._held: dict[str, KeyedRows | None] = {}
        self._matched: dict[str, bool] = {}
        self._files: dict[str, Files] = {}

    def begin(self, instant: str, earlier: str | None, schema: TableSchema, properties: TableProperties) -> tuple[Files, Files]:
        """For the attempt of an instant: the files of the earlier attempt that it may copy, and where it notes its own.

        Rows are not the same in another schema, nor keys by other properties: then nothing is remembered.
        """
        if self._written_by != (schema, properties):
            self._written_by = schema, properties
            self._held, self._matched, self._files = {}, {}, {}
        before = self._files.get(earlier or "", Files())
        self._files = {earlier or "": before, instant: Files()}
        return before, self._files[instant]

    def tag(
        self, rows: KeyedRows, files: Sequence[DataFile], kernels: Kernels, storage: Storage
    ) -> tuple[list[tuple[DataFile, KeyedRows]], KeyedRows]:
        """As `Kernels.tag`, but looks only into files that no attempt has looked into."""
        fresh = [file for file in files if file.key not in self._held]
        found, rest = kernels.tag(rows, fresh, storage)
        known = [self._held[file.key] for file in files if file.key in self._held]
        rest = kernels.without(rest, [held for held in known if held is not None])
        self._held |= dict.fromkeys((file.key for file in fresh), None) | {file.key: mine for file, mine in found}
        held = [(file, self._held[file.key]) for file in files]
        return [(file, mine) for file, mine in held if mine is not None], rest

    def matches(self, file: DataFile, read: Read) -> bool:
        """Whether the call's condition selects rows of a file, into which only the first attempt that meets it looks."""
        if file.key not in self._matched:
            self._matched[file.key] = read.matches([file]) is not None
        return self._matched[file.key]
