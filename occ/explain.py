"""Would two operations collide? The rules themselves are asked, at every level of every profile, and nothing is written.

An operation is given as text: `OPERATION [partition or condition]`, such as `DELETE month=1`, `UPSERT` or `READ v > 3`.

The part of a table that a hypothetical operation touches is known only once its rows are looked up. So each side of a
question is asked about twice: the least that it certainly does, and the most that it may do. A collision in the least is
certain; a collision in the most only is possible. The page `docs/reference-conflicts.md` asks the same rules in the same way
about one given extent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelock.conflict import (
    WHOLE_TABLE,
    Conflict,
    ConflictRule,
    Explanation,
    FoundAt,
    PairExplanation,
    Party,
    Verdict,
    rule_text,
)
from lakelock.errors import InputError
from lakelock.occ.footprint import CLUSTER, CommitSummary, Footprint, Isolation, Level, Read, ReadKind
from lakelock.occ.rules import LEVELS, PROFILES, judge, level_name
from lakelock.occ.targets import Scope
from lakelock.settings import ConcurrencySettings
from lakelock.storage import Storage
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.index import bucket_group, bucket_name, bucket_of_group
from lakelock.table.instants import is_instant_time
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties
from lakelock.table.pruning import StatisticsOf
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command, did_you_mean


@dataclass(frozen=True)
class Effect:
    """What an operation may do within its scope. `hudi_name`: what its commit calls it, empty for one that commits nothing.

    `adds`: it may have new rows; `brings`: it certainly has. `reads` by condition (ROWS) or by key; None looks nothing up.
    `replaces`: whatever is there, not only what it finds.
    """

    hudi_name: str
    adds: bool = False
    brings: bool = False
    rewrites: bool = False
    replaces: bool = False
    overwrites: bool = False
    reads: ReadKind | None = None


OPERATIONS: dict[str, Effect] = {
    "INSERT": Effect("INSERT", adds=True, brings=True),
    "UPSERT": Effect("UPSERT", adds=True, brings=True, rewrites=True, reads=ReadKind.KEYS),
    "UPDATE": Effect("UPSERT", rewrites=True, reads=ReadKind.ROWS),
    "DELETE": Effect("DELETE", rewrites=True, reads=ReadKind.ROWS),
    "MERGE": Effect("UPSERT", adds=True, rewrites=True, reads=ReadKind.ROWS),
    "OVERWRITE": Effect("INSERT_OVERWRITE", adds=True, brings=True, replaces=True, overwrites=True),
    "OPTIMIZE": Effect(CLUSTER, adds=True, replaces=True),
    "READ": Effect("", reads=ReadKind.ROWS),
}

ALIASES = {
    "APPEND": "INSERT",
    "BULK_INSERT": "INSERT",
    "INSERT_OVERWRITE": "OVERWRITE",
    "INSERT_OVERWRITE_TABLE": "OVERWRITE",
    "OVERWRITE_PARTITIONS": "OVERWRITE",
    CLUSTER: "OPTIMIZE",
    "SELECT": "READ",
}
"""Other names that Hudi, Delta and this library's own methods have for them."""


@dataclass(frozen=True)
class AskedOperation:
    """`name` is a key of `OPERATIONS`, `scope` the rest of the text, empty for the whole table."""

    name: str
    scope: str = ""

    @property
    def effect(self) -> Effect:
        return OPERATIONS[self.name]

    def __str__(self) -> str:
        return f"{self.name} {self.scope}".strip()


def parse_operation(text: str) -> AskedOperation:
    """The operation that a text asks about; `InputError` for one that names none, with the nearest that there is."""
    word, _, rest = text.strip().partition(" ")
    name = ALIASES.get(word.upper(), word.upper())
    if name not in OPERATIONS:
        problem = (
            f"{word!r} is not an operation{did_you_mean(word, [*OPERATIONS, *ALIASES])}" if word else "the operation is empty"
        )
        example = 'and then a partition or a condition, such as "DELETE month=1"'
        raise InputError(problem, hint=f"begin with one of {', '.join(OPERATIONS)}, {example}")
    scope = rest.strip()
    if scope.upper().startswith("WHERE "):
        scope = scope[len("WHERE ") :].strip()
    return AskedOperation(name, scope)


