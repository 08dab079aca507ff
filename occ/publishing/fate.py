"""What became of an instant: committed, still pending, or gone for good. This is the only module that answers it.

`shown_fate` answers from one listing of the timeline, for instants that are known to have been decided or finished. A listing
alone cannot tell committed from rolled back once an instant is older than all that it shows: it may have been archived, which
happens to completed instants only, or another engine may have rolled it back before what followed it was archived. `fate_of`
reads the archive. The reasons are in `docs/adr/0011`.
"""

from __future__ import annotations

from enum import Enum

from lakelock.occ.open_table import TORN_LOOKS, TORN_WAIT_S, OpenTable
from lakelock.table.archive import archived_write
from lakelock.table.instants import Instant
from lakelock.table.service_metadata import RollbackPlan
from lakelock.table.timeline import Timeline

SHARE_THE_LOCK = (
    "give every Hudi writer hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL, "
    "hoodie.clean.failed.writes.policy=LAZY and the lock of lakelock's writers (hoodie.write.lock.provider with its keys)"
)
"""What another engine lacks that rolls back a live transaction, or commits without the lock."""


class InstantFate(Enum):
    """COMMITTED: visible, archived or not. PENDING: still to be completed or rolled back. GONE: it never will be visible."""

    COMMITTED = "committed"
    PENDING = "pending"
    GONE = "gone"


def shown_fate(timeline: Timeline, instant: str) -> InstantFate:
    """The fate of an instant that once was on the timeline, by one listing; one older than all of it counts as archived."""
    if timeline.is_visible(instant):
        return InstantFate.COMMITTED
    return InstantFate.GONE if timeline.state_of(instant) is None else InstantFate.PENDING


def fate_of(table: OpenTable, instant: str, timeline: Timeline) -> InstantFate:
    """What became of an instant that once was on the timeline, as of a `timeline` that was listed before this call.

    No request if the timeline shows the instant, or if it cannot have been archived yet; else one listing of the archive and
    one read. `CorruptTableError` when the archive cannot be read: then nobody can tell.
    """
    shown = shown_fate(timeline, instant)
    if shown is not InstantFate.COMMITTED or timeline.state_of(instant) is not None:
        return shown
    if is_rolled_back(table, timeline, instant) or archived_write(table.storage, instant) is None:
        return InstantFate.GONE
    return InstantFate.COMMITTED


def is_withdrawn(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """Whether others have rolled back a pending instant, or are doing so: its markers may be gone while its files remain."""
    return timeline.state_of(instant) is None or is_rolled_back(table, timeline, instant)


def is_rolled_back(table: OpenTable, timeline: Timeline, instant: str) -> bool:
    """True when a rollback in any state targets the instant. Each rollback plan is read once; they never change."""
    return any(rollback_target(table, rollback) == instant for rollback in timeline.rollbacks if rollback.requested >= instant)


def rollback_target(table: OpenTable, rollback: Instant) -> str | None:
    """The instant that a rollback is about, None if its plan does not say so yet. Read once."""
    return table.rollback_target(rollback)


def plans_awaited(table: OpenTable, timeline: Timeline, instant: str) -> None:
    """Wait until each rollback that may be about the instant says so: Java creates a plan on a disk before it writes to it.

    No request if each has been read. A plan that nobody completes is waited for no longer than any torn file.
    """
    later = [r for r in timeline.rollbacks if r.requested >= instant and not r.is_completed]
    for _ in range(TORN_LOOKS):
        if all(rollback_target(table, each) is not None for each in later):
            return
        table.runtime.sleep(TORN_WAIT_S)


def rollback_plan(table: OpenTable, rollback: Instant) -> RollbackPlan | None:
    """What a rollback is going to delete, None if nobody knows yet. One read."""
    return table.rollback_plan(rollback)
