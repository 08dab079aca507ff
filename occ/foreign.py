"""Other engines on the same table: their writers that start late, their planned services, and a second single writer.

Late starters. Java Hudi takes its instant and shows it in the timeline under the lock (1.2.0, `startCommit`), and only then
notes what is committed: a few tenths of a second later, more on a busy machine. A commit in between, by an instant that is
later than Java's, is part of Java's snapshot: Java builds on it and finds no conflict, and readers, who take the slice with
the greatest requested time, never see what Java wrote there. Java's own writers take longer than that for a commit; lakelock
does not. So a committer that holds the lock and finds such an instant before its own releases the lock until that writer has
read it.

Planned services. Clustering and cleaning carry out later, and without looking again, what they planned before the transaction
committed.

SINGLE_WRITER mode takes no lock, so it looks for a second writer, which must not exist, and names it. When a transaction
begins, another live writer is an error: nothing was done yet. One that is found at the commit is an alert: by then the work
is done, and the decision log keeps the table right even between writers that take no lock.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import SecondWriter
from lakelock.events import EventKind
from lakelock.markers.liveness import LivenessState, StorageClock, judge_all
from lakelock.occ.begin import Baseline
from lakelock.occ.footprint import CommitSummary, Footprint
from lakelock.occ.history import read_summary
from lakelock.occ.log import LogView
from lakelock.occ.open_table import OpenTable
from lakelock.occ.rules import pending_service
from lakelock.table import layout
from lakelock.table.instants import Instant, State
from lakelock.table.layout import FileGroupId
from lakelock.table.service_metadata import partitions_to_clean
from lakelock.table.service_metadata import planned_groups as groups_of_plan
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
    observed.looked_through = view.head, timeline, frozenset(d.instant for d in view.decisions)
    reads = [partial(read_summary, table.storage, each) for each in suspects[-READ_AT_MOST:]]
    for read in table.io.gather(reads):
        if read.is_foreign:
            observed.met_foreign(read.party.instant)


def _without_decision(table: OpenTable, timeline: Timeline, view: LogView, first: int) -> Sequence[Instant]:
    """Commits since the last look of this process that are more than the decisions since then."""
    looked_through = table.observed.looked_through
    if looked_through is not None:
        number, before, decided = looked_through
    elif not view.boundary:
        number, before, decided = 0, Timeline((), ""), frozenset[str]()
    else:
        # Decisions were collected before this process looked for the first time: their commits cannot be counted.
        return ()
    since = [i for i in timeline.commits_since(before) if i.requested not in decided]
    return table.log.without_decision(since, after=number, up_to=first)


LATE_STARTER_PAUSE_S = 0.1


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
            runtime.sleep(LATE_STARTER_PAUSE_S)


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


def planned_rewrites(table: OpenTable, timeline: Timeline, mine: Footprint) -> Conflict | None:
    """A conflict if a pending plan to cluster or compact covers a file group that `mine` rewrites or replaces."""
    for plan in timeline.pending_services:
        name, data = _plan(table, plan)
        conflict = pending_service(mine, plan, groups_of_plan(data, name)) if data else None
        if conflict is not None:
            return conflict
    return None


def planned_groups(table: OpenTable, timeline: Timeline) -> frozenset[FileGroupId]:
    """The file groups in pending plans to cluster or compact, of any age. One request for each plan."""
    plans = (_plan(table, plan) for plan in timeline.pending_services)
    return frozenset(group for name, data in plans if data for group in groups_of_plan(data, name))


def planned_cleaning(table: OpenTable, baseline: Baseline, timeline: Timeline, mine: Footprint) -> Conflict | None:
    """A conflict if a cleaner removes a whole partition that `mine` writes to, or has done so since the baseline.

    Java Hudi removes the folder of a partition in which it found no file, with all that was written to it since (HUDI-7969).
    """
    cleaned_before = {i.requested for i in baseline.timeline.cleanings if i.is_completed}
    for cleaning in timeline.cleanings:
        if cleaning.requested in cleaned_before:
            continue
        name, data = _plan(table, cleaning)
        # Without content it is a plan that is being written, or was torn: Java does not carry that out.
        both = mine.written_partitions & partitions_to_clean(data, name) if data else frozenset()
        if both:
            conflict = Conflict.over(
                ConflictRule.PENDING_TABLE_SERVICE,
                mine.party,
                Party(cleaning.requested, "clean", completion=cleaning.completion),
                sorted(both),
                detail="the other engine's cleaner removes the folder of this partition, which was empty when it looked. "
                "If this happens again, let the other engine finish its cleaning: hoodie.clean.automatic",
            )
            return replace(conflict, retry_helps=True)
    return None


def _plan(table: OpenTable, service: Instant) -> tuple[str, bytes | None]:
    """The name and the content of the file that says what a service is going to do; None when it is gone."""
    name = replace(service, state=State.REQUESTED, completion=None).file_name
    stored = table.storage.get(layout.timeline(name))
    return name, stored.data if stored is not None else None


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
        f"concurrency.mode is SINGLE_WRITER, but another writer is at work on {table.storage.uri}: "
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
        problem = f"concurrency.mode is SINGLE_WRITER, but there is another writer: {who}; set it to OPTIMISTIC in all writers"
        table.emit(EventKind.ALERT, own, problem=problem)
    return bool(parties)
