"""What became of an instant that the timeline does not show any more: archived, rolled back, or given up.

The active timeline alone cannot tell. An instant that is older than all of it may have been archived, which happens only to
completed ones, or rolled back by another engine before what followed it was archived. The archive tells.
"""

from __future__ import annotations

from enum import Enum

from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import is_rolled_back
from lakelock.table.archive import archived_write
from lakelock.table.instants import State
from lakelock.table.timeline import Timeline


class InstantFate(Enum):
    """COMMITTED: visible, archived or not. PENDING: still to be completed or rolled back. GONE: it never will be visible."""

    COMMITTED = "committed"
    PENDING = "pending"
    GONE = "gone"


def fate_of(table: OpenTable, instant: str, timeline: Timeline) -> InstantFate:
    """What became of an instant that once was on the timeline, as of a `timeline` that was listed before this call.

    No request while the timeline shows the instant, nor for one that cannot be archived yet; else one listing of the archive
    and the reading of a file. `CorruptTableError` when the archive cannot be read: then nobody can tell.
    """
    state = timeline.state_of(instant)
    if state is not None:
        return InstantFate.COMMITTED if state is State.COMPLETED else InstantFate.PENDING
    if instant >= timeline.first_active or is_rolled_back(table, timeline, instant):
        return InstantFate.GONE
    return InstantFate.GONE if archived_write(table.storage, instant) is None else InstantFate.COMMITTED
