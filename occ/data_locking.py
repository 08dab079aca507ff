"""Data locks of one open table: the locks that an operation takes, and holding them while the operation runs.

Safety never rests on these locks. They keep others from starting work that would collide; the commit is validated all the
same, so a write whose lease was lost goes on, is committed if nothing collided, and rejected if something did.

A function that runs in a transaction may not begin another one on the same table, and a block may not wait for itself.
The inner one would be committed whether or not the outer one is, and again with every attempt; and where both want the same
file group, the inner one would wait for the outer one, which waits for it. A block (`with table.transaction()`) runs once, so
within it another write is allowed, as long as the two do not collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from lakelock.data_locks import DataLease, DataLocks, LockRequest, Resource, open_data_locks
from lakelock.data_locks.locks import Wanted, holding_several, one_per_lock
from lakelock.data_locks.operations import Operation, covers, locks_of, operation_named
from lakelock.errors import InputError, LockTimeout, TransactionStateError
from lakelock.events import Event, EventKind, Events
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recorded_lock import compare_locks, recorded_provider
from lakelock.occ.request import within
from lakelock.providers import renewing

_running: ContextVar[tuple[str, ...]] = ContextVar("tables_of_running_functions", default=())
"""The tables whose functions are running in this thread."""

_blocks: ContextVar[tuple[str, ...]] = ContextVar("instants_of_open_blocks", default=())
"""The instants of the transactions in whose blocks this thread is."""


@contextmanager
def block_of(instant: str) -> Iterator[None]:
    """A block that is a transaction: what this thread writes otherwise does not wait for it."""
    _blocks.set((*_blocks.get(), instant))
    try:
        yield
    finally:
        _blocks.set(tuple(each for each in _blocks.get() if each != instant))


def is_open_here(instant: str) -> bool:
    """Whether this thread is in the block of the transaction with this instant, which would wait for its own end."""
    return instant in _blocks.get()


@contextmanager
def running_on(uri: str) -> Iterator[None]:
    """A block in which this thread begins no transaction on the table."""
    token = _running.set((*_running.get(), uri))
    try:
        yield
    finally:
        _running.reset(token)


def is_running_on(uri: str) -> bool:
    """Whether this thread is in such a block of the table."""
    return uri in _running.get()


def refuse_nested(operation: str, uri: str) -> None:
    """`TransactionStateError` if a function that is running in this thread is a transaction on this table already."""
    if is_running_on(uri):
        raise TransactionStateError(
            f"{operation} on {uri} would be a transaction of its own within the function of another one on this table",
            hint="write with the transaction that the function is given: it is committed as one, when the function returns",
        )


LARGER_REQUESTS = 5
"""How often a read asks for more locks, because others have made partitions while it waited."""


@dataclass(frozen=True)
class _Held:
    """What one block holds of one table."""

    uri: str
    request: LockRequest
    lease: DataLease


_held: ContextVar[tuple[_Held, ...]] = ContextVar("data_locks_held", default=())
"""The data locks of the blocks that this thread is in, on any table."""


class DataLocking:
    """The data locks that a table's operations take. Opened at the first use, closed with the table."""

    def __init__(self, table: OpenTable) -> None:
        self.table = table
        self._mutex = table.runtime.mutex()
        self._opened: DataLocks | None = None

    @property
    def locks(self) -> DataLocks:
        """The service, opened once; also in a mode that takes no locks, for callers that only look."""
        table = self.table
        with self._mutex:
            if self._opened is None:
                storage = table.for_locks or table.storage
                self._opened = open_data_locks(table.settings, storage, table.runtime, table.writer, table.events)
            return self._opened

    @property
    def for_writes(self) -> bool:
        """Whether writes take data locks."""
        return self.table.settings.concurrency.mode == "PESSIMISTIC"

    def request(self, operation: Operation | str, targets: tuple[Resource, ...] = (), *, about: str = "") -> LockRequest:
        """What the operation would lock; takes nothing. A read names the partitions that there are now."""
        kind = operation_named(operation) if isinstance(operation, str) else operation
        if kind.reads:
            existing = self.table.index.snapshot_at(self.table.timeline()).partitions
            targets = (*targets, *(Resource.of(each) for each in existing if not targets or within(each, targets)))
        return locks_of(kind, targets, about=about, escalate_above=self.table.settings.data_locks.escalate_above)

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
        refuse_nested(operation, self.table.storage.uri)
        if not self.for_writes:
            yield None
            return
        with self.holding(self.request_of_write(operation, targets, tag=tag)) as lease:
            yield lease

    @contextmanager
    def holding(self, request: LockRequest) -> Iterator[DataLease | None]:
        """Hold these locks while the block runs, renewed; `LockTimeout` names the holder in the way.

        None in SINGLE_WRITER mode, where locking is off. A lost lease raises an alert, and the block goes on. Within another
        such block of the same thread, locks that it holds already are not taken again, and others, also those of another
        table, are granted or refused at once: a holder of locks never waits for more.
        """
        if not self.lacks(request):
            yield None
            return
        self.ensure_same_service()
        with self._acquired(request, _alive()) as lease, _noted([_Held(self.table.storage.uri, request, lease)]):
            yield lease

    @contextmanager
    def holding_for(self, operation: Operation | str, targets: tuple[Resource, ...]) -> Iterator[DataLease | None]:
        """Hold what the operation locks while the block runs, by the partitions that there are once it is granted.

        A read locks the partitions that it reads. An earlier holder of the locks may have made others, so a request that turns
        out to be too small is given back and made again, a few times at most.
        """
        for at in range(LARGER_REQUESTS):
            request = self.request(operation, targets)
            with self.holding(request) as lease:
                enough = lease is None or at + 1 == LARGER_REQUESTS or covers(request, self.request(operation, targets))
                if enough:
                    yield lease
                    return

    def lacks(self, request: LockRequest) -> bool:
        """Whether this thread must request it: locking is on, and no enclosing block holds all of it."""
        uri = self.table.storage.uri
        return self.table.provider is not None and not any(
            each.uri == uri and covers(each.request, request) for each in _alive()
        )

    def wanted(self, request: LockRequest) -> Wanted:
        """The request as one of several, whose events are those of this table."""
        return Wanted(self.locks, request, _Alerting(self.table.events), self.table.settings.data_locks.renew_s)

    def tell_locked(self, lease: DataLease, began_s: float) -> None:
        """Emit the event of locks that were granted, and requested at `began_s`."""
        table, request = self.table, lease.request
        waited_s = round(table.runtime.monotonic_s() - began_s, 3)
        table.emit(EventKind.DATA_LOCKED, operation=request.about, waited_s=waited_s, token=lease.token, locks=str(request))

    def ensure_same_service(self) -> None:
        """`ProviderMismatch` where writers of this table rely on other locks than these."""
        table = self.table
        if table.provider is not None and not table.observed.same_lock:
            compare_locks(table.storage, recorded_provider(table.storage), table.provider.identity)

    @contextmanager
    def _acquired(self, request: LockRequest, outer: Sequence[_Held]) -> Iterator[DataLease]:
        table = self.table
        locks, began_s = self.locks, table.runtime.monotonic_s()
        with _refusals_reported(outer):
            lease = locks.acquire(request, wait_s=0 if outer else None)
        try:
            self.tell_locked(lease, began_s)
            with renewing(locks, lease, table.runtime, table.settings.data_locks.renew_s, _Alerting(table.events)):
                yield lease
        finally:
            locks.release(lease)

    def close(self) -> None:
        """Let go of the service. Never raises."""
        with self._mutex:
            if self._opened is not None:
                self._opened.close()


