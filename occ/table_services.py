"""What keeps a table going besides transactions: the services that tidy it up, its savepoints, its name, and its guard."""

from __future__ import annotations

from lakelock.catalogs import Synced
from lakelock.errors import StorageError
from lakelock.occ.conflicts.profiles import ensure_not_weaker
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.lock import ensure_recorded, require_profile
from lakelock.occ.recovery.reaper import Reaped, collect, reap, sweep
from lakelock.occ.reserving.waiting import end_dead
from lakelock.occ.upkeep.archive import Archived, archive
from lakelock.occ.upkeep.budget import Budget, Progress
from lakelock.occ.upkeep.clean import Cleaned, clean
from lakelock.occ.upkeep.naming import register
from lakelock.occ.upkeep.run import Upkept, upkeep
from lakelock.occ.upkeep.savepoints import Savepoint, delete_savepoint, list_savepoints, take_savepoint
from lakelock.settings import CleanSettings
from lakelock.table.eligibility import check_writable, why_not_writable
from lakelock.table.properties import TableProperties, read_properties


class TableServices:
    """The services of one open table."""

    def __init__(self, table: OpenTable, properties: TableProperties) -> None:
        self.table, self.properties = table, properties

    def reap(self, *, patient: bool = False) -> list[Reaped]:
        """Finish or remove what dead writers left, also what arrived after its writer was gone.

        `patient`, as at the beginning of each transaction: another engine's dead are left to that engine for a while, and who
        is dead by a limit shorter than that of this process is left until that, too.
        """
        reaped = reap(self.table, patient=patient)
        sweep(self.table)
        end_dead(self.table)
        return reaped

    def collect(self) -> int:
        """Delete decisions that nobody needs any more; how many."""
        return collect(self.table)

    def checkpoint(self) -> int | None:
        """Write a checkpoint of the file index now; its number, None if the newest one has every commit."""
        return self.table.checkpoint(at_once=True)

    def upkeep(self, *, dry_run: bool = False, progress: Progress | None = None) -> Upkept:
        """Finish the dead, clean, archive and collect, for at most `upkeep.budget_s`; what is left, the next run does."""
        self.ensure_same_provider(record=not dry_run)
        return upkeep(self.table, dry_run=dry_run, progress=progress)

    def clean(self, *, dry_run: bool = False, progress: Progress | None = None, asked: CleanSettings | None = None) -> Cleaned:
        """Delete the files that the settings `clean.*` do not keep, for at most `upkeep.budget_s`.

        `asked` takes the place of the settings: `InputError` if somebody still needs a file that it would delete.
        """
        self.ensure_same_provider(record=not dry_run)
        return clean(self.table, self._budget(progress), dry_run=dry_run, asked=asked)

    def archive(self, *, dry_run: bool = False, progress: Progress | None = None) -> Archived:
        """Move the oldest instants from the timeline to its history, for at most `upkeep.budget_s`."""
        self.ensure_same_provider(record=not dry_run)
        return archive(self.table, self._budget(progress), dry_run=dry_run)

    def register(self, name: str = "") -> Synced:
        """Tell the catalog of the table now; later commits through this object tell it, too. See `naming.sync_catalog`."""
        return register(self.table, name)

    def savepoint(self, name: str, as_of: str | None = None) -> Savepoint:
        """Keep the table as of its newest commit, or of the commit `as_of`, until the savepoint is deleted."""
        self.ensure_same_provider()
        return take_savepoint(self.table, name, as_of)

    def savepoints(self) -> list[Savepoint]:
        """The savepoints, oldest commit first."""
        return list_savepoints(self.table)

    def delete_savepoint(self, name: str) -> Savepoint:
        """Let cleaning have the files of a savepoint, given by its name or its instant."""
        self.ensure_same_provider()
        return delete_savepoint(self.table, name)

    def _budget(self, progress: Progress | None) -> Budget:
        return Budget.of(self.table.runtime, self.table.settings.upkeep.budget_s, progress)

    def ensure_same_provider(self, *, record: bool = True) -> None:
        """Record which lock guards the table, or raise `ProviderMismatch` if it is guarded by another.

        Without `record` a table that has no lock recorded yet is left as it is. `TableError` for a table that must not be
        written, unless somebody has mended it since it was opened.
        """
        table = self.table
        if table.provider is None or table.observed.same_lock:
            return
        if why_not_writable(self.properties):
            check_writable(read_properties(table.storage))
        guard = ensure_recorded(table.storage, table.provider, table.runtime.uuid(), record=record)
        if guard is not None:
            ensure_not_weaker(table.settings.concurrency, guard.profile, guard.isolation, table.storage.uri)
            table.observed.same_lock = True

    def require_profile(self, profile: str, isolation: str = "") -> None:
        """Refuse writers with a weaker profile from now on; an empty `profile` admits all. Open writers keep theirs.

        `StorageError` if somebody changes the record at the same time.
        """
        table = self.table
        if table.provider is not None:
            ensure_recorded(table.storage, table.provider, table.runtime.uuid())
        if not require_profile(table.storage, profile, isolation):
            raise StorageError(
                f"the record of {table.storage.uri} changed meanwhile, or no writer has made one", hint="run it again"
            )
