"""Other engines on the same table: late starters, planned services, a second single writer, undone commits, and overlaps.

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

Undone commits. An engine without the lock may see an instant pending and roll it back just as its writer completes it.
lakelock looks for such a rollback right before it publishes. A later one cannot be prevented, because the other engine takes no
lock; but it shows on the timeline, as a rollback that names a completed instant. lakelock itself never rolls back a completed
instant, so such a pair proves that the other engine worked without the lock.

Overlaps are pairs of commits that rewrote one file group without knowing of each other. Between lakelock's writers the
decision log excludes that; with another engine only the lock does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import SHOWN, Conflict, ConflictRule, Party
from lakelock.errors import CommitUndone, CorruptTableError, LakelockError, SecondWriter, StorageError
from lakelock.events import EventKind
from lakelock.identity import OTHER_ENGINE, name_of
from lakelock.markers.leftovers import is_data_file_of
from lakelock.markers.liveness import LivenessState, StorageClock, judge_all
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import Baseline
from lakelock.occ.footprint import CommitSummary, Footprint
from lakelock.occ.history import commits_since, read_summary
from lakelock.occ.log import Decision, LogView
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import SHARE_THE_LOCK, files_of, missing
from lakelock.occ.rules import pending_service
from lakelock.table import layout
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action, Instant, State
from lakelock.table.layout import FileGroupId, in_partition
from lakelock.table.service_metadata import partitions_to_clean
from lakelock.table.service_metadata import planned_groups as groups_of_plan
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

READ_AT_MOST = 20
"""How many of the newest commits are read that may be another engine's."""


def look_for_first_meeting(
    table: OpenTable, timeline: Timeline, view: LogView, first: int, window: Sequence[CommitSummary]
) -> None:
    """Note that another engine writes the table, if a commit in the `timeline` or in the `window` shows it.

    `timeline` was listed under the lock. `view` has all decisions after `first`, and `window` the commits since then. No
    request if only lakelock writes, nor once another engine was found. Errors are those of reading a commit.
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
    """Commits since this process last looked that have no decision, if there are more of them than unread decisions."""
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
        """Wait until that writer goes on or gives up, at most until `until_s` (monotonic), by when it must have looked."""
        runtime = self.table.runtime
        while runtime.monotonic_s() < self.until_s and self.instant in self.table.timeline().pending:
            runtime.sleep(LATE_STARTER_PAUSE_S)


def late_starters(table: OpenTable, timeline: Timeline, own: str, answered: Container[object]) -> list[LateStarter]:
    """Other engines' writers with an instant before `own` that may not have looked yet, except the `answered` ones.

    `timeline` was read under the lock. No request if all these instants are known to be lakelock's; else one listing, and for
    each other writer the storage time of its requested file: `heartbeat.foreign_start_s` later it must have looked.
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


def planned_rewrites(table: OpenTable, baseline: Baseline, timeline: Timeline, mine: Footprint) -> Conflict | None:
    """A conflict if a pending plan to cluster or compact covers a file group that `mine` rewrites or replaces."""
    known = {plan.requested for plan in baseline.timeline.pending_services}
    for plan in timeline.pending_services:
        name, data = _plan(table, plan)
        conflict = pending_service(mine, plan, groups_of_plan(data, name)) if data else None
        if conflict is not None:
            # Who knows of a plan to compact when it begins appends a log file.
            return replace(conflict, retry_helps=plan.action == Action.COMPACTION and plan.requested not in known)
    return None


def planned_groups(table: OpenTable, timeline: Timeline) -> dict[FileGroupId, str]:
    """The file groups in pending plans of any age, each with what is planned: to cluster or to compact. One request for each
    plan.
    """
    plans = [(plan.action, *_plan(table, plan)) for plan in timeline.pending_services]
    return {group: action for action, name, data in plans if data for group in groups_of_plan(data, name)}


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


NEWEST_ROLLBACKS = 100
"""How many of the newest rollbacks of a timeline are looked at."""
PAUSE_S = 0.1
SHOWN_BESIDE = "files of tasks that were killed late may have shown beside those of the commit until now; they are removed"


