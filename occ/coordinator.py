"""One table, open for transactions: the entry to the engine for the Spark plugin, the command line and the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import TypeVar, overload

import pyarrow as pa

from lakelock.clock import Runtime, SystemRuntime
from lakelock.conflict import PairExplanation, Party
from lakelock.errors import RolledBackError, StorageError
from lakelock.events import Events, Listener
from lakelock.identity import WriterIdentity
from lakelock.markers.heartbeat import Heartbeat
from lakelock.occ import shown
from lakelock.occ.applications import AppliedVersions
from lakelock.occ.baseline import Baseline, begin, give_up
from lakelock.occ.certainty import OwnDecision
from lakelock.occ.committing.schemas import SchemaHistory
from lakelock.occ.conflicts.explaining import TableNow, explain_pair
from lakelock.occ.conflicts.footprint import OVERWRITES
from lakelock.occ.detached import Detached
from lakelock.occ.foreign.overlaps import LookBack
from lakelock.occ.foreign.single_writer import refuse_second_writer
from lakelock.occ.foreign.undone import ensure_readable
from lakelock.occ.locking.data_locking import DataLocking
from lakelock.occ.locking.nesting import refuse_nested
from lakelock.occ.merging_logs import with_log_files
from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.history import HistoryEntry, Outcome, history, outcome_of
from lakelock.occ.outcomes.rejected import WhyRejected, why_rejected
from lakelock.occ.recorded_index import settle_index, with_index
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.records.decisions import DecisionLog
from lakelock.occ.records.rejections import forget_rejections
from lakelock.occ.recovery.ending import TransactionState, withdraw
from lakelock.occ.recovery.outcomes import collect_outcomes
from lakelock.occ.recovery.reaper import collect, reap, sweep
from lakelock.occ.recovery.rollback import RollbackTarget
from lakelock.occ.request import WriteRequest
from lakelock.occ.reserving.waiting import end_dead
from lakelock.occ.shown import QueryType, Shown
from lakelock.occ.table_services import TableServices
from lakelock.occ.transaction import Transaction
from lakelock.providers import open_provider
from lakelock.settings import Settings
from lakelock.storage import Storage
from lakelock.storage.counted import CountedStorage
from lakelock.storage.location import StorageLocation
from lakelock.table.eligibility import check_files, check_readable, require_copy_on_write
from lakelock.table.instants import Action, as_of_time
from lakelock.table.layout_one import shown_as_layout_two
from lakelock.table.properties import TableProperties, read_properties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline

T = TypeVar("T", bound=Transaction)


class Coordinator(TableServices):
    """Begins transactions on one table, reads its snapshots, and removes what dead writers left.

    Cheap to keep open, safe to use from several threads; a forked child must open its own, and one that uses object storage
    must be spawned. `close()` releases the lock service's connection.
    """

    def __init__(self, table: OpenTable, properties: TableProperties) -> None:
        super().__init__(table, properties)
        self.data = DataLocking(table)
        self._schemas = SchemaHistory(table)
        self._applied = AppliedVersions(table)
        self._late = LookBack(table)
        self._swept = False
        self._opened_ms, self._first_schema = table.runtime.now_ms(), None  # type: int, TableSchema | None

    @classmethod
    def open(
        cls,
        location: StorageLocation,
        settings: Settings | None = None,
        *,
        runtime: Runtime | None = None,
        application: str = "",
        listeners: Sequence[Listener] = (),
        storage: Storage | None = None,
        neighbours: Callable[[str], Storage] | None = None,
    ) -> Coordinator:
        """Open an existing table. `TableError` when there is none; `ProviderMismatch` when another lock guards it.

        A table that must not be written opens for reading; `begin` says why it refuses. `neighbours` opens the storage of
        other tables, which transactions over several tables name by their URIs; by default with the options of `location`.
        """
        settings, runtime = settings or Settings(), runtime or SystemRuntime()
        for_locks = storage or location.open(within_s=settings.lock.answer_s, holds_table=True)
        storage = storage or location.open()
        properties = read_properties(storage)
        check_readable(properties)
        storage = shown_as_layout_two(storage, properties)
        writer = WriterIdentity.of_this_process(runtime, application)
        events = Events(tuple(listeners))
        single = settings.concurrency.mode == "SINGLE_WRITER"
        provider = None if single else open_provider(settings, for_locks, runtime, writer, events)
        counted = CountedStorage(storage)
        log = DecisionLog(counted, runtime, parallel=settings.listing.parallel_requests)
        table = OpenTable(location, counted, runtime, settings, provider, writer, events, log, neighbours, for_locks)
        table.observed.opened_as = properties
        with suppress(StorageError):  # a reader needs no index, and a writer asks again
            properties = with_index(table, properties)
        return cls(table, properties)

    @overload
    def begin(self, request: WriteRequest | str) -> Transaction: ...

    @overload
    def begin(self, request: WriteRequest | str, kind: type[T], own: OwnDecision | None = None) -> T: ...

    def begin(
        self, request: WriteRequest | str, kind: type[Transaction] = Transaction, own: OwnDecision | None = None
    ) -> Transaction:
        """Begin a transaction, of this `kind`, for a request or for the mere name of an operation.

        `ConflictError` (rule application-transaction) if the request's application has committed this version, or a later one.
        Also finishes or removes what dead writers left; a table that must not be written raises `TableError`. `own`: what is
        known of the decision, if the transaction shares it with those of other tables.
        """
        request = WriteRequest.of(request)
        operation, application, new_group = request.operation, request.application, request.new_group
        refuse_nested(operation, self.table.storage.uri)
        self.ensure_same_provider(record=request.records_lock)
        settle_index(self.table)
        replaces = operation in OVERWRITES if request.overwrites is None else request.overwrites
        action = Action.REPLACE_COMMIT if replaces else Action.COMMIT
        baseline, heartbeat, announced = begin(self.table, operation, action, new_group)
        try:
            mine = Party(baseline.instant, operation, self.table.writer)
            self._applied.ensure_new(application, baseline.timeline, mine)
            schema = self._schemas.at(baseline.timeline, baseline.properties)
            self._first_schema = self._first_schema or schema
            if self.table.observed.foreign_buckets and baseline.properties.bucket_index is None:
                # An append looks at no file, and would put its rows beside the buckets.
                check_files(baseline.properties, self.table.index.snapshot_at(baseline.timeline))
            if self.table.provider is None or self.table.observed.same_lock:
                self._sweep(baseline)
            self._late.look(baseline.timeline, mine)
            if self.table.provider is None:
                refuse_second_writer(self.table, baseline.timeline, baseline.instant)
        except BaseException:
            give_up(self.table, heartbeat, baseline.instant, action, new_group)
            raise
        return kind(self.table, baseline, heartbeat, schema, application, request.tag, own, announced)

    def adopt(self, detached: Detached) -> Transaction:
        """Continue a transaction that another process of the same job began. `RolledBackError` when it is lost.

        It may name an application that `begin` was not given. If that has applied this version already, the transaction is
        withdrawn and this raises `ConflictError`.
        """
        tx = self._resumed(detached)
        if tx is None:
            raise RolledBackError(
                f"{detached.baseline.instant}: no process of this job kept its heartbeat up, so it was given up",
                hint="run the operation again; if tasks have to wait long to be started, raise heartbeat.interval_s",
                instant=detached.baseline.instant,
            )
        try:
            self._applied.ensure_new(detached.application, detached.baseline.timeline, tx.party)
        except BaseException as error:
            tx.abort(str(error))
            raise
        return tx

    def abandon(self, detached: Detached, reason: str) -> TransactionState:
        """Withdraw a transaction that another process of the same job began; COMMITTED if it was committed after all.

        What it cannot remove now, the next writer removes. If its heartbeat was lost, others may have removed its markers
        while its tasks still wrote: then the whole table is searched for its files.
        """
        tx = self._resumed(detached)
        if tx is not None:
            tx.abort(reason)
            return tx.state
        baseline, operation = detached.baseline, detached.heartbeat.operation
        target = RollbackTarget(baseline.instant, Action(baseline.action), operation, reason)
        return withdraw(self.table, target, OwnDecision(adopted=True), disturbed=True)

    def _resumed(self, detached: Detached) -> Transaction | None:
        """The transaction in this process; None if its heartbeat is lost."""
        heartbeat = Heartbeat.resume(self.table.storage, detached.heartbeat, self.table.runtime)
        if heartbeat is None:
            return None
        kept = (detached.schema, detached.application, detached.tag)
        return Transaction(self.table, detached.baseline, heartbeat, *kept, OwnDecision(adopted=True))

    def _sweep(self, baseline: Baseline) -> None:
        """Reap when the baseline shows that others are pending, and once in the life of this object; collect when due."""
        others = [i for i in baseline.timeline.pending if i.requested != baseline.instant]
        unfinished = any(not r.is_completed for r in baseline.timeline.rollbacks)
        if others or unfinished or not self._swept:
            reap(self.table, baseline.timeline, baseline.instant)
            self._swept = True
        if baseline.first - self.table.log.known_boundary > self.table.settings.decisions.collect_above:
            collect(self.table)
            collect_outcomes(self.table)
            sweep(self.table)
            end_dead(self.table)
            forget_rejections(self.table.storage, self.table.runtime)

    def applied_by(self, application: AppTransaction) -> Party | None:
        """The commit by which this application has applied this version or a later one; None if it has not."""
        return self._applied.applied_by(application, self.table.timeline())

    def snapshot(self, as_of: str | None = None) -> Snapshot:
        """The file slices visible now, or as of an instant; `InputError` when files of that time were cleaned."""
        return self._seen(as_of)[0]

    def shown(self, as_of: str | None = None, query_type: QueryType = "snapshot") -> Shown:
        """The same, with the columns to read them in: those of now, or those of then once others have replaced them.

        Of a merge-on-read table the log files, too, unless the query is `read_optimized`. `CorruptTableError` if another engine
        has removed files of a commit.
        """
        snapshot, timeline = self._seen(as_of)
        found = Shown(snapshot, self.schema(as_of, timeline=timeline))
        if as_of is None:
            ensure_readable(self.table, snapshot, timeline)
        if query_type == "read_optimized" or not self.properties.is_merge_on_read:
            return found
        return with_log_files(self.table, self.properties, found, timeline if as_of is None else timeline.as_of(as_of))

    def state_at(self, timeline: Timeline) -> tuple[Snapshot, TableSchema]:
        """The file slices and the schema that a timeline shows; `SnapshotTooOld` if a cleaner was faster.

        `TableError` for a merge-on-read table, of which this would be but the base files.
        """
        require_copy_on_write(self.properties, "a snapshot of several tables")
        return self.table.index.snapshot_at(timeline), self._schemas.at(timeline, self.properties)

    def _seen(self, as_of: str | None) -> tuple[Snapshot, Timeline]:
        return self.table.shown_now() if as_of is None else shown.as_of(self.table, as_of)

    def schema(self, as_of: str | None = None, *, timeline: Timeline | None = None) -> TableSchema:
        """The table's schema now; with `as_of` that in which the state of an instant is shown, see `SchemaHistory.as_of`."""
        timeline = timeline or self.table.timeline()
        if as_of is None:
            return self._schemas.at(timeline, self.properties)
        return self._schemas.as_of(timeline, self.properties, as_of)

    def known_schemas(self, tx: Transaction | None = None) -> Iterator[pa.Schema]:
        """The columns that whoever opened this can know: those of its first transaction, or those when it was opened, and in
        either case those that its own writes added.

        `tx`: the transaction whose baseline tells them; without one the table is looked at.
        """
        own = self.table.observed.own_columns
        if self._first_schema is not None:
            yield pa.schema([*self._first_schema.arrow, *own])
        opened = datetime.fromtimestamp(self._opened_ms / 1000, timezone.utc).isoformat()
        timeline, properties = self.table.timeline() if tx is None else tx.baseline.timeline, self.properties
        found = self._schemas.before(timeline, properties, as_of_time(opened, properties.timezone))
        if found is not None:
            yield pa.schema([*found.arrow, *own])

    def know_columns(self) -> None:
        """Whoever opened this knows the columns that the table has now: it has changed them."""
        self._opened_ms, self._first_schema = self.table.runtime.now_ms(), None

    def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The newest commits, newest first."""
        return history(self.table, limit)

    def outcome(self, instant: str) -> Outcome:
        """What became of an instant; publishes it if it was decided and nobody did yet."""
        return outcome_of(self.table, instant)

    def explain_conflict(self, mine: str, other: str) -> PairExplanation:
        """What would become of `mine`, such as `DELETE month=1`, beside `other`: another such text, or a commit's instant.

        Reads only. `InputError` for a text that is neither.
        """
        table = self.table
        timeline = table.timeline()
        schema = self._schemas.at(timeline, self.properties).arrow
        before = partial(self._schemas.before, timeline, self.properties)
        now = TableNow(table.storage, timeline, self.snapshot(), schema, self.properties, before)
        return explain_pair(now, table.settings.concurrency, mine, other)

    def why_rejected(self, instant: str) -> WhyRejected:
        """Why an instant was rejected and whom it met, as far as a record is left. Reads only."""
        return why_rejected(self.table, instant)

    def close(self) -> None:
        """Close the connection to the lock service. Never raises."""
        self.data.close()
        if self.table.provider is not None:
            self.table.provider.close()

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
