"""Would two operations collide? The rules themselves are asked, at every level of every profile, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelock.conflict import WHOLE_TABLE, Conflict, ConflictRule, Explanation, FoundAt, PairExplanation, Verdict, rule_text
from lakelock.errors import InputError
from lakelock.occ.conflicts.asked import parse_operation
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.hypothetical import Side, as_if_at_the_same_time, in_partitions, meets
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import LEVELS, PROFILES, level_name
from lakelock.occ.conflicts.scopes import Scope
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.settings import ConcurrencySettings
from lakelock.storage import Storage
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import is_instant_time
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline
from lakelock.texts import command

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
