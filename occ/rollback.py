"""Rolling back: exactly one of commit and rollback wins for each instant, and only the winner's files survive.

A rollback by another process first takes a decision in the log; only then are data files deleted, then markers and the
pending timeline files, then the completed rollback is recorded, and last the heartbeat goes. It can be killed anywhere and
run again by any process. Heartbeat and record keep others from reusing the instant, so what was reported about it stays true.
The instant's own transaction may skip the decision as long as it has never tried to decide: no other could commit it.

A stray file was written by a late task after its commit had read the markers; the task was killed before it could check its
own. Readers find files by name, so a stray file shows among those of the commit: its rows appear twice, or, in a file group
that was rewritten, there are two slices of one instant, which no reader accepts. The marker announces the file; the commit's
write statistics say which files count (`docs/adr/0011`). Stray files of a rolled back instant are deleted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum

from lakelock.errors import StorageUnavailable, TransactionError
from lakelock.events import EventKind, Step, reached
from lakelock.markers.claims import OwnClaims
from lakelock.markers.data_files import MarkerSet, markers_of
from lakelock.markers.leftovers import Leftovers, find_leftovers, is_data_file_of
from lakelock.markers.liveness import CLOCK_GRAIN_MS, LivenessState, StorageClock, judge_all, judge_missing
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import inflight_key, requested_key
from lakelock.occ.footprint import SERVICES
from lakelock.occ.foreign import SHOWN_BESIDE
from lakelock.occ.log import Decision, DecisionKind, Resolution, decided_for, resolve
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import (
    InstantFate,
    Publication,
    fate_of,
    finish_head,
    is_rolled_back,
    publish_for_another,
    settle,
    shown_fate,
)
from lakelock.storage import Created
from lakelock.table import layout
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.service_metadata import RollbackMetadata, RollbackPlan
from lakelock.table.timeline import Timeline
from lakelock.texts import command


def remove_strays(table: OpenTable, timeline: Timeline, markers: MarkerSet) -> frozenset[str]:
    """Delete the files that the markers of a committed instant announce and its commit does not name.

    Returns the keys of the markers that must stay. The `timeline` shows the commit, or is newer than all of the archive.
    A file that the commit names is never deleted. The marker of a stray file stays until it is older than a heartbeat may
    be: its task may still write the file, and be killed afterwards. All markers stay if the commit's metadata is not found.
    Commits of other engines are left alone: those engines reconcile by themselves.
    """
    instant = markers.instant
    if not markers.objects:
        return frozenset()
    commit = completed_write(table.storage, timeline, instant)
    if commit is None:
        return frozenset(markers.keys)
    metadata = CommitMetadata.from_bytes(commit.data, instant)
    if keys.DECISION not in metadata.extra:
        return frozenset()
    named = {stat.path for stat in metadata.stats}
    strays = sorted({m.data_key for m in markers.markers} - named)
    strays = [key for key in strays if is_data_file_of(key, instant)]
    if not strays:
        return frozenset()
    table.storage.delete(strays)
    return _remove_old_markers(table, markers, strays)


def _remove_old_markers(table: OpenTable, markers: MarkerSet, strays: list[str]) -> frozenset[str]:
    """Remove the old markers of stray files, and return the young ones. A task that is still at work finds its marker gone."""
    young = _young_markers(table, markers)
    of_strays = frozenset(markers_of(markers, strays))
    table.storage.delete(sorted(of_strays - young))
    table.storage.delete(strays)
    if of_strays - young:
        table.emit(EventKind.ALERT, markers.instant, problem=SHOWN_BESIDE, files=len(of_strays - young))
    return of_strays & young


def remove_uncommitted(table: OpenTable, left: Leftovers, control_files: Iterable[str]) -> None:
    """Delete the data files that a rolled back instant left, then these of its other objects.

    Young markers stay for a later sweep: a task that still runs writes its file, and may be killed before it can remove it.
    """
    table.storage.delete(left.data_files)
    young = _young_markers(table, left.announced)
    table.storage.delete([key for key in control_files if key not in young])


def _young_markers(table: OpenTable, markers: MarkerSet) -> frozenset[str]:
    """The keys of markers younger than a heartbeat may be: their tasks may be about to write the files."""
    if not markers.objects:
        return frozenset()
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    oldest_ms = now_ms - table.settings.heartbeat.limit_s * 1000 - CLOCK_GRAIN_MS
    return frozenset(item.key for item in markers.objects if item.modified_ms >= oldest_ms)


class RollbackOutcome(Enum):
    """What became of an instant that was to be rolled back."""

    ROLLED_BACK = "rolled back"
    COMMITTED = "committed"
    GONE = "gone"
    LEFT = "left to another engine"


@dataclass(frozen=True)
class RollbackTarget:
    """An instant to roll back, and what is known of its writer. `claims`: its own, if the writer itself rolls it back."""

    instant: str
    action: Action
    operation: str = "write"
    evidence: str = ""
    claims: OwnClaims | None = None


def roll_back(
    table: OpenTable, target: RollbackTarget, *, yields: bool = False, everywhere: bool = False, unseen: bool = False
) -> RollbackOutcome:
    """Decide, then remove what `target` left. Returns COMMITTED, with the commit published, if the commit was decided before.

    If other engines write the table, the lock is held until all is removed, so that they see all of the rollback or nothing:
    Java fails if a file vanishes that it is about to delete.
    `yields`: return LEFT if another engine is doing the same rollback.
    `everywhere`: search the whole table for data files, even if others have completed the rollback.
    `unseen`: the timeline has neither the instant nor a rollback of it, so its writer may be about to put it there.
    """
    shared = table.observed.foreign_writers
    with ExitStack() as held:
        held.enter_context(table.locked(target.instant, "ROLLBACK"))
        outcome = _decide(table, target, yields=yields, unseen=unseen)
        if not shared:
            held.close()
        if outcome is RollbackOutcome.ROLLED_BACK:
            reached(Step.ROLLBACK_DECIDED)
            metadata = KeptMetadata.look(table, table.properties()) if shared else None
            # A dead writer of another engine may have listed its files in the metadata table. Keep what a clean of the same
            # instant listed there.
            if metadata is not None and not (unseen or _is_also_a_service(table, target.instant)):
                metadata.withdraw(target.instant)
            clean_up(table, target, everywhere=everywhere)
        elif outcome is RollbackOutcome.GONE and everywhere:
            _remove_late(table, target)
    return outcome


def _is_also_a_service(table: OpenTable, instant: str) -> bool:
    """Whether an action that writes no rows has the same requested time: a writer that took it, too, gives it up."""
    return any(each.requested == instant and not each.is_write for each in table.timeline().instants)


def decide_rollback(table: OpenTable, target: RollbackTarget) -> RollbackOutcome:
    """Only decide: its writer is alive, finds the decision when it wants to commit, and removes its own files."""
    with table.locked(target.instant, "ROLLBACK"):
        return _decide(table, target, yields=False)


def _decide(table: OpenTable, target: RollbackTarget, *, yields: bool, unseen: bool = False) -> RollbackOutcome:
    """Put a rollback decision for the instant, unless it is decided already. Hold the table's lock."""
    for _ in range(table.settings.decisions.slot_attempts):
        before = table.log.boundary()
        timeline = table.timeline()
        fate = fate_of(table, target.instant, timeline)
        absent = unseen and fate is InstantFate.GONE and not is_rolled_back(table, timeline, target.instant)
        if fate is not InstantFate.PENDING and not absent:
            return RollbackOutcome.COMMITTED if fate is InstantFate.COMMITTED else RollbackOutcome.GONE
        view = table.log.look(newest=None)
        if view.boundary != before:
            continue
        decided = decided_for(target.instant, view.decisions)
        if absent and decided is not None and decided.kind is DecisionKind.COMMIT:
            continue  # it was put on the timeline since
        if decided is not None and resolve(decided) is Resolution.COMMITTED:
            return _published(table, decided, timeline, yields=yields)
        if decided is not None and decided.kind is DecisionKind.PREPARE:
            settled = _settled(table, decided, timeline, yields=yields)
            # Its writer, which had it on the timeline, died while it took it back, and may have left no record of that.
            return RollbackOutcome.ROLLED_BACK if absent and settled is RollbackOutcome.GONE else settled
        if decided is not None:
            return RollbackOutcome.ROLLED_BACK
        if yields and _is_underway(table, timeline, target.instant):
            return RollbackOutcome.LEFT
        finish_head(table, view, timeline)
        made = table.log.decide_rollback(view.head + 1, target.instant, target.action, table.writer, table.runtime.uuid())
        if made is Created.UNKNOWN:
            raise StorageUnavailable(
                f"it is not known whether the rollback of {target.instant} is decided; nothing was deleted",
                hint=f"run again when the storage answers: {command('markers', 'reap', table.storage.uri)}",
            )
        if made is Created.OURS:
            return RollbackOutcome.ROLLED_BACK
    raise TransactionError(
        f"others took each decision number that was tried for the rollback of {target.instant}",
        hint=f"run again when fewer writers commit: {command('markers', 'reap', table.storage.uri)}",
    )


