"""Running a rejected operation again: bounded, with jitter, and only where that is sound.

An operation may run again when its meaning does not depend on what it had read: an insert, an upsert, an update, a merge, a
delete by key or by condition looks at the table anew in each attempt. A transaction whose user read the table and computed
from it may run again only as a whole, from the function that reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lakelock.conflict import Conflict, ConflictRule
from lakelock.data_locks import Resource
from lakelock.errors import (
    ConflictError,
    LakelockError,
    RolledBackError,
    StorageError,
    StorageUnavailable,
    TableError,
    TransactionStateError,
    WriteFailed,
)
from lakelock.events import EventKind
from lakelock.occ.attempts.set_aside import SetAside
from lakelock.occ.attempts.turns import Turns
from lakelock.occ.conflicts.footprint import SERVICES
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.early.waiting import wait_for
from lakelock.occ.locking.nesting import is_open_here, running_on
from lakelock.occ.locking.targets import Targets, resources_of
from lakelock.occ.open_table import OpenTable
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.recovery.ending import TransactionState
from lakelock.occ.transaction import Transaction
from lakelock.retry import Backoff
from lakelock.table.layout import FileGroupId

MOST_MOVES = 20
"""How many conflicts with services, which change no row, do not count as attempts."""


def with_retries(
    coordinator: Coordinator,
    operation: str,
    work: Callable[[Transaction], Committed],
    *,
    application: AppTransaction | None = None,
    overwrites: bool | None = None,
    tag: str = "",
    partition: Targets = None,
    likely: tuple[Resource, ...] = (),
    redoes: bool = False,
    new_group: FileGroupId | None = None,
) -> Committed:
    """Begin, run `work` (which must end with `tx.commit`), and do so again after a conflict that a retry can resolve.

    An application transaction that is committed already is not run again, and the result says so; also if another run of it
    was faster. After an early conflict this waits for the other side, up to `retry.holder_wait_s`, before it repeats the work.
    Raises the last error when attempts run out.

    `partition` names what the work may write: anything else is an `InputError` at the commit. In PESSIMISTIC mode it is locked
    for all attempts together; where it is not named, what is `likely`, else the table.

    `redoes`: the `work` takes over what it can of the attempt that `tx.redo` names, up to `retry.redo_attempts` times.
    `new_group`: one that the first attempt is sure to begin.
    """
    named = resources_of(partition, coordinator.properties)
    if coordinator.data.for_writes:
        coordinator.ensure_same_provider()
    with coordinator.data.writing(operation, named or likely, tag=tag):
        policy = coordinator.table.settings.retry
        may_redo = redoes and policy.attempts > 1 and coordinator.table.provider is not None
        aside = SetAside(policy.redo_attempts if may_redo else 0)
        turns = Turns(coordinator.table, operation)
        try:
            return _attempts(coordinator, operation, work, application, overwrites, tag, named, aside, turns, new_group)
        finally:
            turns.end()
            aside.drop()


def run(
    coordinator: Coordinator,
    operation: str,
    function: Callable[[Transaction], Committed],
    *,
    application: AppTransaction | None = None,
    tag: str = "",
    partition: Targets = None,
) -> Committed:
    """Run a user's function, which reads, computes and commits, as `with_retries` runs the work of an operation.

    Each attempt calls it with a new transaction, so it reads the table anew. Only a conflict of that transaction is a reason
    for another attempt: every other error passes through. It may begin no other transaction on the table
    (`TransactionStateError`).
    """

    def work(tx: Transaction) -> Committed:
        with running_on(coordinator.table.storage.uri):
            return function(tx)

    return with_retries(coordinator, operation, work, application=application, tag=tag, partition=partition)


def _attempts(
    coordinator: Coordinator,
    operation: str,
    work: Callable[[Transaction], Committed],
    application: AppTransaction | None,
    overwrites: bool | None,
    tag: str,
    targets: tuple[Resource, ...],
    aside: SetAside,
    turns: Turns,
    new_group: FileGroupId | None,
) -> Committed:
    table = coordinator.table
    policy = table.settings.retry
    waits = Backoff(policy.attempts, policy.first_wait_s, policy.longest_wait_s).waits(table.runtime)
    conflicts: list[Conflict] = []
    moved = redone = 0
    for attempt in range(1, policy.attempts + MOST_MOVES + policy.redo_attempts + 1):
        tx: Transaction | None = None
        turns.take()
        first, new_group = new_group, None
        try:
            with coordinator.begin(operation, application=application, overwrites=overwrites, tag=tag, new_group=first) as tx:
                aside.offer(tx)
                turns.begun(tx)
                tx.keep_within(targets)
                done = _ended(tx, work(tx))
            return replace(done, attempts=attempt, conflicts=tuple(conflicts))
        except (ConflictError, RolledBackError) as error:
            if tx is not None and not _rejects(error, tx):
                raise
            applied = applied_instead(coordinator, application, operation, error)
            if applied is not None:
                return replace(applied, attempts=attempt)
            if isinstance(error, ConflictError):
                _refuse_own_block(error, attempt)
                conflicts.append(error.conflict)
            # A service that was faster has only moved the rows: what it costs is not this write's fault.
            by_service = moved < MOST_MOVES and isinstance(error, ConflictError) and error.conflict.other.operation in SERVICES
            if tx is not None and isinstance(error, ConflictError) and not by_service:
                turns.lost(tx)
            redo = _helps(error) and aside.follows()
            moved, redone = moved + (by_service and not redo), redone + redo
            if attempt - moved - redone == policy.attempts or not _helps(error):
                error.details["attempts"] = attempt
                _note(error, f"after {attempt} of {policy.attempts} attempts (retry.attempts)")
                raise
            wait_s = policy.first_wait_s if by_service or redo else next(waits)
            if redo and not (isinstance(error, ConflictError) and error.conflict.early):
                wait_s = 0.0  # whoever was faster has committed
            cause = error.message.splitlines()[0]
            table.emit(
                EventKind.RETRY, "", operation, attempt=attempt, of=policy.attempts, wait_s=round(wait_s, 2), cause=cause
            )
            table.runtime.sleep(wait_s)
            if isinstance(error, ConflictError) and error.conflict.early:
                wait_for(table, error.conflict.other)
        except (StorageError, WriteFailed) as error:
            if tx is not None and tx.state is TransactionState.REJECTED:
                _raise_if_gone(table, error)
            raise
    raise AssertionError("the last attempt returns or raises")


def _raise_if_gone(table: OpenTable, error: LakelockError) -> None:
    """Raise `TableError` if the work failed because somebody has deleted or moved the table: that says more."""
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

    The table is asked: the conflict may have been with a commit that nobody will ever see.
    """
    if application is None or not isinstance(error, ConflictError):
        return None
    if error.conflict.rule is not ConflictRule.APPLICATION_TRANSACTION:
        return None
    other = coordinator.applied_by(application)
    if other is None:
        return None
    return Committed(other.instant, other.completion or "", 0, operation, already_applied=True)


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
        # Two tables may give the same instant; each has a writer of its own.
        mine = error.conflict.mine
        return (mine.instant, mine.writer) == (tx.instant, tx.party.writer)
    return error.details.get("instant") == tx.instant


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


def _helps(error: LakelockError) -> bool:
    if isinstance(error, ConflictError):
        return error.conflict.retry_helps or error.conflict.rule is ConflictRule.APPLICATION_TRANSACTION
    return True