_UNWRITTEN = "99991231235959999"
"""The instant of the files of such an operation."""
_INVENTED = re.compile(rf"(?:(.*)/)?{bucket_name(0)}(?:-[A-Z]+)?")
_READS = '[{"what": "what was asked about"}]'


@dataclass(frozen=True)
class AskedRead:
    """The read of a hypothetical operation: nothing can be looked up for it. `sees`: a row is taken to match."""

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
            files={group: DataFile(*group, "0-0-0", _UNWRITTEN) for group in sorted(rewritten | self.added)},
            rewritten=rewritten,
            replaced=self.touched if effect.replaces else frozenset(),
            written_partitions=self.written,
            overwritten_partitions=self.written if effect.overwrites else frozenset(),
            changes_no_row=effect.replaces and not effect.overwrites,
            reads=_READS if effect.reads is not None else "",
        )


@dataclass(frozen=True)
class HypotheticalCommit:
    """One extent of an operation, as either side of a conflict."""

    footprint: Footprint
    summary: CommitSummary


@dataclass(frozen=True)
class Side:
    """One of two operations: the least that it does, and the most that it may do."""

    name: str
    least: HypotheticalCommit
    most: HypotheticalCommit

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
        deed = HypotheticalCommit(footprint, found)
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
        """A hypothetical operation, `beside` a commit, if the other is one. `partitions`: all that matter to either.

        Where keys span partitions, a lookup of a key looks everywhere, and may take its row out of any partition.
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
        deeds = (HypotheticalCommit(extent.footprint(effect), extent.summary(effect)) for extent in (least, most))
        return cls(str(asked), *deeds)


def meets(profile: str, level: Level, mine: Footprint, other: CommitSummary, isolation: Isolation) -> Conflict | None:
    """The conflict of two deeds at a level of a profile, with every look taken; None if both commit."""
    conflict, looks = judge(PROFILES[profile], mine, [other], replace(isolation, level=level))
    answers = (look.answer(mine) for look in looks)
    return conflict or next((answer for answer in answers if answer is not None), None)


def in_partitions(conflict: Conflict) -> Conflict:
    """The same conflict, over the partitions of those file groups that are invented."""
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
    which is the same to a reader of the partition. All rows of a scope are changed, unless only some are looked for.
    """
    by_rows = effect.reads is ReadKind.ROWS
    everything = scope.is_exact or not scope.targets if effect.overwrites else effect.rewrites and by_rows and not effect.adds
    touched = _groups(scope, snapshot, beside) if everything and not scope.condition else frozenset[FileGroupId]()
    reached = scope.partitions(()) if effect.brings and (scope.is_exact or not effect.overwrites) else frozenset[str]()
    # Which files a condition concerns is unknown; keys are those of rows that reach a partition, or some bucket of it.
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


_ONLY_IF = {
    ConflictRule.APPEND: "the other writes a file that may hold such a row: {read}",
    ConflictRule.DELETE_READ: "the other rewrites a file that may hold such a row: {read}",
    ConflictRule.FILE_GROUP: "both rewrite the same file group",
    ConflictRule.PARTITION_OVERWRITE: "the other writes into a partition that this overwrites",
    ConflictRule.WRITE_SET: "both update or delete rows of the same partition",
}
_ONLY_IF_ANYTHING = {
    ConflictRule.APPEND: "the other adds a row",
    ConflictRule.DELETE_READ: "the other changes or removes a row",
}
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


@dataclass(frozen=True)
class TableNow:
    """What an answer depends on: the table as it is now. `schema_before` tells the columns before a commit, if it can."""

    storage: Storage
    timeline: Timeline
    snapshot: Snapshot
    schema: pa.Schema
    properties: TableProperties
    schema_before: Callable[[str], TableSchema | None]


def explain_pair(now: TableNow, concurrency: ConcurrencySettings, mine: str, other: str) -> PairExplanation:
    """What becomes of `mine`, such as `DELETE month=1`, if `other` ran at the same time and was decided first.

    `other` may also be the instant of a commit, archived or not. `InputError` for texts that are neither.
    """
    one, two, found = _sides(now, mine, other)
    schema = now.schema_before(found.party.instant) if found is not None and found.schema_json else None
    isolation = as_if_at_the_same_time(now.snapshot, found, schema)
    early = concurrency.early_conflict_detection
    chosen = concurrency.profile, Level(concurrency.isolation)
    return PairExplanation(
        _explained(*chosen, one, two, isolation, early=early),
        _explained(*chosen, two, one, isolation, early=early) if found is None else None,
        {
            _label(profile, level): _explained(profile, level, one, two, isolation, early=early)
            for profile, level in LEVELS
            if (profile, level) != chosen
        },
    )


