"""Finishing or removing what dead writers left, and collecting old decisions. Run by every writer on its way."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakelock.errors import CorruptTableError, LakelockError, LockTimeout, ProviderUnavailable
from lakelock.events import EventKind
from lakelock.markers.claims import all_claims
from lakelock.markers.leftovers import find_leftovers
from lakelock.markers.liveness import Liveness, LivenessState, StorageClock, judge_all
from lakelock.occ.baseline import inflight_key, requested_key
from lakelock.occ.decisions import LogView
from lakelock.occ.fate import InstantFate, shown_fate
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recovery.rollback import RollbackOutcome, RollbackTarget, finish_rollbacks, record_gone, roll_back
from lakelock.occ.steps import Step, reached
from lakelock.occ.strays import remove_strays
from lakelock.table import layout
from lakelock.table.instants import Action
from lakelock.table.timeline import Timeline

STALE_PROBE_S = 600.0
"""A probe is written and removed within a few requests; an older one was left by a process that died or lost its storage."""


@dataclass(frozen=True)
class Reaped:
    """One dead writer's instant and what was done with it."""

    instant: str
    operation: str
    writer: str
    outcome: RollbackOutcome
    evidence: str


def find_dead(
    table: OpenTable, timeline: Timeline, own: str = "", *, patient: bool = True
) -> list[tuple[str, Action | None, Liveness]]:
    """Instants whose writer is proven dead: pending ones, and finished ones that were not tidied up. One listing.

    `patient`: those of another engine are left to that engine for a while.
    """
    judged = judge_all(
        table.storage,
        table.settings.heartbeat,
        table.runtime,
        timeline.pending,
        own=own,
        read_alive=False,
        parallel=table.parallel_requests,
    )
    pending = {i.requested: Action(i.action) for i in timeline.pending}
    services = {i.requested for i in timeline.pending_services}
    if any(judged[instant].is_foreign for instant in pending if instant in judged):
        table.observed.met_foreign()
    table.observed.known_ours = frozenset(instant for instant, liveness in judged.items() if not liveness.is_foreign)
    return [
        (instant, pending.get(instant), liveness)
        for instant, liveness in sorted(judged.items())
        # A table service that is not completed outlives its planner's heartbeat: it is Hudi's to finish or to roll back.
        if liveness.state is LivenessState.DEAD and (liveness.is_mine_to_reap or not patient) and instant not in services
    ]


def reap(table: OpenTable, timeline: Timeline | None = None, own: str = "", *, patient: bool = True) -> list[Reaped]:
    """Roll back, or publish if decided, every pending instant of a dead writer, and tidy up after finished ones.

    Rollbacks that the dead did not complete are completed.

    One writer that cannot be reaped (its files cannot be deleted, say) does not keep the others waiting: it is reported
    as an alert and tried again by the next one. But a lock that cannot be had is waited for once: each of the others would
    take as long, and so whoever reaps on the way to something else.
    """
    reaped: list[Reaped] = []
    timeline = timeline or table.timeline()
    for instant, action, liveness in find_dead(table, timeline, own, patient=patient):
        record = liveness.record
        operation = record.operation if record else "write"
        who = str(record.writer) if record else "another Hudi writer"
        try:
            victim = RollbackTarget(instant, action or Action.COMMIT, operation, liveness.evidence)
            outcome = _reap_one(table, instant, action, victim, ours=record is not None)
        except LakelockError as error:
            table.emit(EventKind.ALERT, instant, operation, problem=f"could not reap a dead writer: {error.message}")
            if isinstance(error, LockTimeout | ProviderUnavailable):
                return reaped
            continue
        if outcome is not RollbackOutcome.LEFT:
            reaped.append(Reaped(instant, operation, who, outcome, liveness.evidence))
    try:
        finish_rollbacks(table, timeline)
    except LakelockError as error:
        table.emit(EventKind.ALERT, problem=f"could not complete a rollback of a dead writer: {error.message}")
    return reaped


