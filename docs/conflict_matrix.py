"""Which operations conflict in which profile: asked of the rules themselves, for the page `reference-conflicts.md`.

Each operation is asked about at one given extent: what it reads, rewrites and adds in a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.occ.footprint import CLUSTER, BucketsRead, CommitSummary, Footprint, Isolation, Level, Read, ReadKind
from lakelock.occ.rules import LEVELS, PROFILES, judge
from lakelock.table.index import bucket_name
from lakelock.table.layout import FileGroupId
from lakelock.table.merged_slices import Change
from lakelock.table.pruning import StatisticsOf
from lakelock.table.snapshot import DataFile

__all__ = ["LEVELS", "OPERATIONS", "Case", "Overlap", "cases", "cell", "profiles_with", "rows"]


@dataclass(frozen=True)
class Effect:
    """What an operation does. `hudi_name`: what its commit calls it, empty for one that commits nothing.

    `adds`: it may have new rows. `reads` by condition (ROWS) or by key; None looks nothing up.
    `replaces`: whatever is there, not only what it finds.
    """

    hudi_name: str
    adds: bool = False
    rewrites: bool = False
    replaces: bool = False
    overwrites: bool = False
    reads: ReadKind | None = None


EFFECTS: dict[str, Effect] = {
    "INSERT": Effect("INSERT", adds=True),
    "UPSERT": Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.KEYS),
    "UPDATE": Effect("UPSERT", rewrites=True, reads=ReadKind.ROWS),
    "MERGE": Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.ROWS),
    "OVERWRITE": Effect("INSERT_OVERWRITE", adds=True, replaces=True, overwrites=True),
    "OPTIMIZE": Effect(CLUSTER, adds=True, replaces=True),
}
"""UPDATE stands for a delete by a condition as well. A merge that equates the keys is an UPSERT, MERGE is any other. OVERWRITE
replaces partitions."""
OPERATIONS = tuple(EFFECTS)

READS = {name: effect.reads for name, effect in EFFECTS.items() if effect.reads is not None}
"""What operations read that rewrite file groups; the others read nothing."""
_UNWRITTEN = "99991231235959999"
"""The instant of the files of such an operation."""
_READS = '[{"what": "what was asked about"}]'
_MINE, _THEIRS = f"{bucket_name(0)}-mine", f"{bucket_name(1)}-theirs"
"""The two file groups of each partition: which of them an operation touches, if it does not touch both."""


@dataclass(frozen=True)
class ReadOfRows:
    """A read of rows in one partition. `sees`: a row is taken to match."""

    kind: ReadKind
    description: str
    partition: str
    sees: bool

    def concerns(self, partition: str) -> bool:
        return partition == self.partition

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        found = next((file for file in files if self.concerns(file.partition)), None) if self.sees else None
        return None if found is None else f"rows in {found.partition or 'the table'}"

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        return self.matches([change.made for change in changes])


@dataclass(frozen=True)
class Extent:
    """How far an operation goes: the file groups that it rewrites or replaces, those that it makes, the partitions that it
    writes into, what it reads, and the buckets that get their first file group.
    """

    touched: frozenset[FileGroupId] = frozenset()
    added: frozenset[FileGroupId] = frozenset()
    written: frozenset[str] = frozenset()
    read: Read | None = None
    new_buckets: frozenset[FileGroupId] = frozenset()

    def footprint(self, effect: Effect) -> Footprint:
        """An operation with this effect as the one that is judged."""
        return Footprint(
            Party("", effect.hudi_name),
            added=self.added,
            rewritten=self.touched if effect.rewrites else frozenset(),
            replaced=self.touched if effect.replaces else frozenset(),
            overwritten_partitions=self.written if effect.overwrites else frozenset(),
            reads=(self.read,) if self.read is not None else (),
            new_buckets=self.new_buckets,
        )

    def summary(self, effect: Effect) -> CommitSummary:
        """An operation with this effect as the one that has committed."""
        rewritten = self.touched if effect.rewrites else frozenset[FileGroupId]()
        return CommitSummary(
            party=Party("", effect.hudi_name),
            decision=None,
            number=None,
            is_foreign=False,
            files={group: DataFile(*group, "0-0-0", _UNWRITTEN) for group in sorted(rewritten | self.added)},
            rewritten=rewritten,
            replaced=self.touched if effect.replaces else frozenset(),
            written_partitions=self.written,
            overwritten_partitions=self.written if effect.overwrites else frozenset(),
            changes_no_row=effect.replaces and not effect.overwrites,
            reads=_READS if effect.reads is not None else "",
        )


def meets(profile: str, level: Level, mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The conflict of two operations at a level of a profile, with every look taken; None if both commit."""
    conflict, looks = judge(PROFILES[profile], mine, [other], replace(isolation, level=level))
    answers = (look.answer(mine) for look in looks)
    return conflict or next((answer for answer in answers if answer is not None), None)


def effect_in_buckets(effect: Effect) -> Effect:
    """The same in a table with buckets, where new rows go into the file groups of their buckets."""
    return replace(effect, rewrites=True) if effect.adds and not effect.replaces else effect


_ALWAYS = frozenset(
    {
        ConflictRule.PROTOCOL,
        ConflictRule.METADATA,
        ConflictRule.APPLICATION_TRANSACTION,
        ConflictRule.PENDING_TABLE_SERVICE,
    }
)
"""What a commit checks whatever the profile."""


def profiles_with(rule: ConflictRule) -> tuple[str, ...]:
    """The names of the profiles that check a rule.

    A rule of a profile is a function that has the name of its `ConflictRule`, in small letters.
    """
    return tuple(
        name
        for name, profile in PROFILES.items()
        if rule in _ALWAYS or rule.name.lower() in {function.__name__ for function in (*profile.rules, *profile.read_rules)}
    )


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
        effect = EFFECTS[operation]
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
            read = ReadOfRows(effect.reads, "the rows in question", partition, sees)
        return Extent(touched=groups, added=added, written=frozenset({partition}), read=read)


def touches(operation: str, *, in_buckets: bool = False) -> bool:
    """Whether an operation rewrites or replaces file groups: an insert does so in a table with buckets."""
    effect = effect_in_buckets(EFFECTS[operation]) if in_buckets else EFFECTS[operation]
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
