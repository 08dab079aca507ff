"""Cleaning: a plan on the timeline, then the deletions, then the completed clean, each as Java Hudi has it.

The order makes a clean safe to kill at every request, and safe alongside others. A pending plan is finished before a new one is
made, by whoever comes next: its files were dead when it was made, and dead files do not come back. Whoever carries it out looks
for savepoints once it is stored, and leaves out what they keep; a savepoint looks for plans once it is shown. Deletions need no
lock and may be done twice. `tests/simulation/models/clean.py` searches all of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.errors import TransactionError
from lakelock.events import EventKind
from lakelock.markers.liveness import StorageClock
from lakelock.occ.open_table import OpenTable
from lakelock.occ.steps import Step, reached
from lakelock.occ.upkeep.asked_retention import ensure_not_needed
from lakelock.occ.upkeep.budget import Budget
from lakelock.occ.upkeep.clean_policy import NONE, VERSIONS, Dead, Retention, Shown, dead_files, retention
from lakelock.occ.upkeep.clean_scope import everywhere, files_of, protecting, scope_of
from lakelock.occ.upkeep.retained import newest_readable_from
from lakelock.occ.upkeep.savepoints import saved_files
from lakelock.settings import CleanSettings
from lakelock.storage import Storage, Stored
from lakelock.table import layout
from lakelock.table.eligibility import check_writable
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.layout import FileGroupId
from lakelock.table.service_metadata import (
    READABLE_FROM,
    SAVEPOINTS,
    CleanedUntil,
    CleanMetadata,
    CleanPlan,
    pending_clustering_groups,
)
from lakelock.table.snapshot import read_replaced
from lakelock.table.timeline import Timeline
from lakelock.texts import command, counted

DELETED_AT_ONCE = 200
"""Files of one delete request; several requests are in flight at once."""

WRITER = "lakelock.writer"
"""Our key for the writer that made a plan: it distinguishes our plans from those of another engine."""


@dataclass(frozen=True, repr=False)
class Cleaned:
    """What a run of the cleaner did, or would do. `instant` is that of the clean, empty where there was nothing to remove.

    `retained`: the instant that the policy and every active user need; `held_by`: what keeps more than the policy asks for.
    `left` files remain for the next run to delete; `yielded_to` is another engine's clean in progress.
    """

    files: int = 0
    size_bytes: int = 0
    instant: str = ""
    retained: str = ""
    readable_from: str = ""
    held_by: str = ""
    left: int = 0
    yielded_to: str = ""
    finished: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.yielded_to:
            return f"clean: another engine is cleaning ({self.yielded_to}); run again when it is done"
        left = f", {self.left:,} left for the next run" if self.left else ""
        kept = f"; what else is old is kept for {self.held_by}" if self.held_by else ""
        return f"clean: {counted(self.files, 'old file')}, {counted(self.size_bytes, 'byte')}{left}{kept}"


@dataclass(frozen=True)
class _Draft:
    """A plan, and the timeline on which it was made; it may be stored as long as the savepoints are still the same.

    `note` is true once the plan is carried out.
    """

    plan: CleanPlan
    dead: Dead
    kept: Retention
    held: frozenset[Instant]
    note: CleanedUntil | None


def clean(table: OpenTable, budget: Budget, *, dry_run: bool = False, asked: CleanSettings | None = None) -> Cleaned:
    """Delete the files that nobody needs any longer, until the budget is spent at the latest; the next run does the rest.

    With a retention that was `asked` for, instead of that of the settings: `InputError` if somebody needs one of the files.
    """
    check_writable(table.properties())
    if asked is not None:
        _draft(table, asked)
    finished: list[str] = []
    for pending in [i for i in table.timeline().cleanings if not i.is_completed]:
        if dry_run:
            continue
        plan = _plan_to_finish(table, pending)
        if plan is None and _removes_left_over(table, pending):
            continue
        if plan is None:
            return Cleaned(yielded_to=pending.requested, finished=tuple(finished))
        left = _carry_out(table, pending.requested, plan, budget, resumed=True)
        if left:
            return Cleaned(len(plan.keys) - left, 0, pending.requested, plan.retained, left=left, finished=tuple(finished))
        finished.append(pending.requested)
    for _ in range(table.settings.decisions.slot_attempts):
        draft = _draft(table, asked)
        found = Cleaned(
            len(draft.dead.files), draft.dead.size_bytes, "", draft.kept.retained, draft.plan.extra.get(READABLE_FROM, ""),
            draft.kept.held_by, finished=tuple(finished),
        )  # fmt: skip
        if dry_run:
            return found
        if not draft.dead.files:
            _remember(table, draft.note)
            return found
        instant = _put(table, draft)
        if instant is None:
            continue
        left = _carry_out(table, instant, draft.plan, budget, draft.note)
        return replace(found, instant=instant, files=found.files - left, left=left)
    raise TransactionError(
        f"{table.storage.uri}: others planned cleans or took savepoints in each attempt to plan a clean",
        hint=f"run again when it is quieter: {command('clean', table.storage.uri)}",
    )


def _draft(table: OpenTable, asked: CleanSettings | None) -> _Draft:
    """The files that may go now. One listing of the timeline, those of the scope, a read of each savepoint and replacement."""
    settings = asked or table.settings.clean
    listed = list(table.storage.list(layout.TIMELINE))
    timeline = Timeline.from_listing(listed)
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    kept = retention(settings, timeline, Shown.of(listed), now_ms, table.runtime.now_ms())
    scope = scope_of(table, timeline, kept, now_ms) if asked is None else everywhere(timeline, kept, now_ms)
    files, note = scope.objects(table)
    saved = saved_files(table, timeline)
    dead = NONE
    if files:
        replaced = read_replaced(table.io, timeline)
        planned = _planned_groups(table.storage, timeline)
        found = partial(dead_files, keep_versions=settings.keep_versions, timeline=timeline, files=files, replaced=replaced)
        dead = found(kept, held=saved.keys, held_groups=planned)
        if asked is not None:
            unheld = found(kept.by_policy_alone, held=frozenset(), held_groups=frozenset())
            ensure_not_needed(table, timeline, kept, set(unheld.files) - set(dead.files))
    readable_from = max(dead.readable_from, newest_readable_from(table, timeline)) if dead.files else ""
    extra = {READABLE_FROM: readable_from, WRITER: str(table.writer)}
    if saved.instants:
        extra[SAVEPOINTS] = ",".join(sorted(saved.instants))
    newest = timeline.commits[-1].requested if timeline.commits else ""
    named = kept.retained if kept.policy != VERSIONS else ""
    plan = CleanPlan(kept.policy, named, kept.action if named else "", newest, dead.by_partition, extra, table.storage.uri)
    return _Draft(plan, dead, kept, frozenset(protecting(timeline)), note)


def _planned_groups(storage: Storage, timeline: Timeline) -> frozenset[FileGroupId]:
    groups: set[FileGroupId] = set()
    for plan in timeline.pending_clustering:
        name = replace(plan, state=State.REQUESTED).file_name
        stored = storage.get(layout.timeline(name))
        groups |= pending_clustering_groups(stored.data, name) if stored is not None else set()
    return frozenset(groups)


def _put(table: OpenTable, draft: _Draft) -> str | None:
    """Put the plan on the timeline; its instant, or None if somebody was faster and it has to be made again."""
    with table.locked(operation="CLEAN"):
        timeline = table.timeline()
        if frozenset(protecting(timeline)) != draft.held or any(not i.is_completed for i in timeline.cleanings):
            return None
        instant = later_than(table.runtime.now_ms(), timeline.newest_time)
        requested = Instant(instant, Action.CLEAN.value, State.REQUESTED)
        if table.storage.put_if_absent(layout.timeline(requested.file_name), draft.plan.to_bytes()) is None:
            return None
        reached(Step.CLEAN_PLANNED)
        # Whoever takes an instant reads the timeline after publishing it there: one of us sees the other. A plan that met a
        # savepoint is not withdrawn, because another cleaner may have it: whoever carries it out leaves out what is saved.
        if any(i.requested == instant and i.action != Action.CLEAN for i in table.timeline().instants):
            table.storage.delete([layout.timeline(requested.file_name)])
            return None
        inflight = replace(requested, state=State.INFLIGHT)
        table.storage.put_if_absent(layout.timeline(inflight.file_name), b"")
        table.observed.time_seen(instant)
    return instant


def _plan_to_finish(table: OpenTable, pending: Instant) -> CleanPlan | None:
    """The plan of a pending clean that this run may carry out; None while it is another engine's, which may be at work."""
    key = layout.timeline(replace(pending, state=State.REQUESTED).file_name)
    stored = table.storage.get(key)
    if stored is None:
        return None
    plan = CleanPlan.from_bytes(stored.data, key) if stored.data else None
    if plan is not None and WRITER in plan.extra:
        return plan
    # Java removes whole folders without checking again, and its own half-written plans: both are left to Java.
    if plan is None or plan.partitions_to_remove or not _is_abandoned(table, stored):
        return None
    return plan


