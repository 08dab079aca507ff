"""One table, open for transactions: the entry to the engine for the Spark plugin, the command line and the simulator.

`TableServices` are what a table needs besides transactions: cleaning, archiving, savepoints, its name in a catalog, and the
record of its lock and profile. `AppliedVersions` says which version of its own numbering each application has committed: what
makes a replayed write harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import TypeVar, overload

import pyarrow as pa

from lakelock.catalogs import Synced
from lakelock.clock import Runtime, SystemRuntime
from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.errors import RolledBackError, StorageError
from lakelock.events import Events, Listener
from lakelock.identity import WriterIdentity
from lakelock.markers.heartbeat import Heartbeat
from lakelock.occ import commit_keys as keys
from lakelock.occ import reading
from lakelock.occ.archive import Archived, archive
from lakelock.occ.begin import Baseline, Detached, begin, give_up
from lakelock.occ.change_feed import ensure_kept
from lakelock.occ.claims import end_dead
from lakelock.occ.clean import Cleaned, clean
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import CountedStorage
from lakelock.occ.create import ensure_writable, settle_index, with_index
from lakelock.occ.data_locking import DataLocking, refuse_nested
from lakelock.occ.ending import OwnDecision, TransactionState, withdraw
from lakelock.occ.footprint import OVERWRITES, CommitSummary, writer_of
from lakelock.occ.foreign import (
    LookBack,
    ensure_readable,
    refuse_second_writer,
    rolled_back_commits,
    undone_commits,
    undone_error,
)
from lakelock.occ.history import HistoryEntry, Outcome, WhyRejected, history, outcome_of, read_summary, why_rejected
from lakelock.occ.live_logs import slices_at
from lakelock.occ.log import DecisionLog
from lakelock.occ.open_table import OpenTable
from lakelock.occ.reading import QueryType, ReadView, with_log_files
from lakelock.occ.recorded_lock import ensure_recorded, require_profile
from lakelock.occ.recovery import Reaped, collect, collect_outcomes, reap, sweep
from lakelock.occ.rejections import forget_rejections
from lakelock.occ.request import WriteRequest
from lakelock.occ.retention import Budget, Progress
from lakelock.occ.rollback import RollbackTarget
from lakelock.occ.rules import ensure_not_weaker, rejection
from lakelock.occ.savepoints import Savepoint, delete_savepoint, list_savepoints, take_savepoint
from lakelock.occ.schema import SchemaHistory
from lakelock.occ.transaction import Transaction
from lakelock.occ.upkeep import Upkept, register, upkeep
from lakelock.providers import open_provider
from lakelock.settings import CleanSettings, Settings
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.table.archive import archive_keys, archived_writes
from lakelock.table.change_feed import Changes
from lakelock.table.commit_metadata import CommitMetadata
from lakelock.table.eligibility import check_files, check_readable, require_slices
from lakelock.table.instants import Action, Instant, as_of_time
from lakelock.table.layout_one import shown_as_layout_two
from lakelock.table.properties import TableProperties, read_properties
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import Snapshot
from lakelock.table.timeline import Timeline


class TableServices:
    """The services of one open table."""

    def __init__(self, table: OpenTable, properties: TableProperties) -> None:
        self.table, self.properties = table, properties

    def reap(self, *, patient: bool = False) -> list[Reaped]:
        """Finish or remove what dead writers left, including files that arrived after their writer had died.

        `patient`, as at the beginning of each transaction: another engine's dead writers are left to that engine for a while,
        and every writer until it is dead by this process's own limit, even if its own limit is shorter.
        """
        reaped = reap(self.table, patient=patient)
        sweep(self.table)
        end_dead(self.table)
        return reaped

    def collect(self) -> int:
        """Delete decisions that are no longer needed; how many."""
        return collect(self.table)

    def checkpoint(self) -> int | None:
        """Write a checkpoint of the file index now; its number, None if the newest one has every commit."""
        return self.table.checkpoint(at_once=True)

    def upkeep(self, *, dry_run: bool = False, progress: Progress | None = None) -> Upkept:
        """Finish the dead, clean, archive and collect, for at most `upkeep.budget_s`; what is left, the next run does."""
        self.ensure_same_provider(record=not dry_run)
        return upkeep(self.table, dry_run=dry_run, progress=progress)

    def clean(self, *, dry_run: bool = False, progress: Progress | None = None, asked: CleanSettings | None = None) -> Cleaned:
        """Delete the files that the settings `clean.*` do not keep, for at most `upkeep.budget_s`.

        `asked` takes the place of the settings: `InputError` if a file that it would delete is still needed.
        """
        self.ensure_same_provider(record=not dry_run)
        return clean(self.table, self._budget(progress), dry_run=dry_run, asked=asked)

    def archive(self, *, dry_run: bool = False, progress: Progress | None = None) -> Archived:
        """Move the oldest instants from the timeline to its history, for at most `upkeep.budget_s`."""
        self.ensure_same_provider(record=not dry_run)
        return archive(self.table, self._budget(progress), dry_run=dry_run)

    def register(self, name: str = "") -> Synced:
        """Tell the catalog of the table now; later commits through this object tell it, too. See `naming.sync_catalog`."""
        return register(self.table, name)

    def savepoint(self, name: str, as_of: str | None = None) -> Savepoint:
        """Keep the table as of its newest commit, or of the commit `as_of`, until the savepoint is deleted."""
        self.ensure_same_provider()
        return take_savepoint(self.table, name, as_of)

    def savepoints(self) -> list[Savepoint]:
        """The savepoints, oldest commit first."""
        return list_savepoints(self.table)

    def delete_savepoint(self, name: str) -> Savepoint:
        """Delete a savepoint, given by its name or its instant. Cleaning may then delete its files."""
        self.ensure_same_provider()
        return delete_savepoint(self.table, name)

    def _budget(self, progress: Progress | None) -> Budget:
        return Budget.of(self.table.runtime, self.table.settings.upkeep.budget_s, progress)

    def ensure_same_provider(self, *, record: bool = True) -> None:
        """Record which lock guards the table, or raise `ProviderMismatch` if it is guarded by another.

        Without `record` a table that has no lock recorded yet is left as it is. `TableError` for a table that must not be
        written, unless it was mended since it was opened.
        """
        table = self.table
        if table.provider is None or table.observed.same_lock:
            return
        self.properties = ensure_writable(table, self.properties, record=record)
        guard = ensure_recorded(table.storage, table.provider, table.runtime.uuid(), record=record)
        if guard is not None:
            ensure_not_weaker(table.settings.concurrency, guard.profile, guard.isolation, table.storage.uri)
            table.observed.same_lock = True

    def require_profile(self, profile: str, isolation: str = "") -> None:
        """Refuse writers with a weaker profile from now on; an empty `profile` admits all. Open writers keep theirs.

        `StorageError` if another process changes the record at the same time.
        """
        table = self.table
        if table.provider is not None:
            ensure_recorded(table.storage, table.provider, table.runtime.uuid())
        if not require_profile(table.storage, profile, isolation):
            raise StorageError(
                f"the record of {table.storage.uri} changed meanwhile, or no writer has made one", hint="run it again"
            )


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
        self._look_back = LookBack(table)
        self._swept = False
        self._opened_ms, self._first_schema = table.runtime.now_ms(), None  # type: int, TableSchema | None
        self.last_seen: tuple[TableSchema, TableProperties] | None = None
        """The schema and the properties at the baseline of this object's newest transaction."""

    @classmethod
    def open(
        cls,
        location: StorageLocation,
        settings: Settings | None = None,
        *,
        runtime: Runtime | None = None,
        application: str = "",
        run: str = "",
        listeners: Sequence[Listener] = (),
        storage: Storage | None = None,
        neighbours: Callable[[str], Storage] | None = None,
    ) -> Coordinator:
        """Open an existing table. `TableError` when there is none; `ProviderMismatch` when another lock guards it.

        A table that must not be written opens for reading; `begin` says why it refuses. `neighbours` opens the storage of
        other tables, which transactions over several tables name by their URIs; by default with the options of `location`.
        `application` and `run` are those of `WriterIdentity`.
        """
        settings, runtime = settings or Settings(), runtime or SystemRuntime()
        for_locks = storage or location.open(within_s=settings.lock.answer_s, holds_table=True)
        storage = storage or location.open()
        properties = read_properties(storage)
        check_readable(properties)
        storage = shown_as_layout_two(storage, properties)
        writer = WriterIdentity.of_this_process(runtime, application, run)
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
        plain = Action.DELTA_COMMIT if self.properties.is_merge_on_read else Action.COMMIT
        action = Action.REPLACE_COMMIT if replaces else plain
        baseline, heartbeat, announced = begin(self.table, operation, action, new_group)
        try:
            mine = Party(baseline.instant, operation, self.table.writer)
            self._applied.ensure_new(application, baseline.timeline, mine)
            schema = self._schemas.at(baseline.timeline, baseline.properties)
            self._first_schema = self._first_schema or schema
            self.last_seen, self.properties = (schema, baseline.properties), baseline.properties
            if self.table.observed.foreign_buckets and baseline.properties.bucket_index is None:
                # An append looks at no file, and would put its rows outside the buckets.
                check_files(baseline.properties, self.table.index.snapshot_at(baseline.timeline))
            if self.table.provider is None or self.table.observed.same_lock:
                self._sweep(baseline, heartbeat)
            self._look_back.look(baseline.timeline, mine)
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

    def _sweep(self, baseline: Baseline, heartbeat: Heartbeat) -> None:
        """Reap when the baseline shows that others are pending, and once in the life of this object; collect when due."""
        others = [i for i in baseline.timeline.pending if i.requested != baseline.instant]
        unfinished = any(not r.is_completed for r in baseline.timeline.rollbacks)
        if others or unfinished or not self._swept:
            reap(self.table, baseline.timeline, heartbeat)
            self._swept = True
        if baseline.first - self.table.log.known_boundary > self.table.settings.decisions.collect_above:
            collect(self.table)
            collect_outcomes(self.table)
            sweep(self.table)
            end_dead(self.table)
            forget_rejections(self.table.storage, self.table.runtime)

    @property
    def is_crowded(self) -> bool:
        """Whether this object has met other writers at the lock of late."""
        return self.last_seen is not None and self.table.runtime.monotonic_s() < self.table.observed.crowded_until_s

    def applied_by(self, application: AppTransaction) -> Party | None:
        """The commit by which this application has applied this version or a later one; None if it has not."""
        return self._applied.applied_by(application, self.table.timeline())

    def snapshot(self, as_of: str | None = None) -> Snapshot:
        """The file slices visible now, or as of an instant; `InputError` when files of that time were cleaned."""
        return self._seen(as_of)[0]

    def shown(self, as_of: str | None = None, query_type: QueryType = "snapshot") -> ReadView:
        """The same, with the columns to read them in: those of now, or those of then once others have replaced them.

        Of a merge-on-read table the log files, too, unless the query is `read_optimized`. `CorruptTableError` if another engine
        has removed files of a commit.
        """
        snapshot, timeline = self._seen(as_of)
        found = ReadView(snapshot, self.schema(as_of, timeline=timeline))
        if as_of is None:
            ensure_readable(self.table, snapshot, timeline)
        if query_type == "read_optimized" or not self.properties.is_merge_on_read:
            return found
        return with_log_files(self.table, self.properties, found, timeline, as_of)

    def state_at(self, timeline: Timeline) -> tuple[Snapshot, TableSchema]:
        """The file slices and the schema that a timeline shows; `SnapshotTooOld` if a cleaner was faster.

        `TableError` for a merge-on-read table whose slices with log files cannot be taken for base files.
        """
        require_slices(self.properties, "a snapshot of several tables")
        return slices_at(self.table, timeline), self._schemas.at(timeline, self.properties)

    def shown_at(self, timeline: Timeline, schema: TableSchema | None = None) -> ReadView:
        """What readers see at a timeline, with log files merged, in the columns of that time or of a `schema`."""
        found = ReadView(self.table.index.snapshot_at(timeline), schema or self._schemas.at(timeline, self.properties))
        merges = self.properties.is_merge_on_read
        return with_log_files(self.table, self.properties, found, timeline) if merges else found

    def changed_slices(self, timeline: Timeline, changes: Changes, schema: TableSchema) -> ReadView:
        """The slices of a merge-on-read table in which rows changed, as they were after the last of these changes."""
        shown = self.shown_at(timeline.before(changes.later), schema)
        if changes.later:
            ensure_kept(self.table, self.table.timeline(), changes.later)
        plain = Snapshot(file for file in shown.snapshot.files if file.group in changes.written)
        return replace(shown, snapshot=plain, logged=tuple(s for s in shown.logged if s.as_file.group in changes.written))

    def _seen(self, as_of: str | None) -> tuple[Snapshot, Timeline]:
        return self.table.shown_now() if as_of is None else reading.as_of(self.table, as_of)

    def schema(self, as_of: str | None = None, *, timeline: Timeline | None = None) -> TableSchema:
        """The table's schema now; with `as_of` that in which the state of an instant is shown, see `SchemaHistory.as_of`."""
        timeline = timeline or self.table.timeline()
        if as_of is None:
            return self._schemas.at(timeline, self.properties)
        return self._schemas.as_of(timeline, self.properties, as_of)

    def known_schemas(self, tx: Transaction | None = None) -> Iterator[pa.Schema]:
        """Each schema that the user of this object can know, with the columns that its own writes have added.

        These are the schema of its first transaction, and the one when it was opened. The latter is found by the baseline of
        `tx`, or else by the table's timeline.
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
        """Count the present columns as known to the user of this object, who has just changed them."""
        self._opened_ms, self._first_schema = self.table.runtime.now_ms(), None

    def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The newest commits, newest first."""
        return history(self.table, limit)

    def outcome(self, instant: str) -> Outcome:
        """What became of an instant; publishes it if it was decided and is not visible yet."""
        return outcome_of(self.table, instant)

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