@contextmanager
def holding_together(asked: Sequence[tuple[DataLocking, LockRequest]]) -> Iterator[None]:
    """Hold the locks of one statement over several tables while the block runs: all of them or none.

    Nothing is held while it waits, so statements over the same tables do not hold each other up, in whatever order they name
    them. Tables that share one lock are locked as one. The settings of the first table bound the wait. Nested blocks are
    treated as in `holding`.
    """
    if not asked:
        raise InputError("there is no table to lock", hint="name each table with what is done to it")
    first, outer = asked[0][0].table, _alive()
    tables = {data.table.storage.uri: data for data, _ in asked}
    lacking = [(data, request) for data, request in asked if data.lacks(request)]
    for data, _ in lacking:
        data.ensure_same_service()
    wanted = one_per_lock([data.wanted(request) for data, request in lacking]) if lacking else []
    sharing: dict[str, list[str]] = {}
    for data, _ in lacking:
        sharing.setdefault(data.locks.lock_name, []).append(data.table.storage.uri)
    if len(wanted) < 2:
        with ExitStack() as stack:
            for each in wanted:
                lease = stack.enter_context(tables[each.locks.table].holding(each.request))
                if lease is not None:
                    stack.enter_context(_noted(_of_all(sharing[each.locks.lock_name], lease)))
            yield
        return
    settings, began_s = first.settings.data_locks, first.runtime.monotonic_s()
    with ExitStack() as stack:
        with _refusals_reported(outer):
            bound = replace(settings, attempts=1) if outer else settings
            leases = stack.enter_context(holding_several(wanted, bound, first.runtime))
        for each, lease in zip(wanted, leases, strict=True):
            tables[each.locks.table].tell_locked(lease, began_s)
            stack.enter_context(_noted(_of_all(sharing[each.locks.lock_name], lease)))
        yield


def _of_all(uris: Sequence[str], lease: DataLease) -> list[_Held]:
    """What one lease holds of each of the tables that share its lock."""
    return [_Held(uri, lease.request, lease) for uri in dict.fromkeys(uris)]


def _alive() -> tuple[_Held, ...]:
    """What the enclosing blocks still hold: a lost lease keeps no writer out, and a forked process has none."""
    return tuple(each for each in _held.get() if each.lease.lost is None)


@contextmanager
def _noted(found: Sequence[_Held]) -> Iterator[None]:
    _held.set((*_held.get(), *found))
    try:
        yield
    finally:
        _held.set(tuple(each for each in _held.get() if not any(each is mine for mine in found)))


@contextmanager
def _refusals_reported(outer: Sequence[_Held]) -> Iterator[None]:
    """Explain in the error why a request that was refused did not wait, if it did not."""
    try:
        yield
    except LockTimeout as error:
        if not outer:
            raise
        held = "; ".join(f"{each.uri} ({each.request.about}, token {each.lease.token})" for each in outer)
        raise LockTimeout(
            f"{error.message}; this did not wait, because this thread holds data locks of {held}, and a thread that holds "
            "data locks never waits for more",
            hint="run the whole block again, or take all that it needs at its beginning: `table.transaction` or `table.locked` "
            "for one table, `locked_together` for several",
            **error.details,
        ) from error


class _Alerting(Events):
    """Passes events on, and adds an alert that says what follows from a lost lease."""

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
