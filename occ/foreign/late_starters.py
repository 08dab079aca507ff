"""Writers of another engine that have taken their instant, but have not read the timeline yet.

Java Hudi takes its instant and shows it in the timeline under the lock (1.2.0, `startCommit`), and only then notes what is
committed: a few tenths of a second later, more on a busy machine. A commit in between, by an instant that is later than
Java's, is part of Java's snapshot: Java builds on it and finds no conflict, and readers, who take the slice with the greatest
requested time, never see what Java wrote there. Java's own writers take longer than that for a commit; lakelock does not.
So a committer that holds the lock and finds such an instant before its own releases the lock until that writer has read it.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from lakelock.markers.liveness import LivenessState, StorageClock, judge_all
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.open_table import OpenTable
from lakelock.table import layout
from lakelock.table.instants import Instant, State
from lakelock.table.timeline import Timeline

PAUSE_S = 0.1


@dataclass(frozen=True)
class LateStarter:
    """A question that only time can answer: has the writer of `instant` looked at the table?"""

    table: OpenTable
    instant: Instant
    until_s: float

    @property
    def identity(self) -> str:
        return self.instant.requested

    def answer(self, mine: Footprint) -> None:
        """Return when it has gone on or is gone, at the latest at `until_s`, a monotonic time, when it must have looked."""
        runtime = self.table.runtime
        while runtime.monotonic_s() < self.until_s and self.instant in self.table.timeline().pending:
            runtime.sleep(PAUSE_S)


def late_starters(table: OpenTable, timeline: Timeline, own: str, answered: Container[object]) -> list[LateStarter]:
    """Those before `own` in a timeline that was read under the lock, except the `answered` ones.

    No request if all of them are known to be lakelock's; else one listing, and for writers of another engine the storage's
    time: a writer that showed its instant `heartbeat.foreign_start_s` ago has looked.
    """
    started = [i for i in timeline.pending if i.state is State.REQUESTED and i.requested < own]
    unknown = [i for i in started if i.requested not in answered and i.requested not in table.observed.known_ours]
    if not unknown:
        return []
    judged = judge_all(table.io, table.settings.heartbeat, unknown, own=own, read_alive=False)
    theirs = [i for i in unknown if i.requested in judged and judged[i.requested].is_foreign]
    alive = [i for i in theirs if judged[i.requested].state is not LivenessState.DEAD]
    if not alive:
        return []
    now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
    now_s, found = table.runtime.monotonic_s(), []
    for instant in alive:
        requested = table.storage.get(layout.timeline(instant.file_name))
        left_s = table.settings.heartbeat.foreign_start_s - (now_ms - requested.modified_ms) / 1000 if requested else 0.0
        if left_s > 0:
            found.append(LateStarter(table, instant, now_s + left_s))
    return found
