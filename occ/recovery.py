"""Finishing or removing what dead writers left, and collecting old decisions and outcomes.

Every writer does this as it goes. Outcomes of transactions over several tables are collected once no table needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lakelock.errors import CorruptTableError, LakelockError, LockTimeout, ProviderUnavailable
from lakelock.events import EventKind, Step, reached
from lakelock.identity import name_of
from lakelock.markers.claims import all_claims
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.markers.leftovers import find_leftovers
from lakelock.markers.liveness import Liveness, LivenessState, StorageClock, judge_all
from lakelock.occ.begin import inflight_key, requested_key
from lakelock.occ.log import LogView, OutcomeRecord, TableInstant, read_outcome
from lakelock.occ.offers import oldest_needed, remove_old
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import InstantFate, is_rolled_back, shown_fate
from lakelock.occ.rollback import (
    RollbackOutcome,
    RollbackTarget,
    finish_rollbacks,
    remove_strays,
    remove_uncommitted,
    roll_back,
)
from lakelock.table import layout
from lakelock.table.instants import Action, State
from lakelock.table.timeline import Timeline

KEPT_IN_A_CROWD = 16
"""So many decisions stay while inserts are on offer."""
STALE_PROBE_S = 600.0
"""A probe is written and removed within a few requests; an older one was left by a process that died or lost its storage."""
Notify = Callable[[str, str, str], None]
"""Takes what could not be done for an instant: the instant, its operation, and the problem."""


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

    `patient`: instants of another engine are left to that engine for a while, and a writer that is still alive by the limit
    of this process is not asked for its own. Otherwise the record of every live writer is read, too.
    """
    judged = judge_all(table.io, table.settings.heartbeat, timeline.pending, own=own, read_alive=not patient)
    pending = {i.requested: Action(i.action) for i in timeline.pending}
    services = {i.requested for i in timeline.pending_services}
    foreign = {instant for instant in pending if instant in judged and judged[instant].is_foreign}
    # The heartbeats were listed after the timeline: one that is missing may be that of a writer that has finished since.
    if foreign and not table.observed.foreign_writers and foreign & {i.requested for i in table.timeline().pending}:
        table.observed.met_foreign()
    table.observed.known_ours = frozenset(instant for instant, liveness in judged.items() if not liveness.is_foreign)
    return [
        (instant, pending.get(instant), liveness)
        for instant, liveness in sorted(judged.items())
        # A table service that is not completed outlives its planner's heartbeat: it is Hudi's to finish or to roll back.
        if liveness.state is LivenessState.DEAD and (liveness.is_mine_to_reap or not patient) and instant not in services
    ]


def reap(
    table: OpenTable, timeline: Timeline | None = None, own: Heartbeat | None = None, *,
    patient: bool = True, note: Notify | None = None,
) -> list[Reaped]:  # fmt: skip
    """Roll back, or publish if decided, every pending instant of a dead writer, and tidy up after finished ones.

    Rollbacks that dead writers did not complete are completed.

    A writer that cannot be reaped (its files cannot be deleted, say) does not hold up the others: `note` takes the problem,
    which is an alert by default, and the next reaper tries again. But if the lock cannot be acquired, this returns: every
    other instant would wait for it as long, and so would the caller, who came for something else. A caller whose `own`
    heartbeat is lost has to begin again, so it leaves the rest, too.
    """
    reaped: list[Reaped] = []
    note = note or _alert(table)
    timeline = timeline or table.timeline()
    for instant, action, liveness in find_dead(table, timeline, own.record.instant if own else "", patient=patient):
        if own is not None and not own.alive():
            return reaped
        record = liveness.record
        operation = record.operation if record else "write"
        who = name_of(record.writer if record else None)
        try:
            target = RollbackTarget(instant, action or Action.COMMIT, operation, liveness.evidence)
            outcome = _reap_one(table, instant, action, target, record)
        except LakelockError as error:
            note(instant, operation, f"could not reap a dead writer: {error.message}")
            if isinstance(error, LockTimeout | ProviderUnavailable):
                return reaped
            continue
        if outcome is not RollbackOutcome.LEFT:
            reaped.append(Reaped(instant, operation, who, outcome, liveness.evidence))
    try:
        finish_rollbacks(table, timeline)
    except LakelockError as error:
        note("", "", f"could not complete a rollback of a dead writer: {error.message}")
    return reaped


