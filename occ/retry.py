"""Running a rejected operation again: bounded, with jitter, and only where that is sound.

An operation may run again when its meaning does not depend on what it had read: an insert, an upsert, an update, a merge, a
delete by key or by condition looks at the table again in each attempt. A transaction whose user read the table and computed
from it may run again only as a whole, from the function that reads.

Before the next attempt, this waits for the one transaction of an early conflict, takes a reservation if the write has lost
too often (ADR 20), and keeps a rejected attempt whose files are mostly good until the next attempt has them (ADR 19).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lakelock.clock import Runtime
from lakelock.conflict import Conflict, ConflictRule, Party
from lakelock.data_locks import Resource
from lakelock.errors import (
    ConflictError,
    InputError,
    LakelockError,
    RolledBackError,
    StorageError,
    StorageUnavailable,
    TableError,
    TransactionStateError,
    WriteFailed,
)
from lakelock.events import EventKind, shown
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.markers.liveness import CLOCK_GRAIN_MS
from lakelock.occ.claims import OwnReservation, Turn, reserve
from lakelock.occ.commit_keys import AppTransaction, uris_over
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import is_open_here, running_on
from lakelock.occ.ending import TransactionState
from lakelock.occ.footprint import SERVICES
from lakelock.occ.multi_table import MultiTableTransaction
from lakelock.occ.open_table import OpenTable
from lakelock.occ.recovery import reap
from lakelock.occ.request import WriteRequest, resources_of
from lakelock.occ.transaction import Redo, Transaction
from lakelock.storage import Stored
from lakelock.table import layout
from lakelock.table.archive import extra_of_write
from lakelock.table.instants import State


class KeptAttempt:
    """The rejected attempt of a write whose files the next attempt may copy; at most one at a time. Call `drop` at the end."""

    def __init__(self, redos: int) -> None:
        """`redos`: how many attempts may take files over."""
        self._left = redos
        self._held: Transaction | None = None
        self._offered: Transaction | None = None

    def offer(self, tx: Transaction) -> None:
        """Tell an attempt that has just begun from which rejected one it may copy files, and whether to keep its own."""
        if self._held is not None and not self._held.is_alive:
            self._withdraw("its heartbeat stopped before the next attempt had its files")
        tx.redo = Redo(keeps_files=self._left > 0, earlier=self._held.instant if self._held is not None else None)
        self._offered = tx

    def follows(self) -> bool:
        """After the attempt that was offered last has lost: whether the next one is a redo, with files to copy."""
        lost, self._offered = self._offered, None
        if lost is not None and lost.state is TransactionState.SET_ASIDE:
            self._withdraw("the next attempt had its files")
            self._held = lost
        if self._held is not None and self._left == 0:
            self._withdraw("as many redos as a write may have were lost")
        if self._held is None:
            return False
        self._left -= 1
        return True

    def drop(self) -> None:
        """Withdraw whatever is set aside. Never raises for storage."""
        self._withdraw("the next attempt has what it needs of it")
        if self._offered is not None and self._offered.state is TransactionState.SET_ASIDE:
            self._offered.abort("an error ended the write before its next attempt")

    def _withdraw(self, reason: str) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.abort(reason)


class ReservationAfterLosses:
    """Counts the losses of one call, and reserves what it lost after `RetrySettings.reserve_after` of them.

    Its maker calls `end` in the end.
    """

    def __init__(self, table: OpenTable, operation: str) -> None:
        self._table, self._operation = table, operation
        self._losses = 0
        self._places: frozenset[str] | None = frozenset()
        self._turn: Turn | None = None

    def lost(self, tx: Transaction) -> None:
        """Note that this attempt was rejected for what others did.

        A reservation that does not cover all that the attempt touched is given back: the next one queues again. Otherwise its
        holder would wait for a writer that waits for it.
        """
        self._losses += 1
        self._places = tx.places()
        if self._turn is not None and not self._turn.reservation.covers_all(self._places):
            self.end()

    def take(self) -> None:
        """Before the next attempt begins: reserve if it is time to, and wait until it is this write's turn."""
        after = self._table.settings.retry.reserve_after
        if self._turn is not None or self._table.provider is None or not 0 < after <= self._losses:
            return
        if self._places is None or self._places:
            self._turn = reserve(self._table, self._operation, self._places)
            if self._turn is not None:
                self._turn.wait()

    def begun(self, tx: Transaction) -> None:
        """Let the attempt, which has just begun, know its reservation."""
        if self._turn is not None:
            tx.reserved.own = OwnReservation(self._turn.reservation, self._turn.heartbeat.alive, self.end)

    def end(self) -> None:
        """Give the reservation back. Never raises for storage."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.end()


def wait_for(table: OpenTable, other: Party) -> None:
    """Wait until the other transaction has ended or its dead writer is reaped, at most `retry.holder_wait_s`.

    Returns at once if the other has committed. A transaction keeps its heartbeat a little longer than its claims, so each look
    reads that one heartbeat. It reads more only if there is none, as with another engine, or if the heartbeat is older than
    half of its limit.
    """
    if other.completion:
        return
    policy, runtime = table.settings.retry, table.runtime
    began_s = runtime.monotonic_s()
    seen, seen_s, pause_s = None, began_s - (other.seen_ago_s or 0.0), policy.first_wait_s
    while runtime.monotonic_s() < began_s + policy.holder_wait_s:
        beat = table.storage.get(layout.heartbeat(other.instant))
        if beat is None and other.writer is not None:
            return
        if seen is not None and beat is not None and beat.modified_ms != seen.modified_ms:
            seen_s = runtime.monotonic_s()
        seen, silent_s = beat, runtime.monotonic_s() - seen_s
        limit_s = _limit_s(table, beat)
        if (beat is None or silent_s > limit_s / 2) and _has_ended(table, other.instant, reaps=silent_s > limit_s):
            return
        runtime.sleep(pause_s)
        pause_s = min(pause_s * 2, policy.longest_wait_s)


def _limit_s(table: OpenTable, beat: Stored | None) -> float:
    """The age at which the heartbeat's owner is dead."""
    record = HeartbeatRecord.from_bytes(beat.data) if beat is not None else None
    limit_s = (record or table.settings.heartbeat).limit_s
    return limit_s + CLOCK_GRAIN_MS / 1000


