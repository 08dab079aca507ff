"""Which part of a rejected commit collided, and whether the rest is worth keeping for the next attempt (ADR 19).

This only says whether a redo is worth trying. That it gives what a fresh run would is up to whoever takes files over: they
compare the base files of both snapshots, whatever the rules said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lakelock.conflict import Conflict, ConflictRule
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.table.index import bucket_of_group
from lakelock.table.layout import FileGroupId

REDONE = frozenset(
    {
        ConflictRule.APPEND,
        ConflictRule.DELETE_READ,
        ConflictRule.FILE_GROUP,
        ConflictRule.KEY,
        ConflictRule.WRITE_SET,
    }
)
"""Rules about rows and file groups. The others say that something changed on which all files of a write depend."""


@dataclass(frozen=True)
class Collision:
    """The file groups that a rejected commit wrote: those that others have changed meanwhile, and the rest."""

    collided: frozenset[FileGroupId]
    kept: frozenset[FileGroupId]


def collision(mine: Footprint, others: Iterable[CommitSummary]) -> Collision:
    """Divide what I wrote by what others have rewritten, replaced or, in a table with buckets, made as I did."""
    others = tuple(others)
    touched = frozenset(group for other in others for group in other.touched)
    made = frozenset(bucket_of_group(group) for other in others for group in other.files.keys() - other.touched)
    written = mine.added | mine.touched
    doubly_made = frozenset(group for group in mine.added if bucket_of_group(group) in mine.new_buckets & made)
    collided = (written & touched) | doubly_made
    return Collision(collided, written - collided)


def worth_keeping(conflict: Conflict, mine: Footprint, others: Iterable[CommitSummary]) -> Collision | None:
    """What a redo would keep of a commit that was rejected by this conflict; None if the write has to run as a whole again.

    An overwrite depends on all of its partitions. What running again does not resolve, this does not resolve, either.
    """
    if conflict.rule not in REDONE or not conflict.retry_helps or mine.overwritten_partitions or mine.replaced:
        return None
    found = collision(mine, others)
    return found if found.kept else None
