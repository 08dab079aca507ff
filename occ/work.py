"""The work of a transaction before its end: what it reads, what it announces, and what executors need to write its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

from lakelock.conflict import Conflict, Party
from lakelock.data_locks import Resource
from lakelock.errors import ConflictError, LakelockError, TransactionStateError
from lakelock.events import EventKind
from lakelock.markers.announcing import Announced
from lakelock.markers.heartbeat import Heartbeat
from lakelock.occ.baseline import Baseline
from lakelock.occ.certainty import OwnDecision
from lakelock.occ.claiming import claim
from lakelock.occ.conflicts.profiles import rejection
from lakelock.occ.conflicts.reads import Read
from lakelock.occ.detached import Detached
from lakelock.occ.open_table import OpenTable
from lakelock.occ.own_writes import OwnWrites
from lakelock.occ.phases import Phase, Phases
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.recovery.ending import TransactionState
from lakelock.occ.redo import Redo
from lakelock.occ.reserving.waiting import OthersReservations
from lakelock.occ.touched import Touched
from lakelock.occ.write_context import WriteContext
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.eligibility import check_files
from lakelock.table.layout import FileGroupId
from lakelock.table.rows import added
from lakelock.table.schema import TableSchema
from lakelock.table.schema_changes import require_same_text
from lakelock.table.snapshot import Snapshot


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
        self._touched = Touched(baseline, self.party, application)
        self._snapshot: Snapshot | None = None
        self.own = OwnWrites()
        self._added_to: TableSchema | None = None
        self._current: Snapshot | None = None
        self.task_numbers = count()
        """For tasks in this process: no two of a transaction have the same, or they could write the same file."""
        self._began_s = table.runtime.monotonic_s()
        self.phases = Phases(table.runtime)
        """Where its time goes."""
        self._writing = False
        self._decision = own or OwnDecision()
        self._lost: BaseException | None = None
        self.end_reason = ""
        """Why it was withdrawn, once it was."""
        self.extra: dict[str, str] = {}
        """What else the commit's extra metadata says, for people."""
        self.redo = Redo()
        self._announced = announced
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
            snapshot = self._table.index.snapshot_at(self.baseline.timeline)
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

        So for the `new_buckets` that have no file group yet and will get one, by `lakelock.table.index.bucket_group`.

        One conditional write per group, in parallel, then one look at what was decided since the baseline: a writer that
        finished meanwhile has removed its claims, but its decision is in the log.
        With `leave_held` (a service) groups that others hold are left to them; `claimed` says what is left to do.
        `always`: those of the groups that are claimed also where `concurrency.early_conflict_detection` is off.
        """
        self._ensure_open()
        self.check_alive()
        conflict = claim(
            self._table, self.baseline, self._touched, self.reserved, self._heartbeat,
            groups, new_buckets, leave_held=leave_held, always=always,
        )  # fmt: skip
        if conflict is not None:
            error = self._rejection(conflict)
            self._tell(EventKind.EARLY_CONFLICT, error.conflict)
            self._lost = error
            raise error

    def take_announced(self, partition: str) -> Announced | None:
        """The new file in this partition that was announced at the beginning, for whoever asks first; None if there is none."""
        announced, self._announced = self._announced, None
        return announced if announced is not None and announced.file.partition == partition else None

    @property
    def claimed(self) -> frozenset[FileGroupId]:
        """The file groups that are announced as this transaction's."""
        return self._touched.announced.claimed

    def write_context(self, schema: TableSchema | None = None) -> WriteContext:
        """What executors need to write files of this transaction; picklable.

        `SchemaError` if the `schema`, the table's after this transaction, spells stored keys or partitions otherwise.
        """
        self._ensure_open()
        require_same_text(self.schema, schema or self.schema, self.baseline.properties)
        if schema is not None and schema != self.schema:
            # Whoever writes with this schema knows what it adds, also in later writes and if this one is rejected.
            self._table.observed.brought(added(schema.arrow, self.schema.arrow))
        if not self._writing:
            self._writing = True
            self._emit(EventKind.WRITING)
        own = self.own.files(self.snapshot()) if self.own.stats else ()
        return WriteContext.of(self._table, self.baseline, schema or self.schema, own)

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
