"""A transaction claims the file groups that it will rewrite, and reserves them once it has lost too often.

A claim fails if another transaction rewrites the same group, so the conflict is known before any data is written.

A transaction makes its claims once older reservations have ended. Then it reads the decisions made since it began. A writer
that committed in the meantime has removed its claims, but its decision is in the log. Together the two checks leave no gap: a
claim is removed only after its owner's decision exists.

Other engines make no claims. On a table that they write to, the markers of their live writers are read, too.

A reservation (ADR 20) lets a writer go before those that come later. A writer that reserves joins a queue and waits for its
turn. A wait for another's reservation is bounded, and ends once its holder is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.data_locks import Resource
from lakelock.errors import LakelockError, StorageUnavailable, TransactionStateError
from lakelock.events import EventKind, Step, reached
from lakelock.markers import data_files
from lakelock.markers.claims import (
    Claim,
    ClaimContext,
    CommittedSince,
    Held,
    OwnClaims,
    Refusal,
    all_claims,
    capped,
    conflict_of,
)
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord
from lakelock.markers.liveness import LivenessState, StorageClock, is_too_old, judge_all
from lakelock.occ.begin import Baseline
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.footprint import SERVICES, CommitSummary, Footprint, Isolation, Level, Read
from lakelock.occ.foreign import planned_rewrites
from lakelock.occ.history import commits_since
from lakelock.occ.log import MOST_RESERVATIONS, Reservation, in_the_way
from lakelock.occ.open_table import OpenTable
from lakelock.occ.request import ensure_within
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget, decide_rollback
from lakelock.occ.rules import PROFILES, judge
from lakelock.storage import Stored
from lakelock.table import layout
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
    """Roll back the live services that hold these groups. Returns which can no longer commit, and which had committed before.

    The rollback is decided before the claim is taken over, so the new owner can rely on the service never committing. A
    service that has committed keeps its claim, because keys that were looked up before have to be looked up again.
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
        or planned_rewrites(table, baseline, baseline.timeline, mine)
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
    """What one transaction has read and written so far; it grows as the transaction runs. Not for several threads at once."""

    def __init__(self, baseline: Baseline, party: Party, application: AppTransaction | None) -> None:
        self._baseline, self._party, self._application = baseline, party, application
        self._overwritten: set[str] = set()
        self._places: set[str] = set()
        self.reads: list[Read] = []
        self.announced = AnnouncedGroups()
        self.targets: tuple[Resource, ...] = ()
        """The partitions and prefixes that it may write to; empty: all of them."""

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

    `touched` records the claims. With `leave_held`, groups that others hold or have reserved are skipped. `always`: groups that
    are claimed even where early conflict detection is off.
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
    # Groups whose claims are overruled are written without a claim, but must be checked for conflicts like the others.
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
    """Wait until no older reservation covers these groups; with `leave`, return at once those that are not reserved."""
    queue = baseline.reservations
    if leave:
        return [group for group in groups if reserved.in_the_way(queue, [group.partition]) is None]
    while (reservation := reserved.in_the_way(queue, (group.partition for group in groups))) is not None:
        reserved.wait_for(reservation)
    heartbeat.ensure_alive()
    return groups


def _overrules(reserved: OthersReservations, refusal: Refusal) -> bool:
    return isinstance(refusal, Held) and reserved.overrules(refusal.by.instant, refusal.group.partition)


LONGEST_PAUSE_S = 1.0
"""The longest pause between two looks."""
REMOVALS = 5
"""How often a removal from the queue is tried while others change it."""


@dataclass(frozen=True)
class OwnReservation:
    """The reservation that a transaction has itself."""

    reservation: Reservation
    beats: Callable[[], bool]
    """Whether no process can have taken its holder for dead, and removed it."""
    end: Callable[[], None]
    """Gives it back."""


class OthersReservations:
    """What one transaction still has to wait for, `retry.holder_wait_s` in all. Not for several threads at once."""

    def __init__(self, table: OpenTable, instant: str, operation: str) -> None:
        self._table, self._instant, self._operation = table, instant, operation
        self._left_s = table.settings.retry.holder_wait_s if table.provider is not None else 0.0
        self._ended: set[str] = set()
        self.own: OwnReservation | None = None
        """Never waited for."""

    def in_the_way(self, queue: Sequence[Reservation], partitions: Iterable[str]) -> Reservation | None:
        """The first reservation that this has to wait for before it writes there; None once it has waited long enough."""
        if not queue or self._left_s <= 0:
            return None
        own = "" if self.own is None else self.own.reservation.id
        return in_the_way(queue, partitions, instant=self._instant, own=own, ended=self._ended)

    @property
    def standing(self) -> Reservation | None:
        """The reservation that this transaction has itself, as long as others respect it."""
        return self.own.reservation if self.own is not None and self.own.beats() else None

    def overrules(self, instant: str, partition: str) -> bool:
        """Whether this may write despite that instant's claim: a claim made after this reservation has to wait for it."""
        own = self.standing
        return own is not None and own.covers(partition) and instant not in own.before

    def wait_for(self, reservation: Reservation) -> None:
        """Wait until it has ended, or for as long as is left. Afterwards it is not `in_the_way` any more."""
        own_beat = layout.heartbeat(self._instant)
        self._left_s -= wait_until_ended(
            self._table, reservation, own_beat, most_s=self._left_s, instant=self._instant, operation=self._operation
        )
        self._ended.add(reservation.id)


