"""A transaction: begin, write without any lock, commit in a short critical section.

`Work` is the transaction before its end: what it reads, what it announces, and what executors need to write its files. `Redo`
is the part of one attempt in a write that repeats only what collided (ADR 19).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from types import TracebackType
from typing import TypeAlias

from lakelock.conflict import Conflict, Party
from lakelock.data_locks import Resource
from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    CorruptTableError,
    LakelockError,
    RolledBackError,
    TransactionStateError,
    WriteFailed,
)
from lakelock.events import EventKind, Step, reached
from lakelock.markers import data_files
from lakelock.markers.data_files import Announced, MarkerSet, files_to_delete
from lakelock.markers.heartbeat import Heartbeat
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import Baseline, Detached, OwnWrites, WriteContext
from lakelock.occ.claims import AnnouncedGroups, OthersReservations, ReadWriteSet, claim
from lakelock.occ.commit import Commit, Deciding, PendingCommit, Staged
from lakelock.occ.commit_keys import AppTransaction, members_text
from lakelock.occ.committed import Committed, Phase, Phases
from lakelock.occ.ending import (
    IllegalTransition,
    News,
    OwnDecision,
    TransactionState,
    outcome_unknown,
    remove_uncounted,
    tidy_up,
    withdraw,
)
from lakelock.occ.footprint import Isolation, Level, Read
from lakelock.occ.foreign import alarm, planned_groups, undone_error
from lakelock.occ.live_logs import slices_at
from lakelock.occ.log import Decision
from lakelock.occ.offers import Offer
from lakelock.occ.open_table import OpenTable
from lakelock.occ.rollback import RollbackTarget
from lakelock.occ.rules import Collision, rejection, worth_keeping
from lakelock.occ.upkeep import after_commit
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.eligibility import check_files
from lakelock.table.index import GlobalIndex
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.merged_slices import is_to_be_compacted
from lakelock.table.metadata_records import RECORD_INDEX
from lakelock.table.record_index import FROM_FILES, MOST_ASKED, Answer, answers, places_of
from lakelock.table.rows import added
from lakelock.table.schema import TableSchema, require_same_text
from lakelock.table.snapshot import DataFile, Snapshot


@dataclass
class Redo:
    """What an attempt takes over from the one before it, and whether the next may take over from it."""

    keeps_files: bool = False
    """Whether a commit that conflicts sets the attempt aside, for `lakelock.occ.retry`."""
    earlier: str | None = None
    """The instant of the attempt before, which is set aside."""
    kept: int = 0
    """How many files are copies of that attempt's."""


def goes_aside(table: OpenTable, own: OwnDecision, mine: Party, found: Collision, announced: AnnouncedGroups) -> bool:
    """Set aside a transaction that lost, so that the next attempt can copy its files; whether that was possible.

    It must be certain that it never commits. Its claims are released first: its writer may wait for others from now on, and if
    any of them waited for these claims, the two would wait for each other.
    """
    if own.may_be_in_log:
        return False
    try:
        announced.release(table, mine.instant)
    except LakelockError:
        return False
    table.observed.time_seen(mine.instant)
    reached(Step.SET_ASIDE)
    table.emit(EventKind.SET_ASIDE, mine.instant, mine.operation, kept=len(found.kept), collided=len(found.collided))
    return True


ALL_ROWS = sys.maxsize
"""In place of a number of rows: the file is rewritten, whatever changes."""


def _may_be_few(changes: int | None, rows: int | None, share: float) -> bool:
    if changes is None or changes == ALL_ROWS:
        return changes is None
    return rows is None or changes <= share * rows


