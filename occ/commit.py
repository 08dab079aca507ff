"""The critical section: validate, decide, publish (docs/concepts.md, "The life of a transaction", steps 7 to 10).

The lock makes this cheap and fair; the decision log makes it safe. Nothing here trusts the lock: a second writer in the
same section loses at the put-if-absent of the next decision number and starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakelock.conflict import Conflict
from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    LakelockError,
    LeaseLost,
    RolledBackError,
    StorageUnavailable,
    TransactionError,
)
from lakelock.events import EventKind
from lakelock.occ.baseline import Baseline, check_unchanged
from lakelock.occ.certainty import News, OwnDecision
from lakelock.occ.conflicts.footprint import Footprint
from lakelock.occ.conflicts.isolation import Isolation
from lakelock.occ.conflicts.profiles import PROFILES, judge
from lakelock.occ.conflicts.rules import FileCheck
from lakelock.occ.conflicts.summary import CommitCost, CommitSummary
from lakelock.occ.conflicts.window import commits_since, possibly_archived
from lakelock.occ.fate import InstantFate, fate_of, is_withdrawn
from lakelock.occ.foreign.late_starters import LateStarter, late_starters
from lakelock.occ.foreign.planned_services import planned_cleaning, planned_clustering
from lakelock.occ.foreign.single_writer import notice_second_writer
from lakelock.occ.locking.lock_use import LockUse
from lakelock.occ.open_table import OpenTable
from lakelock.occ.pending_commit import PendingCommit
from lakelock.occ.publish import Publication, finish_head, publish
from lakelock.occ.recorded_index import current_properties
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.records.decisions import Decision, DecisionKind, LogView, Resolution, decided_for, resolve, tombstone
from lakelock.occ.records.reservations import Reservation
from lakelock.occ.recovery.ending import outcome_unknown, rolled_back
from lakelock.occ.reserving.waiting import OthersReservations
from lakelock.occ.schemas import schema_after
from lakelock.occ.steps import Step, reached
from lakelock.providers.base import Lease
from lakelock.storage import Created
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.instants import later_than
from lakelock.table.schema import TableSchema
from lakelock.table.timeline import Timeline

LOOK_ROUNDS = 5
"""How often a commit steps out of the lock to look into files, or to wait, before it does so under the lock instead."""


class Commit:
    """One transaction's way through the critical section; used once."""

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        draft: PendingCommit,
        own: OwnDecision,
        *,
        schema: TableSchema,
        isolation: Isolation,
        ensure_alive: Callable[[], None],
        took_s: Callable[[], float],
        reserved: OthersReservations,
    ) -> None:
        """`schema`: the table's at the baseline. `ensure_alive` raises
        once the heartbeat is lost; `took_s` is the time since the beginning. `own` is told what becomes of the decision.
        """
        self._reserved = reserved
        self._table, self._baseline, self._draft, self._own, self._schema = table, baseline, draft, own, schema
        self._isolation, self._ensure_alive, self._took_s = isolation, ensure_alive, took_s
        self._answers: dict[object, Conflict | None] = {}
        self._others: dict[str, CommitSummary] = {}
        self.lock = LockUse(table)
        self._noticed = table.provider is not None

    def run(self) -> Decision:
        """Commit and return the published decision, or raise: `ConflictError`, `RolledBackError`, `CommitOutcomeUnknown`."""
        instant = self._baseline.instant
        round_number = 0
        while round_number <= LOOK_ROUNDS:
            ahead = self._look_ahead()
            try:
                with self.lock.locked(instant, self._draft.operation) as lease:
                    reached(Step.LOCKED)
                    result = self._under_lock(lease, ahead, may_look=round_number == LOOK_ROUNDS)
            except LeaseLost:
                if self._own.may_be_in_log or round_number == LOOK_ROUNDS:
                    raise
                round_number += 1
                continue
            if isinstance(result, Decision):
                reached(Step.UNLOCKED)
                return result
            if isinstance(result, Reservation):
                self._reserved.wait_for(result)
                continue
            for look in result:
                self._answer(look)
            round_number += 1
        raise TransactionError(
            f"{instant}: others kept committing while this looked at what they changed, {LOOK_ROUNDS} times in a row",
            hint="run again when fewer writers commit",
        )

    @property
    def footprint(self) -> Footprint:
        """What this commit reads and writes."""
        return self._draft.footprint

    @property
    def judged(self) -> dict[str, CommitSummary]:
        """What others committed in the window, as far as it was read."""
        return self._others

    def _look_ahead(self) -> tuple[int, ...]:
        """Read the window before the lock is taken, in parallel; the numbers of its decisions."""
        table, baseline = self._table, self._baseline
        ahead = table.log.ahead(after=baseline.first)
        if table.observed.foreign_writers:
            decisions = [d for d in map(table.log.read, ahead) if d is not None]
            found = dict(self._others)
            commits_since(table, baseline, table.timeline(), decisions, found)
            # A decision counts only once the boundary is read after it.
            self._others.update((instant, other) for instant, other in found.items() if other.is_foreign)
        return ahead

    def _nothing_since(self, ahead: Sequence[int], timeline: Timeline) -> bool:
        """Whether a timeline that was listed under the lock shows nothing that the look ahead did not.

        Then the log is not listed again: should it have grown all the same, the next number is taken, and the round is lost.
        """
        known = {decision.instant for decision in map(self._table.log.read, ahead) if decision is not None}
        return timeline.completed_instants <= known.union(self._others, self._baseline.timeline.completed_instants)

    def _under_lock(
        self, lease: Lease | None, ahead: tuple[int, ...], *, may_look: bool
    ) -> Decision | Reservation | list[FileCheck | LateStarter]:
        table, baseline = self._table, self._baseline
        for attempt in range(table.settings.decisions.slot_attempts):
            timeline = table.timeline()
            listed = ahead if attempt == 0 and self._nothing_since(ahead, timeline) else None
            view = table.log.look(after=baseline.first, newest=None, listed=listed)
            table.ensure_same_lock(view)
            if view.boundary > baseline.first:
                return self._by_timeline(timeline)
            decisions = view.decisions
            mine = decided_for(baseline.instant, decisions)
            if mine is not None and resolve(mine) is Resolution.COMMITTED:
                self._own.learn(News.FOUND)
                return self._publish(mine, timeline, lease)
            # Only now: a commit of mine whose reply was lost stands, whatever others have changed since.
            check_unchanged(baseline, current_properties(table), self._draft.footprint.party)
            self._ensure_pending(timeline, mine)
            finish_head(table, view, timeline)
            others = commits_since(table, baseline, timeline, decisions, self._others)
            for other in others:
                if other.is_foreign:
                    table.observed.met_foreign(other.party.instant)
            self._noticed = self._noticed or notice_second_writer(table, timeline, baseline.instant, others)
            looks: list[FileCheck | LateStarter] = [*self._validate(timeline, others)]
            schema = schema_after(self._schema, self._draft, others)
            looks += late_starters(table, timeline, baseline.instant, self._answers)
            if looks and not may_look:
                return looks
            for look in looks:
                self._answer(look)
            reservation = self._reserved.in_the_way(view.reservations, self._draft.footprint.all_partitions)
            if reservation is not None:
                return reservation
            self._ensure_alive()
            if lease is not None:
                lease.ensure_active()
            reached(Step.VALIDATED)
            decided = self._decide(view, timeline, decisions, schema.to_avro_json(baseline.properties.name))
            if decided is not None:
                return self._publish(decided, timeline, lease)
        raise TransactionError(
            f"{baseline.instant}: others took the decision number in each of {table.settings.decisions.slot_attempts} attempts",
            hint="run again; if this persists, check that the lock provider really excludes: lakelock doctor",
        )

    def _validate(self, timeline: Timeline, others: Sequence[CommitSummary]) -> list[FileCheck]:
        """Raise the first conflict; return the file checks that are still open."""
        table, mine = self._table, self._draft.footprint
        conflict, looks = judge(PROFILES[table.settings.concurrency.profile], mine, others, self._isolation)
        conflict = conflict or planned_clustering(table, timeline, mine)
        conflict = conflict or planned_cleaning(table, self._baseline, timeline, mine)
        if conflict is not None:
            raise ConflictError(conflict)
        archived = possibly_archived(table.storage, self._baseline, timeline)
        if archived:
            raise RolledBackError(
                f"{mine.party.instant}: {sorted(archived)[0]} was pending when this began and has been archived since, so "
                "nobody can tell any more whether the two conflict",
                hint="run the operation again; archive less eagerly in the other writer (hoodie.keep.min.commits)",
                instant=mine.party.instant,
            )
        return [look for look in looks if look.identity not in self._answers]

    def _answer(self, look: FileCheck | LateStarter) -> None:
        conflict = self._answers[look.identity] = look.answer(self._draft.footprint)
        if conflict is not None:
            raise ConflictError(conflict)

    def _ensure_pending(self, timeline: Timeline, mine: Decision | None) -> None:
        """Raise unless this instant is pending and nobody has rolled it back."""
        instant = self._baseline.instant
        if mine is not None:
            raise rolled_back(self._draft.footprint.party, mine)
        if is_withdrawn(self._table, timeline, instant):
            raise RolledBackError(
                f"{instant} was rolled back by another Hudi writer",
                hint="set hoodie.clean.failed.writes.policy=LAZY in the other writer, then run the operation again",
                instant=instant,
            )

    def _decide(self, view: LogView, timeline: Timeline, decisions: Sequence[Decision], schema_json: str) -> Decision | None:
        """Put the commit under the next number: this is the commit point. None when somebody else has the number."""
        table, baseline = self._table, self._baseline
        newest = max([timeline.newest_time, *(d.completion for d in decisions)])
        number, write_id = view.head + 1, table.runtime.uuid()
        decision = Decision(
            number=number,
            kind=DecisionKind.COMMIT,
            instant=baseline.instant,
            action=baseline.action,
            write_id=write_id,
            writer=table.writer,
            operation=self._draft.operation,
            completion=later_than(table.runtime.now_ms(), newest),
            payload=self._draft.payload(
                number, write_id, schema_json, newest_foreign=table.observed.newest_foreign, cost=self._cost_so_far()
            ),
        )
        self._own.learn(News.SENDS)
        made = table.log.decide(decision)
        if made is Created.UNKNOWN:
            self._own.learn(News.HEARS_NOTHING)
            made = self._make_definite(decision)
        if made is Created.THEIRS:
            found = table.log.read(number)
            if found is None or found.write_id != write_id:
                # After a doubt it may still have been mine: others may have published and collected it since.
                self._own.learn(News.LOSES)
                return None
        # The number may have been used and collected before: then the record means nothing, and only the timeline tells.
        try:
            if table.log.boundary() >= number:
                self._own.learn(News.COLLECTED)
                return None
        except LakelockError as error:
            raise self._unknown(error) from error
        self._own.learn(News.WINS)
        reached(Step.DECIDED)
        table.emit(EventKind.DECIDED, baseline.instant, self._draft.operation, decision=number)
        return decision

    def _cost_so_far(self) -> CommitCost:
        lock = self.lock
        return CommitCost(round(self._took_s(), 3), round(lock.wait_s, 3), round(lock.held_s, 3), lock.requests)

    def _make_definite(self, decision: Decision) -> Created:
        """No reply came: put a rollback of this instant under the same number, which settles whose number it is.

        THEIRS: the number is taken, by this commit after all or by somebody else. Raises when the rollback won, or when
        storage does not answer at all.
        """
        table = self._table
        made = table.log.decide(tombstone(decision, table.runtime.uuid()))
        try:
            # The commit may have arrived, been published and collected meanwhile: then the withdrawal means nothing.
            reused = made is Created.OURS and table.log.boundary() >= decision.number
        except LakelockError as error:
            raise self._unknown(error) from error
        if reused:
            return Created.THEIRS
        if made is Created.OURS:
            raise RolledBackError(
                f"{decision.instant}: storage gave no answer to the commit, which was withdrawn",
                hint="run the operation again when the storage answers",
                instant=decision.instant,
                decision=decision.number,
            )
        if made is Created.UNKNOWN:
            raise self._unknown(StorageUnavailable("no answer to the commit, nor to its withdrawal"))
        return made

    def _publish(self, decision: Decision, timeline: Timeline, lease: Lease | None) -> Decision:
        table = self._table
        try:
            current = timeline if lease is None or lease.lost is None else table.timeline()
            published = publish(table, decision, current)
            if fate_of(table, decision.instant, current) is InstantFate.GONE:
                published = Publication.VOID
        except LakelockError as error:
            raise self._unknown(error) from error
        if published is Publication.VOID:
            raise RolledBackError(
                f"{decision.instant} was decided, but another Hudi writer rolled it back before it was visible",
                hint="set hoodie.clean.failed.writes.policy=LAZY in the other writer, then run the operation again",
                instant=decision.instant,
            )
        table.observed.time_seen(decision.completion)
        reached(Step.PUBLISHED)
        table.emit(EventKind.PUBLISHED, decision.instant, decision.operation, decision=decision.number)
        return decision

    def _by_timeline(self, timeline: Timeline) -> Decision:
        """Part of the window was collected, so only the timeline can tell: the instant is completed, or never will be."""
        instant = self._baseline.instant
        # Nobody else decides this commit. If it was never tried, it is neither on the timeline nor in the archive.
        try:
            completed = completed_write(self._table.storage, timeline, instant) if self._own.may_be_in_log else None
        except LakelockError as error:
            raise self._unknown(error) from error
        if completed is None:
            raise RolledBackError(
                f"{instant}: decisions of its window were collected, because its heartbeat had stopped",
                hint="run the operation again; if the process was paused, raise heartbeat.interval_s",
                instant=instant,
            )
        self._own.learn(News.FOUND)
        extra = CommitMetadata.from_bytes(completed.data, instant).extra
        return Decision(
            number=int(extra.get(keys.DECISION, 0)),
            kind=DecisionKind.COMMIT,
            instant=instant,
            action=completed.action,
            write_id=extra.get(keys.WRITE_ID, ""),
            writer=self._table.writer,
            operation=self._draft.operation,
            completion=completed.completion,
            payload=completed.data,
        )

    def _unknown(self, cause: Exception) -> CommitOutcomeUnknown:
        return outcome_unknown(self._table, self._baseline.instant, self._draft.operation, cause)
