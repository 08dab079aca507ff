"""Would two operations collide? The rules themselves are asked, of every profile, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelock.conflict import WHOLE_TABLE, Conflict, ConflictRule
from lakelock.errors import InputError
from lakelock.explanation import Explanation, PairExplanation, Verdict
from lakelock.occ.conflicts.asked import parse_operation
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.hypothetical import AskedRead, Side
from lakelock.occ.conflicts.isolation import Isolation
from lakelock.occ.conflicts.profiles import PROFILES, Profile, judge
from lakelock.occ.conflicts.rules import FileCheck
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.rule_texts import RULES, FoundAt
from lakelock.settings import ConcurrencySettings
from lakelock.storage import Storage
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import is_instant_time
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.timeline import Timeline

_ONLY_IF = {
    ConflictRule.FILE_GROUP: "both rewrite the same file group",
    ConflictRule.PARTITION_OVERWRITE: "the other writes into a partition that this overwrites",
}


def profiles_with(rule: ConflictRule) -> tuple[str, ...]:
    """The names of the profiles that check a rule; empty for a rule that is checked whatever the profile.

    A rule is a function that has the name of its `ConflictRule`, in small letters.
    """
    return tuple(
        name
        for name, profile in PROFILES.items()
        if rule.name.lower() in {function.__name__ for function in (*profile.rules, *profile.read_rules)}
    )


@dataclass(frozen=True)
class TableNow:
    """What an answer depends on: the table as it is now."""

    storage: Storage
    timeline: Timeline
    snapshot: Snapshot
    schema: pa.Schema
    properties: TableProperties


def explain_pair(now: TableNow, concurrency: ConcurrencySettings, mine: str, other: str) -> PairExplanation:
    """What becomes of `mine`, such as `DELETE month=1`, if `other` ran at the same time and was decided first.

    `other` may also be the instant of a commit, archived or not. `InputError` for texts that are neither.
    """
    asked = parse_operation(mine)
    found = commit_of(now, other.strip()) if is_instant_time(other.strip()) else None
    beside = frozenset(found.files) | found.touched if found is not None else frozenset[FileGroupId]()
    table = now.schema, now.properties, now.snapshot
    one = Side.of_asked(asked, *table, beside)
    two = Side.of_commit(found) if found is not None else Side.of_asked(parse_operation(other), *table, ())
    before: Callable[[FileGroupId], DataFile | None] = now.snapshot.group
    chosen = PROFILES[concurrency.profile]
    early = concurrency.early_conflict_detection
    return PairExplanation(
        _explained(chosen, one, two, before, early=early),
        _explained(chosen, two, one, before, early=early) if found is None else None,
        {name: _explained(profile, one, two, before, early=early) for name, profile in PROFILES.items() if profile != chosen},
    )


def commit_of(now: TableNow, instant: str) -> CommitSummary:
    """The commit of an instant, from the timeline or the archive; `InputError` if there is none."""
    found = completed_write(now.storage, now.timeline, instant)
    if found is None:
        raise InputError(
            f"{instant} is not a commit of this table: it is pending, was rolled back, or never existed",
            hint=f"lakelock commits ls {now.storage.uri} lists commits; of a rejected instant, ask without --theirs",
        )
    return CommitSummary.of(instant, found.completion, CommitMetadata.from_bytes(found.data, instant), None)


def _explained(
    profile: Profile, mine: Side, other: Side, before: Callable[[FileGroupId], DataFile | None], *, early: bool
) -> Explanation:
    """The verdict of one profile: what is certain, else what is possible, else that both commit."""
    possible = _possible(profile, mine, other, Isolation(before))
    if not possible:
        return Explanation(Verdict.PASSES, mine.name, other.name, profile=profile.name)
    conflict, condition = next((each for each in possible if not each[1]), possible[0])
    conditions = "; or if ".join(dict.fromkeys(text for _, text in possible)) if condition else ""
    found = RULES[conflict.rule].found if early else FoundAt.COMMIT
    told = Explanation.of(conflict, only_if=conditions, found=found)
    return replace(told, mine=mine.name, other=other.name, profile=profile.name)


def _possible(profile: Profile, mine: Side, other: Side, isolation: Isolation) -> list[tuple[Conflict, str]]:
    """The conflicts that may be, each with what it depends on, empty if it is certain."""
    conflict, _ = judge(profile, mine.footprint, [other.summary], isolation)
    found = [(conflict, _depends(conflict, mine, other))] if conflict is not None else []
    # It may rewrite none of these file groups, and then its reads of them count.
    reading = mine.footprint if mine.touches_all else _touching_nothing(mine.footprint)
    _, looks = judge(replace(profile, rules=()), reading, [other.summary], isolation)
    return found + [(look.possible(mine.footprint), _looks_for(look, other)) for look in looks]


def _touching_nothing(footprint: Footprint) -> Footprint:
    return replace(footprint, rewritten=frozenset(), replaced=frozenset(), new_buckets=frozenset())


def _depends(conflict: Conflict, mine: Side, other: Side) -> str:
    certain = mine.writes_there and other.writes_there
    if conflict.rule is not ConflictRule.PARTITION_OVERWRITE:
        certain = mine.touches_all and other.touches_all
    return "" if certain else _ONLY_IF.get(conflict.rule, f"the other {RULES[conflict.rule].rejects}")


def _looks_for(look: FileCheck, other: Side) -> str:
    everything = look.read.description == WHOLE_TABLE or (isinstance(look.read, AskedRead) and look.read.sees_every_row)
    return "" if everything and other.writes_there else f"a row matches: {look.read.description}"
