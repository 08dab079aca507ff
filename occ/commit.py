"""The critical section: validate, decide, publish (docs/concepts.md, "The life of a transaction", steps 7 to 10).

The lock makes this cheap and fair; the decision log makes it safe. Nothing here trusts the lock: a second writer in the
same section loses at the put-if-absent of the next decision number and starts over.

The record under the next number of the log is the commit point, and its bytes are those of the completed instant. Until then
it is a `PendingCommit`, which lacks only its number, its completion time, and the commits of others in the meantime.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakelock.conflict import Conflict
from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    CorruptTableError,
    LakelockError,
    LeaseLost,
    RolledBackError,
    StorageUnavailable,
    TransactionError,
)
from lakelock.events import EventKind, Step, reached
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import Baseline, check_unchanged, ensure_not_restored
from lakelock.occ.claims import OthersReservations
from lakelock.occ.committed import LockUse, Phase, Phases, counting
from lakelock.occ.create import current_properties
from lakelock.occ.ending import News, OwnDecision, outcome_unknown, rolled_back
from lakelock.occ.footprint import CommitCost, CommitSummary, Footprint, Isolation
from lakelock.occ.foreign import (
    LateStarter,
    late_starters,
    look_for_first_meeting,
    notice_second_writer,
    planned_cleaning,
    planned_rewrites,
)
from lakelock.occ.history import commits_since, possibly_archived
from lakelock.occ.log import (
    Decision,
    DecisionKind,
    LogView,
    Reservation,
    Resolution,
    decided_for,
    decided_for_offer,
    resolve,
    tombstone,
)
from lakelock.occ.metadata_table import NOTHING_AHEAD, KeptMetadata, read_ahead
from lakelock.occ.offers import Offer
from lakelock.occ.open_table import HeldLock, OpenTable
from lakelock.occ.publish import (
    SHARE_THE_LOCK,
    InstantFate,
    Publication,
    fate_of,
    finish_head,
    is_withdrawn,
    looked_for,
    plans_awaited,
    publish,
)
from lakelock.occ.rules import PROFILES, FileCheck, judge
from lakelock.occ.schema import schema_after
from lakelock.providers.base import Lease
from lakelock.storage import Created, has_file
from lakelock.table.archive import completed_write
from lakelock.table.commit_metadata import STATISTICS, CommitMetadata, WriteStat, statistics_of_commit
from lakelock.table.instants import later_than
from lakelock.table.metadata_table import GoneMeanwhile
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.timeline import Timeline
from lakelock.texts import command

HUDI_NAMES = {"UPDATE": "UPSERT", "MERGE": "UPSERT"}
"""What Hudi calls operations that it has no name for, as its own UPDATE and MERGE INTO do; it cannot read other names."""


@dataclass(frozen=True)
class PendingCommit:
    """What the completed instant will say. `replaced` is None for a commit and a mapping for a replacecommit.

    `schema` is the table's after this commit, if no other commit changes it meanwhile.
    """

    footprint: Footprint
    stats: Mapping[str, tuple[WriteStat, ...]]
    replaced: Mapping[str, tuple[str, ...]] | None
    schema: TableSchema
    extra: Mapping[str, str]

    @classmethod
    def of(
        cls,
        footprint: Footprint,
        stats: Sequence[WriteStat],
        replaced: Mapping[str, Sequence[str]] | None,
        schema: TableSchema,
        extra: Mapping[str, str],
    ) -> PendingCommit:
        """Files by partition, and all that Hudi has no field for under `lakelock.`; empty entries of `extra` are left out."""
        by_partition: dict[str, list[WriteStat]] = defaultdict(list)
        for stat in stats:
            by_partition[stat.partition_path or ""].append(stat)
        return cls(
            footprint,
            {partition: tuple(found) for partition, found in sorted(by_partition.items())},
            None if replaced is None else {partition: tuple(ids) for partition, ids in replaced.items()},
            schema,
            {
                name: value
                for name, value in {**_extra_of(footprint), **extra, STATISTICS: statistics_of_commit(stats)}.items()
                if value
            },
        )

    @property
    def operation(self) -> str:
        return self.footprint.party.operation

    def payload(self, number: int, write_id: str, schema_json: str, *, newest_foreign: str = "", cost: CommitCost) -> bytes:
        """The bytes of the completed instant, if it is decided as `number`.

        `newest_foreign`: the newest known commit of another engine, so that a reader of only this commit knows of it.
        """
        extra = {**self.extra, keys.DECISION: str(number), keys.WRITE_ID: write_id, keys.SCHEMA: schema_json}
        extra[keys.COMMIT_INFO] = cost.to_json()
        if newest_foreign:
            extra[keys.NEWEST_FOREIGN] = newest_foreign
        operation = HUDI_NAMES.get(self.operation, self.operation)
        return CommitMetadata(self.stats, operation, extra, self.replaced).to_bytes()


def _extra_of(footprint: Footprint) -> dict[str, str]:
    """A footprint as extra metadata, for writers that judge against it and for people."""
    writer = footprint.party.writer
    reads = [{"kind": read.kind.value, "what": read.description} for read in footprint.reads]
    return {
        keys.WRITER: json.dumps(writer.as_dict()) if writer else "",
        keys.OPERATION: footprint.party.operation,
        keys.READS: json.dumps(reads) if reads else "",
        keys.APPLICATION: footprint.application.to_json() if footprint.application else "",
    }


LastLook = tuple[Timeline, list[str]]
"""The timeline right before a publication, and the files of the commit that were gone then."""


class Deciding:
    """The decision of one transaction on one table. `own` records what becomes of it."""

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        draft: PendingCommit,
        own: OwnDecision,
        members: tuple[str, ...] = (),
    ) -> None:
        """`members`: the offers whose rows it has."""
        self._table, self._baseline, self._draft, self._own, self._members = table, baseline, draft, own, members
        self._since: LastLook | None = None

    @property
    def may_be_in_log(self) -> bool:
        """Whether a record of it was sent, so that only the log may withdraw it."""
        return self._own.may_be_in_log

    def saw_whole_window(self) -> None:
        """A look at the log found that no decision since the beginning has been collected."""
        self._own.learn(News.UNCOLLECTED)

    def stands(self, mine: Decision) -> bool:
        """Whether the decision about this instant that was found in the log is the transaction's own."""
        if resolve(mine) is not Resolution.COMMITTED:
            return False
        self._own.learn(News.FOUND)
        return True

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """Put the commit under the next number: this is the commit point. None when another has the number."""
        table = self._table
        decision = self._record(DecisionKind.COMMIT, view, timeline, schema_json, cost)
        self._own.learn(News.SENDS)
        made = table.log.decide(decision)
        if made is Created.UNKNOWN:
            self._own.learn(News.HEARS_NOTHING)
            made = self._make_definite(decision)
        if made is Created.THEIRS:
            found = table.log.read(decision.number)
            if found is None or found.write_id != decision.write_id:
                self._own.learn(News.LOSES)
                return None
        # The number may have been used and collected before: then the record means nothing, and only the timeline tells.
        try:
            if self._boundary_after(decision) >= decision.number:
                self._own.learn(News.COLLECTED)
                self._since = None
                return None
        except LakelockError as error:
            raise self._unknown(error) from error
        self._own.learn(News.WINS)
        reached(Step.DECIDED)
        table.emit(EventKind.DECIDED, decision.instant, self._draft.operation, decision=decision.number)
        return decision

    def _boundary_after(self, decision: Decision) -> int:
        """The log's boundary, read after a decision.

        Where another engine writes, the timeline and files are read at the same time: that engine may have rolled the instant
        back, without the lock, since it was found pending.
        """
        table = self._table
        if not table.observed.foreign_writers:
            return table.log.boundary()
        boundary, self._since = self._last_look(decision, table.log.boundary)
        return boundary

    def _last_look(self, decision: Decision, concurrent: Callable[[], int]) -> tuple[int, LastLook]:
        """The timeline, and which files of the commit are gone; along with another request."""
        table, paths = self._table, looked_for(decision)
        files = [partial(has_file, table.storage, path) for path in paths]
        answer, timeline, *there = table.at_once(concurrent, table.timeline, *files)
        return answer, (timeline, [path for path, found in zip(paths, there, strict=True) if not found])

    def _record(self, kind: DecisionKind, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision:
        """The record for the next number, with the very bytes of the completed instant."""
        table, baseline = self._table, self._baseline
        newest = max([timeline.newest_time, *(d.completion for d in view.decisions)])
        number, write_id = view.head + 1, table.runtime.uuid()
        return Decision(
            number=number,
            kind=kind,
            instant=baseline.instant,
            action=baseline.action,
            write_id=write_id,
            writer=table.writer,
            operation=self._draft.operation,
            completion=later_than(table.runtime.now_ms(), newest),
            payload=self._draft.payload(number, write_id, schema_json, newest_foreign=table.observed.newest_foreign, cost=cost),
            members=self._members,
        )

    def _make_definite(self, decision: Decision) -> Created:
        """After a lost reply: put a rollback of this instant under the same number, to find out who has the number.

        THEIRS: the number is taken, by this very commit or by another writer. Raises if the rollback took it, or if storage
        does not answer at all.
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

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None, metadata: KeptMetadata | None) -> Decision:
        """Make what is decided visible. `timeline` and `metadata` were looked at under the lock, while `lease` held."""
        table = self._table
        try:
            gone: list[str] = []
            if table.observed.foreign_writers:
                timeline, gone = self._since or self._last_look(decision, lambda: 0)[1]
                plans_awaited(table, timeline, decision.instant)
            current = timeline if lease is None or lease.lost is None else table.timeline()
            published = publish(table, decision, current, lambda: gone, metadata)
            if fate_of(table, decision.instant, current) is InstantFate.GONE:
                published = Publication.VOID
        except LakelockError as error:
            raise self._unknown(error) from error
        if published is Publication.VOID:
            lost = f", and {gone[0]} is gone" if gone else ""
            raise RolledBackError(
                f"{decision.instant} was decided, but another Hudi writer rolled it back before it was visible{lost}",
                hint=f"{SHARE_THE_LOCK}; then run the operation again",
                instant=decision.instant,
            )
        table.observed.time_seen(decision.completion)
        table.observed.newest_commit = decision.instant
        reached(Step.PUBLISHED)
        table.emit(EventKind.PUBLISHED, decision.instant, decision.operation, decision=decision.number)
        return decision

    def by_timeline(self, timeline: Timeline) -> Decision:
        """The decision by the timeline alone, where the log cannot tell because a part of the window was collected.

        `RolledBackError` if the timeline does not show the instant completed: then it never will be.
        """
        instant = self._baseline.instant
        try:
            # No other process decides this commit. If it was never tried, it is neither on the timeline nor in the archive.
            completed = completed_write(self._table.storage, timeline, instant) if self.may_be_in_log else None
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


LockedState = tuple[Timeline, TableProperties, LogView]
"""The table and its log as they are under the lock."""

Staged = tuple[PendingCommit, Deciding]
"""What is to be committed, and how it is decided: known once the last file is written."""

LOOK_ROUNDS = 5
"""How often a commit steps out of the lock to look into files, or to wait, before it does so under the lock instead."""


class Commit:
    """One transaction's way through the critical section; used once."""

    _draft: PendingCommit
    _deciding: Deciding
    """Both are known once the last file is written."""

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        *,
        schema: TableSchema,
        isolation: Isolation,
        ensure_alive: Callable[[], None],
        took_s: Callable[[], float],
        phases: Phases,
        reserved: OthersReservations,
        offers: Sequence[Offer] = (),
        lock_wait_s: float | None = None,
        retries: int = 0,
    ) -> None:
        """`schema`: the table's at the baseline. `ensure_alive` raises once the heartbeat is lost. `took_s` is the time since
        the beginning, `phases` is where it went; `retries` attempts came before this one. `offers`: those whose rows it has.
        `lock_wait_s`: as for `OpenTable.holding`.
        """
        self._reserved, self._offers, self._lock_wait_s = reserved, offers, lock_wait_s
        self._table, self._baseline, self._schema = table, baseline, schema
        self._isolation, self._ensure_alive, self._took_s, self._phases = isolation, ensure_alive, took_s, phases
        self._retries = retries
        self._answers: dict[object, Conflict | None] = {}
        self._others: dict[str, CommitSummary] = {}
        self.lock = LockUse(table, phases)
        self._noticed = table.provider is not None
        self._ahead: tuple[int, ...] = ()
        self._contents = NOTHING_AHEAD

    def run(self, stage_files: Callable[[], Staged], tidy_up: Callable[[], object]) -> Decision:
        """Commit, and return the published decision. `stage_files` runs before the decision, `tidy_up` after the publication.

        Raises `ConflictError`, `RolledBackError` or `CommitOutcomeUnknown`.
        """
        instant, table, round_number = self._baseline.instant, self._table, 0
        ahead: tuple[int, ...] = ()
        # A look that is made while the lock is taken counts as one under it, if no other has held the lock since before.
        stage = partial(self._stage, stage_files)
        concurrent: tuple[Callable[[], object], ...] = ()
        if table.is_likely_alone and not table.observed.foreign_writers:
            concurrent = (stage, *self._questions())
        else:
            _, ahead = table.at_once(stage, self.ahead)
        while round_number <= LOOK_ROUNDS:
            try:
                with self.lock.holding(instant, self._baseline.operation, concurrent, self._lock_wait_s) as held:
                    reached(Step.LOCKED)
                    look = self._look_meanwhile(held) if concurrent else self._look(ahead)
                    result = self._judged(held.lease, look, may_look=round_number == LOOK_ROUNDS)
                    if isinstance(result, Decision):
                        held.once_released.append(partial(reached, Step.UNLOCKED))
                        held.at_release.append(tidy_up)
                        return result
            except LeaseLost:
                if self._deciding.may_be_in_log or round_number == LOOK_ROUNDS:
                    raise
                result = []
            if isinstance(result, Reservation):
                self._reserved.wait_for(result)
            else:
                self._answer_all(result)
                round_number += 1
            concurrent, ahead = (), self.ahead()
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

    def _stage(self, stage_files: Callable[[], Staged]) -> None:
        self._use(stage_files())

    def _use(self, staged: Staged) -> None:
        self._draft, self._deciding = staged
        metadata = CommitMetadata(self._draft.stats, self._draft.operation, replaced=self._draft.replaced)
        baseline = self._baseline
        kept = baseline.properties.metadata_partitions
        self._contents = read_ahead(self._table, kept, baseline.instant, metadata, self._draft.schema.arrow, baseline.timeline)

    def look_ahead(self, staged: Staged) -> None:
        """Prepare `decide_under` without the lock: wait for the baseline's reservations, and answer the checks known so far."""
        self._use(staged)
        partitions = self.footprint.all_partitions
        while reservation := self._reserved.in_the_way(self._baseline.reservations, partitions):
            self._reserved.wait_for(reservation)
        self._ahead = self.ahead()
        decisions = [d for d in map(self._table.log.read, self._ahead) if d is not None]
        found = commits_since(self._table, self._baseline, self._baseline.timeline, decisions, dict(self._others))
        _, looks = judge(PROFILES[self._table.settings.concurrency.profile], self.footprint, found, self._isolation)
        for look in looks:
            # A conflict is left for the look under the lock: only a boundary read after a decision tells whether that counts.
            if look.answer(self.footprint) is None:
                self._answers[look.identity] = None

    def decide_under(self, lease: Lease | None, *, puts: bool) -> Decision:
        """Validate and decide under a lock that the caller holds, so it never waits; raises as `run` does.

        `puts`: whether a record is put under the next number, which fails if another record came first. Otherwise the log is
        listed again, since it may have a prepare that no timeline shows.
        """
        reached(Step.LOCKED)
        with counting(self.lock.tally):
            look = self._look(self._ahead if puts else None)
            result = self._judged(lease, look, may_look=True, may_wait=False)
        assert isinstance(result, Decision), "whatever had to be looked at was looked at"
        return result

    def ahead(self) -> tuple[int, ...]:
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

    def _questions(self) -> tuple[Callable[[], object], ...]:
        """What a look asks for, the numbers of new decisions last."""
        table = self._table
        numbers = partial(table.log.numbers, self._baseline.first)
        return table.timeline, partial(current_properties, table), table.log.read_boundary, numbers

    def _look_meanwhile(self, held: HeldLock) -> LockedState:
        """The state that was read while the lock was being taken, if it still holds; else it is read again now."""
        timeline, properties, boundary, numbers = held.answers[-4:]
        if not held.undisturbed or numbers or boundary.number > self._baseline.first:
            return self._look(None)
        view = self._table.log.look(after=self._baseline.first, newest=None, listed=(), judged_by=boundary)
        return timeline, properties, view

    def _look(self, ahead: tuple[int, ...] | None) -> LockedState:
        """The table and its log as they are under the lock. With `ahead` the log is not listed where nothing has come since."""
        table, first = self._table, self._baseline.first
        properties_now = partial(current_properties, table)
        if ahead is None:
            timeline, properties = table.at_once(table.timeline, properties_now)
            return timeline, properties, table.log.look(after=first, newest=None)
        timeline, properties, boundary = table.at_once(table.timeline, properties_now, table.log.read_boundary)
        if self._nothing_since(ahead, timeline):
            return timeline, properties, table.log.look(after=first, newest=None, listed=ahead, judged_by=boundary)
        return timeline, properties, table.log.look(after=first, newest=None)

    def _nothing_since(self, ahead: Sequence[int], timeline: Timeline) -> bool:
        """Whether a timeline that was listed under the lock shows nothing that the look ahead did not.

        Then the log is not listed again: should it have grown all the same, the next number is taken, and the round is lost.
        """
        known = {decision.instant for decision in map(self._table.log.read, ahead) if decision is not None}.union(self._others)
        return all(i.requested in known for i in timeline.commits_since(self._baseline.timeline))

    def _judged(
        self, lease: Lease | None, look: LockedState, *, may_look: bool, may_wait: bool = True
    ) -> Decision | Reservation | list[FileCheck | LateStarter]:
        """Validate and decide, or what has to be waited for or looked at first."""
        try:
            return self._under_lock(lease, look, may_look=may_look, may_wait=may_wait)
        except CorruptTableError as error:
            if self._deciding.may_be_in_log:
                raise
            # A writer that stood still, or whose lock excludes no one, may miss what others have removed: that is no damage.
            self._ensure_holding(lease)
            if not isinstance(error, GoneMeanwhile):
                raise
            instant = self._baseline.instant
            raise RolledBackError(f"{instant}: {error.message}", hint="run the operation again", instant=instant) from error

    def _under_lock(
        self, lease: Lease | None, look: LockedState, *, may_look: bool, may_wait: bool
    ) -> Decision | Reservation | list[FileCheck | LateStarter]:
        table, baseline = self._table, self._baseline
        seen: LockedState | None = look
        for _ in range(table.settings.decisions.slot_attempts):
            timeline, properties, view = seen or self._look(None)
            seen = None
            table.ensure_same_lock(view)
            if view.boundary > baseline.first:
                return self._deciding.by_timeline(timeline)
            self._deciding.saw_whole_window()
            decisions = view.decisions
            mine = decided_for(baseline.instant, decisions)
            if mine is not None and self._deciding.stands(mine):
                metadata = KeptMetadata.look(table, properties, self._contents)
                return self._deciding.conclude(mine, timeline, lease, metadata and metadata.mended(timeline))
            # After the look for this commit's own decision: if only its reply was lost, it stands, whatever changed since.
            check_unchanged(baseline, properties, self._draft.footprint.party)
            self._ensure_pending(timeline, mine)
            self._ensure_on_offer(view)
            timeline = finish_head(table, view, timeline)
            others = commits_since(table, baseline, timeline, decisions, self._others)
            look_for_first_meeting(table, timeline, view, baseline.first, others)
            self._noticed = self._noticed or notice_second_writer(table, timeline, baseline.instant, others)
            looks: list[FileCheck | LateStarter] = [*self._validate(timeline, others)]
            schema = schema_after(self._schema, self._draft.schema, self._draft.footprint, others)
            looks += late_starters(table, timeline, baseline.instant, self._answers)
            if not (may_look or all(isinstance(look, FileCheck) and look.is_quick for look in looks)):
                return looks
            self._answer_all(looks)
            reservation = self._reserved.in_the_way(view.reservations, self._draft.footprint.all_partitions)
            if may_wait and reservation is not None:
                return reservation
            metadata = KeptMetadata.look(table, properties, self._contents)
            if metadata is not None:
                metadata.ensure_free(baseline.instant)
                metadata = metadata.mended(timeline)
            self._ensure_holding(lease)
            reached(Step.VALIDATED)
            decided = self._deciding.decide(view, timeline, schema.to_avro_json(baseline.properties.name), self._cost_so_far())
            if decided is not None:
                with self._phases.during(Phase.PUBLISH):
                    return self._deciding.conclude(decided, timeline, lease, metadata)
        raise TransactionError(
            f"{baseline.instant}: others took the decision number in each of {table.settings.decisions.slot_attempts} attempts",
            hint="run again; if this persists, check that the lock provider really excludes: "
            + command("doctor", table.storage.uri),
        )

    def _ensure_holding(self, lease: Lease | None) -> None:
        """Raise unless the heartbeat lives and the lock is still this writer's."""
        self._ensure_alive()
        if lease is not None:
            lease.ensure_active()

    def _validate(self, timeline: Timeline, others: Sequence[CommitSummary]) -> list[FileCheck]:
        """Raise the first conflict; return the file checks that are still open."""
        table, mine = self._table, self._draft.footprint
        ensure_not_restored(table, timeline)
        conflict, looks = judge(PROFILES[table.settings.concurrency.profile], mine, others, self._isolation)
        conflict = conflict or planned_rewrites(table, self._baseline, timeline, mine)
        conflict = conflict or planned_cleaning(table, self._baseline, timeline, mine)
        if conflict is not None:
            raise ConflictError(conflict)
        archived = possibly_archived(table.storage, self._baseline, timeline)
        if archived:
            raise RolledBackError(
                f"{mine.party.instant}: {sorted(archived)[0]} was pending when this began and has been archived since, so "
                "whether the two conflict cannot be told any more",
                hint="run the operation again; archive less eagerly in the other writer (hoodie.keep.min.commits)",
                instant=mine.party.instant,
            )
        return [look for look in looks if look.identity not in self._answers]

    def _answer_all(self, looks: Sequence[FileCheck | LateStarter]) -> None:
        """Look into everything, log files that take a request at the same time."""
        quick = [look for look in looks if isinstance(look, FileCheck) and look.is_quick]
        found = self._table.io.gather([partial(look.answer, self._draft.footprint) for look in quick])
        answers: dict[object, Conflict | None] = {look.identity: answer for look, answer in zip(quick, found, strict=True)}
        for look in looks:
            known = look.identity in answers
            conflict = self._answers[look.identity] = answers[look.identity] if known else look.answer(self._draft.footprint)
            if conflict is not None:
                raise ConflictError(conflict)

    def _ensure_pending(self, timeline: Timeline, mine: Decision | None) -> None:
        """Raise unless this instant is pending and not rolled back."""
        table, instant = self._table, self._baseline.instant
        if mine is not None:
            raise rolled_back(self._draft.footprint.party, mine)
        if not is_withdrawn(table, timeline, instant):
            return
        # The log may have been listed before the timeline: only what no decision explains is another engine's doing.
        view = table.log.look(after=self._baseline.first, newest=None)
        since = decided_for(instant, view.decisions)
        if since is not None and resolve(since) is Resolution.ROLLED_BACK:
            raise rolled_back(self._draft.footprint.party, since)
        if since is None and view.boundary <= self._baseline.first:
            table.observed.met_foreign()
        raise RolledBackError(
            f"{instant} was rolled back by another Hudi writer",
            hint=f"{SHARE_THE_LOCK}; then run the operation again",
            instant=instant,
        )

    def _ensure_on_offer(self, view: LogView) -> None:
        """`RolledBackError` if one of the offers is decided, or if a decision that may be about it was collected."""
        for offer in self._offers:
            if offer.since < view.boundary or decided_for_offer(offer.member.id, view.decisions) is not None:
                raise RolledBackError(
                    f"{self._baseline.instant}: the write {offer.member.id}, which is part of it, is already decided",
                    hint="nothing needs to be done: the writes that are not committed yet are tried again",
                    instant=self._baseline.instant,
                )

    def _cost_so_far(self) -> CommitCost:
        lock, phases = self.lock, self._phases.seconds()
        took_s, wait_s, lock_s = (round(seconds, 3) for seconds in (self._took_s(), lock.wait_s, lock.held_s))
        return CommitCost(took_s, wait_s, lock_s, lock.requests, phases, self._retries)
