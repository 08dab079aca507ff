"""The first meeting with another engine: a commit on the timeline of which the decision log has no record.

A process meets the other engine by its commits, of which it reads those in its window, and the newest one for the columns. An
older one is not read, so decisions are counted: each commit of lakelock has a number of its own, so where there are more of
them than decisions, one of them is another engine's. Only then are they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.conflicts.window import read_summary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.decisions import LogView
from lakelock.table.instants import Instant
from lakelock.table.timeline import Timeline

READ_AT_MOST = 20
"""How many of the newest commits are read that may be another engine's."""


def look_for_first_meeting(
    table: OpenTable, timeline: Timeline, view: LogView, first: int, window: Sequence[CommitSummary]
) -> None:
    """Remember that another engine writes the table if a `timeline` that was listed under the lock shows it, or the log does.

    The `view` has all decisions after `first`; `window` are the commits since then. No request where only lakelock writes, and
    none once the other engine was met. Errors are those of a read of a commit.
    """
    observed = table.observed
    for other in window:
        foreign = other.party.instant if other.is_foreign else other.newest_foreign
        # A commit that is archived by now does not show that the other engine still writes.
        if foreign and timeline.state_of(foreign) is not None:
            observed.met_foreign(foreign)
    if observed.foreign_writers:
        return
    suspects = sorted(_without_decision(table, timeline, view, first), key=lambda i: i.completion or i.requested)
    observed.looked_through = view.head, timeline.completed_instants.union(d.instant for d in view.decisions)
    reads = [partial(read_summary, table.storage, each) for each in suspects[-READ_AT_MOST:]]
    for read in table.runtime.gather(reads, limit=table.parallel_requests):
        if read.is_foreign:
            observed.met_foreign(read.party.instant)


def _without_decision(table: OpenTable, timeline: Timeline, view: LogView, first: int) -> Sequence[Instant]:
    """Commits since the last look of this process that are more than the decisions since then."""
    looked_through = table.observed.looked_through
    if looked_through is not None:
        number, known = looked_through
    elif not view.boundary:
        number, known = 0, frozenset[str]()
    else:
        # Decisions were collected before this process looked for the first time: their commits cannot be counted.
        return ()
    return table.log.without_decision([i for i in timeline.commits if i.requested not in known], after=number, up_to=first)
