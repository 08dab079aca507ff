"""One run of upkeep: finish dead writers, clean, archive, collect, tell the catalog. Each step is safe to kill.

Hudi's metadata table is kept in between, too: its upkeep is due more often.

The catalog that gives the table its name is updated on request, and after each commit. The process keeps no record of that: the
catalog's entry knows its newest commit, and each update has everything that the entry lacks. So a commit that could not reach
the catalog leaves that to the next one, of any writer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lakelock.catalogs import Synced, TableName, open_catalog
from lakelock.catalogs.base import Described, described
from lakelock.catalogs.syncing import location_of, sync
from lakelock.errors import InputError, LakelockError, TableError
from lakelock.events import Event, EventKind
from lakelock.markers.liveness import StorageClock
from lakelock.occ.archive import Archived, archive
from lakelock.occ.claims import end_dead
from lakelock.occ.clean import Cleaned, clean
from lakelock.occ.data_locking import is_running_on
from lakelock.occ.foreign import how_to_go_on, remove_strays_of_undone, unrepaired
from lakelock.occ.live_logs import logged_files
from lakelock.occ.metadata_upkeep import COMPACT_EVERY, MetadataUpkept, keep_metadata
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recovery import Reaped, collect, collect_outcomes, collectable, find_dead, reap, sweep
from lakelock.occ.rejections import forget_rejections, outdated_rejections
from lakelock.occ.retention import Budget, Progress
from lakelock.occ.savepoints import withdraw_unfinished
from lakelock.occ.schema import SchemaHistory
from lakelock.table.eligibility import check_writable
from lakelock.table.merged_slices import is_to_be_compacted
from lakelock.table.properties import TableProperties
from lakelock.table.snapshot import DataFile


def register(table: OpenTable, name: str = "") -> Synced:
    """Make the catalog say what the table says, under `name` or that of the settings; this process goes on to do so.

    `CatalogError` if the catalog does not answer or refuses, `InputError` if the name is another table's or no name,
    `SettingsError` if the settings name no catalog, `TableError` for a merge-on-read table.
    """
    synced = sync_catalog(table, name)
    table.observed.name = name or table.observed.name
    return synced


def sync_catalog(table: OpenTable, name: str = "") -> Synced:
    """Tell the catalog what it lacks, once. Raises as `register` does."""
    properties, settings = table.properties(), table.settings
    if properties.is_merge_on_read:
        raise TableError(
            f"{properties.name} is a merge-on-read table: lakelock would tell the catalog of its base files only",
            hint="let its Java writers register it, with their own sync (hoodie.datasource.meta_sync.enable=true)",
        )
    wanted = name or table.observed.name or settings.catalog.table
    if not wanted:
        raise InputError("the table has no name in a catalog", hint="give one, such as sales.orders, or set catalog.table")
    found = TableName.parse(wanted, properties.name)
    catalog = open_catalog(settings, table.runtime, table.writer.user)
    try:
        synced = sync(
            catalog,
            found,
            partial(_described_now, table, properties),
            create_database=settings.catalog.create_database,
            keeps_spelling=settings.catalog.s3_scheme == "auto",
        )
    finally:
        catalog.close()
    facts = {"name": synced.name, "as_of": synced.instant, "added": synced.added, "dropped": synced.dropped}
    table.events.emit(Event(EventKind.NAMED, table.storage.uri, facts=facts))
    return synced


def tell_catalog(table: OpenTable) -> None:
    """After a commit: tell the catalog, if there is one. The commit stands whatever goes wrong; the next one tells it all."""
    if not (table.settings.catalog.table or table.observed.name):
        return
    try:
        sync_catalog(table)
    except Exception as error:  # noqa: BLE001  an error would contradict the table
        why = f"{error.message} ({error.hint})" if isinstance(error, LakelockError) else f"{type(error).__name__}: {error}"
        name = table.observed.name or table.settings.catalog.table
        problem = f"the catalog was not told of {name}: {why}. The next commit, or lakelock register, tells it all"
        table.emit(EventKind.ALERT, operation="CATALOG", problem=problem)


def _described_now(table: OpenTable, properties: TableProperties) -> Described:
    snapshot, timeline = table.shown_now()
    schema = SchemaHistory(table).at(timeline, properties)
    return described(location_of(table.storage.uri, table.settings), properties, schema, snapshot.partitions, timeline)


T = TypeVar("T")


@dataclass(frozen=True)
class Upkept:
    """What a run of upkeep did, or would do if it is a `dry_run`.

    `reaped` are instants of dead writers, `compacted` file groups, `collected` decisions, `forgotten` old records
    of rejections. `metadata` is what became of Hudi's metadata table. `problems` say what could not be done and why; the
    next run tries again. `spent` says that a step used its part of the budget up.
    """

    dry_run: bool
    reaped: tuple[str, ...] = ()
    compacted: int = 0
    cleaned: Cleaned = field(default_factory=Cleaned)
    archived: Archived = field(default_factory=Archived)
    metadata: MetadataUpkept = field(default_factory=MetadataUpkept)
    collected: int = 0
    forgotten: int = 0
    took_s: float = 0.0
    spent: bool = False
    problems: tuple[str, ...] = ()

    def __repr__(self) -> str:
        done = [
            f"{count:,} {what}"
            for count, what in (
                (len(self.reaped), "dead writers finished"),
                (self.compacted, "file groups compacted"),
                (self.cleaned.files, "files deleted"),
                (self.archived.instants, "instants archived"),
                (self.collected, "decisions collected"),
                (self.forgotten, "records of rejections deleted"),
            )
            if count
        ]
        done += ["Hudi's metadata table compacted"] if self.metadata.compacted else []
        what = ", ".join(done) or "nothing to do"
        more = ["; the next run goes on"] if self.spent else []
        more += [f"; problem: {problem}" for problem in self.problems]
        return f"{'upkeep would do' if self.dry_run else 'upkeep'}: {what}{''.join(more)}, in {self.took_s:.1f} s"


def upkeep(table: OpenTable, *, dry_run: bool = False, progress: Progress | None = None) -> Upkept:
    """Run all steps for at most `upkeep.budget_s`: no new work is begun after that.

    A step that fails does not keep the others from running, nor does one with much to do: cleaning and archiving each take
    at most half of the time that is left. A dry run changes nothing; to read the storage's clock it writes an object and
    removes it.
    """
    check_writable(table.properties())
    table.timeline()  # `TableError` where no step would find this table
    table.observed.keeping_up = True
    try:
        return _upkeep(table, dry_run=dry_run, progress=progress)
    finally:
        table.observed.keeping_up = False


def _upkeep(table: OpenTable, *, dry_run: bool, progress: Progress | None) -> Upkept:
    runtime = table.runtime
    began_s = runtime.monotonic_s()
    budget = Budget.of(runtime, table.settings.upkeep.budget_s, progress)
    problems: list[str] = []
    spent: list[str] = []

    def step(name: str, work: Callable[[Budget], T], otherwise: T) -> T:
        if budget.is_spent:
            spent.append(name)
            return otherwise
        budget.progress(name, 0, 0)
        share = budget.half()
        try:
            return work(share)
        except (LakelockError, OSError) as error:  # a compaction needs this machine's disk, too
            problems.append(f"{name}: {_text(error)}")
            return otherwise
        finally:
            spent.extend([name] if share.is_spent else [])

    none: tuple[str, ...] = ()
    reaped = step("finish the dead", lambda _: _would_reap(table) if dry_run else _reap(table, problems), none)
    compacted = step("compact", lambda half: _compact(table, half, dry_run=dry_run), 0)
    step("look for undone commits", lambda _: _look_for_undone(table, problems, dry_run=dry_run), None)
    cleaned = step("clean", lambda half: clean(table, half, dry_run=dry_run), Cleaned())
    archived = step("archive", lambda half: archive(table, half, dry_run=dry_run), Archived())
    metadata = step("metadata table", lambda half: keep_metadata(table, half, dry_run=dry_run), MetadataUpkept())
    collected = step("collect", lambda _: _would_collect(table) if dry_run else collect(table), 0)
    step("collect outcomes", lambda _: collect_outcomes(table, dry_run=dry_run), 0)
    forgotten = step("forget old rejections", lambda _: _forget(table, dry_run=dry_run), 0)
    took_s = runtime.monotonic_s() - began_s
    done = bool(spent), tuple(problems)
    return Upkept(dry_run, reaped, compacted, cleaned, archived, metadata, collected, forgotten, took_s, *done)


def _text(error: Exception) -> str:
    return error.message if isinstance(error, LakelockError) else f"{type(error).__name__}: {error}"


def _reap(table: OpenTable, problems: list[str]) -> tuple[str, ...]:
    def note(instant: str, operation: str, problem: str) -> None:
        problems.append(": ".join(part for part in ("finish the dead", instant, problem) if part))

    reaped: list[Reaped] = reap(table, note=note)
    sweep(table, note)
    end_dead(table)
    if table.timeline().savepoints:
        heartbeat = table.settings.heartbeat
        now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
        withdraw_unfinished(table, now_ms - round(heartbeat.limit_s * 1000))
    return tuple(each.instant for each in reaped)


def is_due(table: OpenTable, file: DataFile) -> bool:
    """Whether upkeep compacts a file slice."""
    return is_to_be_compacted(file, table.settings.upkeep.compact_logs)


def _compact(table: OpenTable, budget: Budget, *, dry_run: bool) -> int:
    run = table.observed.compact
    if run is None or not table.settings.upkeep.compact_logs or is_running_on(table.storage.uri):
        return 0
    return sum(is_due(table, file) for file in logged_files(table)) if dry_run else run(lambda: budget.is_spent)


def _look_for_undone(table: OpenTable, problems: list[str], *, dry_run: bool) -> None:
    """Commits that another engine has undone are problems until a repair has taken them out. Late files of theirs go now."""
    timeline = table.timeline()
    found = unrepaired(table, timeline)
    if not dry_run:
        remove_strays_of_undone(table, timeline)
    if found:
        table.observed.met_foreign()
    problems += [f"{each}; {how_to_go_on(table)}" for each in found]


def _would_reap(table: OpenTable) -> tuple[str, ...]:
    return tuple(instant for instant, _, _ in find_dead(table, table.timeline()))


def _would_collect(table: OpenTable) -> int:
    view = table.log.look()
    return max(0, collectable(table, view) - view.boundary)


def _forget(table: OpenTable, *, dry_run: bool) -> int:
    if dry_run:
        return len(outdated_rejections(table.storage, table.runtime))
    return forget_rejections(table.storage, table.runtime)


def after_commit(table: OpenTable, decision: int) -> None:
    """What follows a published decision: a checkpoint if it is its turn, the catalog, and upkeep if it is its turn.

    Never raises: the commit stands. Decisions are numbered, so of all writers of a table exactly one has each turn. One that is
    in the middle of a run, as with a compaction, begins no other.
    """
    table.checkpoint_when_due(decision)
    tell_catalog(table)
    settings, is_at_it = table.settings.upkeep, table.observed.keeping_up
    if is_at_it or not settings.auto or decision == 0:
        return
    try:
        if decision % settings.every_commits:
            if decision % COMPACT_EVERY == 0 and table.observed.metadata_schemas is not None:
                keep_metadata(table, Budget.of(table.runtime, settings.budget_s))
            return
        done = upkeep(table)
    except Exception as error:  # noqa: BLE001  an error would contradict the table
        table.emit(EventKind.ALERT, operation="UPKEEP", problem=f"upkeep after a commit failed: {_text(error)}")
        return
    for problem in done.problems:
        table.emit(EventKind.ALERT, operation="UPKEEP", problem=f"upkeep after a commit: {problem}")
