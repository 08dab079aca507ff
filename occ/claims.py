"""A transaction claims the file groups that it will rewrite, and learns at once of others that rewrite them, too.

The claims are made once older reservations have ended. They are followed by one look at the decisions since the transaction
began. A writer that finished in the meantime has removed its claims, but its decision is in the log. Together the two leave
no gap: a claim is removed only after its owner's decision is there.

Other engines make no claims. On a table that they write to, the markers of their live writers are read, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.data_locks import Resource
from lakelock.errors import TransactionStateError
from lakelock.events import EventKind
from lakelock.markers import data_files
from lakelock.markers.claims import Claim, ClaimContext, CommittedSince, Held, OwnClaims, Refusal, conflict_of
from lakelock.markers.heartbeat import Heartbeat
from lakelock.markers.liveness import LivenessState, judge_all
from lakelock.occ.begin import Baseline
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.crash_points import Step, reached
from lakelock.occ.footprint import SERVICES, CommitSummary, Footprint, Isolation, Level, Read
from lakelock.occ.foreign import planned_rewrites
from lakelock.occ.history import commits_since
from lakelock.occ.open_table import OpenTable
from lakelock.occ.request import ensure_within
from lakelock.occ.reservations import OthersReservations
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget, decide_rollback
from lakelock.occ.rules import PROFILES, judge
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.properties import TableProperties

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

    First the decision, then the claim: the new owner can then rely on the service never committing. One
    that has committed meanwhile keeps its claim: what was looked up before has to be looked up again.
    """
    services = {r.by.instant: r.by.operation for r in refused if isinstance(r, Held) and r.by.operation in SERVICES}
    committed = set()
    for instant, operation in sorted(services.items()):
        victim = RollbackTarget(instant, SERVICES[operation], operation, "a write of the same file groups came")
        if decide_rollback(table, victim) is RollbackOutcome.COMMITTED:
            committed.add(instant)
    return frozenset(services.keys() - committed), frozenset(committed)


def early_conflict(table: OpenTable, baseline: Baseline, mine: Footprint, refused: Sequence[Refusal]) -> Conflict | None:
    """The first conflict that can be known before anything is written: claims, decisions, other engines, their plans."""
    return (
        (conflict_of(refused, mine.party) if refused else None)
        or window_conflict(table, baseline, mine)
        or foreign_conflict(table, baseline, mine)
        or planned_rewrites(table, baseline.timeline, mine)
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
        both = mine.touched.intersection(data_files.listed(table.storage, instant).rewritten_groups)
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


class AnnouncedGroups:
    """What a transaction will rewrite, and the buckets that it will make. Not for several threads at once."""

    def __init__(self) -> None:
        self._claimed: set[FileGroupId] = set()
        self._new_buckets: set[FileGroupId] = set()
        self._unanswered: set[FileGroupId] = set()

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """The groups whose claims are this transaction's."""
        return frozenset(self._claimed)

    @property
    def rewritten(self) -> frozenset[FileGroupId]:
        """Those of them that exist already."""
        return frozenset(self._claimed - self._new_buckets)

    @property
    def new_buckets(self) -> frozenset[FileGroupId]:
        """Buckets that had no file group, claimed or not."""
        return frozenset(self._new_buckets)

    def add(self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId]) -> list[FileGroupId]:
        """Note what will be written; the groups of it that are not claimed yet."""
        made = set(new_buckets)
        self._new_buckets |= made
        return sorted({*groups, *made} - self._claimed)

    def claim(self, table: OpenTable, context: ClaimContext, groups: Iterable[FileGroupId]) -> list[Refusal]:
        """Claim these groups, one conditional write each, in parallel; what was refused."""
        groups = tuple(groups)
        self._unanswered.update(groups)
        claimed, refused = claim_groups(table, context, groups)
        self._claimed.update(claimed)
        self._unanswered.difference_update(groups)
        return refused

    def release(self, table: OpenTable, instant: str) -> None:
        """Remove the claims before the transaction ends. If that raises, it is unknown whose they are now."""
        mine = self.own_claims(disturbed=False).keys(table.io, instant)
        self._unanswered |= self._claimed
        table.storage.delete(mine)
        self._claimed, self._unanswered = set(), set()

    def own_claims(self, *, disturbed: bool) -> OwnClaims:
        """What a withdrawal may remove. A process that took this transaction for dead (`disturbed`) may have its claims."""
        unsure = self._unanswered | (self._claimed if disturbed else set())
        return OwnClaims(frozenset(self._claimed - unsure), frozenset(unsure))