def _has_ended(table: OpenTable, instant: str, *, reaps: bool) -> bool:
    """Whether the timeline shows that the transaction has ended, or, if it `reaps`, its writer is proven dead."""
    timeline = table.timeline()
    state = timeline.state_of(instant)
    if state is None or state is State.COMPLETED:
        return True
    return reaps and any(reaped.instant == instant for reaped in reap(table, timeline, patient=True))


T = TypeVar("T")
R = TypeVar("R")

Lost = ConflictError | RolledBackError
"""How an attempt is rejected."""

MOST_MOVES = 20
"""How many conflicts with services, which change no row, do not count as attempts."""


def with_retries(coordinator: Coordinator, request: WriteRequest | str, work: Callable[[Transaction], Committed]) -> Committed:
    """Begin, run `work` (which must end with `tx.commit`), and do so again after a conflict that a retry can resolve.

    An application transaction that is committed already is not run again, and the result says so; also if another run of it
    was faster. After an early conflict this waits for the other side, up to `retry.holder_wait_s`, before it repeats the work.
    Raises the last error when attempts run out.
    """
    request = WriteRequest.of(request)
    named = resources_of(request.partition, coordinator.properties)
    if coordinator.data.for_writes:
        coordinator.ensure_same_provider()
    with coordinator.data.writing(request.operation, named or request.likely, tag=request.tag):
        attempts = _AttemptsOnOne(coordinator, request, named, work)
        try:
            return _repeated(attempts)
        finally:
            attempts.end()


def run(coordinator: Coordinator, request: WriteRequest | str, function: Callable[[Transaction], Committed]) -> Committed:
    """Run a user's function, which reads, computes and commits, as `with_retries` runs the work of an operation.

    Each attempt calls it with a new transaction, so it reads the table again. Only a conflict of that transaction is a reason
    for another attempt: every other error passes through. It may begin no other transaction on the table
    (`TransactionStateError`).
    """

    def work(tx: Transaction) -> Committed:
        with running_on(coordinator.table.storage.uri):
            return function(tx)

    return with_retries(coordinator, request, work)


