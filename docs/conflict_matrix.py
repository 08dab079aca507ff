"""Which operations conflict in which profile: asked of the rules themselves, for the page `reference-conflicts.md`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from lakelock.conflict import Party
from lakelock.occ.conflicts.footprint import CLUSTER, Footprint
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import PROFILES, judge
from lakelock.occ.conflicts.reads import ReadKind
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.table.layout import FileGroupId
from lakelock.table.pruning.files import StatisticsOf
from lakelock.table.snapshot import DataFile

OPERATIONS = ("INSERT", "UPSERT", "UPDATE", "MERGE", "OVERWRITE", "OPTIMIZE")
"""UPDATE stands for a delete by a condition as well. A merge that equates the keys is an UPSERT, MERGE is any other. OVERWRITE
replaces partitions."""

LEVELS = (
    ("strict", Level.SERIALIZABLE),
    ("delta", Level.SERIALIZABLE),
    ("delta", Level.WRITE_SERIALIZABLE),
    ("hive", Level.SERIALIZABLE),
    ("hudi", Level.SERIALIZABLE),
)
READS = {"UPSERT": ReadKind.KEYS, "UPDATE": ReadKind.ROWS, "MERGE": ReadKind.ROWS}
"""What operations read that rewrite file groups; the others read nothing."""
_TOUCHES = {*READS, "OVERWRITE", "OPTIMIZE"}


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
        mine = _footprint(self.mine, self.overlap)
        isolation = Isolation(before=lambda group: DataFile(*group, "0-0-0", "0"), level=self.level)
        conflict, looks = judge(PROFILES[self.profile], mine, [_summary(self.other, self.overlap)], isolation)
        return conflict is not None or any(look.answer(mine) is not None for look in looks)


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


@dataclass(frozen=True)
class _Read:
    """A read of the partition `month=1`; `sees` whether a row of the other matches."""

    kind: ReadKind
    sees: bool
    description = "the rows in question"

    def concerns(self, partition: str) -> bool:
        return partition == "month=1"

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        return "a row" if self.sees and any(self.concerns(file.partition) for file in files) else None


def _footprint(operation: str, overlap: Overlap) -> Footprint:
    mine, new = FileGroupId("month=1", "mine"), FileGroupId("month=1", "new")
    everything = frozenset({mine, FileGroupId("month=1", "theirs")})
    sees = overlap in (Overlap.ROWS, Overlap.FILE_GROUP)
    return Footprint(
        Party("2", CLUSTER if operation == "OPTIMIZE" else operation),
        added=frozenset() if operation == "UPDATE" else frozenset({new}),
        rewritten=frozenset({mine}) if operation in READS else frozenset(),
        replaced=frozenset({mine}) if operation == "OPTIMIZE" else everything if operation == "OVERWRITE" else frozenset(),
        overwritten_partitions=frozenset({"month=1"}) if operation == "OVERWRITE" else frozenset(),
        reads=(_Read(READS[operation], sees),) if operation in READS else (),
    )


def _summary(operation: str, overlap: Overlap) -> CommitSummary:
    partition = "month=2" if overlap is Overlap.NOTHING else "month=1"
    touched = FileGroupId(partition, "mine" if overlap is Overlap.FILE_GROUP else "theirs")
    replaced = frozenset({touched}) if operation == "OPTIMIZE" else frozenset()
    if operation == "OVERWRITE":
        replaced = frozenset({touched, FileGroupId(partition, "mine")})
    rewritten = frozenset({touched}) if operation in READS else frozenset()
    added = frozenset() if operation == "UPDATE" else frozenset({FileGroupId(partition, "added")})
    return CommitSummary(
        party=Party("1", CLUSTER if operation == "OPTIMIZE" else operation, completion="3"),
        decision=1,
        number=1,
        is_foreign=False,
        files={group: DataFile(*group, "0-0-0", "1") for group in sorted(rewritten | added)},
        rewritten=rewritten,
        replaced=replaced,
        written_partitions=frozenset({partition}),
        overwritten_partitions=frozenset({partition}) if operation == "OVERWRITE" else frozenset(),
        changes_no_row=operation == "OPTIMIZE",
        reads='[{"kind": "rows", "what": "the rows in question"}]' if operation in READS else "",
    )