def _sides(now: TableNow, mine: str, other: str) -> tuple[Side, Side, CommitSummary | None]:
    """Both sides, and the other's commit if it is one."""
    other = other.strip()
    found = commit_of(now, other) if is_instant_time(other) else None
    texts = (mine,) if found is not None else (mine, other)
    asked = [parse_operation(text) for text in texts]
    scopes = [Scope.of(each.scope, now.schema, now.properties) for each in asked]
    partitions = frozenset(now.snapshot.partitions).union(*(scope.partitions(()) for scope in scopes))
    if found is not None:
        partitions |= found.written_partitions
    sides = [
        Side.of_asked(each, scope, now.snapshot, beside=found, partitions=partitions, properties=now.properties)
        for each, scope in zip(asked, scopes, strict=True)
    ]
    return (sides[0], sides[1], None) if found is None else (sides[0], Side.of_commit(found), found)


def commit_of(now: TableNow, instant: str) -> CommitSummary:
    """The commit of an instant, from the timeline or the archive; `InputError` if there is none."""
    found = completed_write(now.storage, now.timeline, instant)
    if found is None:
        raise InputError(
            f"{instant} is not a commit of this table: it is pending, was rolled back, or never existed",
            hint=f"{command('commits', 'ls', now.storage.uri)} lists commits; of a rejected instant, ask without --theirs",
        )
    return CommitSummary.of(instant, found.completion, CommitMetadata.from_bytes(found.data, instant), None)


def _label(profile: str, level: Level) -> str:
    return f"{profile} ({level})" if level_name(profile, level) else profile


def _explained(profile: str, level: Level, mine: Side, other: Side, isolation: Isolation, *, early: bool) -> Explanation:
    """The verdict at one level of a profile: what is certain, else what is possible, else that both commit."""
    named = Explanation(Verdict.PASSES, mine.name, other.name, profile=profile, level=level_name(profile, level))
    conflict = meets(profile, level, mine.least.footprint, other.least.summary, isolation)
    conditions = ""
    if conflict is None:
        possible = list(_possible(profile, mine, other, replace(isolation, level=level)))
        if not possible:
            return named
        conflict = possible[0][0]
        conditions = "; or if ".join(dict.fromkeys(condition for _, condition in possible))
    conflict = replace(in_partitions(conflict), profile=profile, level=named.level)
    found = rule_text(conflict.rule, profile).found if early else FoundAt.COMMIT
    return replace(Explanation.of(conflict, only_if=conditions, found=found), mine=mine.name, other=other.name)


def _possible(profile: str, mine: Side, other: Side, isolation: Isolation) -> Iterator[tuple[Conflict, str]]:
    """The conflicts that may be, each with what it depends on. Every rule is asked: it may be the only one to object."""
    most, theirs = mine.most.footprint, other.most.summary
    for rule in PROFILES[profile].rules:
        conflict = rule(most, theirs, isolation)
        if conflict is not None:
            yield conflict, _condition(conflict.rule, conflict.read, _ONLY_IF[conflict.rule])
    reading = _touching_as_little(most, mine.least.footprint)
    for read_rule in PROFILES[profile].read_rules:
        for look in read_rule(reading, theirs, isolation):
            yield look.possible(most), _condition(look.rule, look.read.description, "a row matches: {read}")


def _condition(rule: ConflictRule, read: str, usual: str) -> str:
    """What a conflict depends on, in words. Whatever is in a file matters to who has read the whole table."""
    return _ONLY_IF_ANYTHING[rule] if read == WHOLE_TABLE else usual.format(read=read)


def _touching_as_little(most: Footprint, least: Footprint) -> Footprint:
    """Of file groups that it rewrites itself a read asks nothing, but it may rewrite none of them."""
    return replace(most, rewritten=least.rewritten, replaced=least.replaced, new_buckets=least.new_buckets)
