"""A transaction: begin, write without any lock, commit in a short critical section.

```
begin ──► open ──► commit ──► committed          visible to everybody
            │         ├─────► rejected           conflict, or rolled back by somebody else; nothing remains
            │         └─────► unknown            storage gave no answer; nothing is cleaned up; the log will tell
            └──► abort ─────► rejected
```
A commit that conflicts may also be set aside: it never commits, and its files stay until the next attempt has copied them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

from lakelock.conflict import Conflict, Party
from lakelock.data_locks import Resource
from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    LakelockError,
    RolledBackError,
    TransactionStateError,
    WriteFailed,
)
from lakelock.events import EventKind
from lakelock.markers import direct
from lakelock.markers.direct import MarkerSet
from lakelock.markers.heartbeat import Heartbeat
from lakelock.markers.reconcile import files_to_delete
from lakelock.occ.baseline import Baseline, inflight_key
from lakelock.occ.certainty import IllegalTransition, News, OwnDecision
from lakelock.occ.claiming import Claiming
from lakelock.occ.committing.commit import Commit
from lakelock.occ.committing.deciding import Deciding
from lakelock.occ.committing.pending_commit import PendingCommit
from lakelock.occ.conflicts.collision import worth_keeping
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.conflicts.profiles import rejection
from lakelock.occ.conflicts.reads import Read
from lakelock.occ.detached import Detached
from lakelock.occ.foreign.overlaps import alarm
from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.phases import Phase, Phases
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.recovery.ending import TransactionState, outcome_unknown, remove_uncounted, tidy_up, withdraw
from lakelock.occ.recovery.rollback import RollbackTarget
from lakelock.occ.redo import Redo, goes_aside
from lakelock.occ.reserving.waiting import OthersReservations
from lakelock.occ.steps import Step, reached
from lakelock.occ.touched import Touched
from lakelock.occ.upkeep.run import after_commit
from lakelock.occ.write_context import WriteContext
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.eligibility import check_files
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.schema_changes.alterations import require_same_text
from lakelock.table.snapshot import DataFile, Snapshot
from lakelock.table.statistics import FileStatistics


class Transaction:
    """One open transaction. Not for use by several threads at once; executors get a `WriteContext` instead.

    Use it as a context manager: an exception inside the block aborts it, and so does leaving the block without `commit`.
    """

    def __init__(
        self,
        table: OpenTable,
        baseline: Baseline,
        heartbeat: Heartbeat,
        schema: TableSchema,
        application: AppTransaction | None = None,
        tag: str = "",
        own: OwnDecision | None = None,
    ) -> None:
        self.baseline, self.schema, self.state = baseline, schema, TransactionState.OPEN
        self._table, self._heartbeat, self._application, self._tag = table, heartbeat, application, tag
        self._touched = Touched(baseline, self.party, application)
        self._snapshot: Snapshot | None = None
        self._began_s = table.runtime.monotonic_s()
        self.phases = Phases(table.runtime)
        """Where its time goes."""
        self._inflight = False
        self._decision = own or OwnDecision()
        self._lost: BaseException | None = None
        self.extra: dict[str, str] = {}
        """What else the commit's extra metadata says, for people."""
        self.redo = Redo()
        self.reserved = OthersReservations(table, baseline.instant, baseline.operation)
        self.reconciled = False
        """Whether the commit has looked at the markers: files that are announced later are not counted."""

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
            snapshot = self._table.index.snapshot_at(self.baseline.timeline)
            check_files(self.baseline.properties, snapshot)
            self._snapshot = snapshot
        return self._snapshot

    def reads(self, read: Read) -> None:
        """Record a read: the commit is rejected if somebody commits what this read would have seen."""
        self._ensure_open()
        self._touched.reads.append(read)

    def keep_within(self, targets: Iterable[Resource]) -> None:
        """Write into these partitions and prefixes only: whatever else is written is an `InputError`. None: anywhere."""
        self._ensure_open()
        self._touched.targets = tuple(targets)

    def writes_to(self, partitions: Iterable[str]) -> None:
        """Record that these partitions get rows. Claims that follow tell it to whoever makes a reservation there."""
        self._ensure_open()
        self._touched.write_to(partitions)

    def overwrites(self, partitions: Iterable[str]) -> None:
        """Record that the whole content of these partitions is replaced. Needs a transaction begun as an overwrite."""
        self._ensure_open()
        self._touched.overwrite(partitions)

    def claim(
        self, groups: Iterable[FileGroupId], new_buckets: Iterable[FileGroupId] = (), *,
        leave_held: bool = False, always: Iterable[FileGroupId] = (),
    ) -> None:  # fmt: skip
        """Announce that these file groups will be rewritten; `EarlyConflictError` if somebody else has rewritten one, or is.

        So for the `new_buckets` that have no file group yet and will get one, by `lakelock.table.buckets.bucket_group`.

        One conditional write per group, in parallel, then one look at what was decided since the baseline: a writer that
        finished meanwhile has removed its claims, but its decision is in the log.
        With `leave_held` (a service) groups that others hold are left to them; `claimed` says what is left to do.
        `always`: those of the groups that are claimed also where `concurrency.early_conflict_detection` is off.
        """
        self._ensure_open()
        self.check_alive()
        claiming = Claiming(self._table, self.baseline, self._touched, self.reserved, self._heartbeat)
        conflict = claiming.claim(groups, new_buckets, leave_held=leave_held, always=always)
        if conflict is not None:
            error = self._rejection(conflict)
            self._tell(EventKind.EARLY_CONFLICT, error.conflict)
            self._lost = error
            raise error

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """The file groups that are announced as this transaction's."""
        return self._touched.announced.claimed

    def write_context(self, schema: TableSchema | None = None) -> WriteContext:
        """What executors need to write files of this transaction; picklable. Marks the instant as inflight.

        `SchemaError` if the `schema`, the table's after this transaction, spells stored keys or partitions otherwise.
        """
        self._ensure_open()
        require_same_text(self.schema, schema or self.schema, self.baseline.properties)
        if not self._inflight:
            self._table.storage.put_if_absent(inflight_key(self.instant, Action(self.baseline.action)), b"")
            self._inflight = True
            reached(Step.INFLIGHT)
            self._emit(EventKind.WRITING)
        return WriteContext.of(self._table, self.baseline, schema or self.schema)

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
        """Whether nobody can have taken this for dead."""
        return self._heartbeat.alive()

    def check_alive(self) -> None:
        """Raise `RolledBackError` if the heartbeat was too late: others may have rolled this back."""
        self._heartbeat.ensure_alive()

    def commit(
        self,
        stats: Sequence[WriteStat],
        *,
        schema: TableSchema | None = None,
        replaced: Mapping[str, Sequence[str]] | None = None,
    ) -> Committed:
        """Validate, decide and publish; on return the transaction is visible to everybody.

        `stats`: one per base file, exactly one per file group. `schema`: the table's schema after this commit, if it
        changes. `replaced`: file groups by partition whose content this commit replaces.
        Raises `ConflictError` or `RolledBackError` (rejected, nothing remains) or `CommitOutcomeUnknown`.
        """
        self._ensure_open()
        reached(Step.DATA_WRITTEN)
        commit: Commit | None = None
        try:
            # A job commits once, so nothing is decided before this, not even for an adopted transaction.
            self._decision.learn(News.COMMITS)
            with self.phases.during(Phase.VALIDATE):
                markers = self._reconcile(stats, replaced)
                commit = self._prepare(stats, schema, replaced)
                decision = commit.run()
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
        self.state = TransactionState.COMMITTED
        self._heartbeat.stop(delete=False)
        tidy_up(self._table, self.instant, self.operation, markers, self._touched.announced.claimed)
        self.reserved.end_own()
        result = Committed.of(
            decision, stats, kept=self.redo.kept, lock=commit.lock, took_s=self.took_s(), phases=self.phases.told()
        )
        self._emit(EventKind.COMMITTED, **result.facts)
        alarm(table=self._table, baseline=self.baseline, decision=decision, known=commit.judged)
        after_commit(self._table, decision.number)
        return result

    def _reconcile(self, stats: Sequence[WriteStat], replaced: Mapping[str, Sequence[str]] | None) -> MarkerSet:
        """Remove the announced files that are not part of the commit; returns the markers."""
        self.check_alive()
        self._touched.write_to({*(stat.partition_path or "" for stat in stats), *(replaced or ())})
        storage = self._table.storage
        markers = direct.listed(storage, self.instant)
        self.reconciled = True
        remove_uncounted(storage, markers, files_to_delete(markers, stats))
        reached(Step.RECONCILED)
        return markers

    def _prepare(
        self, stats: Sequence[WriteStat], schema: TableSchema | None, replaced: Mapping[str, Sequence[str]] | None
    ) -> Commit:
        concurrency = self._table.settings.concurrency
        draft = PendingCommit.of(
            self._touched.footprint.wrote(stats, replaced, in_buckets=self.baseline.properties.bucket_index is not None),
            stats,
            (replaced or {}) if self.baseline.action == Action.REPLACE_COMMIT.value else None,
            self.schema if schema is None or schema == self.schema else schema,
            {
                keys.TAG: self._tag,
                keys.SAW: self.baseline.timeline.newest_completion,
                keys.KEPT: str(self.redo.kept or ""),
                **self.extra,
            },
        )
        return Commit(
            self._table,
            self.baseline,
            draft,
            self._deciding(draft),
            schema=self.schema,
            isolation=Isolation(self._file_before, self._statistics_before, Level(concurrency.isolation), self.schema),
            ensure_alive=self.check_alive,
            reserved=self.reserved,
            took_s=self.took_s,
            phases=self.phases,
        )

    def _deciding(self, draft: PendingCommit) -> Deciding:
        return Deciding(self._table, self.baseline, draft, self._decision)

    def _file_before(self, group: FileGroupId) -> DataFile | None:
        return self.snapshot().group(group)

    def _statistics_before(self, file: DataFile) -> FileStatistics | None:
        return self.snapshot().stats_of(file)

    def _rejection(self, conflict: Conflict, hint: str = "") -> ConflictError:
        return rejection(self._table.settings.concurrency, conflict, read=bool(self._touched.reads), hint=hint)

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
        evidence = reason.splitlines()[0] if reason else "aborted"
        claims = self._touched.announced.own_claims(disturbed=disturbed)
        target = RollbackTarget(self.instant, Action(self.baseline.action), self.operation, evidence, claims)
        self.state = withdraw(self._table, target, self._decision, disturbed=disturbed, lost=self._lost)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state is TransactionState.OPEN:
            self.abort("" if error is None else str(error) or type(error).__name__)

    def _ensure_open(self) -> None:
        if self.state is not TransactionState.OPEN:
            raise TransactionStateError(
                f"{self.operation} {self.instant} is {self.state.value}; it cannot be used any more",
                hint="begin a new transaction",
            )

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

    def _tell(self, kind: EventKind, conflict: Conflict) -> None:
        own = self.reserved.own
        reserved = own is not None and own.covers_all(self.places())
        self._emit(kind, rule=str(conflict.rule), other=str(conflict.other), over=conflict.overlap, reserved=reserved)

    def _emit(self, kind: EventKind, **facts: object) -> None:
        self._table.emit(kind, self.instant, self.operation, **facts)