def _alert(table: OpenTable) -> Notify:
    return lambda instant, operation, problem: table.emit(EventKind.ALERT, instant, operation, problem=problem)


def _reap_one(
    table: OpenTable, instant: str, action: Action | None, target: RollbackTarget, record: HeartbeatRecord | None
) -> RollbackOutcome:
    """Roll back or finish one instant, whose heartbeat had this record.

    `action` is None if it was not pending when the timeline was listed.
    """
    unseen, ours = False, record is not None
    if action is None:
        now = table.timeline()
        # The heartbeats were listed after the timeline: it may have begun since, and then only a decision may withdraw it.
        action = next((Action(i.action) for i in now.pending if i.requested == instant), None)
        target = replace(target, action=action or target.action)
        # It may even begin after this look, if its writer was paused between the heartbeat and the requested file.
        unseen = ours and _finished(now, instant) is RollbackOutcome.GONE and not is_rolled_back(table, now, instant)
    by_decision = action is not None or unseen
    outcome = roll_back(table, target, yields=True, unseen=unseen) if by_decision else _finished(now, instant)
    if outcome in (RollbackOutcome.ROLLED_BACK, RollbackOutcome.LEFT):
        return outcome
    if by_decision:
        if outcome is RollbackOutcome.GONE and ours:
            # It was pending a moment ago, and the rollback may not be recorded yet. Until it is, the heartbeat keeps other
            # writers from taking the same instant, so leave it to the next reaper.
            return outcome
        now = table.timeline()
    remove_leftovers(table, now, instant, committed=outcome is RollbackOutcome.COMMITTED, judged=record)
    if outcome is RollbackOutcome.COMMITTED and action is not None:
        done = now.write_at(instant)
        if done is not None and done.action != action:
            # It took the time of another commit, gave it up, and could not remove its pending files.
            table.storage.delete([inflight_key(instant, action), requested_key(instant, action)])
    return outcome


def sweep(table: OpenTable, note: Notify | None = None) -> int:
    """Remove markers and claims of finished instants, such as those that arrived late; how many instants had markers.

    An instant whose markers have to stay is a problem that `note` takes, as in `reap`.

    Files that the markers of a committed instant announce and its commit does not name are removed, too (`strays.py`).
    Markers and claims are listed before the heartbeats and the timeline, so a writer that has begun since is not mistaken for
    a finished one. A claim that is taken over meanwhile may be removed as well: claims are only advice.
    """
    folder = len(layout.TEMP) + 1
    marked = {item.key[folder:].partition("/")[0] for item in table.storage.list(layout.TEMP)}
    claims = all_claims(table.io)
    beating = {item.key.rpartition("/")[2] for item in table.storage.list(layout.HEARTBEATS)}
    timeline = table.timeline()
    active = {i.requested for i in (*timeline.pending, *timeline.pending_services)}
    strays = sorted(marked - beating - active)
    for instant in strays:
        try:
            remove_leftovers(table, timeline, instant, committed=_finished(timeline, instant) is RollbackOutcome.COMMITTED)
        except CorruptTableError as error:
            (note or _alert(table))(instant, "", f"its markers stay, because its commit cannot be read: {error.message}")
    table.storage.delete([key for key, claim in claims.items() if claim.instant not in beating | active])
    _sweep_probes(table)
    remove_old(table)
    return len(strays)


def _sweep_probes(table: OpenTable) -> None:
    """Remove old probes: objects written to measure the storage's clock or to check it, and not removed."""
    probes = list(table.storage.list(layout.PROBES))
    if probes:
        now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
        table.storage.delete([probe.key for probe in probes if now_ms - probe.modified_ms > STALE_PROBE_S * 1000])


def _finished(timeline: Timeline, instant: str) -> RollbackOutcome:
    """The outcome of an instant that is not pending, by one listing: one old enough for the archive counts as committed."""
    committed = shown_fate(timeline, instant) is InstantFate.COMMITTED
    return RollbackOutcome.COMMITTED if committed else RollbackOutcome.GONE


