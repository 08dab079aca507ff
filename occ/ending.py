"""How a transaction ends: what becomes of the files that it wrote, and which outcome it may report.

Files may be removed by what a process knows of the decision of its own transaction:

| state | what is known | who may remove its files |
|---|---|---|
| `UNTRIED` | nothing was sent, and no other process decides this commit | its process, at once |
| `ADOPTED` | another process of the job had it, and may have decided it | the process that decides its rollback in the log |
| `TRYING` | sent, and not answered yet | the process that decides its rollback |
| `BEATEN` | the number is another's now, and may have been its own before | the process that decides its rollback |
| `DOUBTED` | sent, and no answer excludes that it is decided | the process that decides its rollback |
| `DECIDED` | it is in the log | no process, unless another engine has rolled it back |
| `REFUSED` | sent at some time, and certain never to be visible | the process that decides its rollback, which will win |

| | `COMMITS` | `SENDS` | `LOSES` | `HEARS_NOTHING` | `COLLECTED` | `WINS` | `FOUND` | `REJECTED` | `UNCOLLECTED` |
|---|---|---|---|---|---|---|---|---|---|
| `UNTRIED` | `UNTRIED` | `TRYING` | | | | | `DECIDED` | `UNTRIED` | `UNTRIED` |
| `ADOPTED` | `UNTRIED` | | | | | | | | |
| `TRYING` | | | `BEATEN` | `DOUBTED` | `DOUBTED` | `DECIDED` | | | |
| `BEATEN` | | | | | | | `DECIDED` | `REFUSED` | `UNTRIED` |
| `DOUBTED` | | `DOUBTED` | `DOUBTED` | `DOUBTED` | `DOUBTED` | `DECIDED` | `DECIDED` | `REFUSED` | `DOUBTED` |
| `DECIDED` | | | | | | | | `REFUSED` | |

`DOUBTED` ends only when the decision is found, or when something excludes it for ever: losing a later number says nothing about
the number whose request got no answer. A writer that is `BEATEN` may have had the number itself, if others published and
collected its decision and a late request then took the number again. A look at the log excludes that, if no decision of the
window has been collected. Any other transition raises `IllegalTransition`, in production and in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from lakelock.conflict import Party
from lakelock.errors import CommitOutcomeUnknown, ConflictError, LakelockError, RolledBackError
from lakelock.events import EventKind, Step, reached
from lakelock.markers.data_files import MarkerSet, markers_of
from lakelock.occ.footprint import SERVICES
from lakelock.occ.log import Decision
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import is_withdrawn
from lakelock.occ.rejections import Rejection, write_rejection
from lakelock.occ.rollback import RollbackOutcome, RollbackTarget, clean_up, roll_back
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.table.layout import FileGroupId
from lakelock.texts import command


class Certainty(Enum):
    """See the first table of the module."""

    UNTRIED = "untried"
    ADOPTED = "adopted"
    TRYING = "trying"
    BEATEN = "beaten"
    DOUBTED = "doubted"
    DECIDED = "decided"
    REFUSED = "refused"


class News(Enum):
    """What a process does or learns about its decision."""

    COMMITS = "begins to commit: a job commits once, so no other process of it has"
    SENDS = "sends the decision under a number"
    LOSES = "the number is another's"
    HEARS_NOTHING = "storage gave no answer"
    COLLECTED = "the number had been used and collected before, so the record means nothing"
    WINS = "the number is its own"
    FOUND = "its decision, or its completed instant, was found"
    REJECTED = "it conflicts, or has been rolled back"
    UNCOLLECTED = "nothing of its window was collected, so a number that is another's has never been its own"


_C, _N = Certainty, News

TRANSITIONS: dict[tuple[Certainty, News], Certainty] = {
    (_C.UNTRIED, _N.COMMITS): _C.UNTRIED,
    (_C.UNTRIED, _N.SENDS): _C.TRYING,
    (_C.UNTRIED, _N.FOUND): _C.DECIDED,
    (_C.UNTRIED, _N.REJECTED): _C.UNTRIED,
    (_C.UNTRIED, _N.UNCOLLECTED): _C.UNTRIED,
    (_C.ADOPTED, _N.COMMITS): _C.UNTRIED,
    (_C.TRYING, _N.LOSES): _C.BEATEN,
    (_C.TRYING, _N.HEARS_NOTHING): _C.DOUBTED,
    (_C.TRYING, _N.COLLECTED): _C.DOUBTED,
    (_C.TRYING, _N.WINS): _C.DECIDED,
    (_C.BEATEN, _N.FOUND): _C.DECIDED,
    (_C.BEATEN, _N.REJECTED): _C.REFUSED,
    (_C.BEATEN, _N.UNCOLLECTED): _C.UNTRIED,
    (_C.DOUBTED, _N.SENDS): _C.DOUBTED,
    (_C.DOUBTED, _N.LOSES): _C.DOUBTED,
    (_C.DOUBTED, _N.HEARS_NOTHING): _C.DOUBTED,
    (_C.DOUBTED, _N.COLLECTED): _C.DOUBTED,
    (_C.DOUBTED, _N.WINS): _C.DECIDED,
    (_C.DOUBTED, _N.FOUND): _C.DECIDED,
    (_C.DOUBTED, _N.REJECTED): _C.REFUSED,
    (_C.DOUBTED, _N.UNCOLLECTED): _C.DOUBTED,
    (_C.DECIDED, _N.REJECTED): _C.REFUSED,
}
"""The second table of the module."""


class IllegalTransition(AssertionError):
    """A bug of lakelock: nothing is removed then, and the log tells what is committed."""


class OwnDecision:
    """What a transaction knows of its own decision; whoever learns more reports it by `learn`."""

    def __init__(self, *, adopted: bool = False) -> None:
        self.certainty = Certainty.ADOPTED if adopted else Certainty.UNTRIED

    def learn(self, news: News) -> None:
        """Go on to the next state; `IllegalTransition` when the table has none."""
        following = TRANSITIONS.get((self.certainty, news))
        if following is None:
            raise IllegalTransition(f"the decision of a transaction is {self.certainty.value}, and now: {news.value}")
        self.certainty = following

    @property
    def may_be_in_log(self) -> bool:
        """Whether only the log may withdraw it."""
        return self.certainty is not Certainty.UNTRIED

    @property
    def may_be_committed(self) -> bool:
        """Whether it is committed, or may be, for all that is known."""
        return self.certainty not in (Certainty.UNTRIED, Certainty.REFUSED)


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

    If it may be committed, for all that this process knows (`own`), the log decides. `disturbed`: others may have removed
    markers before the files that they announce were written. `lost` is the error that ends the transaction: if it was rejected,
    and the error says why, a record of the rejection is kept.
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
    """Leave a record for later questions: one request, last of all, not under the lock. Never raises: it is for people."""
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
    """What to raise for a transaction that finds itself rolled back by another's decision."""
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
