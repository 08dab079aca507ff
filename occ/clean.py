"""Cleaning: a plan on the timeline, then the deletions, then the completed clean, each as Java Hudi has it.

The order makes a clean safe to kill at every request, and safe alongside others. A pending plan is finished before a new one
is made, by the next cleaner that comes: its files were dead when it was made, and dead files do not come back. A cleaner
looks for savepoints once the plan is stored, and leaves out the files that they keep; a savepoint looks for plans once it is
shown. Deletions need no lock and may be done twice. `tests/simulation/models/clean.py` searches all of this.

The scope of a clean is the partitions in which something was superseded since earlier cleans, or the whole table. A file is
superseded by the commit that wrote the next file of its group or replaced the group, and may be deleted once the retention has
passed that commit. So every file that may be deleted now, and not at the last clean, was superseded by a commit between the two
limits, and the metadata of that commit names its partition. A commit that only adds file groups supersedes nothing. Listing
fewer partitions never deletes more. The whole table is listed once a day, for files that no metadata named.

Retention that is asked for in one call is refused if it would take files that are still needed. Upkeep that runs by itself
keeps such files and says for which holder. A caller that asks for a shorter retention wants the old files gone, so it is an
error if they had to stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from lakelock.errors import RESTORE_FILE, CorruptTableError, InputError, StorageError, StorageUnavailable, TransactionError
from lakelock.events import EventKind, Step, reached
from lakelock.markers.liveness import StorageClock
from lakelock.occ.live_logs import bases_below, slices_at
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.open_table import OpenTable
from lakelock.occ.retention import (
    COMMITS,
    HOURS,
    NO_DEAD_FILES,
    READERS,
    VERSIONS,
    Appearances,
    Budget,
    DeadFiles,
    Retention,
    dead_files,
    newest_readable_from,
    retention,
)
from lakelock.occ.savepoints import list_savepoints, saved_at, saved_files
from lakelock.settings import CleanSettings
from lakelock.storage import Listed, Storage, Stored
from lakelock.table import layout
from lakelock.table.archive import completed_write, instants_in, writes_in
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import check_writable
from lakelock.table.history_files import HistoryFile
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import LogFile
from lakelock.table.service_metadata import (
    READABLE_FROM,
    SAVEPOINTS,
    CleanedUntil,
    CleanMetadata,
    CleanPlan,
    planned_groups,
)
from lakelock.table.snapshot import DataFile, read_replaced
from lakelock.table.timeline import Timeline
from lakelock.texts import command, counted

WHOLE_TABLE_EACH_MS = 24 * 3_600_000
"""The whole table is listed by the first clean after this long."""

MOST_COMMITS = 1_000
"""Behind more commits than this, the whole table is listed."""

LISTING_PAGE = 1_000
"""Objects in one answer of an object store to a listing."""


@dataclass(frozen=True)
class Scope:
    """The partitions to list, None for all. `note` is what is true once all dead files in them are deleted."""

    partitions: frozenset[str] | None
    note: CleanedUntil | None = None

    def objects(self, table: OpenTable) -> tuple[list[Listed], CleanedUntil | None]:
        """The objects of these partitions, and the note."""
        if self.partitions is None:
            objects = list(table.storage.list(""))
            return objects, replace(self.note, objects=len(objects)) if self.note is not None else None
        looks = [partial(files_of, table, partition) for partition in sorted(self.partitions)]
        found = table.io.gather(looks)
        return [item for items in found for item in items], self.note


NOWHERE = Scope(frozenset())


def everywhere(timeline: Timeline, kept: Retention, now_ms: int) -> Scope:
    """The whole table. A policy that counts versions gives no note: files that it keeps may have been superseded long ago."""
    if kept.policy == VERSIONS or not kept.limit:
        return Scope(None)
    # A pending write may still supersede files, by an instant that is already older than the retention.
    until = min([kept.limit, *(i.requested for i in timeline.pending)])
    return Scope(None, CleanedUntil(until, _holds(timeline), now_ms))


def scope_of(table: OpenTable, timeline: Timeline, kept: Retention, now_ms: int) -> Scope:
    """Where dead files can be. One read of the note, and one of each commit that the retention has passed since.

    `now_ms` is the storage's time, taken before the table is listed. The whole table is listed if nothing is known, if a
    savepoint or a service's plan that kept files is gone, once a day, if the policy counts versions, and where it costs less.
    """
    if not kept.limit:
        return NOWHERE
    whole = everywhere(timeline, kept, now_ms)
    if whole.note is None:
        return whole
    stored = table.storage.get(layout.CLEANED_UNTIL)
    known = CleanedUntil.from_bytes(stored.data) if stored is not None else None
    if known is None or not known.holds <= whole.note.holds or not 0 <= now_ms - known.listed_ms < WHOLE_TABLE_EACH_MS:
        return whole
    if kept.limit <= known.until:
        return NOWHERE
    partitions = _superseded_in(table, timeline, known.until, kept.limit)
    if partitions is None or len(partitions) > max(table.parallel_requests, known.objects // LISTING_PAGE):
        return whole
    return Scope(partitions, replace(known, until=whole.note.until, holds=whole.note.holds))


def _holds(timeline: Timeline) -> frozenset[str]:
    return frozenset(f"{i.requested}.{i.action}" for i in protecting(timeline))


def protecting(timeline: Timeline) -> Iterator[Instant]:
    """What protects files from a clean, and may appear meanwhile: savepoints in any state, and plans to cluster or compact."""
    yield from (i for i in timeline.instants if i.action == Action.SAVEPOINT)
    yield from timeline.pending_services


def files_of(table: OpenTable, partition: str) -> list[Listed]:
    """The objects of this partition, and of no folder inside it."""
    listed = table.storage.list(partition)
    return [item for item in listed if layout.split_path(item.key)[0] == partition]


def _superseded_in(table: OpenTable, timeline: Timeline, since: str, until: str) -> frozenset[str] | None:
    """The partitions in which commits requested from `since` to before `until` superseded files; None if that is unknown,
    or it would take too long.
    """
    active = [i for i in timeline.commits if since <= i.requested < until]
    try:
        archived = _archived_since(table, timeline, since, until)
        if len(active) + sum(map(len, archived.values())) > MOST_COMMITS:
            return None
        reads = [partial(_superseded_by, table, timeline, instant.requested) for instant in active]
        old = [partial(_superseded_by_archived, table, name, instants) for name, instants in archived.items() if instants]
        found = table.io.gather([*reads, *old])
    except StorageUnavailable:
        raise
    except (StorageError, CorruptTableError):
        return None  # merged meanwhile, or damaged
    return frozenset().union(*found)


def _superseded_by(table: OpenTable, timeline: Timeline, instant: str) -> frozenset[str]:
    decided = table.log.known(instant)
    if decided is not None and decided.payload:
        return _partitions(decided.payload, instant)
    commit = completed_write(table.storage, timeline, instant)
    if commit is None:
        raise CorruptTableError(f"{instant} is on the timeline but cannot be read", hint=RESTORE_FILE)
    return _partitions(commit.data, instant)


def _archived_since(table: OpenTable, timeline: Timeline, since: str, until: str) -> dict[str, frozenset[str]]:
    """The instants of that time in each file of the history that may have some. One read for each such file."""
    files = (HistoryFile.parse(name) for name in timeline.archive)
    names = [file.name for file in files if file is not None and file.last >= since and file.first < until]
    found = table.io.gather([partial(instants_in, table.storage, name) for name in names])
    return {n: frozenset(i for i in instants or () if since <= i < until) for n, instants in zip(names, found, strict=True)}


def _superseded_by_archived(table: OpenTable, name: str, instants: frozenset[str]) -> frozenset[str]:
    writes = writes_in(table.storage, name, instants)
    return frozenset().union(*(_partitions(write.data, write.requested) for write in writes))


def _partitions(data: bytes, source: str) -> frozenset[str]:
    """Where a commit wrote the next file of a group, or replaced one."""
    metadata = CommitMetadata.from_bytes(data, source)
    return frozenset(group.partition for group in metadata.rewritten_groups | metadata.replaced_groups)


_POLICIES = {"keep_hours": HOURS, "keep_commits": COMMITS, "keep_versions": VERSIONS}


def asked_retention(
    settings: CleanSettings,
    *,
    keep_hours: float | None = None,
    keep_commits: int | None = None,
    keep_versions: int | None = None,
) -> CleanSettings | None:
    """The settings with the one retention that was given, None if none was. `InputError` for more than one."""
    values = {"keep_hours": keep_hours, "keep_commits": keep_commits, "keep_versions": keep_versions}
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} exclude each other", hint=f"give one of {', '.join(values)}")
    if not given:
        return None
    changes: dict[str, object] = {"policy": _POLICIES[next(iter(given))], **given}
    return replace(settings, **changes)  # type: ignore[arg-type]


def ensure_not_needed(table: OpenTable, timeline: Timeline, kept: Retention, files: Collection[DataFile | LogFile]) -> None:
    """`InputError` that names who needs the files, which the retention alone would delete; nothing if there are none."""
    if not files:
        return
    holder, hint = _holder(table, timeline, kept, {file.key for file in files})
    raise InputError(
        f"{table.storage.uri}: this retention would delete {counted(len(files), 'file')} kept for {holder}",
        hint=f"{hint}; or ask for no retention: then the settings clean.* apply, and what is needed stays",
    )


def _holder(table: OpenTable, timeline: Timeline, kept: Retention, keys: set[str]) -> tuple[str, str]:
    """Who needs one of the files, and what to do about it."""
    for savepoint in list_savepoints(table):
        if keys & (saved_at(table, timeline, savepoint.instant) or frozenset()):
            remove = command("savepoint", "rm", table.storage.uri, savepoint.instant)
            return f"the savepoint {savepoint.name!r} of {savepoint.instant}", f"delete it first: {remove}"
    if kept.held_by:
        who = f"{kept.held_by}; nothing that was current at {kept.settled} or later may go"
        if READERS in kept.held_by:
            return who, f"make sure that no reader needs the table as it was, and clean with {READERS}=0; or run again later"
        return who, f"wait until it has ended ({command('commits', 'ls', table.storage.uri)}), and run again"
    plans = ", ".join(str(plan) for plan in timeline.pending_services)
    return f"another engine's plan: {plans}", "let that engine carry it out"


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
class _DraftPlan:
    """A plan, and the timeline on which it was made; it may be stored as long as the savepoints are still the same.

    `note` is true once the plan is carried out.
    """

    plan: CleanPlan
    dead: DeadFiles
    kept: Retention
    held: frozenset[Instant]
    note: CleanedUntil | None


def clean(table: OpenTable, budget: Budget, *, dry_run: bool = False, asked: CleanSettings | None = None) -> Cleaned:
    """Delete the files that are no longer needed, until the budget is spent at the latest; the next run does the rest.

    With a retention that was `asked` for, instead of that of the settings: `InputError` if one of the files is needed.
    """
    check_writable(table.properties())
    if asked is not None:
        _draft_plan(table, asked)
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
        draft = _draft_plan(table, asked)
        found = Cleaned(
            len(draft.dead.files), draft.dead.size_bytes, "", draft.kept.retained, draft.plan.extra.get(READABLE_FROM, ""),
            draft.kept.held_by, finished=tuple(finished),
        )  # fmt: skip
        if dry_run:
            return found
        if not draft.dead.files:
            _remember(table, draft.note)
            return found
        instant = _put_plan(table, draft)
        if instant is None:
            continue
        left = _carry_out(table, instant, draft.plan, budget, draft.note)
        return replace(found, instant=instant, files=found.files - left, left=left)
    raise TransactionError(
        f"{table.storage.uri}: others planned cleans or took savepoints in each attempt to plan a clean",
        hint=f"run again when it is quieter: {command('clean', table.storage.uri)}",
    )


def _draft_plan(table: OpenTable, asked: CleanSettings | None) -> _DraftPlan:
    """The files that may go now. One look at the timeline, listings of the scope, a read of each savepoint and replacement."""
    settings = asked or table.settings.clean
    timeline, listed = table.timeline_and_files()
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    kept = retention(settings, timeline, Appearances.of(listed), now_ms, table.runtime.now_ms())
    scope = scope_of(table, timeline, kept, now_ms) if asked is None else everywhere(timeline, kept, now_ms)
    files, note = scope.objects(table)
    saved = saved_files(table, timeline)
    dead = NO_DEAD_FILES
    if files:
        replaced = read_replaced(table.io, timeline)
        planned = _planned_groups(table.storage, timeline)
        live = lru_cache(lambda: bases_below(table, timeline).keys())
        found = partial(
            dead_files, keep_versions=settings.keep_versions, timeline=timeline, files=files, replaced=replaced, live_logs=live
        )
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
    return _DraftPlan(plan, dead, kept, frozenset(protecting(timeline)), note)


def _planned_groups(storage: Storage, timeline: Timeline) -> frozenset[FileGroupId]:
    groups: set[FileGroupId] = set()
    for plan in timeline.pending_services:
        name = replace(plan, state=State.REQUESTED).file_name
        stored = storage.get(layout.timeline(name))
        groups |= planned_groups(stored.data, name) if stored is not None else set()
    return frozenset(groups)


def _put_plan(table: OpenTable, draft: _DraftPlan) -> str | None:
    """Put the plan on the timeline; its instant, or None if another was faster and it has to be made again."""
    with table.locked(operation="CLEAN"):
        timeline = table.timeline()
        if frozenset(protecting(timeline)) != draft.held or any(not i.is_completed for i in timeline.cleanings):
            return None
        instant = later_than(table.runtime.now_ms(), timeline.newest_time)
        requested = Instant(instant, Action.CLEAN.value, State.REQUESTED)
        if table.storage.put_if_absent(layout.timeline(requested.file_name), draft.plan.to_bytes()) is None:
            return None
        reached(Step.CLEAN_PLANNED)
        # A writer that takes an instant reads the timeline after publishing it: one of us sees the other. A plan that met a
        # savepoint is not withdrawn, because another cleaner may have it: each of them leaves out what is saved.
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
    """Whether this file of a clean is older than any clean needs."""
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
    needed = saved.keys
    if plan.newest and not timeline.is_visible(plan.newest):
        # Another engine has undone a commit that superseded files of the plan: they may be the newest again.
        needed |= {key for f in slices_at(table, timeline).files for key in (f.key, *(log.key for log in f.logs))}
    keys = [key for key in plan.keys if key not in needed]
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
    _complete_clean(table, instant, _without(plan, needed), max(0, table.runtime.now_ms() - began_ms))
    if needed.isdisjoint(plan.keys):
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


def _complete_clean(table: OpenTable, instant: str, plan: CleanPlan, took_ms: int) -> None:
    """Complete the clean, unless another cleaner has: completing it twice would put two files on the timeline."""
    with table.locked(instant, "CLEAN"):
        timeline, properties = table.at_once(table.timeline, table.properties)
        if not any(i.requested == instant and not i.is_completed for i in timeline.cleanings):
            return
        metadata = KeptMetadata.look(table, properties)
        if metadata is not None:
            metadata.mended(timeline).clean(instant, plan.files, timeline)
        completion = later_than(table.runtime.now_ms(), timeline.newest_time)
        done = Instant(instant, Action.CLEAN.value, State.COMPLETED, completion)
        table.storage.put_if_absent(layout.timeline(done.file_name), CleanMetadata.of(instant, took_ms, plan).to_bytes())
        table.observed.time_seen(completion)
    reached(Step.CLEAN_COMPLETED)
    table.emit(EventKind.CLEANED, instant, "CLEAN", files=len(plan.keys), retained=plan.retained)
