"""What a checkpoint covers: a set of instants, never a time.

A commit may complete late with an early instant, and with an early completion time if its writer's clock is slow. So a
checkpoint names the instants whose effects it has. Only instants older than all active ones, and older than any clock may
be slow, are not named one by one: they are below `low`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.table.instants import Action, format_instant, parse_instant
from lakelock.table.timeline import Timeline

GRACE_MS = 3_600_000
"""How slow a clock may be: instants younger than this, by the newest on the timeline, are covered one by one."""


@dataclass(frozen=True)
class Coverage:
    """All commits below `low`, and those in `instants`. Files of the archive in `archive` hold nothing else."""

    low: str = ""
    instants: frozenset[str] = frozenset()
    archive: frozenset[str] = frozenset()
    restores: frozenset[str] = frozenset()

    def covers(self, instant: str) -> bool:
        """Whether the effect of this commit is contained, if it has one."""
        return instant < self.low or instant in self.instants

    def is_within(self, timeline: Timeline) -> bool:
        """Whether the timeline shows everything covered, so its state can be reached by adding commits.

        That fails if the timeline is older, if commits were undone (a restore by another engine), or if
        an instant turned up among those that were considered settled.
        """
        writes = (i.requested for i in timeline.instants if i.is_write)
        if self.low > next(writes, self.low) or not self.restores >= restores_of(timeline):
            return False
        others = self.instants - timeline.completed_instants
        ranges = [name.split("_")[:2] for name in timeline.archive] if others else []
        return all(
            timeline.is_visible(instant) and any(first <= instant <= last for first, last in ranges) for instant in others
        )

    def with_all_of(self, timeline: Timeline, archived: Iterable[str] = ()) -> Coverage:
        """The coverage after the commits of the timeline, and those `archived` that it does not show, were added."""
        low = lowest_open(timeline)
        covered = self.instants | timeline.completed_instants | frozenset(archived)
        return Coverage(low, frozenset(i for i in covered if i >= low), frozenset(timeline.archive), restores_of(timeline))


def lowest_open(timeline: Timeline) -> str:
    """Below this instant nothing new can appear: it passes neither a pending nor an active instant, nor one of a slow clock."""
    writes = [i for i in timeline.instants if i.is_write]
    if not any(i.is_completed for i in writes):
        return ""
    grace = format_instant(max(0, parse_instant(timeline.newest_time) - GRACE_MS))
    return min(writes[0].requested, grace)


def restores_of(timeline: Timeline) -> frozenset[str]:
    """Completed restores, by which another engine has undone commits."""
    return frozenset(i.requested for i in timeline.instants if i.action == Action.RESTORE and i.is_completed)
