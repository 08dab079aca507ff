"""Waiting, after an early conflict, for the one transaction that is in the way."""

from __future__ import annotations

from lakelock.conflict import Party
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.markers.liveness import CLOCK_GRAIN_MS
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recovery.reaper import reap
from lakelock.storage import Stored
from lakelock.table import layout
from lakelock.table.instants import State


def wait_for(table: OpenTable, other: Party) -> None:
    """Wait until the other transaction has ended or its dead writer is reaped, at most `retry.holder_wait_s`.

    One that has committed is not waited for. A transaction keeps its claims to its end, and its heartbeat a little longer.
    So each look asks for that one heartbeat, and for more only where another engine left none, or once it has not beaten for
    half of its limit.
    """
    if other.completion:
        return
    policy, runtime = table.settings.retry, table.runtime
    began_s = runtime.monotonic_s()
    seen, seen_s, pause_s = None, began_s - (other.seen_ago_s or 0.0), policy.first_wait_s
    while runtime.monotonic_s() < began_s + policy.holder_wait_s:
        beat = table.storage.get(layout.heartbeat(other.instant))
        if beat is None and other.writer is not None:
            return
        if seen is not None and beat is not None and beat.modified_ms != seen.modified_ms:
            seen_s = runtime.monotonic_s()
        seen, silent_s = beat, runtime.monotonic_s() - seen_s
        limit_s = _limit_s(table, beat)
        if (beat is None or silent_s > limit_s / 2) and _has_ended(table, other.instant, reaps=silent_s > limit_s):
            return
        runtime.sleep(pause_s)
        pause_s = min(pause_s * 2, policy.longest_wait_s)


def _limit_s(table: OpenTable, beat: Stored | None) -> float:
    """The age at which the heartbeat's owner is dead."""
    record = HeartbeatRecord.from_bytes(beat.data) if beat is not None else None
    limit_s = (record or table.settings.heartbeat).limit_s
    return limit_s + CLOCK_GRAIN_MS / 1000


def _has_ended(table: OpenTable, instant: str, *, reaps: bool) -> bool:
    """Whether the timeline shows that the transaction has ended, or, if it `reaps`, its writer is proven dead."""
    timeline = table.timeline()
    state = timeline.state_of(instant)
    if state is None or state is State.COMPLETED:
        return True
    return reaps and any(reaped.instant == instant for reaped in reap(table, timeline, patient=True))