def _published(table: OpenTable, decided: Decision, timeline: Timeline, *, yields: bool) -> RollbackOutcome:
    """COMMITTED, unless another engine has begun to roll back what is decided: then it is never published."""
    if publish_for_another(table, decided, timeline) is not Publication.VOID:
        return RollbackOutcome.COMMITTED
    left = yields and _is_underway(table, timeline, decided.instant)
    return RollbackOutcome.LEFT if left else RollbackOutcome.ROLLED_BACK


def _settled(table: OpenTable, prepare: Decision, timeline: Timeline, *, yields: bool) -> RollbackOutcome:
    """The outcome of the whole transaction decides what becomes of its instant here, with or without a rollback of its own."""
    settled = settle(table, prepare, timeline)
    if settled.resolution is Resolution.COMMITTED:
        return _published(table, prepare, settled.timeline, yields=yields)
    is_pending = shown_fate(settled.timeline, prepare.instant) is InstantFate.PENDING
    return RollbackOutcome.ROLLED_BACK if is_pending else RollbackOutcome.GONE


def _is_underway(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """Whether another engine has planned the same rollback and is not known to have died over it."""
    rollbacks = [r for r in timeline.rollbacks if not r.is_completed and table.rollback_target(r) == instant]
    if not rollbacks:
        return False
    judged = judge_all(table.io, table.settings.heartbeat, rollbacks)
    return any(not judged[r.requested].is_mine_to_reap for r in rollbacks if r.requested in judged)


def clean_up(table: OpenTable, target: RollbackTarget, *, everywhere: bool = False) -> None:
    """Remove every trace of a rolled back instant and record the rollback. Idempotent; call it only after the decision.

    `everywhere`: search the whole table for its data, because its markers may be incomplete.
    """
    left = find_leftovers(table.io, target.instant, everywhere=everywhere, own=target.claims)
    table.storage.delete(left.data_files)
    reached(Step.ROLLBACK_DATA_DELETED)
    # Leave the claims of a service that was made to yield: a writer may be taking them over. A later sweep removes the rest.
    claims = () if target.operation in SERVICES else left.claims
    table.storage.delete([*left.markers, *claims])
    reached(Step.ROLLBACK_MARKERS_DELETED)
    table.storage.delete([inflight_key(target.instant, target.action)])
    reached(Step.ROLLBACK_INFLIGHT_DELETED)
    table.storage.delete([requested_key(target.instant, target.action)])
    reached(Step.ROLLBACK_PENDING_DELETED)
    _record_rollback(table, target, left.by_partition)
    reached(Step.ROLLBACK_RECORDED)
    # As long as the heartbeat is there, the next writer sees at once who is dead, and no other takes the instant's time.
    table.storage.delete([left.heartbeat])
    table.emit(EventKind.ROLLED_BACK, target.instant, target.operation, files=len(left.data_files), evidence=target.evidence)


def _remove_late(table: OpenTable, target: RollbackTarget) -> None:
    """Delete what tasks wrote while others rolled their instant back. A heartbeat is left for those others to delete."""
    left = find_leftovers(table.io, target.instant, everywhere=True, own=target.claims)
    remove_uncommitted(table, left, (*left.markers, *left.claims))


def _record_rollback(table: OpenTable, target: RollbackTarget, files: Mapping[str, tuple[str, ...]]) -> None:
    """Write the rollback instant that tells Hudi's tools what happened: requested, inflight, completed.

    It is written in one go when the target's files are gone, so a crash leaves the target pending or its heartbeat, which the
    next writer reaps, or at worst this record half written, which `finish_rollbacks` completes.
    It is later than the target, whatever the clocks say: a later rollback in the timeline keeps others from the target's time.
    """
    began_ms = table.runtime.now_ms()
    plan = RollbackPlan(target.instant, target.action.value, files, table.storage.uri)
    instant = target.instant
    for _ in range(table.settings.decisions.slot_attempts):
        # Later than every time that was tried: a taken time may show nowhere, as when the reply to my own request was lost.
        instant = later_than(table.runtime.now_ms(), max(instant, table.timeline().newest_time))
        requested = Instant(instant, Action.ROLLBACK.value, State.REQUESTED)
        # Java takes over a pending rollback, also one that is only being recorded, unless it has a fresh heartbeat.
        if table.observed.foreign_writers and table.storage.put_if_absent(layout.heartbeat(instant), b"") is None:
            continue
        if table.storage.put_if_absent(layout.timeline(requested.file_name), plan.to_bytes()) is not None:
            break
    else:
        raise TransactionError(
            f"others took each time that was tried for the record of the rollback of {target.instant}",
            hint=f"run again when fewer writers commit: {command('markers', 'reap', table.storage.uri)}",
        )
    reached(Step.ROLLBACK_PLANNED)
    _complete_rollback(table, instant, plan, max(0, table.runtime.now_ms() - began_ms))
    if table.observed.foreign_writers:
        table.storage.delete([layout.heartbeat(instant)])


def _complete_rollback(table: OpenTable, rollback: str, plan: RollbackPlan, took_ms: int) -> None:
    inflight = Instant(rollback, Action.ROLLBACK.value, State.INFLIGHT)
    table.storage.put_if_absent(layout.timeline(inflight.file_name), b"")
    completion = later_than(table.runtime.now_ms(), rollback)
    completed = Instant(rollback, Action.ROLLBACK.value, State.COMPLETED, completion)
    metadata = RollbackMetadata(rollback, took_ms, plan.target_instant, plan.target_action, plan.files, table.storage.uri)
    table.storage.put_if_absent(layout.timeline(completed.file_name), metadata.to_bytes())
    table.observed.time_seen(completion)


def finish_rollbacks(table: OpenTable, timeline: Timeline) -> int:
    """Complete the records of rollbacks that were carried out, but whose writer died before it completed the record; how many.

    Such a record names an instant that is gone from the timeline, and is older than a dead writer's heartbeat: a live writer,
    of any engine, would have needed only a few more requests. If the instant is still there, it is reaped instead.
    """
    unfinished = [r for r in timeline.rollbacks if r.state is not State.COMPLETED]
    if not unfinished:
        return 0
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    finished = 0
    for rollback in unfinished:
        name = Instant(rollback.requested, rollback.action, State.REQUESTED).file_name
        stored = table.storage.get(layout.timeline(name))
        if stored is None or not stored.data:
            continue
        plan = RollbackPlan.from_bytes(stored.data, name)
        age = judge_missing(stored.modified_ms, now_ms, table.settings.heartbeat)
        if timeline.state_of(plan.target_instant) is not None or age.state is not LivenessState.DEAD:
            continue
        with table.locked(rollback.requested, "ROLLBACK"):
            now = table.timeline()
            # Java shows by a heartbeat that it is carrying out this rollback, and checks first whether it is complete.
            taken = table.storage.get(layout.heartbeat(rollback.requested)) is not None
            if not taken and rollback in now.rollbacks and now.state_of(plan.target_instant) is None:
                _complete_rollback(table, rollback.requested, plan, 0)
                finished += 1
    return finished