class ReadWriteSet:
    """Grows as the transaction goes on; belongs to it. Not for several threads at once."""

    def __init__(self, baseline: Baseline, party: Party, application: AppTransaction | None) -> None:
        self._baseline, self._party, self._application = baseline, party, application
        self._overwritten: set[str] = set()
        self._places: set[str] = set()
        self.reads: list[Read] = []
        self.announced = AnnouncedGroups()
        self.targets: tuple[Resource, ...] = ()
        """The partitions and prefixes to which it keeps; none: anywhere."""

    def ensure_within(self, partitions: Iterable[str]) -> None:
        """Raise `InputError` for a partition outside the targets."""
        ensure_within(partitions, self.targets, f"{self._party.operation} {self._party.instant}")

    def write_to(self, partitions: Iterable[str]) -> None:
        """Note that these partitions are written to; `InputError` for one outside the targets."""
        partitions = tuple(partitions)
        self.ensure_within(partitions)
        self._places.update(partitions)

    @property
    def written(self) -> frozenset[str]:
        """The partitions that it is known to write to."""
        return frozenset(self._places)

    def overwrite(self, partitions: Iterable[str]) -> None:
        """Note that these partitions are replaced; needs a transaction begun as an overwrite."""
        partitions = tuple(partitions)
        self.write_to(partitions)
        if self._baseline.action != Action.REPLACE_COMMIT.value:
            raise TransactionStateError(
                f"{self._party.operation} {self._party.instant} cannot overwrite partitions",
                hint="begin the transaction as an overwrite",
            )
        self._overwritten.update(partitions)

    def places(self, known: Iterable[str]) -> frozenset[str] | None:
        """The partitions that it writes to, and those of the `known` ones that it reads; None if it reads new ones, too."""
        new = _a_new_partition(self._baseline.properties)
        if any(read.concerns(new) for read in self.reads):
            return None
        return frozenset({*self._places, *(each for each in known if any(read.concerns(each) for read in self.reads))})

    @property
    def footprint(self) -> Footprint:
        """What is known so far of what the transaction touches."""
        return Footprint(
            party=self._party,
            rewritten=self.announced.rewritten,
            new_buckets=self.announced.new_buckets,
            overwritten_partitions=frozenset(self._overwritten),
            reads=tuple(self.reads),
            application=self._application,
        )


def _a_new_partition(properties: TableProperties) -> str:
    """The path of a partition without rows so far, of a value that no condition names."""
    return "/".join(f"{field}=*" if properties.hive_style else "*" for field in properties.partition_fields)


def claim(
    table: OpenTable, baseline: Baseline, touched: ReadWriteSet, reserved: OthersReservations, heartbeat: Heartbeat,
    groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId], *, leave_held: bool, always: Iterable[FileGroupId],
) -> Conflict | None:  # fmt: skip
    """Announce these groups and claim those that are not claimed yet; the conflict that can be known by now, if any.

    What is claimed is noted in `touched`. With `leave_held` what others hold or have reserved is left to them. `always`:
    claimed without early detection, too.
    """
    announced = touched.announced
    fresh = announced.add(groups, new_buckets)
    touched.write_to(group.partition for group in fresh)
    if not (leave_held or table.settings.concurrency.early_conflict_detection):
        fresh = sorted({*fresh} & {*always})
    if not fresh:
        return None
    fresh = _unreserved(baseline, reserved, heartbeat, fresh, leave=leave_held)
    mine = Claim(baseline.instant, table.writer, baseline.operation, touched.written)
    context = ClaimContext(mine, baseline.timeline.completed_instants, heartbeat.record.limit_s)
    refused = announced.claim(table, context, fresh)
    overruled = [each for each in refused if _overrules(reserved, each)]
    if leave_held:
        refused = []
    # What it overrules it writes without a claim, and has to look at all the same.
    footprint = touched.footprint
    looked_at = replace(footprint, rewritten=footprint.rewritten.union(each.group for each in overruled))
    conflict = early_conflict(table, baseline, looked_at, [each for each in refused if each not in overruled])
    if conflict is not None:
        return replace(conflict, early=True)
    reached(Step.CLAIMED)
    table.emit(EventKind.CLAIMED, baseline.instant, baseline.operation, groups=len(fresh))
    return None


def _unreserved(
    baseline: Baseline, reserved: OthersReservations, heartbeat: Heartbeat, groups: list[FileGroupId], *, leave: bool
) -> list[FileGroupId]:
    """The groups, once no older reservation is in the way; if it may `leave` some, at once those that are not reserved."""
    queue = baseline.reservations
    if leave:
        return [group for group in groups if reserved.in_the_way(queue, [group.partition]) is None]
    while (reservation := reserved.in_the_way(queue, (group.partition for group in groups))) is not None:
        reserved.wait_for(reservation)
    heartbeat.ensure_alive()
    return groups


def _overrules(reserved: OthersReservations, refusal: Refusal) -> bool:
    return isinstance(refusal, Held) and reserved.overrules(refusal.by.instant, refusal.group.partition)
