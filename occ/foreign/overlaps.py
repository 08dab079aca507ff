"""Overlaps, which the lock should have prevented: pairs of commits that rewrote one file group without knowing of each other.

Between lakelock's writers the decision log excludes that. With another engine in the mix only the lock does, and a writer
that takes no lock, or another one, is noticed here: too late to prevent it, but never silently.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from lakelock.conflict import SHOWN, Party
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.conflicts.window import commits_since, read_summary
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.decisions import Decision
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId

HINT = (
    "give every Hudi writer hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL, "
    "hoodie.clean.failed.writes.policy=LAZY and the lock of lakelock's writers (hoodie.write.lock.provider with its keys); "
    "then compare the rows of these file groups as of both instants and write again what is missing"
)

_OURS = frozenset({Action.COMMIT, Action.REPLACE_COMMIT, Action.ROLLBACK, Action.CLEAN, Action.SAVEPOINT})
"""What lakelock puts on a timeline. Clustering is somebody else's."""


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
    """How many of the newest commits were read, how many older ones the active timeline has, and if more are archived."""

    read: int
    older: int
    has_archive: bool
    overlaps: list[Overlap]


def audit(table: OpenTable, limit: int) -> Audited:
    """The overlaps among the newest commits of the active timeline. One read for each."""
    timeline = table.timeline()
    newest = sorted(timeline.commits, key=lambda i: i.completion or i.requested)[-limit:]
    reads = [partial(read_summary, table.storage, i) for i in newest]
    commits = table.runtime.gather(reads, limit=table.parallel_requests)
    return Audited(len(commits), len(timeline.commits) - len(commits), timeline.has_archive, overlaps(commits))


def alarm(*, table: OpenTable, baseline: Baseline, decision: Decision, known: Mapping[str, CommitSummary]) -> None:
    """After a commit on a table with foreign writers: look once more, and raise an alert for what the lock let through.

    Never raises: the commit stands, whatever this finds.
    """
    if not table.observed.foreign_writers and all(i.action in _OURS for i in baseline.timeline.instants):
        return
    mine = CommitSummary.of(
        decision.instant, decision.completion, CommitMetadata.from_bytes(decision.payload, "this commit"), decision.number
    )
    try:
        window = commits_since(table, baseline, table.timeline(), (), dict(known))
    except LakelockError as error:
        problem = f"committed, but whether the lock kept other engines out could not be checked: {error.message}"
        table.emit(EventKind.ALERT, decision.instant, decision.operation, problem=problem)
        return
    for overlap in overlaps([mine, *window]):
        table.emit(EventKind.ALERT, decision.instant, decision.operation, problem=str(overlap), hint=HINT)