@dataclass(frozen=True)
class Undone:
    """A commit that a rollback names. Of its `files` the rollback has removed those in `gone`."""

    party: Party
    rollback: Instant
    files: int
    gone: tuple[str, ...]

    @property
    def instant(self) -> str:
        return self.party.instant

    @property
    def is_harmless(self) -> bool:
        """Whether the rollback is over and has removed nothing: it had been planned before there was a file."""
        return self.rollback.is_completed and not self.gone

    def as_dict(self) -> dict[str, object]:
        """Plain values, for `--json`."""
        return {
            "instant": self.instant,
            "completion": self.party.completion,
            "operation": self.party.operation,
            "writer": name_of(self.party.writer),
            "rollback": self.rollback.requested,
            "rollback_is_over": self.rollback.is_completed,
            "by": OTHER_ENGINE,
            "files": self.files,
            "gone": list(self.gone),
        }

    def __str__(self) -> str:
        by = f"rollback {self.rollback.requested} by {OTHER_ENGINE}, which does not hold the lock"
        if not self.gone:
            return f"{self.party} is being undone by {by}: its files may be removed at any moment"
        shown = ", ".join(self.gone[:SHOWN]) + (f" and {len(self.gone) - SHOWN} more" if len(self.gone) > SHOWN else "")
        return f"{self.party} was undone by {by}: {len(self.gone)} of its {self.files} files are gone: {shown}"

    @property
    def about(self) -> str:
        """The key by which an alert about it is remembered. It changes once files are gone, so there is a second alert."""
        return f"{self.instant} undone by {self.rollback.requested}: {bool(self.gone)}"


def how_to_go_on(table: OpenTable) -> str:
    """What to do about undone commits, for people."""
    repair = command("repair", table.storage.uri)
    return f"{repair} makes the table readable without them; then write their rows again. To prevent it, {SHARE_THE_LOCK}"


def rolled_back_commits(table: OpenTable, timeline: Timeline, *, since: str = "") -> dict[str, list[Instant]]:
    """Completed instants from `since` on that rollbacks name, each with these, oldest first. Each plan is read once."""
    return _named(table, timeline, [each for each in timeline.rollbacks if each.requested >= since][-NEWEST_ROLLBACKS:])


def is_undoing(table: OpenTable, timeline: Timeline) -> bool:
    """Whether a rollback that is not over names a completed instant, which only another engine does. Mostly no request."""
    return bool(_named(table, timeline, [each for each in timeline.rollbacks if not each.is_completed]))


def _named(table: OpenTable, timeline: Timeline, rollbacks: Sequence[Instant]) -> dict[str, list[Instant]]:
    if not rollbacks:
        return {}
    targets = table.io.gather([partial(table.rollback_target, r) for r in rollbacks])
    named: dict[str, list[Instant]] = {}
    for target, rollback in zip(targets, rollbacks, strict=True):
        write = timeline.write_at(target) if target is not None else None
        if write is not None and write.is_completed:
            named.setdefault(write.requested, []).append(rollback)
    return named


def undone_commits(table: OpenTable, timeline: Timeline, *, known: Container[str] = ()) -> list[Undone]:
    """The commits that a rollback names, without those that it left as they are, and without the `known` ones.

    One request for each of their files that the rollback names.
    """
    found = {instant: by for instant, by in rolled_back_commits(table, timeline).items() if instant not in known}
    commits = [i for i in timeline.commits if i.requested in found]
    read = table.io.gather([partial(read_commit, table.storage, i) for i in commits])
    every = [
        _undone(table, CommitSummary.of(i.requested, i.completion or "", metadata, None).party, found[i.requested], metadata)
        for i, metadata in zip(commits, read, strict=True)
    ]
    return [each for each in every if not each.is_harmless]


def unrepaired(table: OpenTable, timeline: Timeline) -> list[Undone]:
    """The undone commits that no repair has taken out of the table yet, oldest first. Reads the commits after the first."""
    undone = undone_commits(table, timeline)
    if not undone:
        return []
    later = [i for i in timeline.commits if i.requested > undone[0].instant]
    read = table.io.gather([partial(read_commit, table.storage, i) for i in later])
    repaired = {instant for metadata in read for instant in metadata.extra.get(keys.REPAIRED, "").split(",")}
    return [each for each in undone if each.instant not in repaired]