def wait_until_ended(
    table: OpenTable, reservation: Reservation, own_beat: str, *, most_s: float, instant: str = "", operation: str = ""
) -> float:
    """Wait until the reservation has ended or its holder is dead, at most `most_s`. Returns the seconds waited.

    A reservation that has not ended within the whole of `retry.holder_wait_s` is removed, so that no other writer waits for it
    as long again.
    `own_beat`: a heartbeat of the waiting writer. `instant` and `operation` name that writer in events.
    """
    began_s = table.runtime.monotonic_s()
    table.emit(EventKind.WAITING_FOR_RESERVATION, instant, operation, holder=str(reservation))
    ended = wait_until(table, lambda: is_over(table, layout.reservation(reservation.id), own_beat), most_s=most_s)
    waited_s = table.runtime.monotonic_s() - began_s
    if ended or waited_s >= table.settings.retry.holder_wait_s:
        remove(table, reservation.id)
    if not ended:
        problem = f"{reservation} has still not ended after {waited_s:.0f} s, so this goes on (retry.holder_wait_s)"
        table.emit(EventKind.ALERT, instant, operation, problem=problem, waited_s=round(waited_s, 3))
    return waited_s


def wait_until(table: OpenTable, is_so: Callable[[], bool], *, most_s: float) -> bool:
    """Poll until `is_so` holds, for at most `most_s`; whether it does. A poll that storage does not answer is repeated."""
    runtime, policy = table.runtime, table.settings.retry
    until_s, pause_s = runtime.monotonic_s() + most_s, policy.first_wait_s
    while (left_s := until_s - runtime.monotonic_s()) > 0:
        with suppress(StorageUnavailable):
            if is_so():
                return True
        runtime.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, policy.longest_wait_s, LONGEST_PAUSE_S)
    return False


def is_over(table: OpenTable, beat_key: str, own_beat: str) -> bool:
    """Whether the owner of a heartbeat has ended or is dead: its age is counted up to the caller's own last beat."""
    mine = table.storage.get(own_beat)
    beat = table.storage.get(beat_key)
    if beat is None or mine is None:
        return beat is None
    return is_too_old(mine.modified_ms - beat.modified_ms, limit_s(table, beat))


def end_dead(table: OpenTable) -> None:
    """Remove the reservations of dead holders, and heartbeats that they left. Two requests where there is none."""
    queue = {reservation.id for reservation in table.log.reservations()}
    # A heartbeat is older than its place in the queue, so a place without one has ended.
    beats = {item.key.rpartition("/")[2]: item for item in table.storage.list(layout.RESERVATIONS)}
    ended = queue - beats.keys()
    if beats:
        now_ms = StorageClock.measure(table.storage, table.runtime).now_ms(table.runtime)
        read = {name: table.storage.get(item.key) for name, item in beats.items()}
        ended |= {name for name, b in read.items() if b is None or is_too_old(now_ms - b.modified_ms, limit_s(table, b))}
    for name in sorted(ended):
        remove(table, name)


def remove(table: OpenTable, reservation_id: str) -> None:
    """Take it out of the queue, and remove its heartbeat. Never raises for storage: a writer that waits for it tries again."""
    try:
        for _ in range(REMOVALS):
            if all(each.id != reservation_id for each in table.log.reservations()):
                break
            table.log.change_reservations(lambda queue: tuple(each for each in queue if each.id != reservation_id))
        table.storage.delete([layout.reservation(reservation_id)])
    except LakelockError as error:
        table.emit(EventKind.ALERT, problem=f"a reservation could not be removed yet: {error.message}")


def limit_s(table: OpenTable, beat: Stored | None) -> float:
    """The age at which the heartbeat's owner is dead."""
    record = HeartbeatRecord.from_bytes(beat.data) if beat is not None else None
    return (record or table.settings.heartbeat).limit_s


SWAPS = 10
"""How often a change of the queue is repeated because another process changed it or the boundary."""


@dataclass(frozen=True)
class Claimant:
    """A transaction with claims on reserved groups. `key` is one of its claims: it releases all of them at once."""

    claim: Claim
    key: str

    def __str__(self) -> str:
        return str(Party(self.claim.instant, self.claim.operation, self.claim.writer))

    def is_over(self, table: OpenTable, own_beat: str) -> bool:
        """Whether it has released its claims, or is dead.

        The heartbeat alone does not tell: a transaction that was set aside still beats, and its writer may wait for this one.
        """
        found = table.storage.get(self.key)
        held = Claim.from_bytes(found.data) if found is not None else None
        if held is None or held.instant != self.claim.instant:
            return True
        return is_over(table, layout.heartbeat(self.claim.instant), own_beat)


