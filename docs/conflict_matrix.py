"""Which operations conflict in which profile: asked of the rules themselves, for the page `reference-conflicts.md`.

The operations, and what the rules see of them, are those of `lakelock conflicts explain`, at one given extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from lakelock.data_locks.request import Resource
from lakelock.occ.conflicts import asked
from lakelock.occ.conflicts.hypothetical import AskedRead, Extent, meets
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import LEVELS
from lakelock.occ.conflicts.scopes import Scope
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

__all__ = ["LEVELS", "OPERATIONS", "Case", "Overlap", "cases", "cell", "rows"]

OPERATIONS = ("INSERT", "UPSERT", "UPDATE", "MERGE", "OVERWRITE", "OPTIMIZE")
"""UPDATE stands for a delete by a condition as well. A merge that equates the keys is an UPSERT, MERGE is any other. OVERWRITE
replaces partitions."""

READS = {name: reads for name in OPERATIONS if (reads := asked.OPERATIONS[name].reads) is not None}
"""What operations read that rewrite file groups; the others read nothing."""
_TOUCHES = {*READS, "OVERWRITE", "OPTIMIZE"}
_MINE, _THEIRS = "mine", "theirs"
"""The two file groups of each partition: which of them an operation touches, if it does not touch both."""


class Overlap(str, Enum):
    """What two transactions have in common, the least first. All but the first are in one partition."""

    NOTHING = "different partitions"
    PARTITION = "the same partition"
    ROWS = "rows that match"
    FILE_GROUP = "the same file group"


class Case(NamedTuple):
    """One question: does `mine` collide with `other`, which committed in its window?"""

    profile: str
    level: Level
    mine: str
    other: str
    overlap: Overlap

    @property
    def collides(self) -> bool:
        effects = asked.OPERATIONS
        partition = "month=2" if self.overlap is Overlap.NOTHING else "month=1"
        theirs = _MINE if self.overlap is Overlap.FILE_GROUP else _THEIRS
        mine = _extent(self.mine, "month=1", _MINE, sees=self.overlap in (Overlap.ROWS, Overlap.FILE_GROUP))
        other = _extent(self.other, partition, theirs)
        snapshot = Isolation(before=lambda group: DataFile(*group, "0-0-0", "0"))
        footprint, summary = mine.footprint(effects[self.mine]), other.summary(effects[self.other])
        return meets(self.profile, self.level, footprint, summary, snapshot) is not None


def cases() -> Iterator[Case]:
    """Every question that can be asked: an insert has no file group in common with anybody."""
    for profile, level in LEVELS:
        for mine in OPERATIONS:
            for other in OPERATIONS:
                for overlap in Overlap:
                    if overlap is not Overlap.FILE_GROUP or {mine, other} <= _TOUCHES:
                        yield Case(profile, level, mine, other, overlap)


def cell(profile: str, level: Level, mine: str, other: str) -> str:
    """What two operations must have in common to collide."""
    asked = [case for case in cases() if case[:4] == (profile, level, mine, other)]
    found = {case.overlap for case in asked if case.collides}
    if not found:
        return "no"
    least = [overlap for overlap in Overlap if overlap in found]
    return least[0].value if least[0] is Overlap.PARTITION or len(least) == 1 else "matching rows, or the same file group"


def rows() -> Iterator[Sequence[str]]:
    """One row for each pair of operations, a column for each profile and level."""
    for mine in OPERATIONS:
        for other in OPERATIONS:
            yield mine, other, *(cell(profile, level, mine, other) for profile, level in LEVELS)


def _extent(operation: str, partition: str, touched: str, *, sees: bool = False) -> Extent:
    """What an operation does in a partition: it touches one file group there, as an overwrite both, and adds one if it may."""
    effect = asked.OPERATIONS[operation]
    groups = (_MINE, _THEIRS) if effect.overwrites else (touched,) if effect.rewrites or effect.replaces else ()
    read = AskedRead(effect.reads, "the rows in question", Scope((Resource.of(partition),)), sees) if effect.reads else None
    return Extent(
        touched=frozenset(FileGroupId(partition, name) for name in groups),
        added=frozenset({FileGroupId(partition, f"{operation} {touched}")}) if effect.adds else frozenset(),
        written=frozenset({partition}),
        read=read,
    )