def _undone(table: OpenTable, party: Party, rollbacks: Sequence[Instant], metadata: CommitMetadata) -> Undone:
    """By the first of the rollbacks that has removed files, else by one that still may."""
    files, found = files_of(metadata), list[Undone]()
    for rollback in rollbacks:
        plan = table.rollback_plan(rollback)
        named = plan.files.items() if plan is not None else ()
        # Other files may have been cleaned since.
        planned = {in_partition(partition, name) for partition, names in named for name in names}
        found.append(Undone(party, rollback, len(files), tuple(missing(table, [f for f in files if f in planned]))))
    return min(found, key=lambda each: (not each.gone, each.rollback.is_completed))


def remove_strays_of_undone(table: OpenTable, timeline: Timeline) -> int:
    """Delete the files of late tasks whose markers a rollback of their commit has removed: the commit does not name them.

    Any reader that lists files would take them for files of the commit. Lists each partition that such a commit wrote, at each
    call until no task of it can be running any more. Returns how many files were deleted.
    """
    observed, now_s = table.observed, table.runtime.monotonic_s()
    found = rolled_back_commits(table, timeline)
    until_s = {i: observed.swept_until_s.setdefault(i, now_s + table.settings.heartbeat.limit_s) for i in found}
    commits = [i for i in timeline.commits if until_s.get(i.requested, 0.0) > 0.0]
    removed = 0
    for commit in commits:
        metadata = read_commit(table.storage, commit)
        if keys.DECISION in metadata.extra:  # other engines reconcile their commits themselves
            named = {stat.path for stat in metadata.stats}
            partitions = sorted({stat.partition_path or "" for stat in metadata.stats})
            looks = [partial(_files_in, table, partition, commit.requested) for partition in partitions]
            strays = sorted(key for files in table.io.gather(looks) for key in files if key not in named)
            if strays:
                table.storage.delete(strays)
                problem = f"{SHOWN_BESIDE}; the rollback of the commit by {OTHER_ENGINE} had removed their markers"
                table.emit(EventKind.ALERT, commit.requested, problem=problem, files=len(strays))
            removed += len(strays)
        if now_s >= until_s[commit.requested]:
            observed.swept_until_s[commit.requested] = 0.0
    return removed


def _files_in(table: OpenTable, partition: str, instant: str) -> list[str]:
    return [item.key for item in table.storage.list(partition) if is_data_file_of(item.key, instant)]


def own_commit_undone(table: OpenTable, decision: Decision, timeline: Timeline) -> Undone | None:
    """Whether another engine has undone the commit that this process has just published, by a `timeline` listed since.

    A rollback that is under way is waited for, for at most `heartbeat.foreign_start_s`: it may turn out to remove nothing.
    """
    deadline_s = table.runtime.monotonic_s() + table.settings.heartbeat.foreign_start_s
    metadata = CommitMetadata.from_bytes(decision.payload, "this commit")
    party = Party(decision.instant, decision.operation, decision.writer, decision.completion)
    while True:
        rollbacks = rolled_back_commits(table, timeline, since=decision.instant).get(decision.instant)
        if rollbacks is None:
            return None
        found = _undone(table, party, rollbacks, metadata)
        if all(each.is_completed for each in rollbacks) or table.runtime.monotonic_s() >= deadline_s:
            return None if found.is_harmless else found
        table.runtime.sleep(PAUSE_S)
        timeline = table.timeline()


def undone_error(table: OpenTable, found: Undone) -> CommitUndone:
    return CommitUndone(
        f"{found}",
        hint=how_to_go_on(table),
        instant=found.instant,
        rollback=found.rollback.requested,
        gone=list(found.gone[:SHOWN]),
    )