class Work:
    """What a transaction does while it is open; `Transaction` ends it."""

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        heartbeat: Heartbeat,
        schema: TableSchema,
        application: AppTransaction | None = None,
        tag: str = "",
        own: OwnDecision | None = None,
        announced: Announced | None = None,
    ) -> None:
        """`announced`: a new file that was announced at the beginning."""
        self.baseline, self.schema, self.state = baseline, schema, TransactionState.OPEN
        self._table, self._heartbeat, self._application, self._tag = table, heartbeat, application, tag
        self._touched = ReadWriteSet(baseline, self.party, application)
        self._snapshot: Snapshot | None = None
        self.own = OwnWrites()
        self._added_to: TableSchema | None = None
        self._current: Snapshot | None = None
        self.task_numbers = count()
        """For tasks in this process: no two of a transaction have the same, or they could write the same file."""
        self._began_s = table.runtime.monotonic_s()
        self.phases = Phases(table.runtime)
        """Where its time goes."""
        self.retries = 0
        """The attempts of this write before this one."""
        self._writing = False
        self._decision = own or OwnDecision()
        self._lost: BaseException | None = None
        self.end_reason = ""
        """Why it was withdrawn, once it was."""
        self.extra: dict[str, str] = {}
        """What else the commit's extra metadata says, for people."""
        self.redo = Redo()
        self._announced = announced
        self._append_only: set[FileGroupId] = set()
        self._planned: frozenset[FileGroupId] = frozenset()
        self.offers: Sequence[Offer] = ()
        """Whose rows it has, if it is a group commit."""
        self.lock_wait_s: float | None = None
        """How long the commit waits for the lock, in the place of `lock.wait_s`."""
        self.reserved = OthersReservations(table, baseline.instant, baseline.operation)
        self.reconciled = False
        """Whether the commit has looked at the markers: files that are announced later are not counted."""

    @property
    def table(self) -> OpenTable:
        """The table that this is about."""
        return self._table

    @property
    def instant(self) -> str:
        return self.baseline.instant

    @property
    def operation(self) -> str:
        return self.baseline.operation

    @property
    def party(self) -> Party:
        return Party(self.instant, self.operation, self._table.writer)

    def places(self) -> frozenset[str] | None:
        """The partitions that this has read or written to so far; None for the whole table."""
        try:
            known = self._snapshot.partitions if self._snapshot is not None else ()
        except LakelockError:
            return None
        return self._touched.places(known)

    def snapshot(self) -> Snapshot:
        """The file slices that this transaction sees, read at the first call, and partition by partition as they are needed."""
        if self._snapshot is None:
            snapshot = slices_at(self._table, self.baseline.timeline)
            check_files(self.baseline.properties, snapshot)
            self._snapshot = snapshot
        return self._snapshot

    def current(self) -> Snapshot:
        """The snapshot with what this transaction has written so far: what its next write sees."""
        if self._current is None:
            self._current = self.own.over(self.snapshot())
        return self._current

    @property
    def current_schema(self) -> TableSchema:
        """The table's schema with the columns that this transaction has added so far."""
        return self._added_to or self.schema

    def wrote(self, stats: Iterable[WriteStat], schema: TableSchema | None = None) -> None:
        """Note what a write has written that is not the last one. The commit has these files, and those that it is given."""
        self._ensure_open()
        self.own, self._current = self.own.followed_by(stats), None
        self._added_to = schema or self._added_to

    @property
    def asks_record_index(self) -> bool:
        """Whether to ask the record index: only at the first write, if the table has one and `index="global"`.

        Never for a delete: it must also find rows that an insert stored a second time, which the record index lacks.
        """
        base, deletes = self.baseline.properties, self.operation == "DELETE"
        is_kept = RECORD_INDEX in base.metadata_partitions and isinstance(base.index, GlobalIndex)
        return is_kept and not deletes and not self.own.stats

    def by_record_index(
        self, keys: Mapping[str, Sequence[str]], possible: Mapping[str, Sequence[DataFile]]
    ) -> Mapping[str, Answer]:
        """Which of the `possible` files to look into for keys, both by partition, as Hudi's record index has it.

        Empty where it is not worth asking, or does not know the state that this transaction sees: then all are looked into.
        """
        asked = {key for each in {id(each): each for each in keys.values()}.values() for key in each}
        if sum(map(len, possible.values())) < FROM_FILES or len(asked) > MOST_ASKED:
            return {}
        try:
            return answers(places_of(self._table.io, self.baseline.timeline, asked), keys, possible)
        except CorruptTableError as error:
            self.doubt_record_index(error.message)
            return {}

    def doubt_record_index(self, why: str) -> None:
        """Tell that the record index was not of use, so that files are looked into."""
        text = f"Hudi's record index could not be used, so files were searched for keys: {why}"
        self._table.emit(EventKind.ALERT, self.instant, self.operation, problem=text)

    def reads(self, read: Read) -> None:
        """Record a read: the commit is rejected if another commits what this read would have seen."""
        self._ensure_open()
        self._touched.reads.append(read)

    def keep_within(self, targets: Iterable[Resource]) -> None:
        """Write into these partitions and prefixes only: whatever else is written is an `InputError`. None: anywhere."""
        self._ensure_open()
        self._touched.targets = tuple(targets)

    def writes_to(self, partitions: Iterable[str]) -> None:
        """Record that these partitions get rows. Claims that follow report it to a writer that makes a reservation there."""
        self._ensure_open()
        self._touched.write_to(partitions)

    def overwrites(self, partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Record that the whole content of these partitions is replaced: the ids of their file groups, for the commit.

        Needs a transaction begun as an overwrite.
        """
        self._ensure_open()
        partitions = sorted(partitions)
        self._touched.overwrite(partitions)
        there = {each: tuple(file.file_id for file in self.current().in_partition(each)) for each in partitions}
        return {partition: ids for partition, ids in there.items() if ids}

    def claim(
        self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId] = (), *,
        leave_held: bool = False, always: Iterable[FileGroupId] = (),
    ) -> None:  # fmt: skip
        """Announce that these file groups will be rewritten; `EarlyConflictError` if another writer has rewritten one, or is.

        So for the `new_buckets` that have no file group yet and will get one, by `lakelock.table.index.bucket_group`.

        One conditional write per group, in parallel, then one look at what was decided since the baseline: a writer that
        finished meanwhile has removed its claims, but its decision is in the log.
        With `leave_held` (a service) groups that others hold are left to them; `claimed` says what is left to do.
        `always`: those of the groups that are claimed also where `concurrency.early_conflict_detection` is off.
        """
        conflict = self._claim(groups, new_buckets, leave_held=leave_held, always=always)
        if conflict is not None:
            error = self._rejection(conflict)
            self._tell(EventKind.EARLY_CONFLICT, error.conflict)
            self._lost = error
            raise error

    def _claim(
        self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId] = (), *,
        leave_held: bool = False, always: Iterable[FileGroupId] = (),
    ) -> Conflict | None:  # fmt: skip
        self._ensure_open()
        self.check_alive()
        return claim(
            self._table, self.baseline, self._touched, self.reserved, self._heartbeat,
            groups, new_buckets, leave_held=leave_held, always=always,
        )  # fmt: skip

    def claim_changed(
        self,
        files: Mapping[DataFile, int | None],
        new_buckets: Iterable[FileGroupId] = (),
        *,
        always: Iterable[FileGroupId] = (),
    ) -> None:
        """Announce that rows of these files change, so many or `ALL_ROWS`, if known; claim the groups to rewrite, as `claim`.

        Where few rows change, and where another engine is going to compact, a task may append a log file, which needs no claim.
        Of the groups that have many log files those are rewritten that no other rewrites meanwhile.
        """
        settings, own = self._table.settings.write, {stat.group for stat in self.own.stats}
        appends = self.baseline.properties.is_merge_on_read and settings.append_below > 0
        planned = planned_groups(self._table, self.baseline.timeline) if appends else {}
        # A log file that is appended during a planned compaction stays visible; a new base file would be hidden by it.
        self._planned = frozenset(group for group, action in planned.items() if action == Action.COMPACTION)
        few = {
            file: appends and file.token and file.group not in own and _may_be_few(
                changes, self.snapshot().stats_of(file._replace(logs=())).rows,
                inf if file.group in self._planned else settings.append_below,
            )
            for file, changes in files.items()
        }  # fmt: skip
        self.writes_to(file.partition for file, to_append in few.items() if to_append)
        full = {file.group for file, to_append in few.items() if to_append and is_to_be_compacted(file)} - planned.keys()
        if full and self._claim(full, leave_held=True) is not None:
            self._append_only |= full  # another has rewritten one since the baseline: a log file will do
        self.claim((file.group for file, to_append in few.items() if not to_append), new_buckets, always=always)

    def take_announced(self, partition: str) -> Announced | None:
        """The new file in this partition that was announced at the beginning, for the first caller; None if there is none."""
        announced, self._announced = self._announced, None
        return announced if announced is not None and announced.file.partition == partition else None

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """The file groups that are announced as this transaction's."""
        return self._touched.announced.claimed

    @property
    def to_rewrite(self) -> frozenset[FileGroupId]:
        """Those of them that get new base files, however few of their rows change."""
        return self.claimed - self._append_only

    def write_context(self, schema: TableSchema | None = None) -> WriteContext:
        """What executors need to write files of this transaction; picklable.

        `SchemaError` if the `schema`, the table's after this transaction, spells stored keys or partitions otherwise.
        """
        self._ensure_open()
        require_same_text(self.schema, schema or self.schema, self.baseline.properties)
        if schema is not None and schema != self.schema:
            # A writer with this schema knows what it adds, also in later writes and if this one is rejected.
            self._table.observed.brought(added(schema.arrow, self.schema.arrow))
        if not self._writing:
            self._writing = True
            self._emit(EventKind.WRITING)
        own = self.own.files(self.snapshot()) if self.own.stats else ()
        return WriteContext.of(self._table, self.baseline, schema or self.schema, own, self.to_rewrite, self._planned)

    def detach(self) -> Detached:
        """Hand the transaction to another process, which continues it with `Coordinator.adopt`; this object is used up.

        Its heartbeat stands still until then, so it must be adopted within the heartbeat's limit.
        """
        self._ensure_open()
        self.state = TransactionState.DETACHED
        self._heartbeat.stop(delete=False)
        return Detached(self.baseline, self.schema, self._heartbeat.record, self._application, self._tag)

    @property
    def is_alive(self) -> bool:
        """Whether no process can have taken this for dead."""
        return self._heartbeat.alive()

    def check_alive(self) -> None:
        """Raise `RolledBackError` if the heartbeat was too late: others may have rolled this back."""
        self._heartbeat.ensure_alive()

    @contextmanager
    def phase(self, phase: Phase, what: str) -> Iterator[None]:
        """The block is a long part of the work, `what` in words: its time is counted, and an event tells when it is over."""
        began_s = self.took_s()
        with self.phases.during(phase):
            yield
        self._emit(EventKind.PHASE_DONE, phase=phase.value, what=what, took_s=round(self.took_s() - began_s, 3))

    def took_s(self) -> float:
        """The seconds since it began."""
        return self._table.runtime.monotonic_s() - self._began_s

    def _rejection(self, conflict: Conflict, hint: str = "") -> ConflictError:
        return rejection(self._table.settings.concurrency, conflict, read=bool(self._touched.reads), hint=hint)

    def _ensure_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise TransactionStateError(
                f"{self.operation} {self.instant} is {self.state.value}; it cannot be used any more",
                hint="begin a new transaction",
            )

    def _tell(self, kind: EventKind, conflict: Conflict) -> None:
        own = self.reserved.standing
        reserved = own is not None and own.covers_all(self.places())
        self._emit(kind, rule=str(conflict.rule), other=str(conflict.other), over=conflict.overlap, reserved=reserved)

    def _emit(self, kind: EventKind, **facts: object) -> None:
        self._table.emit(kind, self.instant, self.operation, **facts)


Last: TypeAlias = Callable[[], Sequence[WriteStat]]
"""Writes the last of a write's files and tells what they hold."""
Replaced: TypeAlias = Mapping[str, Sequence[str]]
"""The ids of file groups by partition."""


class Transaction(Work):
    """One open transaction. Not for use by several threads at once; executors get a `WriteContext` instead.

    Use it as a context manager: an exception inside the block aborts it, and so does leaving the block without `commit`.
    """

    _markers: MarkerSet | None = None
    _stats: Sequence[WriteStat] = ()

    def commit(
        self,
        stats: Sequence[WriteStat],
        *,
        schema: TableSchema | None = None,
        replaced: Replaced | None = None,
        last: Last | None = None,
    ) -> Committed:
        """Validate, decide and publish; on return the transaction is visible to all readers.

        `stats`: one per base file, exactly one per file group, besides those noted with `wrote` before. `schema`: the table's
        schema after this commit, if it changes. `replaced`: file groups by partition whose content this commit replaces.
        `last` writes what is still to be written, a small file; it is called while the lock is taken if no other is expected
        there.
        Raises `ConflictError` or `RolledBackError` (rejected, nothing remains), `CommitOutcomeUnknown` or `CommitUndone`.
        """
        self._ensure_open()
        if last is None:
            reached(Step.DATA_WRITTEN)
        commit: Commit | None = None
        try:
            # A job commits once, so nothing is decided before this, not even for an adopted transaction.
            self._decision.learn(News.COMMITS)
            with self.phases.during(Phase.VALIDATE):
                self._touch(stats, replaced)
                commit = self._new_commit()
                decision = commit.run(partial(self._stage_files, stats, schema, replaced, last), self._tidy_up)
        except (CommitOutcomeUnknown, IllegalTransition):
            self.state = TransactionState.UNKNOWN
            self._heartbeat.stop(delete=False)
            raise
        except BaseException as error:
            if isinstance(error, ConflictError | RolledBackError):
                self._decision.learn(News.REJECTED)
            if self._decision.may_be_committed:
                # The decision may have been made before the error: only the log knows, so nothing is removed.
                self.state = TransactionState.UNKNOWN
                self._heartbeat.stop(delete=False)
                if isinstance(error, Exception):
                    raise outcome_unknown(self._table, self.instant, self.operation, error) from error
            else:
                lost = self._lost = self._rejection(error.conflict, error.hint) if isinstance(error, ConflictError) else error
                if isinstance(lost, ConflictError):
                    self._tell(EventKind.CONFLICT, lost.conflict)
                if not self._is_set_aside(error, commit):
                    self._withdraw(str(error), disturbed=isinstance(error, RolledBackError | WriteFailed))
                if isinstance(lost, ConflictError):
                    raise lost.with_traceback(error.__traceback__) from error.__cause__
            raise
        return self._committed(commit, decision)

    def _committed(self, commit: Commit, decision: Decision) -> Committed:
        """What follows the publication. `CommitUndone` if another engine, which takes no lock, has undone it meanwhile."""
        self.state = TransactionState.COMMITTED
        if self.reserved.own is not None:
            self.reserved.own.end()
        result = Committed.of(
            decision, self._stats, kept=self.redo.kept, lock=commit.lock, took_s=self.took_s(), phases=self.phases.seconds()
        )
        self._emit(EventKind.COMMITTED, **result.facts)
        undone = alarm(table=self._table, baseline=self.baseline, decision=decision, known=commit.judged)
        after_commit(self._table, decision.number)
        if undone is not None and undone.gone:
            raise undone_error(self._table, undone)
        return result

    def _stage_files(
        self,
        stats: Sequence[WriteStat],
        schema: TableSchema | None,
        replaced: Replaced | None,
        last: Last | None = None,
    ) -> Staged:
        """Write what is still to be written, remove the announced files that are not part of the commit, note the markers."""
        listed = partial(data_files.listed, self._table.storage, self.instant)
        if last is not None:
            # What was announced before it is written is among the markers that are listed meanwhile.
            written, markers = self._table.at_once(last, listed)
            self._stats = self.own.followed_by((*stats, *written)).stats
            reached(Step.DATA_WRITTEN)
            self._touch(self._stats, replaced)
            if not {stat.path for stat in self._stats} <= {marker.data_key for marker in markers.markers}:
                markers = listed()
        else:
            self._stats, markers = self.own.followed_by(stats).stats, listed()
        self.check_alive()
        self._markers, self.reconciled = markers, True
        try:
            uncounted = files_to_delete(markers, self._stats)
        except WriteFailed:
            self._table.timeline()  # a `TableError` says more, if the markers went with the table
            raise
        remove_uncounted(self._table.storage, markers, uncounted)
        reached(Step.RECONCILED)
        return self._staged(schema, replaced)

    def _touch(self, stats: Sequence[WriteStat], replaced: Replaced | None) -> None:
        self._touched.write_to({*(stat.partition_path or "" for stat in (*self.own.stats, *stats)), *(replaced or ())})

    def _tidy_up(self, more: Iterable[str] = ()) -> None:
        """After the publication: remove what announced the transaction, and `more`."""
        self._heartbeat.stop(delete=False)
        keys = self._markers.keys if self._markers is not None else ()
        more = [*more, *(offer.key for offer in self.offers)]
        tidy_up(self._table, self.instant, self.operation, keys, self._touched.announced.claimed, more)

    def _staged(self, schema: TableSchema | None, replaced: Replaced | None) -> Staged:
        draft = PendingCommit.of(
            self._touched.footprint.wrote(self._stats, replaced, in_buckets=self.baseline.properties.bucket_index is not None),
            self._stats,
            (replaced or {}) if self.baseline.action == Action.REPLACE_COMMIT.value else None,
            self.schema if schema is None or schema == self.schema else schema,
            {
                keys.TAG: self._tag,
                keys.SAW: self.baseline.timeline.newest_completion,
                keys.KEPT: str(self.redo.kept or ""),
                keys.MEMBERS: members_text([offer.member for offer in self.offers]),
                **self.extra,
            },
        )
        return draft, self._deciding(draft)

    def _new_commit(self) -> Commit:
        level = Level(self._table.settings.concurrency.isolation)
        return Commit(
            self._table,
            self.baseline,
            schema=self.schema,
            isolation=Isolation(
                lambda group: self.snapshot().group(group), lambda file: self.snapshot().stats_of(file), level, self.schema
            ),
            ensure_alive=self.check_alive,
            reserved=self.reserved,
            took_s=self.took_s,
            phases=self.phases,
            offers=self.offers,
            lock_wait_s=self.lock_wait_s,
            retries=self.retries,
        )

    def _deciding(self, draft: PendingCommit) -> Deciding:
        members = tuple(offer.member.id for offer in self.offers)
        return Deciding(self._table, self.baseline, draft, self._decision, members)

    def abort(self, reason: str = "", *, disturbed: bool = False) -> None:
        """Withdraw the transaction and remove its files. Never raises for storage: what is left, the next writer removes.

        An adopted transaction may have been committed by another process of its job: then it stays, and `state` says so.
        `disturbed`: others have rolled it back, and may have removed markers before the files that they announce were written.
        """
        if self.state in (TransactionState.OPEN, TransactionState.SET_ASIDE):
            self._withdraw(reason, disturbed=disturbed)

    def _is_set_aside(self, error: BaseException, commit: Commit | None) -> bool:
        """Set this transaction aside if the next attempt may use its files."""
        if commit is None or not (self.redo.keeps_files and isinstance(error, ConflictError) and self.is_alive):
            return False
        found = worth_keeping(error.conflict, commit.footprint, commit.judged.values())
        if found is None or not goes_aside(self._table, self._decision, self.party, found, self._touched.announced):
            return False
        self.state = TransactionState.SET_ASIDE
        return True

    def _withdraw(self, reason: str, *, disturbed: bool) -> None:
        """Remove what was written. Where this may be committed, only the log says whether it is."""
        self.state = TransactionState.UNKNOWN if self._decision.may_be_committed else TransactionState.REJECTED
        disturbed = disturbed or not self._heartbeat.alive()
        self._heartbeat.stop(delete=False)
        evidence = self.end_reason = reason.splitlines()[0] if reason else "aborted"
        claims = self._touched.announced.own_claims(disturbed=disturbed)
        target = RollbackTarget(self.instant, Action(self.baseline.action), self.operation, evidence, claims)
        self.state = withdraw(self._table, target, self._decision, disturbed=disturbed, lost=self._lost)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state is TransactionState.OPEN:
            self.abort("" if error is None else str(error) or type(error).__name__)
