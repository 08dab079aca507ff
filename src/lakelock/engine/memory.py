"""What one write remembers from attempt to attempt, so that none does again what would come out the same (ADR 19).

Everything here is a fact about files that never change: which of the call's rows a file holds, and what file came of it. An
attempt on a later snapshot asks for the files that it finds there, so it knows everything about those that are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelock.engine.earlier_files import EarlierFiles
from lakelock.occ.conflicts.reads import Read
from lakelock.storage import Storage
from lakelock.table.rewriting import Kernels, KeyedRows
from lakelock.table.snapshot import DataFile


class Memory(EarlierFiles):
    """Belongs to one call, whose rows or condition are the same in each attempt. Rows are kept by reference."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, KeyedRows | None] = {}
        self._matched: dict[str, bool] = {}

    def forget(self) -> None:
        super().forget()
        self._held, self._matched = {}, {}

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
