"""Data locks of one open table: what an operation takes, and holding it while the operation runs.

Safety never rests on these locks. They keep others from starting what would collide; the commit is validated all the same,
so a write whose lease was lost goes on, is committed if nothing collided, and rejected if something did.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from lakelock.data_locks import DataLease, DataLocks, LockRequest, Resource, open_data_locks
from lakelock.data_locks.operations import Operation, covers, locks_of, operation_named
from lakelock.errors import InputError
from lakelock.events import Event, EventKind, Events
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recorded_lock import compare_locks, recorded_provider
from lakelock.occ.targets import within
from lakelock.providers import renewing
from lakelock.table.snapshot import read_snapshot

_held: ContextVar[tuple[tuple[str, LockRequest, DataLease], ...]] = ContextVar("data_locks_held", default=())
"""What the blocks hold in which this thread is: the table's URI, the request and its lease."""


class DataLocking:
    """The data locks that a table's operations take. Opened at the first use, closed with the table."""

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self._mutex = table.runtime.mutex()
        self._opened: DataLocks | None = None

    @property
    def locks(self) -> DataLocks:
        """The service, opened once; also in a mode that takes no locks, for those who only look."""
        table = self._table
        with self._mutex:
            if self._opened is None:
                self._opened = open_data_locks(table.settings, table.storage, table.runtime, table.writer, table.events)
            return self._opened

    @property
    def for_writes(self) -> bool:
        """Whether writes take data locks."""
        return self._table.settings.concurrency.mode == "PESSIMISTIC"

    def request(self, operation: Operation | str, targets: tuple[Resource, ...] = (), *, about: str = "") -> LockRequest:
        """What the operation would lock; takes nothing. A read names the partitions that there are now."""
        kind = operation_named(operation) if isinstance(operation, str) else operation
        if kind.reads:
            existing = read_snapshot(self._table.storage, self._table.timeline(), runtime=self._table.runtime).partitions
            targets = (*targets, *(Resource.of(each) for each in existing if not targets or within(each, targets)))
        return locks_of(kind, targets, about=about, escalate_above=self._table.settings.data_locks.escalate_above)

    def request_of_write(self, operation: str, targets: tuple[Resource, ...], *, tag: str = "") -> LockRequest:
        """What a write of this name would lock; takes nothing."""
        try:
            kind = operation_named(operation)
        except InputError:
            kind = operation_named("UPSERT")  # a name of the caller's own for something that writes rows
        return self.request(kind, targets, about=f"{operation} {tag}".strip())

    @contextmanager
    def writing(self, operation: str, targets: tuple[Resource, ...], *, tag: str = "") -> Iterator[DataLease | None]:
        """Hold what the write locks while the block runs, and nothing unless the mode is PESSIMISTIC."""
        if not self.for_writes:
            yield None
            return
        with self.holding(self.request_of_write(operation, targets, tag=tag)) as lease:
            yield lease

    @contextmanager
    def holding(self, request: LockRequest) -> Iterator[DataLease | None]:
        """Hold these locks while the block runs, renewed; `LockTimeout` names who was in the way.

        None in SINGLE_WRITER mode, where locking is off. A lease that is lost meanwhile is told by an alert, and the block
        goes on. Within another such block of the same thread, locks that it has already are not taken again, and others are
        granted or refused at once: nobody waits who holds something.
        """
        table, outer = self._table, _held.get()
        mine = [held for uri, held, lease in outer if uri == table.storage.uri and lease.lost is None]
        if table.provider is None or any(covers(held, request) for held in mine):
            yield None
            return
        self._ensure_same_service()
        with self._acquired(request, wait_s=0 if mine else None) as lease:
            _held.set((*outer, (table.storage.uri, request, lease)))
            try:
                yield lease
            finally:
                _held.set(tuple(each for each in _held.get() if each[2] is not lease))

    def _ensure_same_service(self) -> None:
        """`ProviderMismatch` where writers of this table rely on other locks than these."""
        table = self._table
        if table.provider is not None and not table.provider_checked:
            compare_locks(table.storage, recorded_provider(table.storage), table.provider.identity)

    @contextmanager
    def _acquired(self, request: LockRequest, wait_s: float | None) -> Iterator[DataLease]:
        table = self._table
        locks, began_s = self.locks, table.runtime.monotonic_s()
        lease = locks.acquire(request, wait_s=wait_s)
        waited_s = round(table.runtime.monotonic_s() - began_s, 3)
        table.emit(EventKind.DATA_LOCKED, operation=request.about, waited_s=waited_s, token=lease.token, locks=str(request))
        try:
            with renewing(locks, lease, table.runtime, table.settings.data_locks.renew_s, _Alerting(table.events)):
                yield lease
        finally:
            locks.release(lease)

    def close(self) -> None:
        """Let go of the service. Never raises."""
        with self._mutex:
            if self._opened is not None:
                self._opened.close()


class _Alerting(Events):
    """Passes events on; says of a lost lease what follows from it."""

    def __init__(self, inner: Events) -> None:
        self._inner = inner

    def emit(self, event: Event) -> None:
        self._inner.emit(event)
        if event.kind is EventKind.LEASE_LOST:
            problem = lost_locks(event.facts.get("reason"))
            self._inner.emit(replace(event, kind=EventKind.ALERT, facts={"problem": problem, **event.facts}))


def lost_locks(why: object) -> str:
    """What follows from a lost data lease, in words."""
    return f"data locks were lost ({why}); the write goes on and is validated at its commit"