def _is_abandoned(table: OpenTable, stored: Stored) -> bool:
    """Whether this file of a clean is older than anybody needs for one."""
    heartbeat = table.settings.heartbeat
    patience_ms = heartbeat.limit_s * heartbeat.foreign_patience * 1000
    return StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime) - stored.modified_ms > patience_ms


def _removes_left_over(table: OpenTable, pending: Instant) -> bool:
    """Remove an inflight file without a plan: a cleaner had begun to carry out a plan that was withdrawn, and died."""
    inflight = layout.timeline(replace(pending, state=State.INFLIGHT).file_name)
    if table.storage.get(layout.timeline(replace(pending, state=State.REQUESTED).file_name)) is not None:
        return False
    stored = table.storage.get(inflight)
    if stored is None or not _is_abandoned(table, stored):
        return False
    table.storage.delete([inflight])
    return True


def _carry_out(
    table: OpenTable, instant: str, plan: CleanPlan, budget: Budget, note: CleanedUntil | None = None, *, resumed: bool = False
) -> int:
    """Delete what a plan on the timeline names, and complete it; how many files remain for the next run.

    However little of the budget is left, a run deletes something: a plan of any length comes to its end.
    """
    timeline = table.timeline()
    saved = saved_files(table, timeline)
    inflight = layout.timeline(Instant(instant, Action.CLEAN.value, State.INFLIGHT).file_name)
    if saved.is_being_taken:
        return len(plan.keys)
    keys = [key for key in plan.keys if key not in saved.keys]
    table.storage.put_if_absent(inflight, b"")
    began_ms = table.runtime.now_ms()
    wave = DELETED_AT_ONCE * table.parallel_requests
    if resumed and len(keys) > wave:
        keys = _still_there(table, keys)
    for start in range(0, len(keys), wave):
        if start and budget.is_spent:
            return len(keys) - start
        budget.progress("clean", start, len(keys))
        part = keys[start : start + wave]
        batches = [part[at : at + DELETED_AT_ONCE] for at in range(0, len(part), DELETED_AT_ONCE)]
        table.io.gather([partial(table.storage.delete, batch) for batch in batches])
        reached(Step.CLEAN_DELETED)
    budget.progress("clean", len(keys), len(keys))
    _complete(table, instant, _without(plan, saved.keys), max(0, table.runtime.now_ms() - began_ms))
    if saved.keys.isdisjoint(plan.keys):
        _remember(table, note)
    return 0