@dataclass(frozen=True)
class _Applied:
    """The newest commit of one application in one file of the archive."""

    application: AppTransaction
    party: Party


class AppliedVersions:
    """Which version of its writes each application has committed last.

    The file index has the newest commit of every application. Without an index, commits are read from the newest back until one
    of the application is found, then the archive. No commit or archive file is read twice.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._read: dict[str, tuple[AppTransaction, Party] | None] = {}
        self._archived: dict[str, dict[str, _Applied]] = {}

    def applied_by(self, application: AppTransaction, timeline: Timeline) -> Party | None:
        """The commit of this version or of a later one of the same application; None if there is none.

        The file index has the newest commit of each application. Without it the newest commits are read first: most
        applications are in one of them, a new one is in none. So each round reads twice as many as the one before, up to
        `listing.parallel_requests`, in parallel. An application that the active timeline does not show costs a listing of the
        archive, and a read of each of its files that this process has not read yet.
        """
        state = self._table.index.state_at(timeline)
        if state is not None:
            applied = state.applications.get(application.app_id)
            if applied is None or applied.version < application.version:
                return None
            if applied.version == application.version and self._is_taken_out(applied.instant, timeline):
                return None
            return Party(applied.instant, applied.operation, writer_of(applied.writer), applied.completion)
        commits = sorted(timeline.commits, key=lambda i: i.completion or "", reverse=True)
        at, width = 0, 1
        while at < len(commits):
            for found in self._applications(commits[at : at + width]):
                if found is not None and found[0].app_id == application.app_id:
                    undone = found[0].version == application.version and self._is_taken_out(found[1].instant, timeline)
                    return found[1] if found[0].version >= application.version and not undone else None
            at, width = at + width, min(2 * width, self._table.parallel_requests)
        archived = self._in_archive(application.app_id)
        return archived.party if archived is not None and archived.application.version >= application.version else None

    def _is_taken_out(self, instant: str, timeline: Timeline) -> bool:
        """Whether another engine has undone the commit, and it is out of the table: then its rows may be written again.

        `CommitUndone` if it is undone and not taken out. Reads the rollbacks since: a version is rarely asked for twice.
        """
        table = self._table
        if instant not in rolled_back_commits(table, timeline, since=instant):
            return False
        found = next((each for each in undone_commits(table, timeline) if each.instant == instant and each.gone), None)
        if found is not None and any(file.instant == instant for file in table.index.snapshot_at(timeline).files):
            raise undone_error(table, found)
        return found is not None

    def _in_archive(self, app_id: str) -> _Applied | None:
        """The newest archived commit of the application."""
        unread = archive_keys(self._table.storage) - self._archived.keys()
        if unread:
            for key, writes in archived_writes(self._table.storage, holding=keys.APPLICATION.encode(), only=unread):
                newest = self._archived.setdefault(key, {})
                for write in sorted(writes, key=lambda w: w.completion):
                    metadata = CommitMetadata.from_bytes(write.data, write.requested)
                    found = _application(CommitSummary.of(write.requested, write.completion, metadata, None))
                    if found is not None:
                        newest[found[0].app_id] = _Applied(*found)
        candidates = [file[app_id] for file in self._archived.values() if app_id in file]
        return max(candidates, key=lambda each: each.party.completion or "", default=None)

    def _applications(self, commits: Sequence[Instant]) -> list[tuple[AppTransaction, Party] | None]:
        unread = [instant for instant in commits if instant.requested not in self._read]
        reads = [partial(self._application_of, instant) for instant in unread]
        found = self._table.io.gather(reads)
        self._read.update(zip((instant.requested for instant in unread), found, strict=True))
        return [self._read[instant.requested] for instant in commits]

    def _application_of(self, instant: Instant) -> tuple[AppTransaction, Party] | None:
        return _application(read_summary(self._table.storage, instant))

    def ensure_new(self, application: AppTransaction | None, timeline: Timeline, mine: Party) -> None:
        """Raise `ConflictError` if a commit of the timeline has applied this version, or a later one.

        Give the timeline of a transaction's baseline: commits that are decided later are covered by the conflict rule.
        """
        other = None if application is None else self.applied_by(application, timeline)
        if application is None or other is None:
            return
        conflict = Conflict.over(
            ConflictRule.APPLICATION_TRANSACTION,
            mine,
            other,
            [str(application)],
            detail="the application has already applied this version",
        )
        raise rejection(self._table.settings.concurrency, replace(conflict, retry_helps=False))


def _application(other: CommitSummary) -> tuple[AppTransaction, Party] | None:
    return None if other.application is None else (other.application, other.party)
