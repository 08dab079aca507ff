"""Publication: a decided commit becomes visible by one file in the timeline. Whoever finds it missing creates it."""

from __future__ import annotations

from enum import Enum

from lakelock.events import EventKind
from lakelock.occ.decisions import Decision, DecisionKind, LogView
from lakelock.occ.open_table import OpenTable
from lakelock.occ.steps import Step, reached
from lakelock.table import layout
from lakelock.table.instants import Instant, State
from lakelock.table.services import RollbackPlan
from lakelock.table.timeline import Timeline


class Publication(Enum):
    """PUBLISHED by this call; ALREADY visible; VOID: a foreign writer rolled the instant back before it was visible."""

    PUBLISHED = "published"
    ALREADY = "already"
    VOID = "void"


def publication_of(decision: Decision, timeline: Timeline) -> Publication | None:
    """What the timeline says about a decided commit; None when it is still to be published.

    An instant older than everything in the timeline was archived, which happens only to completed ones.
    """
    state = timeline.state_of(decision.instant)
    if state is State.COMPLETED:
        return Publication.ALREADY
    if state is None:
        return Publication.ALREADY if decision.instant < timeline.first_active else Publication.VOID
    return None


def publish(table: OpenTable, decision: Decision, timeline: Timeline) -> Publication:
    """Make a decided commit visible, unless it is already or a foreign rollback targets it. Hold the table's lock.

    `timeline` was read after the decision was seen, or under the same lock. All lower commits must be published.
    Idempotent: the file's name and bytes are fixed by the decision.
    """
    found = publication_of(decision, timeline)
    if found is not None:
        return found
    if is_rolled_back(table, timeline, decision.instant):
        return Publication.VOID
    completed = Instant(decision.instant, decision.action, State.COMPLETED, decision.completion)
    made = table.storage.put_if_absent(layout.timeline(completed.file_name), decision.payload)
    return Publication.PUBLISHED if made is not None else Publication.ALREADY


def is_rolled_back(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """True when a rollback in any state targets the instant. Each rollback plan is read once; they never change."""
    return any(rollback_target(table, rollback) == instant for rollback in timeline.rollbacks if rollback.requested >= instant)


def rollback_target(table: OpenTable, rollback: Instant) -> str | None:
    """The instant that a rollback is about, None if its plan does not say so yet. Read once."""
    if rollback.requested not in table.rollback_targets:
        requested = Instant(rollback.requested, rollback.action, State.REQUESTED)
        stored = table.storage.get(layout.timeline(requested.file_name))
        # A plan without content is Java's between create and write: it may target anything, so look again next time.
        if stored is None or not stored.data:
            return None
        plan = RollbackPlan.from_bytes(stored.data, requested.file_name)
        table.rollback_targets[rollback.requested] = plan.target_instant
    return table.rollback_targets[rollback.requested]


def newest_commit(view: LogView) -> Decision | None:
    """The head of the log if it is a commit: the only decision that can still await publication."""
    decision = view.decisions[-1] if view.decisions else None
    return decision if decision is not None and decision.kind is DecisionKind.COMMIT else None


def finish_head(table: OpenTable, view: LogView, timeline: Timeline) -> None:
    """Publish what the head of the log decided, if that is still to be done. Hold the table's lock."""
    decision = newest_commit(view)
    if decision is None or publication_of(decision, timeline) is Publication.ALREADY:
        return
    # The listing may be older than the decision: its writer may have begun, published, or lost it to a rollback, in between.
    if publish(table, decision, table.timeline()) is Publication.PUBLISHED and decision.writer != table.writer:
        reached(Step.FINISHED_FOR_ANOTHER)
        table.emit(
            EventKind.FINISHED_FOR_ANOTHER,
            decision.instant,
            decision.operation,
            writer=str(decision.writer),
            decision=decision.number,
        )