def _reap_one(table: OpenTable, instant: str, action: Action | None, victim: RollbackTarget, *, ours: bool) -> RollbackOutcome:
    """Roll back or finish one instant. `action` is None if it was not pending when the timeline was listed."""
    if action is None:
        now = table.timeline()
        # The heartbeats were listed after the timeline: it may have begun since, and then only a decision may withdraw it.
        action = next((Action(i.action) for i in now.pending if i.requested == instant), None)
        victim = replace(victim, action=action or victim.action)
    outcome = roll_back(table, victim, yields=True) if action is not None else _finished(now, instant)
    if action is None and outcome is RollbackOutcome.GONE and ours:
        record_gone(table, victim, now)
    if outcome not in (RollbackOutcome.ROLLED_BACK, RollbackOutcome.LEFT):
        remove_leftovers(table, instant, committed=outcome is RollbackOutcome.COMMITTED)
    if outcome is RollbackOutcome.COMMITTED and action is not None:
        done = table.timeline().write_at(instant)
        if done is not None and done.action != action:
            # It wanted the time of somebody else's commit, gave it up, and could not remove its pending files.
            table.storage.delete([inflight_key(instant, action), requested_key(instant, action)])
    return outcome


def sweep(table: OpenTable) -> int:
    """Remove markers and claims of instants that are over, such as those that arrived late; how many instants had markers.

    With the markers of a committed instant go the files that they announce and the commit does not name (`strays.py`).

    They are listed before the heartbeats and the timeline: whoever has begun since is not mistaken for finished. A claim that
    somebody takes over meanwhile may go with them: it is advice only.
    """
    folder = len(layout.TEMP) + 1
    marked = {item.key[folder:].partition("/")[0] for item in table.storage.list(layout.TEMP)}
    claims = all_claims(table.storage, table.runtime, parallel=table.parallel_requests)
    beating = {item.key.rpartition("/")[2] for item in table.storage.list(layout.HEARTBEATS)}
    timeline = table.timeline()
    active = {i.requested for i in (*timeline.pending, *timeline.pending_services)}
    strays = sorted(marked - beating - active)
    for instant in strays:
        try:
            remove_leftovers(table, instant, committed=_finished(timeline, instant) is RollbackOutcome.COMMITTED)
        except CorruptTableError as error:
            problem = f"its markers stay, because its commit cannot be read: {error.message}"
            table.emit(EventKind.ALERT, instant, problem=problem)
    table.storage.delete([key for key, claim in claims.items() if claim.instant not in beating | active])
    _sweep_probes(table)
    return len(strays)


def _sweep_probes(table: OpenTable) -> None:
    """Remove the objects that somebody wrote to ask the storage for its time or its manners, and could not remove."""
    probes = list(table.storage.list(layout.PROBES))
    if probes:
        now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
        table.storage.delete([probe.key for probe in probes if now_ms - probe.modified_ms > STALE_PROBE_S * 1000])


def _finished(timeline: Timeline, instant: str) -> RollbackOutcome:
    """Of an instant that is not pending. One listing must do: what is old enough for the archive keeps its data if in doubt."""
    committed = shown_fate(timeline, instant) is InstantFate.COMMITTED
    return RollbackOutcome.COMMITTED if committed else RollbackOutcome.GONE


def remove_leftovers(table: OpenTable, instant: str, *, committed: bool) -> None:
    """Remove the markers, claims and heartbeat of an instant that is finished; of its data what did not commit."""
    left = find_leftovers(table.storage, instant, table.runtime, data=not committed, parallel=table.parallel_requests)
    if not committed:
        table.storage.delete(left.data_files)
    stay = remove_strays(table, instant) if committed and left.markers else frozenset()
    table.storage.delete([key for key in left.control_files if key not in stay])


def collect(table: OpenTable) -> int:
    """Delete old decisions that nobody needs any more; how many.

    The boundary is raised before anything is deleted: whoever lists a hole reads the boundary afterwards.
    """
    view = table.log.look(newest=0)
    upto = collectable(table, view)
    if upto <= view.boundary or not table.log.raise_boundary(upto):
        return 0
    reached(Step.BOUNDARY_RAISED)
    deleted = table.log.delete_up_to(upto)
    reached(Step.COLLECTED)
    table.emit(EventKind.COLLECTED, upto=upto, decisions=deleted)
    return deleted


def collectable(table: OpenTable, view: LogView) -> int:
    """The greatest number up to which nobody needs the decisions any more.

    Not beyond what a live transaction noted as its head, and never the head itself: only that can await publication. A rollback
    need not be complete: its writer's window has a hole then, and whoever finds it pending decides once more.
    """
    judged = judge_all(
        table.storage, table.settings.heartbeat, table.runtime, table.timeline().pending, parallel=table.parallel_requests
    )
    needed = [
        liveness.record.first
        for liveness in judged.values()
        if liveness.state is LivenessState.ALIVE and liveness.record is not None
    ]
    return min([view.head - 1, *needed])
