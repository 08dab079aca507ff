"""Early conflict detection: claims of file groups, and one look at what was decided since the transaction began.

A writer that finished meanwhile has removed its claims, but its decision is in the log. Together the two leave no gap: a claim
is removed only after its owner's decision is there.

Other engines make no claims. On a table that they write to, the markers of their live writers are read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.markers import direct
from lakelock.markers.claim_context import ClaimContext
from lakelock.markers.claims import CommittedSince, Held, Refusal, conflict_of
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.baseline import Baseline
from lakelock.occ.conflicts.footprint import SERVICES, Footprint
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import PROFILES, judge
from lakelock.occ.conflicts.summary import CommitSummary
from lakelock.occ.conflicts.window import commits_since
from lakelock.occ.foreign.planned_services import planned_clustering
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recovery.rollback import RollbackOutcome, RollbackTarget, decide_rollback
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId

MOST_YIELDING = 3
"""How often a claim is tried again after services were made to yield: in between another one may have come."""


def claim_groups(
    table: OpenTable, context: ClaimContext, groups: Iterable[FileGroupId]
) -> tuple[set[FileGroupId], list[Refusal]]:
    """Claim each of these file groups: what was claimed, and what was refused. One conditional write each, in parallel.

    A service that holds a group is made to yield, unless a service asks.
    """
    claimed, refused = _claim_each(table, context, groups)
    if context.claim.operation in SERVICES:
        return claimed, refused
    for _ in range(MOST_YIELDING):
        finished, committed = _made_to_yield(table, refused)
        refused = [CommittedSince(r.group, r.by) if r.by.instant in committed else r for r in refused]
        if not finished:
            break
        context = replace(context, saw=context.saw | finished)
        more, still = _claim_each(table, context, [r.group for r in refused if r.by.instant in finished])
        claimed |= more
        refused = [*(r for r in refused if r.by.instant not in finished), *still]
    return claimed, refused


def _claim_each(
    table: OpenTable, context: ClaimContext, groups: Iterable[FileGroupId]
) -> tuple[set[FileGroupId], list[Refusal]]:
    answers = table.io.gather([partial(context.claim_group, table.storage, group) for group in groups])
    return {a.group for a in answers if not isinstance(a, Refusal)}, [a for a in answers if isinstance(a, Refusal)]


def _made_to_yield(table: OpenTable, refused: Sequence[Refusal]) -> tuple[frozenset[str], frozenset[str]]:
    """Decide the rollback of the live services that hold these groups: those that can no longer commit, and those that have.

    First the decision, then the claim: whoever takes it over may count on it that the service does not commit any more. One
    that has committed meanwhile keeps its claim: what was looked up before has to be looked up again.
    """
    services = {r.by.instant: r.by.operation for r in refused if isinstance(r, Held) and r.by.operation in SERVICES}
    committed = set()
    for instant, operation in sorted(services.items()):
        victim = RollbackTarget(instant, Action.REPLACE_COMMIT, operation, "a write of the same file groups came")
        if decide_rollback(table, victim) is RollbackOutcome.COMMITTED:
            committed.add(instant)
    return frozenset(services.keys() - committed), frozenset(committed)


def early_conflict(table: OpenTable, baseline: Baseline, mine: Footprint, refused: Sequence[Refusal]) -> Conflict | None:
    """The first conflict that can be known before anything is written: claims, decisions, other engines, their plans."""
    return (
        (conflict_of(refused, mine.party) if refused else None)
        or window_conflict(table, baseline, mine)
        or foreign_conflict(table, baseline, mine)
        or planned_clustering(table, baseline.timeline, mine)
    )


def window_conflict(table: OpenTable, baseline: Baseline, mine: Footprint) -> Conflict | None:
    """A conflict with a decision made since the baseline that needs no look into files. One listing if there is none."""
    decisions = table.log.peek(after=baseline.first)
    others = commits_since(table, baseline, baseline.timeline, decisions, {})
    conflict = _known_conflict(table, mine, others)
    return None if conflict is None else replace(conflict, early=True)


def _known_conflict(table: OpenTable, mine: Footprint, others: Sequence[CommitSummary]) -> Conflict | None:
    concurrency = table.settings.concurrency
    conflict, _ = judge(PROFILES[concurrency.profile], mine, others, Isolation(level=Level(concurrency.isolation)))
    return conflict


def foreign_conflict(table: OpenTable, baseline: Baseline, mine: Footprint) -> Conflict | None:
    """A conflict with another engine's writer that is rewriting one of these file groups, or has since the baseline.

    No request where no other engine is known to write; else two listings, and one for each of its live writers.
    """
    if not table.observed.foreign_writers:
        return None
    timeline = table.timeline()
    others = commits_since(table, baseline, timeline, table.log.peek(after=baseline.first), {})
    conflict = _known_conflict(table, mine, others)
    if conflict is not None:
        return replace(conflict, early=True)
    pending = {i.requested: i for i in timeline.pending if i.requested != baseline.instant}
    if not pending:
        return None
    judged = judge_all(table.io, table.settings.heartbeat, pending.values(), own=baseline.instant, read_alive=False)
    for instant, liveness in sorted(judged.items()):
        if instant not in pending or not liveness.is_foreign or liveness.state is not LivenessState.ALIVE:
            continue
        both = mine.touched.intersection(direct.listed(table.storage, instant).rewritten_groups)
        if both:
            other = Party(instant, pending[instant].action, seen_ago_s=liveness.age_s)
            return Conflict.over(
                ConflictRule.FILE_GROUP,
                mine.party,
                other,
                map(str, both),
                detail="the other engine's markers say that it is rewriting them",
                early=True,
            )
    return None
