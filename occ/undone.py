"""Commits that another engine has undone: it rolls an instant back that it has seen pending, while its writer completes it.

lakelock looks for such a rollback right before it publishes. What comes later than that cannot be prevented, because the
other engine takes no lock; but the rollback names the instant on the timeline, and the instant is completed there. lakelock
itself never rolls a completed instant back, so wherever both are found the other engine was at work without the lock.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.conflict import SHOWN, Party
from lakelock.errors import CommitUndone, CorruptTableError, LakelockError, StorageError
from lakelock.events import EventKind
from lakelock.identity import OTHER_ENGINE, name_of
from lakelock.markers.leftovers import is_data_file_of
from lakelock.occ import commit_keys as keys
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.log import Decision
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import SHARE_THE_LOCK, files_of, missing, rollback_plan, rollback_target
from lakelock.table.archive import read_commit
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Instant
from lakelock.table.layout import in_partition
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

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
        """What an alert about it is remembered by: it is raised again when more is known."""
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
    targets = table.io.gather([partial(rollback_target, table, r) for r in rollbacks])
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
        plan = rollback_plan(table, rollback)
        named = plan.files.items() if plan is not None else ()
        # Other files may have been cleaned since.
        planned = {in_partition(partition, name) for partition, names in named for name in names}
        found.append(Undone(party, rollback, len(files), tuple(missing(table, [f for f in files if f in planned]))))
    return min(found, key=lambda each: (not each.gone, each.rollback.is_completed))


def remove_strays_of_undone(table: OpenTable, timeline: Timeline) -> int:
    """Delete the files of late tasks whose markers a rollback of their commit has removed: the commit does not name them.

    They would show beside its files as soon as a reader goes by names. A listing of each partition that such a commit wrote; by
    each process at its first look and until no task can be at work any more. Returns how many files there were.
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
    """The error for the writer of an undone commit."""
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
