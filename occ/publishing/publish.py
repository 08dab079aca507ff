"""Publication: a decided commit becomes visible by one file in the timeline. Whoever finds it missing creates it."""

from __future__ import annotations

from enum import Enum

from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import InstantFate, is_rolled_back, shown_fate
from lakelock.occ.records.decisions import Decision, LogView, Resolution, resolve
from lakelock.table import layout
from lakelock.table.instants import Instant, State
from lakelock.table.timeline import Timeline


class Publication(Enum):
    """PUBLISHED by this call; ALREADY visible; VOID: a foreign writer rolled the instant back before it was visible."""

    PUBLISHED = "published"
    ALREADY = "already"
    VOID = "void"


def publish(table: OpenTable, decision: Decision, timeline: Timeline) -> Publication:
    """Make a decided commit visible, unless it is already or a foreign rollback targets it. Hold the table's lock.

    `timeline` was read after the decision was seen, or under the same lock. All lower commits must be published.
    Idempotent: the file's name and bytes are fixed by the decision.
    """
    fate = shown_fate(timeline, decision.instant)
    if fate is InstantFate.COMMITTED:
        return Publication.ALREADY
    if fate is InstantFate.GONE or is_rolled_back(table, timeline, decision.instant):
        return Publication.VOID
    completed = Instant(decision.instant, decision.action, State.COMPLETED, decision.completion)
    made = table.storage.put_if_absent(layout.timeline(completed.file_name), decision.payload)
    return Publication.PUBLISHED if made is not None else Publication.ALREADY


def newest_commit(view: LogView) -> Decision | None:
    """The head of the log if it is a commit: the only decision that can still await publication."""
    decision = view.decisions[-1] if view.decisions else None
    return decision if resolve(decision) is Resolution.COMMITTED else None