def run_over(
    coordinators: Sequence[Coordinator],
    function: Callable[[MultiTableTransaction], T],
    request: WriteRequest | str = "UPSERT",
) -> T | None:
    """Call `function` with a new transaction over the tables, and commit it; again after a conflict that a retry can resolve.

    The settings of the first table bound it. If the application of the request has applied its version, in any of the tables,
    this returns None: its transaction is in all of them or in none. `InputError` if that was a transaction over other tables.
    The function may begin no other transaction on these (`TransactionStateError`). Other errors pass through.
    """
    return _repeated(_AttemptsOnSeveral(coordinators, WriteRequest.of(request), function)).value


class _Attempts(ABC, Generic[R]):
    """What `_repeated` repeats: how one attempt is made, and what it means that it was lost."""

    def __init__(self, table: OpenTable, operation: str, called: str = "") -> None:
        """`table`: its settings bound the attempts, and its listeners get them. `called`: what a terminal shows."""
        self.table, self.operation, self.called = table, operation, called or operation

    @abstractmethod
    def once(self, number: int, conflicts: Sequence[Conflict]) -> R:
        """Begin, work and commit. `conflicts`: what the attempts before this one have met."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Transaction]:
        """The transactions of the last attempt, one for each table; none if it could not begin."""

    @abstractmethod
    def applied(self, number: int, error: Lost) -> R | None:
        """The result, if the attempt was lost because another run of its application has applied its version."""

    def rejected_by(self, error: Lost) -> bool:
        """Whether the error rejects the last attempt, and not a transaction of its own that its work ran into."""
        return not self.parts or any(_rejects(error, part) for part in self.parts)

    def lost(self, error: Lost, *, by_service: bool) -> bool:
        """Note that the last attempt was lost. Whether the next one takes over what it has written."""
        return False

    def wait_for_other(self, conflict: Conflict) -> None:
        """Wait for the transaction that was in the way before the work was complete."""
        wait_for(self.table, conflict.other)


def _repeated(attempts: _Attempts[R]) -> R:
    """The result of the first attempt that is not rejected. The last error when attempts run out. A terminal shows it."""
    table = attempts.table
    wanted, operations = table.settings.write.progress, (attempts.operation,)
    with shown(attempts.called, table.runtime, table.events, wanted=wanted, operations=operations):
        return _tried(attempts)


def _tried(attempts: _Attempts[R]) -> R:
    """The same, shown or not."""
    table, operation = attempts.table, attempts.operation
    policy = table.settings.retry
    waits = Backoff(policy.attempts, policy.first_wait_s, policy.longest_wait_s).waits(table.runtime)
    conflicts: list[Conflict] = []
    number = moved = redone = 0
    while True:  # at most `retry.attempts`, `MOST_MOVES` and `RetrySettings.redo_attempts` together
        number += 1
        try:
            return attempts.once(number, conflicts)
        except (ConflictError, RolledBackError) as error:
            if not attempts.rejected_by(error):
                raise
            applied = attempts.applied(number, error)
            if applied is not None:
                return applied
            conflict = error.conflict if isinstance(error, ConflictError) else None
            if isinstance(error, ConflictError):
                _refuse_own_block(error, number)
                conflicts.append(error.conflict)
            # A service that was faster has only moved the rows: what it costs is not this write's fault.
            by_service = moved < MOST_MOVES and conflict is not None and conflict.other.operation in SERVICES
            redo = attempts.lost(error, by_service=by_service)
            moved, redone = moved + (by_service and not redo), redone + redo
            if number - moved - redone == policy.attempts or not _retry_helps(error):
                error.details["attempts"] = number
                _note(error, f"after {number} of {policy.attempts} attempts (retry.attempts)")
                raise
            early = conflict is not None and conflict.early
            wait_s = policy.first_wait_s if by_service or redo else next(waits)
            if redo and not early:
                wait_s = 0.0  # the faster writer has committed
            cause = error.message.splitlines()[0]
            table.emit(EventKind.RETRY, "", operation, attempt=number, of=policy.attempts, wait_s=round(wait_s, 2), cause=cause)
            table.runtime.sleep(wait_s)
            if conflict is not None and early:
                attempts.wait_for_other(conflict)
        except (StorageError, WriteFailed) as error:
            for part in attempts.parts:
                if part.state is TransactionState.REJECTED:
                    _raise_if_gone(part.table, error)
            raise


class _AttemptsOnOne(_Attempts[Committed]):
    """Attempts of a write of one table, each of which may take files over from the one before (ADR 19), and which get a
    reservation in the end (ADR 20).
    """

    def __init__(
        self,
        coordinator: Coordinator,
        request: WriteRequest,
        targets: tuple[Resource, ...],
        work: Callable[[Transaction], Committed],
    ) -> None:
        """`targets`: what the request names that may be written."""
        super().__init__(coordinator.table, request.operation, request.called)
        policy = coordinator.table.settings.retry
        may_redo = request.redoes and policy.attempts > 1 and coordinator.table.provider is not None
        self._coordinator, self._request, self._work = coordinator, request, work
        self._targets = targets
        self._aside = KeptAttempt(policy.redo_attempts if may_redo else 0)
        self._turns = ReservationAfterLosses(coordinator.table, request.operation)
        self._tx: Transaction | None = None

    @property
    def parts(self) -> Sequence[Transaction]:
        return () if self._tx is None else (self._tx,)

    def once(self, number: int, conflicts: Sequence[Conflict]) -> Committed:
        self._tx = None
        self._turns.take()
        # Only the first attempt is sure to begin the new group.
        request = self._request if number == 1 else replace(self._request, new_group=None)
        with self._coordinator.begin(request) as tx:
            self._tx, tx.retries = tx, number - 1
            self._aside.offer(tx)
            self._turns.begun(tx)
            tx.keep_within(self._targets)
            done = _ended(tx, self._work(tx))
        return replace(done, attempts=number, conflicts=tuple(conflicts))

    def applied(self, number: int, error: Lost) -> Committed | None:
        found = applied_instead(self._coordinator, self._request.application, self.operation, error)
        return None if found is None else replace(found, attempts=number)

    def lost(self, error: Lost, *, by_service: bool) -> bool:
        if self._tx is not None and isinstance(error, ConflictError) and not by_service:
            self._turns.lost(self._tx)
        return _retry_helps(error) and self._aside.follows()

    def end(self) -> None:
        """Give back the reservation, and withdraw what was set aside. Never raises for storage."""
        self._turns.end()
        self._aside.drop()


@dataclass(frozen=True)
class _Returned(Generic[T]):
    """What the function has returned; None where it was not called, since its application has applied its version."""

    value: T | None = None


class _AttemptsOnSeveral(_Attempts[_Returned[T]]):
    """Attempts of a transaction over several tables.

    They make no reservation: two of them could each hold one table and wait for the other's.
    """

    def __init__(
        self, coordinators: Sequence[Coordinator], request: WriteRequest, function: Callable[[MultiTableTransaction], T]
    ) -> None:
        super().__init__(coordinators[0].table, request.operation, "TRANSACTION")
        self._coordinators, self._request, self._function = coordinators, request, function
        self._tx: MultiTableTransaction | None = None

    @property
    def parts(self) -> Sequence[Transaction]:
        return () if self._tx is None else self._tx.parts

    def once(self, number: int, conflicts: Sequence[Conflict]) -> _Returned[T]:
        self._tx = None
        with MultiTableTransaction.begin(self._coordinators, self._request) as tx:
            self._tx = tx
            with ExitStack() as running:
                for each in self._coordinators:
                    running.enter_context(running_on(each.table.storage.uri))
                result = self._function(tx)
            tx.commit()
        return _Returned(result)

    def applied(self, number: int, error: Lost) -> _Returned[T] | None:
        application = self._request.application
        return _Returned() if application is not None and _have_applied(self._coordinators, application) else None

    def rejected_by(self, error: Lost) -> bool:
        name = None if self._tx is None else self._tx.name
        whole = name is not None and error.details.get("transaction") == name.id
        return whole or super().rejected_by(error)

    def wait_for_other(self, conflict: Conflict) -> None:
        for part in self.parts:
            if _is_of(conflict, part):
                wait_for(part.table, conflict.other)


def _have_applied(coordinators: Sequence[Coordinator], application: AppTransaction) -> bool:
    """Whether these tables have the version already. `InputError` if it was applied by a transaction over other tables."""
    mine = [each.table.storage.uri for each in coordinators]
    for each in coordinators:
        party = each.applied_by(application)
        if party is None:
            continue
        over = uris_over(extra_of_write(each.table.storage, each.table.timeline(), party.instant))
        if over and set(over) != set(mine):
            raise InputError(
                f"{application} is applied in {each.table.storage.uri} already, by a transaction over {', '.join(over)}, and "
                f"this one is over {', '.join(mine)}: it would be taken for the same, and skipped",
                hint="write all tables in one function, or give each its own stream (its own checkpoint)",
            )
        return True
    return False


def _raise_if_gone(table: OpenTable, error: LakelockError) -> None:
    """Raise `TableError` if the work failed because the table was deleted or moved: that says more."""
    if isinstance(error, StorageUnavailable):
        return
    try:
        table.timeline()
    except TableError as gone:
        raise gone from error
    except LakelockError:
        return


def applied_instead(
    coordinator: Coordinator, application: AppTransaction | None, operation: str, error: LakelockError
) -> Committed | None:
    """The result of a write that was refused because another run of its application has applied its version; else None.

    The table is asked: the conflict may have been with a commit that will never be visible.
    """
    if application is None or not isinstance(error, ConflictError):
        return None
    if error.conflict.rule is not ConflictRule.APPLICATION_TRANSACTION:
        return None
    other = coordinator.applied_by(application)
    if other is None:
        return None
    return Committed(operation, other.instant, other.completion or "", already_applied=True)


def _ended(tx: Transaction, done: Committed) -> Committed:
    """What the work returned, which must have committed."""
    if tx.state is not TransactionState.COMMITTED:
        raise TransactionStateError(
            f"the function of {tx.operation} {tx.instant} returned without a commit, so nothing of it is in the table",
            hint="end it with a write in the transaction (insert_in, upsert_in, ...) or with tx.commit, and return the result",
        )
    return done


def _rejects(error: LakelockError, tx: Transaction) -> bool:
    """Whether the error is the rejection of this transaction, and not of another one that its work ran into."""
    if tx.state is TransactionState.COMMITTED:
        return False
    if isinstance(error, ConflictError):
        return _is_of(error.conflict, tx)
    return error.details.get("instant") == tx.instant


def _is_of(conflict: Conflict, tx: Transaction) -> bool:
    """Whether this is the conflict of this transaction. Two tables may give the same instant; each has a writer of its own."""
    mine = conflict.mine
    return (mine.instant, mine.writer) == (tx.instant, tx.party.writer)


def _refuse_own_block(error: ConflictError, attempt: int) -> None:
    """Raise the conflict at once if the other side is a block that this thread is in: it would wait for its own end."""
    if is_open_here(error.conflict.other.instant):
        error.hint = (
            "the other is a block of this very thread, which would wait for its own end: write with the transaction of the "
            "block (tx.upsert, tx[table].upsert), or after it"
        )
        error.details["attempts"] = attempt
        raise error


def _note(error: LakelockError, text: str) -> None:
    if hasattr(error, "add_note"):  # Python 3.11
        error.add_note(text)


def _retry_helps(error: LakelockError) -> bool:
    if isinstance(error, ConflictError):
        return error.conflict.retry_helps or error.conflict.rule is ConflictRule.APPLICATION_TRANSACTION
    return True


@dataclass(frozen=True)
class Backoff:
    """Waits between `attempts` attempts: full jitter below a bound that doubles from `first_wait_s` to `longest_wait_s`."""

    attempts: int
    first_wait_s: float
    longest_wait_s: float

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_wait_s < 0 or self.longest_wait_s < self.first_wait_s:
            raise ValueError(f"{self} needs attempts >= 1 and 0 <= first_wait_s <= longest_wait_s")

    def bound_s(self, retry: int) -> float:
        """The longest wait before retry number `retry`, counted from 0."""
        # Beyond 2**62 the bound has long been reached, and a float would overflow.
        return float(min(self.longest_wait_s, self.first_wait_s * 2 ** min(retry, 62)))

    def waits(self, runtime: Runtime) -> Iterator[float]:
        """The seconds to wait before each retry: `attempts - 1` numbers, then the end. The caller does the waiting."""
        for retry in range(self.attempts - 1):
            yield runtime.random() * self.bound_s(retry)
