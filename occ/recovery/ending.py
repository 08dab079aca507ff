"""How a transaction ends: what becomes of the files that it wrote, and which outcome it may report."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from lakelock.conflict import Party
from lakelock.errors import CommitOutcomeUnknown, ConflictError, LakelockError, RolledBackError
from lakelock.events import EventKind
from lakelock.markers.direct import MarkerSet
from lakelock.markers.reconcile import markers_of
from lakelock.occ.certainty import OwnDecision
from lakelock.occ.conflicts.footprint import SERVICES
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.fate import is_withdrawn
from lakelock.occ.records.decisions import Decision
from lakelock.occ.records.rejections import Rejection, write_rejection
from lakelock.occ.recovery.rollback import RollbackOutcome, RollbackTarget, clean_up, roll_back
from lakelock.occ.steps import Step, reached
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.layout import FileGroupId
from lakelock.texts import command


class TransactionState(Enum):
    OPEN = "open"
    WRITTEN = "written"
    DETACHED = "detached"
    SET_ASIDE = "set aside"
    COMMITTED = "committed"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


def remove_uncounted(storage: Storage, markers: MarkerSet, files: tuple[str, ...]) -> None:
    """Remove the files of failed and speculative task attempts, of which some may still be running.

    Such an attempt checks its marker once its file is complete. Either the file exists before the last removal, or the
    marker is gone before that check.
    """
    storage.delete(files)
    if files:
        storage.delete(markers_of(markers, files))
        storage.delete(files)


def withdraw(
    table: OpenTable, mine: RollbackTarget, own: OwnDecision, *, disturbed: bool, lost: BaseException | None = None
) -> TransactionState:
    """Remove what a transaction wrote. Never raises for storage: what is left, the next writer removes.

    Where it may be committed, for all that its `own` process knows, only the log decides what it was. `disturbed`: others may
    have removed markers before the files that they announce were written. `lost` is the error by which it ends: if that says
    why it was rejected, and it was, a record of it stays behind.
    """
    state = _withdrawn(table, mine, own, disturbed=disturbed)
    if state is TransactionState.REJECTED and isinstance(lost, ConflictError | RolledBackError):
        _record_rejection(table, Party(mine.instant, mine.operation, table.writer), lost)
    return state


def _withdrawn(table: OpenTable, mine: RollbackTarget, own: OwnDecision, *, disturbed: bool) -> TransactionState:
    certain = not own.may_be_committed
    if certain:
        table.emit(EventKind.REJECTED, mine.instant, mine.operation, reason=mine.evidence)
    try:
        everywhere = disturbed or is_withdrawn(table, table.timeline(), mine.instant)
        if not own.may_be_in_log:
            clean_up(table, mine, everywhere=everywhere)
        elif roll_back(table, mine, everywhere=everywhere) is RollbackOutcome.COMMITTED:
            table.emit(EventKind.COMMITTED, mine.instant, mine.operation)
            return TransactionState.COMMITTED
        elif not certain:
            table.emit(EventKind.REJECTED, mine.instant, mine.operation, reason=mine.evidence)
            return TransactionState.REJECTED
    except LakelockError as error:
        problem = f"could not remove the files of this transaction yet: {error.message}"
        table.emit(EventKind.ALERT, mine.instant, mine.operation, problem=problem)
    return TransactionState.REJECTED if certain else TransactionState.UNKNOWN


def _record_rejection(table: OpenTable, mine: Party, error: ConflictError | RolledBackError) -> None:
    """Leave a record for whoever asks later: one request, last of all, not under the lock. Never raises: it is for people."""
    try:
        write_rejection(table.storage, Rejection.of(mine, table.writer, table.runtime.now_ms(), error))
    except Exception as failure:  # noqa: BLE001  it would hide the rejection
        table.emit(EventKind.ALERT, mine.instant, mine.operation, problem=f"its rejection could not be recorded: {failure}")


def tidy_up(
    table: OpenTable,
    instant: str,
    operation: str,
    markers: Iterable[str],
    claimed: Iterable[FileGroupId],
    more: Iterable[str],
) -> None:
    """After the commit: remove heartbeat, markers, claims and `more` in one request. The next writer sweeps what remains."""
    leftovers = [layout.heartbeat(instant), *markers, *map(layout.claim, sorted(claimed)), *more]
    try:
        table.storage.delete(leftovers)
    except LakelockError as error:
        problem = f"committed, but its markers could not be removed: {error.message}"
        table.emit(EventKind.ALERT, instant, operation, problem=problem)
    reached(Step.CLEANED)


def rolled_back(mine: Party, decision: Decision) -> RolledBackError:
    """What to raise for a transaction that finds itself rolled back by somebody's decision."""
    why, hint = "because its heartbeat had stopped", "if the process was paused, raise heartbeat.interval_s"
    if mine.operation in SERVICES:
        why, hint = "which writes the same file groups", "what was left out is taken up by the next run"
    return RolledBackError(
        f"{mine.instant} was rolled back by {decision.writer} in decision {decision.number}, {why}",
        hint=f"run the operation again; {hint}",
        instant=mine.instant,
        decision=decision.number,
    )


def outcome_unknown(table: OpenTable, instant: str, operation: str, cause: Exception) -> CommitOutcomeUnknown:
    """The answer that is true in any case: the log will tell. The next writer publishes the commit if it was decided."""
    reason = cause.message if isinstance(cause, LakelockError) else f"{type(cause).__name__}: {cause}"
    table.emit(EventKind.OUTCOME_UNKNOWN, instant, operation, cause=reason)
    return CommitOutcomeUnknown(
        f"it is not known whether {instant} is committed: {reason}. Nothing was cleaned up",
        hint=command("commits", "show", table.storage.uri, instant),
        instant=instant,
    )
