"""Operations that nobody has run, as the rules see them.

What such an operation really touches is known only once its rows are looked up. So each side of a question is asked about
twice: the least that it certainly does, and the most that it may do. What collides in the least collides; what collides in the
most only, may. The page `docs/reference-conflicts.md` asks the same rules in the same way about one given extent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakelock.conflict import WHOLE_TABLE, Conflict, Party
from lakelock.occ.conflicts.asked import AskedOperation, Effect
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import PROFILES, judge
from lakelock.occ.conflicts.reads import Read, ReadKind
from lakelock.occ.conflicts.scopes import Scope
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.table.index import bucket_group, bucket_name, bucket_of_group
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import StatisticsOf
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot

_NOBODY_HAS_WRITTEN = "99991231235959999"
"""The instant of the files of such an operation."""
_INVENTED = re.compile(rf"(?:(.*)/)?{bucket_name(0)}(?:-[A-Z]+)?")
_READS = '[{"what": "what was asked about"}]'


@dataclass(frozen=True)
class AskedRead:
    """The read of an operation that nobody has run: nothing can be looked up for it. `sees`: a row is taken to match."""

    kind: ReadKind
    description: str
    scope: Scope
    sees: bool

    def concerns(self, partition: str) -> bool:
        return self.scope.has(partition)

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        found = next((file for file in files if self.concerns(file.partition)), None) if self.sees else None
        return None if found is None else f"rows in {found.partition or 'the table'}"


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
            files={group: DataFile(*group, "0-0-0", _NOBODY_HAS_WRITTEN) for group in sorted(rewritten | self.added)},
            rewritten=rewritten,
            replaced=self.touched if effect.replaces else frozenset(),
            written_partitions=self.written,
            overwritten_partitions=self.written if effect.overwrites else frozenset(),
            changes_no_row=effect.replaces and not effect.overwrites,
            reads=_READS if effect.reads is not None else "",
        )


@dataclass(frozen=True)
class Deed:
    """One extent of an operation, as either side of a conflict."""

    footprint: Footprint
    summary: CommitSummary


@dataclass(frozen=True)
class Side:
    """One of two operations: the least that it does, and the most that it may do."""

    name: str
    least: Deed
    most: Deed

    @classmethod
    def of_commit(cls, found: CommitSummary) -> Side:
        """A commit that there is: what it did is certain. What it had read is not asked: it is decided already."""
        footprint = Footprint(
            party=found.party,
            added=frozenset(found.files) - found.touched,
            rewritten=found.rewritten,
            replaced=found.replaced,
            overwritten_partitions=found.overwritten_partitions,
        )
        deed = Deed(footprint, found)
        return cls(str(found.party), deed, deed)

    @classmethod
    def of_asked(
        cls,
        asked: AskedOperation,
        scope: Scope,
        snapshot: Snapshot,
        *,
        beside: CommitSummary | None,
        partitions: Iterable[str],
        properties: TableProperties,
    ) -> Side:
        """An operation that nobody has run, `beside` a commit, if the other is one. `partitions`: all that matter to either.

        Where keys span partitions, whoever looks one up looks everywhere, and may take its row out of any partition.
        """
        in_buckets = properties.bucket_index is not None
        effect = _effect(asked.effect, scope, in_buckets=in_buckets)
        everywhere = properties.keys_span_partitions and effect.reads is ReadKind.KEYS
        found_in = Scope(fields=scope.fields) if everywhere else scope
        least = _least(asked, effect, scope, snapshot, beside, in_buckets=in_buckets)
        most = _most(asked, effect, scope, found_in, snapshot, beside, partitions)
        if in_buckets and effect.adds:
            made = [] if beside is None else [group for group in beside.files if scope.has(group.partition)]
            buckets = {bucket_group(partition, 0) for partition in most.written} | set(map(bucket_of_group, made))
            most = replace(most, new_buckets=frozenset(buckets))
        deeds = (Deed(extent.footprint(effect), extent.summary(effect)) for extent in (least, most))
        return cls(str(asked), *deeds)


def meets(profile: str, level: Level, mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The conflict of two deeds at a level of a profile, with every look taken; None if both commit."""
    conflict, looks = judge(PROFILES[profile], mine, [other], replace(isolation, level=level))
    answers = (look.answer(mine) for look in looks)
    return conflict or next((answer for answer in answers if answer is not None), None)