def remove_leftovers(
    table: OpenTable, timeline: Timeline, instant: str, *, committed: bool, judged: HeartbeatRecord | None = None
) -> None:
    """Remove the markers, claims and heartbeat of a finished instant, and the data files that did not commit.

    `judged`: its heartbeat, if it had one. Nothing is removed of a writer that has taken the instant since.
    """
    left = find_leftovers(table.io, instant, data=not committed)
    if not committed:
        # Such a writer has a heartbeat before its first file, and is on the timeline when the heartbeat goes.
        beat = table.storage.get(left.heartbeat)
        is_taken = beat is not None and HeartbeatRecord.from_bytes(beat.data) != judged
        if is_taken or table.timeline().state_of(instant) is not None:
            return
        remove_uncommitted(table, left, left.control_files)
        return
    stay = remove_strays(table, timeline, left.announced)
    table.storage.delete([key for key in left.control_files if key not in stay])


def collect(table: OpenTable) -> int:
    """Delete old decisions that are no longer needed; how many. `CorruptTableError`, and none, if the head cannot be read.

    Only the head is read, which most callers have read before: all earlier decisions are finished, whatever their kind. The
    boundary is raised before anything is deleted, so a process that lists a gap reads the new boundary afterwards.
    """
    view = table.log.look()
    upto = collectable(table, view)
    if upto <= view.boundary or not table.log.raise_boundary(upto):
        return 0
    reached(Step.BOUNDARY_RAISED)
    deleted = table.log.delete_up_to(upto)
    reached(Step.COLLECTED)
    table.emit(EventKind.COLLECTED, upto=upto, decisions=deleted)
    return deleted


def collectable(table: OpenTable, view: LogView) -> int:
    """The greatest number up to which the decisions are no longer needed.

    At most the head that a live transaction noted, and never the head itself, which may await publication. A rollback decision
    may go before the rollback is complete: its writer finds its window collected, and the next reaper decides once more.
    """
    judged = judge_all(table.io, table.settings.heartbeat, table.timeline().pending)
    needed = [
        liveness.record.first
        for liveness in judged.values()
        if liveness.state is LivenessState.ALIVE and liveness.record is not None
    ]
    offered = oldest_needed(table)
    if offered is not None:
        # Offers that are being put right now are not listed yet, and need a few decisions below the head.
        needed += [offered, view.head - 1 - KEPT_IN_A_CROWD]
    return max(view.boundary, min([view.head - 1, *needed]))


MOST_OUTCOMES = 100
"""How many outcomes one run looks at, oldest first."""


def collect_outcomes(table: OpenTable, *, dry_run: bool = False) -> int:
    """Delete the outcomes in this home table whose transactions have ended in all of their tables; how many.

    The timelines are listed after the outcome was read. One whose tables cannot all be seen stays: a table that was moved away
    may still need it. Costs one listing where there is none.
    """
    found = sorted(item.key for item in table.storage.list(layout.OUTCOMES))[:MOST_OUTCOMES]
    gone = [key for key in found if _is_over(table, key.rpartition("/")[2])]
    if not dry_run:
        table.storage.delete(gone)
    return len(gone)


def _is_over(table: OpenTable, transaction: str) -> bool:
    try:
        outcome = read_outcome(table.storage, transaction)
        return outcome is not None and not pending_in(table, outcome)
    except LakelockError as error:
        problem = f"the outcome of the transaction {transaction} stays: {error.message}"
        table.emit(EventKind.ALERT, problem=problem)
        return False


def pending_in(table: OpenTable, outcome: OutcomeRecord) -> list[TableInstant]:
    """In which tables the transaction is still pending, or may be: those that are not where they were."""
    return [each for each in outcome.name.tables if _may_be_pending(table, each)]


def _may_be_pending(table: OpenTable, where: TableInstant) -> bool:
    storage = table.storage_of(where.uri)
    if all(storage.get(key) is None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP)):
        return True
    state = Timeline.from_listing(storage.list(layout.TIMELINE)).state_of(where.instant)
    return state is not None and state is not State.COMPLETED
