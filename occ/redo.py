"""One attempt's part in a write that does again only what collided (ADR 19)."""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.conflict import Party
from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.occ.certainty import OwnDecision
from lakelock.occ.conflicts.collision import Collision
from lakelock.occ.early.announced import AnnouncedGroups
from lakelock.occ.open_table import OpenTable
from lakelock.occ.steps import Step, reached


@dataclass
class Redo:
    """What an attempt takes over from the one before it, and whether the next may take over from it."""

    keeps_files: bool = False
    """Whether a commit that conflicts sets the attempt aside, for `lakelock.occ.attempts.set_aside`."""
    earlier: str | None = None
    """The instant of the attempt before, which is set aside."""
    kept: int = 0
    """How many files are copies of that attempt's."""


def goes_aside(table: OpenTable, own: OwnDecision, mine: Party, found: Collision, announced: AnnouncedGroups) -> bool:
    """Whether the files of a transaction that lost may stay for the next attempt; then its claims are gone.

    It must be certain that it never commits. Claims go first: its writer may now wait for others, and nobody may wait for it
    meanwhile, or two such writers could wait for each other.
    """
    if own.may_be_in_log:
        return False
    try:
        announced.release(table, mine.instant)
    except LakelockError:
        return False
    table.observed.time_seen(mine.instant)
    reached(Step.SET_ASIDE)
    table.emit(EventKind.SET_ASIDE, mine.instant, mine.operation, kept=len(found.kept), collided=len(found.collided))
    return True
