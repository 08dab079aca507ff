"""Overlaps, which the lock should have prevented: pairs of commits that rewrote one file group without knowing of each other.

Between lakelock's writers the decision log excludes that. With another engine in the mix only the lock does, and a writer
that takes no lock, or another one, is noticed here: too late to prevent it, but never silently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.conflict import SHOWN, Party
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.occ.begin import Baseline
from lakelock.occ.footprint import CommitSummary
from lakelock.occ.history import commits_since, read_summary
from lakelock.occ.log import Decision
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import SHARE_THE_LOCK
from lakelock.occ.undone import Undone, how_to_go_on, is_undoing, own_commit_undone, undone_commits, unrepaired
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.timeline import Timeline

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
                if first.is_foreign and second.is_foreign and group in first.appended | second.appended:
                    continue  # log files lie on whatever base file there is, as where Java compacts while it writes
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
    """Finds what other engines did after the look that follows each commit: the other half of an overlap, or a rollback of
    what is committed. It is part of each beginning on a table with foreign writers.
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
        # A writer that committed with knowledge of another engine has looked, as it began, at everything up to what it saw.
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
