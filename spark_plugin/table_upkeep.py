"""The upkeep of a `LakeTable`: old files and old instants go, savepoints keep what must stay."""

from __future__ import annotations

from datetime import datetime

from lakelock.occ.coordinator import Coordinator
from lakelock.occ.upkeep.clean import Cleaned
from lakelock.occ.upkeep.run import Upkept
from lakelock.occ.upkeep.savepoints import Savepoint
from lakelock.spark_plugin.arguments import instant_of


class TableUpkeep:
    """The part of a `LakeTable` that keeps the table small. Live writers and readers are not disturbed."""

    _coordinator: Coordinator

    def upkeep(self, *, dry_run: bool = False) -> Upkept:
        """Finish dead writers, delete old files, archive old instants and collect old decisions.

        Begins new work for at most `upkeep.budget_s`; what is left, the next run does. With `dry_run` nothing is changed, and
        the result says what would be done. What could not be done is in the result's `problems`.
        """
        return self._coordinator.upkeep(dry_run=dry_run)

    def vacuum(self, *, dry_run: bool = False) -> Cleaned:
        """Delete the old files that the settings `clean.*` do not keep, for at most `upkeep.budget_s`.

        What running transactions, readers (`clean.readers_s`) and savepoints need stays, whatever the settings say.
        """
        return self._coordinator.clean(dry_run=dry_run)

    def savepoint(self, name: str, *, as_of: str | datetime | None = None) -> Savepoint:
        """Keep the table as of its newest commit, or of the commit `as_of`, readable until the savepoint is deleted.

        `InputError` when there is no such commit, its files were cleaned, or the name or the commit has a savepoint already.
        """
        return self._coordinator.savepoint(name, None if as_of is None else instant_of(as_of))

    def savepoints(self) -> list[Savepoint]:
        """The savepoints, oldest commit first."""
        return self._coordinator.savepoints()

    def delete_savepoint(self, name: str) -> Savepoint:
        """Let cleaning have the files of a savepoint, named by its name or its instant; `InputError` when there is none."""
        return self._coordinator.delete_savepoint(name)