@dataclass(frozen=True)
class Turn:
    """A reservation of this process, and what it has to wait for: older reservations, and claims that were there."""

    table: OpenTable
    reservation: Reservation
    ahead: tuple[Reservation, ...]
    at_work: tuple[Claimant, ...]
    heartbeat: Heartbeat

    def wait(self) -> None:
        """Wait until it is the turn of this reservation, at most `retry.holder_wait_s`."""
        table, runtime, own_beat = self.table, self.table.runtime, self.heartbeat.key
        until_s = runtime.monotonic_s() + table.settings.retry.holder_wait_s
        for older in self.ahead:
            left_s = until_s - runtime.monotonic_s()
            wait_until_ended(table, older, own_beat, most_s=left_s, operation=self.reservation.operation)
        for claimant in self.at_work:
            wait_until(table, partial(claimant.is_over, table, own_beat), most_s=until_s - runtime.monotonic_s())

    def end(self) -> None:
        """Let the next one go on. Never raises for storage: without its heartbeat the reservation has ended, too."""
        self.heartbeat.stop(delete=False)
        remove(self.table, self.reservation.id)


def reserve(table: OpenTable, operation: str, places: frozenset[str] | None) -> Turn | None:
    """Reserve these partitions, all or none; `places=None` reserves the whole table.

    Returns None if the queue is full, or if storage or the lock fails. When this returns, every transaction that begins sees
    the reservation, and a commit that was decided without seeing it is published.
    """
    places = capped(places)
    heartbeat: Heartbeat | None = None
    try:
        heartbeat = _heartbeat(table, operation)
        name, now_ms = heartbeat.record.instant, table.runtime.now_ms()
        turn = _joined(table, heartbeat, Reservation(name, table.writer, operation, places, since_ms=now_ms))
        if turn is not None:
            with table.locked(operation=operation):
                reached(Step.RESERVED)  # a writer that looked at the queue before, and then decided, is done
            where = "the whole table" if places is None else sorted(places)
            table.emit(EventKind.RESERVED, "", operation, places=where, ahead=[*map(str, (*turn.ahead, *turn.at_work))])
            return turn
        problem = "the queue is full, or others change it all the time"
    except LakelockError as error:
        problem = error.message
    table.emit(EventKind.ALERT, "", operation, problem=f"no reservation could be made: {problem}")
    if heartbeat is not None:
        heartbeat.stop(delete=False)
        remove(table, heartbeat.record.instant)
    return None


def _heartbeat(table: OpenTable, operation: str) -> Heartbeat:
    name, settings = table.runtime.uuid(), table.settings.heartbeat
    record = HeartbeatRecord(name, table.writer, operation, 0, settings.interval_s, settings.tolerable_misses)
    heartbeat = Heartbeat.start(table.storage, record, table.runtime, key=layout.reservation(name))
    assert heartbeat is not None, "no other reservation has this name"
    return heartbeat


def _joined(table: OpenTable, heartbeat: Heartbeat, mine: Reservation) -> Turn | None:
    """Join the queue at its end; None if that could not be.

    The claims are listed after the queue was read, and the queue is changed only if it is unchanged since. So
    those behind me in the queue have listed them later than I have.
    """
    turn: Turn | None = None
    is_there = False

    def join(queue: tuple[Reservation, ...]) -> tuple[Reservation, ...] | None:
        nonlocal turn, is_there
        # It is there already if the reply to an earlier swap was lost. That place counts: writers behind it wait for it.
        is_there = any(each.id == mine.id for each in queue)
        if is_there or len(queue) >= MOST_RESERVATIONS:
            return None
        claims = all_claims(table.io)
        joined = replace(mine, before=frozenset(claim.instant for claim in claims.values()))
        older = tuple(each for each in queue if each.meets(joined))
        turn = Turn(table, joined, older, _at_work(joined, claims), heartbeat)
        return (*queue, joined)

    for _ in range(SWAPS):
        if table.log.change_reservations(join) or is_there:
            return turn
    return None


def _at_work(mine: Reservation, claims: Mapping[str, Claim]) -> tuple[Claimant, ...]:
    """The transactions that have claims in my places, or are about to make some. Services are left out: they yield."""
    folder = len(layout.CLAIMS) + 1

    def comes_here(key: str, claim: Claim) -> bool:
        return claim.places is None or any(map(mine.covers, {key[folder:].rpartition("/")[0], *claim.places}))

    found = {
        claim.instant: Claimant(claim, key)
        for key, claim in claims.items()
        if claim.operation not in SERVICES and comes_here(key, claim)
    }
    return tuple(found[instant] for instant in sorted(found))
