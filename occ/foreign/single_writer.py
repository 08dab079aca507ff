"""SINGLE_WRITER mode takes no lock, so it looks for a second writer, which must not exist, and names it.

When a transaction begins, another live writer is an error: nothing was done yet. One that is found at the commit is an alert:
by then the work is done, and the decision log keeps the table right even between writers that take no lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelock.conflict import Party
from lakelock.errors import SecondWriter
from lakelock.events import EventKind
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.open_table import OpenTable
from lakelock.table.timeline import Timeline


def live_others(table: OpenTable, timeline: Timeline, own: str = "") -> list[Party]:
    """The other writers whose transactions are pending and who are not proven dead. No request if nothing else is pending."""
    others = [instant for instant in timeline.pending if instant.requested != own]
    if not others:
        return []
    judged = judge_all(table.io, table.settings.heartbeat, timeline.pending, own=own)
    found = []
    for instant in others:
        liveness = judged.get(instant.requested)
        if liveness is None or liveness.state is LivenessState.DEAD:
            continue
        writer = liveness.record.writer if liveness.record else None
        if writer is None or writer.writer_id != table.writer.writer_id:
            operation = liveness.record.operation if liveness.record else "write"
            found.append(Party(instant.requested, operation, writer, seen_ago_s=liveness.age_s))
    return found


def refuse_second_writer(table: OpenTable, timeline: Timeline, own: str) -> None:
    """`SecondWriter` that names who else is writing; for a transaction that has just begun."""
    others = live_others(table, timeline, own)
    if not others:
        return
    limit_s = table.settings.heartbeat.limit_s
    raise SecondWriter(
        f"concurrency.mode is SINGLE_WRITER, but somebody else is writing to {table.storage.uri}: "
        f"{'; '.join(map(str, others[:3]))}",
        hint="set concurrency.mode to OPTIMISTIC in all writers; if that one was killed just now, run again when its heartbeat "
        f"is {limit_s:g} s old",
        writers=[str(other) for other in others[:20]],
    )


def notice_second_writer(table: OpenTable, timeline: Timeline, own: str, committed: Sequence[CommitSummary]) -> bool:
    """At a commit: an alert that names who else has written or is writing; whether there was one."""
    mine = table.writer.writer_id
    parties = [other.party for other in committed if other.party.writer is None or other.party.writer.writer_id != mine]
    parties += live_others(table, timeline, own)
    if parties:
        who = "; ".join(map(str, parties[:3]))
        problem = f"concurrency.mode is SINGLE_WRITER, but somebody else writes too: {who}; set it to OPTIMISTIC in all writers"
        table.emit(EventKind.ALERT, own, problem=problem)
    return bool(parties)