def _still_there(table: OpenTable, keys: Sequence[str]) -> list[str]:
    """Those of the files that an earlier run has not deleted. One listing of each of their partitions."""
    partitions = sorted({layout.split_path(key)[0] for key in keys})
    listings = table.io.gather([partial(files_of, table, each) for each in partitions])
    there = {item.key for items in listings for item in items}
    return [key for key in keys if key in there]


def _remember(table: OpenTable, note: CleanedUntil | None) -> None:
    if note is not None:
        table.storage.put(layout.CLEANED_UNTIL, note.to_bytes())


def _without(plan: CleanPlan, saved: frozenset[str]) -> CleanPlan:
    files = {
        partition: tuple(name for name in names if layout.in_partition(partition, name) not in saved)
        for partition, names in plan.files.items()
    }
    return replace(plan, files=files)


def _complete(table: OpenTable, instant: str, plan: CleanPlan, took_ms: int) -> None:
    """Complete the clean, unless somebody already has: completing it twice would put two files on the timeline."""
    with table.locked(instant, "CLEAN"):
        timeline = table.timeline()
        if not any(i.requested == instant and not i.is_completed for i in timeline.cleanings):
            return
        completion = later_than(table.runtime.now_ms(), timeline.newest_time)
        done = Instant(instant, Action.CLEAN.value, State.COMPLETED, completion)
        table.storage.put_if_absent(layout.timeline(done.file_name), CleanMetadata.of(instant, took_ms, plan).to_bytes())
        table.observed.time_seen(completion)
    reached(Step.CLEAN_COMPLETED)
    table.emit(EventKind.CLEANED, instant, "CLEAN", files=len(plan.keys), retained=plan.retained)