def ensure_readable(table: OpenTable, snapshot: Snapshot, timeline: Timeline) -> None:
    """`CorruptTableError` if a snapshot has files that another engine's rollback has removed.

    No request where only lakelock writes; elsewhere each rollback is read once.
    """
    for found in undone_commits(table, timeline) if table.observed.foreign_writers else ():
        if any(file.key in found.gone for file in snapshot.files):
            raise _unreadable(table, found)


def why_missing(table: OpenTable, error: StorageError) -> LakelockError:
    """What to raise for a file that a reader does not find: the rollback that removed it, or what to ask next."""
    try:
        every = undone_commits(table, table.timeline())
    except LakelockError:
        return error
    found = next((each for each in every if any(path in error.message for path in each.gone)), None)
    if found is not None:
        return _unreadable(table, found)
    error.hint = f"read again, as it may just have been cleaned; if it stays, {command('doctor', table.storage.uri)}"
    return error


def _unreadable(table: OpenTable, found: Undone) -> CorruptTableError:
    return CorruptTableError(
        f"{table.storage.uri} cannot be read: {found}",
        hint=how_to_go_on(table),
        instant=found.instant,
        rollback=found.rollback.requested,
        file=found.gone[0],
    )


HINT = f"{SHARE_THE_LOCK}; then compare the rows of these file groups as of both instants and write again what is missing"

LOOKED_BACK_AT = 20
"""How many of the newest commits a beginning transaction compares."""

_OURS = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.CLEAN, Action.SAVEPOINT})
"""What lakelock puts on a timeline. Clustering is another engine's."""


@dataclass(frozen=True)
class Overlap:
    """Two commits whose times overlap, and the file groups that both rewrote, so that one undid the other there."""

    first: Party
    second: Party
    groups: tuple[FileGroupId, ...]

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.groups[:SHOWN]))
        more = f" and {len(self.groups) - SHOWN} more" if len(self.groups) > SHOWN else ""
        return f"{self.second} does not know of {self.first}, and both rewrote {shown}{more}: rows of one of them may be lost"


def overlaps(commits: Iterable[CommitSummary]) -> list[Overlap]:
    """Pairs that one common lock and a check under it would have kept apart, in order of completion. Pure.

    Pairs of lakelock's own commits are left out: their decisions are in order, whatever the lock did.
    """
    earlier: dict[FileGroupId, list[CommitSummary]] = defaultdict(list)
    found: dict[tuple[str, str], tuple[CommitSummary, CommitSummary, list[FileGroupId]]] = {}
    for second in sorted(commits, key=lambda c: (c.party.completion or "", c.party.instant)):
        for group in sorted(second.touched):
            for first in reversed(earlier[group]):
                if (first.party.completion or "") <= second.party.instant:
                    break
                if group in first.appended | second.appended and (first.is_foreign or not second.is_foreign):
                    # Log files lie on whatever base file there is, as where Java compacts while it writes; what is lakelock's
                    # was compared row by row with what came before it.
                    continue
                if (first.is_foreign or second.is_foreign) and not _knows(second, first, second.built_on.get(group)):
                    pair = first.party.instant, second.party.instant
                    found.setdefault(pair, (first, second, []))[2].append(group)
            earlier[group].append(second)
    return [Overlap(first.party, second.party, tuple(groups)) for first, second, groups in found.values()]


def _knows(second: CommitSummary, first: CommitSummary, built_on: str | None) -> bool:
    """Whether `second`, which completed later, starts from what `first` left of a file group.

    It must also have been requested later: readers take the slice with the greatest requested time.
    """
    if second.party.instant < first.party.instant:
        return False
    saw = second.saw >= (first.party.completion or "")
    return saw or (built_on is not None and built_on >= first.party.instant)


@dataclass(frozen=True)
class Audited:
    """How many of the newest commits were read, how many older ones the active timeline has, and if more are archived.

    `undone` are commits of which another engine's rollback has removed files, without those that a repair took out.
    """

    read: int
    older: int
    has_archive: bool
    overlaps: list[Overlap]
    undone: list[Undone]