def in_partitions(conflict: Conflict) -> Conflict:
    """The same conflict, over the partitions of those file groups that nobody has made."""
    found = [(text, _INVENTED.fullmatch(text)) for text in conflict.overlap]
    told = tuple(dict.fromkeys((made[1] or "the table") if made else text for text, made in found))
    fewer = len(conflict.overlap) - len(told)
    return replace(conflict, overlap=told, overlap_count=conflict.overlap_count - fewer)


def as_if_at_the_same_time(
    snapshot: Snapshot, beside: CommitSummary | None = None, schema: TableSchema | None = None
) -> Isolation:
    """The snapshot of a transaction that would run now, or would have run `beside` a commit: what that rewrote or replaced was
    there then, even if it is gone by now.
    """
    there = beside.touched if beside is not None else frozenset[FileGroupId]()

    def before(group: FileGroupId) -> DataFile | None:
        return snapshot.group(group) or (DataFile(*group, "0-0-0", "0") if group in there else None)

    return Isolation(before, schema=schema)


def effect_in_buckets(effect: Effect) -> Effect:
    """The same in a table with buckets, where new rows go into the file groups of their buckets."""
    return replace(effect, rewrites=True) if effect.adds and not effect.replaces else effect


def _effect(effect: Effect, scope: Scope, *, in_buckets: bool) -> Effect:
    """An overwrite of the rows of a condition rewrites what it finds; of everything, it reads everything."""
    if effect.overwrites and scope.condition:
        return Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.ROWS)
    if effect.overwrites and not scope.targets:
        return replace(effect, reads=ReadKind.ROWS)
    return effect_in_buckets(effect) if in_buckets else effect


def _least(
    asked: AskedOperation,
    effect: Effect,
    scope: Scope,
    snapshot: Snapshot,
    beside: CommitSummary | None,
    *,
    in_buckets: bool,
) -> Extent:
    """What is certain. New rows reach the partition that is named, or some other: in a new file, or in one that is rewritten,
    which is the same to whoever reads the partition. All rows of a scope are changed, unless only some are looked for.
    """
    by_rows = effect.reads is ReadKind.ROWS
    everything = scope.is_exact or not scope.targets if effect.overwrites else effect.rewrites and by_rows and not effect.adds
    touched = _groups(scope, snapshot, beside) if everything and not scope.condition else frozenset[FileGroupId]()
    reached = scope.partitions(()) if effect.brings and (scope.is_exact or not effect.overwrites) else frozenset[str]()
    # Of a condition nobody knows which files it concerns; keys are those of rows that reach a partition, or some bucket of it.
    reads = not scope.condition if by_rows else scope.is_exact and not in_buckets
    return Extent(
        touched=touched,
        added=frozenset(FileGroupId(partition, _new_id(asked)) for partition in reached),
        written=reached | {group.partition for group in touched},
        read=_read(asked, effect, scope, sees=by_rows) if reads else None,
    )


def _most(
    asked: AskedOperation,
    effect: Effect,
    scope: Scope,
    found_in: Scope,
    snapshot: Snapshot,
    beside: CommitSummary | None,
    partitions: Iterable[str],
) -> Extent:
    """What is possible. New rows reach the `scope`; what is read and rewritten is `found_in` another, or the same."""
    touched = _groups(found_in, snapshot, beside) if effect.rewrites or effect.replaces else frozenset[FileGroupId]()
    reached = scope.partitions(partitions) if effect.adds else frozenset[str]()
    return Extent(
        touched=touched,
        added=frozenset(FileGroupId(partition, _new_id(asked)) for partition in reached),
        written=reached | {group.partition for group in touched},
        read=_read(asked, effect, found_in, sees=True),
    )


def _groups(scope: Scope, snapshot: Snapshot, beside: CommitSummary | None) -> frozenset[FileGroupId]:
    """The file groups there, with those that the commit beside it found there."""
    partitions = filter(scope.has, snapshot.partitions)
    now = {file.group for partition in partitions for file in snapshot.in_partition(partition)}
    then = beside.touched if beside is not None else frozenset[FileGroupId]()
    return frozenset(now.union(group for group in then if scope.has(group.partition)))


def _read(asked: AskedOperation, effect: Effect, scope: Scope, *, sees: bool) -> AskedRead | None:
    if effect.reads is None:
        return None
    everything = asked.scope or WHOLE_TABLE
    return AskedRead(effect.reads, f"a key of the {asked}" if effect.reads is ReadKind.KEYS else everything, scope, sees)


def _new_id(asked: AskedOperation) -> str:
    """The file id of a new file group, of the first bucket where there are buckets."""
    return f"{bucket_name(0)}-{asked.name}"
