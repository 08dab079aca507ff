"""Which instants may leave the active timeline. Pure.

Readers regard a data file as visible when its instant is completed on the timeline, or older than the whole timeline. So only a
contiguous run of the oldest commits may go, never past an instant that is pending, nor past one that was rolled back but has
left something behind, or was rolled back so lately that its writer may still leave something. Whoever still needs a commit on
the timeline keeps it there, with all later ones:

* a running transaction: everything outside its baseline, which appeared after it began, by the storage's time;
* a savepoint: its commit;
* a replacement: itself, as long as files of the replaced groups exist, because without it they would be visible again;
* `archive.min_age_s` and `clean.readers_s`: a request for the instant may still be in flight, a reader may still rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import pairwise

from lakelock.markers.liveness import CLOCK_GRAIN_MS
from lakelock.occ.upkeep.clean_policy import COMMITS, Shown
from lakelock.settings import Settings
from lakelock.table.instants import Action, Instant
from lakelock.table.timeline import Timeline

_WITH_THEM = frozenset({Action.CLEAN, Action.ROLLBACK})
"""Actions that leave together with the later commits."""


@dataclass(frozen=True)
class Archivable:
    """The instants that may go, in order, and what keeps more on the timeline."""

    instants: tuple[Instant, ...] = ()
    held_by: str = ""


def archivable(
    settings: Settings,
    timeline: Timeline,
    shown: Shown,
    now_ms: int,
    *,
    unfinished: Set[str],
    still_replaced: Set[str],
    rolled_back_ms: Mapping[str, int],
    undone: Set[str] = frozenset(),
    covered: Set[str] | None = None,
) -> Archivable:
    """What may be archived of a timeline. `now_ms` is the storage's time.

    `unfinished`: instants that left markers or a heartbeat. `still_replaced`: replacements of which old files are there.
    `rolled_back_ms`: when instants were rolled back; for a while their writers may not know.
    `undone`: commits of which another engine has removed files, and which no repair has taken out: the timeline explains them.
    `covered`: the instants that checkpoints of the table's files cover, where there are any: no others may go.
    """
    commits, keep = timeline.commits, settings.archive.min_commits
    if settings.clean.policy == COMMITS:
        keep = max(keep, settings.clean.keep_commits + 1)
    if len(commits) <= max(settings.archive.max_commits, keep):
        return Archivable()
    if any(not i.is_completed for i in timeline.rollbacks):
        return Archivable(held_by="a rollback that is not completed")
    age_s = max(settings.archive.min_age_s, settings.clean.readers_s)
    since_ms = now_ms - round(age_s * 1000)
    lately = min((instant for instant, ms in rolled_back_ms.items() if ms > since_ms), default="")
    if timeline.pending:
        since_ms = min(since_ms, min(shown.pending_ms.get(i.requested, 0) for i in timeline.pending) - CLOCK_GRAIN_MS - 1)
    blocked, why = _first_blocked(timeline)
    dirty = min(unfinished - {i.requested for i in timeline.pending}, default="")

    gone: list[Instant] = []
    held_by = ""
    for commit, following in pairwise(commits[: len(commits) - keep + 1]):
        if blocked and following.requested > blocked:
            held_by = why
        elif dirty and following.requested > dirty:
            # If it were older than the whole timeline, its files would be taken for those of an archived commit.
            held_by = f"what {dirty} left, which is not removed yet"
        elif lately and following.requested > lately:
            held_by = f"archive.min_age_s and clean.readers_s: {lately} was rolled back lately"
        elif shown.completed_ms.get(commit.requested, now_ms) > since_ms:
            held_by = "running transactions" if timeline.pending else "archive.min_age_s and clean.readers_s"
        else:
            held_by = _held(commit, still_replaced, undone, covered)
        if held_by:
            break
        gone.append(commit)
    if not gone:
        return Archivable(held_by=held_by)
    return Archivable(tuple(sorted((*gone, *_along(timeline, gone[-1].requested)))), held_by)


def _held(commit: Instant, still_replaced: Set[str], undone: Set[str], covered: Set[str] | None) -> str:
    """Why readers still need this commit on the timeline."""
    if commit.requested in undone:
        return f"{commit}, which another engine has undone: lakelock repair"
    if commit.requested in still_replaced:
        return f"{commit}, whose replaced files are not cleaned yet"
    return "the next checkpoint" if covered is not None and commit.requested not in covered else ""


def _first_blocked(timeline: Timeline) -> tuple[str, str]:
    """The first instant that ends the run of commits, whatever their age, and what it is."""
    found = [(i.requested, f"{i}") for i in (*timeline.pending, *timeline.pending_services, *timeline.savepoints)]
    return min(found, default=("", ""))


def _along(timeline: Timeline, last: str) -> list[Instant]:
    """Completed cleans and rollbacks before the last commit that goes; the newest clean stays, to record what was cleaned."""
    newest = max((i.requested for i in timeline.cleanings if i.is_completed), default="")
    return [
        i
        for i in timeline.instants
        if i.action in _WITH_THEM and i.is_completed and i.requested < last and i.requested != newest
    ]