def audit(table: OpenTable, limit: int) -> Audited:
    """The overlaps among the newest commits of the active timeline, and the commits that were undone. One read for each."""
    timeline = table.timeline()
    newest = timeline.latest(limit)[::-1]
    reads = [partial(read_summary, table.storage, i) for i in newest]
    commits = table.io.gather(reads)
    older = len(timeline.commits) - len(commits)
    return Audited(len(commits), older, timeline.has_archive, overlaps(commits), unrepaired(table, timeline))


def alarm(*, table: OpenTable, baseline: Baseline, decision: Decision, known: Mapping[str, CommitSummary]) -> Undone | None:
    """After a commit on a table with foreign writers: look once more, and raise an alert for what the lock let through.

    Returns how another engine has undone this very commit, if it has. Never raises: the commit stands, whatever this finds.
    """
    if not table.observed.foreign_writers and baseline.timeline.actions <= _OURS:
        return None
    mine = CommitSummary.of(
        decision.instant, decision.completion, CommitMetadata.from_bytes(decision.payload, "this commit"), decision.number
    )
    try:
        timeline = table.timeline()
        window = commits_since(table, baseline, timeline, (), dict(known))
        undone = own_commit_undone(table, decision, timeline)
    except LakelockError as error:
        problem = f"committed, but whether the lock kept other engines out could not be checked: {error.message}"
        table.emit(EventKind.ALERT, decision.instant, decision.operation, problem=problem)
        return None
    _tell(table, mine.party, overlaps([mine, *window]), [undone] if undone is not None else [])
    return undone


class LookBack:
    """Finds overlaps and undone commits that came after a commit's own check (`alarm`).

    Each transaction looks back when it begins on a table that other engines write.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._known: dict[str, CommitSummary] = {}
        self._settled: frozenset[str] = frozenset()
        """Undone commits of which everything is known and reported."""

    def look(self, timeline: Timeline, own: Party) -> None:
        """Raise an alert for what is found, once. Never raises: it is not about the transaction that begins.

        One read for each of the newest commits and rollbacks that is new to this process; where no other engine was met, for
        each rollback that is not completed.
        """
        table = self._table
        try:
            if not table.observed.foreign_writers and is_undoing(table, timeline):
                table.observed.met_foreign()
            if not table.observed.foreign_writers:
                return
            known = self._newest(timeline)
            undone = undone_commits(table, timeline, known=self._settled)
        except LakelockError as error:
            problem = f"whether the lock kept other engines out could not be checked: {error.message}"
            if table.observed.is_news(problem):
                table.emit(EventKind.ALERT, own.instant, own.operation, problem=problem)
            return
        self._settled |= {each.instant for each in undone if each.rollback.is_completed}
        repaired = frozenset(instant for each in known for instant in each.repaired)
        # A writer that knew of the other engine looked back when it began, at everything up to the completion that it saw.
        looked_at = max((each.saw for each in known if each.newest_foreign), default="")
        late = [each for each in overlaps(known) if (each.second.completion or "") > looked_at]
        _tell(table, own, late, [each for each in undone if each.instant not in repaired])

    def _newest(self, timeline: Timeline) -> list[CommitSummary]:
        """What the newest commits did: they are remembered, and no others."""
        table = self._table
        newest = timeline.latest(LOOKED_BACK_AT)[::-1]
        unread = [i for i in newest if i.requested not in self._known]
        reads = [partial(read_summary, table.storage, i) for i in unread]
        read = table.io.gather(reads)
        known = {**self._known, **dict(zip((i.requested for i in unread), read, strict=True))}
        self._known = {i.requested: known[i.requested] for i in newest}
        return list(self._known.values())


def _tell(table: OpenTable, about: Party, late: Sequence[Overlap], undone: Sequence[Undone]) -> None:
    """Raise an alert for each that this process has not reported yet."""
    for overlap in late:
        if table.observed.is_news(f"{overlap.first.instant} and {overlap.second.instant}"):
            table.emit(EventKind.ALERT, about.instant, about.operation, problem=str(overlap), hint=HINT)
    for each in undone:
        if table.observed.is_news(each.about):
            table.emit(EventKind.ALERT, about.instant, about.operation, problem=str(each), hint=how_to_go_on(table))
