"""Which operations conflict in which profile: asked of the rules themselves, for the page `reference-conflicts.md`.

The operations, and what the rules see of them, are those of `lakelock conflicts explain`, at one given extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from lakelock.data_locks.base import Resource
from lakelock.occ import explain
from lakelock.occ.explain import AskedRead, Effect, Extent, effect_in_buckets, meets
from lakelock.occ.footprint import BucketsRead, Isolation, Level, Read, ReadKind
from lakelock.occ.rules import LEVELS
from lakelock.occ.targets import Scope
from lakelock.table.index import bucket_name
from lakelock.table.layout import FileGroupId
from lakelock.table.snapshot import DataFile

__all__ = ["LEVELS", "OPERATIONS", "Case", "Overlap", "cases", "cell", "rows", "rows_in_buckets"]

OPERATIONS = ("INSERT", "UPSERT", "UPDATE", "MERGE", "OVERWRITE", "OPTIMIZE")
"""UPDATE stands for a delete by a condition as well. A merge that equates the keys is an UPSERT, MERGE is any other. OVERWRITE
replaces partitions."""

READS = {name: reads for name in OPERATIONS if (reads := explain.OPERATIONS[name].reads) is not None}
"""What operations read that rewrite file groups; the others read nothing."""
_MINE, _THEIRS = f"{bucket_name(0)}-mine", f"{bucket_name(1)}-theirs"
"""The two file groups of each partition: which of them an operation touches, if it does not touch both."""


class Overlap(str, Enum):
    """What two transactions have in common, the least first. All but the first are in one partition."""

    NOTHING = "different partitions"
    PARTITION = "the same partition"
    ROWS = "rows that match"
    FILE_GROUP = "the same file group"


class Case(NamedTuple):
    """One question: does `mine` collide with `other`, which committed in its window? `in_buckets`: in a table with buckets."""

    profile: str
    level: Level
    mine: str
    other: str
    overlap: Overlap
    in_buckets: bool = False

    @property
    def collides(self) -> bool:
        partition = "month=2" if self.overlap is Overlap.NOTHING else "month=1"
        theirs = _MINE if self.overlap is Overlap.FILE_GROUP else _THEIRS
        sees = self.overlap in (Overlap.ROWS, Overlap.FILE_GROUP)
        my_effect, their_effect = self._effect(self.mine), self._effect(self.other)
        mine = self._extent(my_effect, "month=1", _MINE, f"{bucket_name(2)}-new", sees=sees)
        other = self._extent(their_effect, partition, theirs, f"{bucket_name(3)}-new")
        snapshot = Isolation(before=lambda group: DataFile(*group, "0-0-0", "0"))
        return meets(self.profile, self.level, mine.footprint(my_effect), other.summary(their_effect), snapshot) is not None

    def _effect(self, operation: str) -> Effect:
        effect = explain.OPERATIONS[operation]
        return effect_in_buckets(effect) if self.in_buckets else effect

    def _extent(self, effect: Effect, partition: str, touched: str, new: str, *, sees: bool = False) -> Extent:
        """What an operation does in a partition: one file group there, as an overwrite both, and a new one if it may."""
        names = (_MINE, _THEIRS) if effect.overwrites else (touched,) if effect.rewrites or effect.replaces else ()
        groups = frozenset(FileGroupId(partition, name) for name in names)
        added = frozenset({FileGroupId(partition, new)}) if effect.adds else frozenset[FileGroupId]()
        read: Read | None = None
        if self.in_buckets and effect.reads is ReadKind.KEYS:
            read = BucketsRead("the keys in question", groups | added)
        elif effect.reads is not None:
            read = AskedRead(effect.reads, "the rows in question", Scope((Resource.of(partition),)), sees)
        return Extent(touched=groups, added=added, written=frozenset({partition}), read=read)


def touches(operation: str, *, in_buckets: bool = False) -> bool:
    """Whether an operation rewrites or replaces file groups: an insert does so in a table with buckets."""
    effect = effect_in_buckets(explain.OPERATIONS[operation]) if in_buckets else explain.OPERATIONS[operation]
    return effect.rewrites or effect.replaces


def cases(*, in_buckets: bool = False) -> Iterator[Case]:
    """Every question that can be asked: who touches no file group has none in common with anybody."""
    for profile, level in LEVELS:
        for mine in OPERATIONS:
            for other in OPERATIONS:
                for overlap in Overlap:
                    both = touches(mine, in_buckets=in_buckets) and touches(other, in_buckets=in_buckets)
                    if overlap is not Overlap.FILE_GROUP or both:
                        yield Case(profile, level, mine, other, overlap, in_buckets)


def cell(profile: str, level: Level, mine: str, other: str, *, in_buckets: bool = False) -> str:
    """What two operations must have in common to collide."""
    explain = [case for case in cases(in_buckets=in_buckets) if case[:4] == (profile, level, mine, other)]
    found = {case.overlap for case in explain if case.collides}
    if not found:
        return "no"
    least = [overlap for overlap in Overlap if overlap in found]
    return least[0].value if least[0] is Overlap.PARTITION or len(least) == 1 else "matching rows, or the same file group"


def rows(*, in_buckets: bool = False) -> Iterator[Sequence[str]]:
    """One row for each pair of operations, a column for each profile and level."""
    for mine in OPERATIONS:
        for other in OPERATIONS:
            yield mine, other, *(cell(profile, level, mine, other, in_buckets=in_buckets) for profile, level in LEVELS)


def rows_in_buckets() -> Iterator[Sequence[str]]:
    """The rows that are others in a table with buckets."""
    yield from (mine for mine, plain in zip(rows(in_buckets=True), rows(), strict=True) if mine != plain)
