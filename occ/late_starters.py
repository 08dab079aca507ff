"""Writers of another engine that have taken their instant, and not yet looked at the table.

Java Hudi requests its instant first and only then notes what is committed (1.2.0: a few tenths of a second later, more on a
busy machine). A commit in between, by an instant that is later than Java's, is one that Java has seen: it builds on it, finds
no conflict, and readers, who take the slice with the greatest requested time, never see what Java added to it. Java's own
writers take longer than that for a commit; lakelock does not, and so waits until Java has looked.
"""

from __future__ import annotations

from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.baseline import Baseline
from lakelock.occ.open_table import OpenTable
from lakelock.table.instants import State, parse_instant

PAUSE_S = 0.1


def wait_for_late_starters(table: OpenTable, baseline: Baseline, began_s: float) -> float:
    """Wait until each foreign instant that was requested before mine has come further, or is old enough; how long, in seconds.

    Old enough is who took the instant `heartbeat.foreign_start_s` ago.
    Call it before the commit of a transaction that rewrites file groups. No request where no other engine was met, else
    one listing.
    """
    if not table.foreign_met:
        return 0.0
    asked_s, started_after_s = table.runtime.monotonic_s(), table.settings.heartbeat.foreign_start_s
    mine_ms = parse_instant(baseline.instant)
    until_s = {}
    for other in table.timeline().pending:
        young_s = started_after_s - (mine_ms - parse_instant(other.requested)) / 1000
        if other.state is State.REQUESTED and other.requested < baseline.instant and began_s + young_s > asked_s:
            until_s[other] = began_s + min(young_s, started_after_s)
    if not until_s:
        return 0.0
    judged = judge_all(table.storage, table.settings.heartbeat, table.runtime, until_s, own=baseline.instant, read_alive=False)
    theirs = [o for o in until_s if o.requested in judged and judged[o.requested].is_foreign]
    waiting = [o for o in theirs if judged[o.requested].state is not LivenessState.DEAD]
    while waiting:
        requested = set(table.timeline().pending)
        now_s = table.runtime.monotonic_s()
        waiting = [o for o in waiting if o in requested and now_s < until_s[o]]
        if waiting:
            table.runtime.sleep(PAUSE_S)
    return table.runtime.monotonic_s() - asked_s
