"""A transaction over several tables: begun in all of them, committed in all or in none.

```
begin in every table ──► write ──► lock all ──► prepare in each ──► outcome ──► publish in each ──► tidy up
                           │            └── validate ──┘   │            └─ the commit point
                           └────────── whatever fails here is removed from every table
```
The order of the steps is that of `docs/adr/0021`. The locks make it fair; safety rests on the prepares and the outcome.

Several tables are read as of one moment, so that no transaction over them is seen in part. In this order: the heads of all
logs, all timelines, the outcome of each transaction whose prepare is a head and not completed, and all heads again. If no
head has moved, every view is of one moment: a transaction that was decided before its outcome was read had all its prepares
in place, so in each table it is the head, or below it and visible. `docs/adr/0021` has the search.

If the home table was dropped for good, no writer can know the outcome, so a person has to settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import Enum
from functools import partial
from types import TracebackType

from lakelock.errors import (
    CommitOutcomeUnknown,
    InputError,
    LakelockError,
    RolledBackError,
    SnapshotTooOld,
    StorageUnavailable,
    TransactionError,
    TransactionStateError,
    TransactionTorn,
)
from lakelock.events import EventKind, Step, reached
from lakelock.occ import commit_keys as keys
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import block_of, holding_together
from lakelock.occ.ending import IllegalTransition, News, OwnDecision, TransactionState, outcome_unknown
from lakelock.occ.log import (
    MOST_TABLES,
    Decision,
    DecisionKind,
    LogView,
    OutcomeRecord,
    Resolution,
    TableInstant,
    TransactionName,
    Verdict,
    decided_for,
    read_outcome,
)
from lakelock.occ.open_table import OpenTable
from lakelock.occ.participant import Participant
from lakelock.occ.publish import (
    OUTCOME_PUTS,
    InstantFate,
    by_outcome,
    current_outcome,
    finish_head,
    has_table,
    is_its_home,
    owner_lives,
    put_outcome,
)
from lakelock.occ.request import WriteRequest
from lakelock.providers.base import Lease
from lakelock.storage import Created, create
from lakelock.storage.base import gone
from lakelock.table import layout
from lakelock.table.archive import completed_write
from lakelock.table.instants import Instant, State
from lakelock.table.timeline import Timeline, read_timeline
from lakelock.texts import command


class GlobalOutcome(Enum):
    """What became of a transaction, by the timelines of all its tables; needed where its outcome record alone proves nothing.

    COMMITTED: visible in every table, or about to be. REJECTED: never visible in any. TORN: visible in some and void in others,
    which only another engine can cause that rolls back without the lock.
    """

    COMMITTED = "committed"
    REJECTED = "rejected"
    TORN = "torn"


def decide_outcome(home: OpenTable, name: TransactionName, own: OwnDecision, application: AppTransaction | None) -> Verdict:
    """Put the outcome `committed`, if absent: the commit point. Returns which outcome is there.

    A request without a reply is repeated, since it may still arrive: the same record cannot contradict it.
    `CommitOutcomeUnknown` if storage does not answer at all.
    """
    runtime = home.runtime
    applications = () if application is None else (application,)
    record = OutcomeRecord(name, Verdict.COMMITTED, runtime.uuid(), home.writer, runtime.now_ms(), applications=applications)
    instant = name.tables[0].instant
    cause: Exception = StorageUnavailable("no answer to the outcome of its transaction")
    for _ in range(OUTCOME_PUTS):
        own.learn(News.SENDS)
        made = create(home.storage, layout.outcome(name.id), record.to_bytes())
        if made is Created.OURS:
            own.learn(News.WINS)
            reached(Step.OUTCOME_PUT)
            home.emit(EventKind.DECIDED, instant, transaction=name.id)
            return Verdict.COMMITTED
        own.learn(News.HEARS_NOTHING)
        if made is Created.THEIRS:
            # Only this writer puts `committed`, so it was aborted, or the record is its own after a lost reply and a deletion:
            # the timelines tell.
            return Verdict.ABORTED
    raise outcome_unknown(home, instant, "TRANSACTION", cause)


def judge_outcome(verdict: Verdict, shown: Mapping[str, InstantFate]) -> GlobalOutcome:
    """What may be reported, by the fates in all tables, which were looked at after the outcome."""
    fates = set(shown.values())
    if verdict is Verdict.COMMITTED:
        lives = fates - {InstantFate.GONE}
        return GlobalOutcome.COMMITTED if lives == fates else GlobalOutcome.TORN if lives else GlobalOutcome.REJECTED
    if InstantFate.COMMITTED not in fates:
        return GlobalOutcome.REJECTED
    return GlobalOutcome.COMMITTED if fates == {InstantFate.COMMITTED} else GlobalOutcome.TORN


def settle_without_home(table: OpenTable, instant: str) -> OutcomeRecord:
    """Decide the transaction over several tables that waits at `instant` for a home that is gone for good.

    It is committed if one of its other tables shows it, else aborted: its writer reports no commit before all tables
    show it. The outcome is put where the home was, if there is none, so its other tables come to the same end.
    `InputError` if nothing waits there, the home is there, or the writer is alive; `StorageError` if a table gives no answer.
    """
    uri, timeline = table.storage.uri, table.timeline()
    prepare = decided_for(instant, table.log.look(newest=None).decisions)
    transaction = prepare.transaction if prepare is not None else None
    if (
        prepare is None
        or transaction is None
        or current_outcome(table, prepare, timeline).resolution is not Resolution.UNDECIDED
    ):
        raise InputError(f"{instant} of {uri} waits for no outcome", hint=command("commits", "show", uri, instant))
    home = table.storage_of(transaction.home)
    if has_table(home) and is_its_home(home, transaction):
        raise InputError(
            f"{instant} of {uri} waits for an outcome in {home.uri}, and that table is there",
            hint=f"the next writer of {uri} ends the transaction",
        )
    if owner_lives(table, instant, timeline):
        raise InputError(f"{prepare.writer}, whose transaction this is, is alive", hint="end that process first")
    shown = next((each for each in transaction.tables[1:] if _is_shown(table, each)), None)
    verdict = Verdict.ABORTED if shown is None else Verdict.COMMITTED
    why = f"{home.uri} is gone for good, and " + (f"{shown.uri} shows it" if shown else "no other table shows it")
    return put_outcome(table, home, transaction, verdict, why)


def _is_shown(table: OpenTable, where: TableInstant) -> bool:
    storage = table.storage_of(where.uri)
    return completed_write(storage, read_timeline(storage), where.instant) is not None


Taking = Callable[[], AbstractContextManager[Lease | None]]


@contextmanager
def all_locked(wanted: Sequence[tuple[OpenTable, Taking]]) -> Iterator[dict[str, Lease | None]]:
    """Hold the commit locks of all these tables while the block runs; the lease that guards each table, by its URI.

    They are taken in one order, that of their names, so that no two writers hold each other up. Tables that share one lock have
    one lease: a process that asked for it twice would wait for itself. `LockTimeout` after `lock.wait_s` for one of them.
    """
    leases: dict[str, Lease | None] = {}
    by_name: dict[str, Lease | None] = {}
    with ExitStack() as held:
        for table, take in sorted(wanted, key=lambda one: _name(one[0])):
            name = _name(table)
            if name not in by_name:
                by_name[name] = held.enter_context(take())
            leases[table.storage.uri] = by_name[name]
        yield leases


def _name(table: OpenTable) -> str:
    return table.storage.uri if table.provider is None else table.provider.lock_name


@contextmanager
def transaction_over(
    coordinators: Sequence[Coordinator], request: WriteRequest | str = "UPSERT"
) -> Iterator[MultiTableTransaction]:
    """A transaction over several tables, which the block commits. In PESSIMISTIC mode it locks all of them first, together."""
    with locked_for_writes(coordinators), MultiTableTransaction.begin(coordinators, request) as tx, ExitStack() as blocks:
        for part in tx.parts:
            blocks.enter_context(block_of(part.instant))
        yield tx


def locked_for_writes(coordinators: Sequence[Coordinator]) -> AbstractContextManager[None]:
    """In PESSIMISTIC mode the data locks of all tables, taken together, for everything that the block does; else none.

    `LockTimeout` names the holder in the way.
    """
    if not any(each.data.for_writes for each in coordinators):
        return nullcontext()
    for each in coordinators:
        each.ensure_same_provider()
    return holding_together([(each.data, each.data.request_of_write("UPSERT", ())) for each in coordinators])


CUT_ROUNDS = 5
"""How often the tables that others have written to are begun again, so that all of them are read as of one moment."""


class MultiTableTransaction:
    """One open transaction over several tables. Not for use by several threads at once.

    Use it as a context manager: an exception inside the block aborts it, and so does leaving the block without `commit`.
    `parts` are its transactions on the single tables, in the order in which the tables were given. `of_one_moment`: what they
    read is the state of all tables at one moment.
    """

    def __init__(self, parts: Sequence[Participant], own: OwnDecision, *, of_one_moment: bool) -> None:
        self.parts, self._own, self._of_one_moment = tuple(parts), own, of_one_moment
        self.name: TransactionName | None = None
        """What it is called in all tables, once it commits to more than one."""

    @classmethod
    def begin(cls, coordinators: Sequence[Coordinator], request: WriteRequest | str = "UPSERT") -> MultiTableTransaction:
        """Begin in every table. `InputError` for no table, a table named twice, or too many.

        The transaction of an application is applied at most once as a whole; `ConflictError` if it was applied before. What
        `Coordinator.begin` raises for one table takes back what was begun in the others.
        """
        uris = [each.table.storage.uri for each in coordinators]
        if not uris or len(set(uris)) < len(uris) or len(uris) > MOST_TABLES:
            raise InputError(
                f"a transaction over several tables needs different ones, at most {MOST_TABLES}: {', '.join(uris) or 'none'}",
                hint="name each table once",
            )
        own, parts = OwnDecision(), dict[str, Participant]()

        def begin(each: Coordinator) -> None:
            part = each.begin(request, Participant, own)
            part.extra[keys.OVER] = "\n".join(uris)
            parts[part.uri] = part

        try:
            for each in coordinators:
                begin(each)
            for _ in range(CUT_ROUNDS):
                moved = _moved([parts[uri] for uri in uris])
                for each in coordinators:
                    if each.table.storage.uri in moved:
                        parts[each.table.storage.uri].end_unwritten()
                        begin(each)
                if not moved:
                    break
        except BaseException:
            for part in parts.values():
                if part.state is TransactionState.OPEN:
                    part.end_unwritten()
            raise
        return cls([parts[uri] for uri in uris], own, of_one_moment=not moved)

    @property
    def state(self) -> TransactionState:
        """The state of the whole: that of its tables, where they agree, and open as long as one is."""
        states = {part.state for part in self.parts}
        if states & {TransactionState.OPEN, TransactionState.WRITTEN}:
            return TransactionState.OPEN
        return next(
            (s for s in (TransactionState.UNKNOWN, TransactionState.COMMITTED) if s in states), TransactionState.REJECTED
        )

    def commit(self) -> tuple[Committed, ...]:
        """Commit what was written in all tables; on return it is visible in each. One result for each table that was written.

        Raises `ConflictError` or `RolledBackError` (rejected, nothing remains in any table; the message names the table) or
        `CommitOutcomeUnknown`; and `TransactionTorn` if another engine has voided a part of it.
        """
        ended = [part for part in self.parts if part.state not in (TransactionState.OPEN, TransactionState.WRITTEN)]
        if ended:
            self.abort("a part of it had ended before")
            why = f": {ended[0].end_reason}" if ended[0].end_reason else ""
            raise TransactionStateError(
                f"this transaction has ended in {ended[0].uri}, where it is {ended[0].state.value}{why}",
                hint="begin a new transaction",
            )
        in_order = sorted(self.parts, key=lambda part: part.uri)
        writing = [part for part in in_order if part.writes]
        reading = [part for part in in_order if not part.writes and part.has_read]
        if len(writing) + len(reading) < 2 or (not writing and self._of_one_moment):
            return self._commit_one(writing)
        try:
            committed = self._commit_all(writing, reading)
        except (CommitOutcomeUnknown, IllegalTransition, TransactionTorn):
            self._leave(writing)
            raise
        except BaseException as error:
            self._withdraw(writing, error)
            raise
        finally:
            self._take_back()
        for part in writing:
            part.do_chores()
        return committed

    def _commit_one(self, writing: Sequence[Participant]) -> tuple[Committed, ...]:
        """What touches one table only is a plain commit."""
        try:
            return tuple(part.commit_alone() for part in writing)
        finally:
            self._take_back()

    def _commit_all(self, writing: Sequence[Participant], reading: Sequence[Participant]) -> tuple[Committed, ...]:
        home = (*writing, *reading)[0]
        name = TransactionName(
            f"{home.instant}-{home.table.runtime.uuid()}",
            tuple(part.where for part in writing),
            tuple(part.uri for part in reading),
        )
        self.name = name if writing else None
        for part in writing:
            part.refuse_foreign()
        for part in (*writing, *reading):
            part.get_ready(name)
        with all_locked([(part.table, part.locked) for part in (*writing, *reading)]) as leases:
            for part in writing:
                part.prepare(leases[part.uri])
                part.refuse_foreign()
            # Validate the reads last: from now on the prepares keep the written tables from changing.
            for part in reading:
                part.prepare(leases[part.uri])
            for lease in leases.values():
                if lease is not None:
                    lease.ensure_active()
            if not writing:
                return ()
            self._decide_and_publish(home, writing, name)
        reached(Step.UNLOCKED)
        # The outcome may be needed until every table shows the commit, so it is deleted last, when the home is tidied up.
        others = {part.uri: part.end_committed() for part in writing[1:]}
        done = {home.uri: home.end_committed(layout.outcome(name.id)), **others}
        return tuple(done[part.uri] for part in self.parts if part.uri in done)

    def _decide_and_publish(self, home: Participant, writing: Sequence[Participant], name: TransactionName) -> None:
        verdict = decide_outcome(home.table, name, self._own, home.application)
        try:
            # A late request may have put an outcome again that was deleted, so ask the timelines, that of the home first.
            shown = {home.uri: home.fate()}
            if verdict is Verdict.ABORTED and shown[home.uri] is InstantFate.PENDING:
                raise self._rejected(name, "another writer took its writer for dead and aborted it")
            if verdict is Verdict.ABORTED or shown[home.uri] is InstantFate.GONE:
                shown |= {part.uri: part.fate() for part in writing[1:]}
                self._tell(judge_outcome(verdict, shown), shown, name)
        except LakelockError as error:
            if isinstance(error, TransactionError):
                raise
            raise self._unknown(error) from error
        void = [part.uri for part in writing if not self._published(part)]
        if void:
            visible = {part.uri: InstantFate.GONE if part.uri in void else InstantFate.COMMITTED for part in writing}
            self._tell(GlobalOutcome.REJECTED if len(void) == len(writing) else GlobalOutcome.TORN, visible, name)
        self._ensure_in_place(home, writing)

    def _ensure_in_place(self, home: Participant, writing: Sequence[Participant]) -> None:
        """`CommitOutcomeUnknown` if a table was moved away: it does not show the commit yet, and still needs the outcome."""
        try:
            there = home.table.at_once(*(part.is_in_place for part in writing))
        except LakelockError as error:
            raise self._unknown(error) from error
        for part, is_there in zip(writing, there, strict=True):
            if not is_there:
                raise self._unknown(gone(part.uri))

    def _published(self, part: Participant) -> bool:
        try:
            part.publish()
        except RolledBackError:
            return False
        return True

    def _tell(self, outcome: GlobalOutcome, shown: dict[str, InstantFate], name: TransactionName) -> None:
        """Raise unless the whole is committed, or still to be published where it is pending."""
        if outcome is GlobalOutcome.REJECTED:
            raise self._rejected(name, "another Hudi writer rolled it back before it was visible in any table")
        if outcome is GlobalOutcome.TORN:
            for part in self.parts:
                if shown.get(part.uri) is InstantFate.PENDING:
                    self._published(part)
            void = sorted(uri for uri, fate in shown.items() if fate is InstantFate.GONE)
            visible = sorted(uri for uri, fate in shown.items() if fate is not InstantFate.GONE)
            problem = f"the transaction {name.id} is committed in {', '.join(visible)}, and void in {', '.join(void)}"
            self.parts[0].table.emit(EventKind.ALERT, problem=problem)
            raise TransactionTorn(
                f"{problem}, where another Hudi writer rolled it back after it was committed",
                hint="set hoodie.clean.failed.writes.policy=LAZY in that writer; then write what is missing, or undo the rest "
                "with restore",
                committed=visible,
                void=void,
            )

    def _rejected(self, name: TransactionName, why: str) -> RolledBackError:
        self._own.learn(News.REJECTED)
        return RolledBackError(
            f"the transaction {name.id} over {', '.join(each.uri for each in name.tables)} was rejected: {why}",
            hint="run the transaction again; if the process was paused, raise heartbeat.interval_s and lock.lease_s",
            transaction=name.id,
        )

    def _unknown(self, cause: Exception) -> CommitOutcomeUnknown:
        home = min((part for part in self.parts if part.writes), key=lambda part: part.uri)
        return outcome_unknown(home.table, home.instant, home.operation, cause)

    def _leave(self, writing: Sequence[Participant]) -> None:
        for part in writing:
            part.end_unknown()

    def _withdraw(self, writing: Sequence[Participant], error: BaseException) -> None:
        """Remove it from every table, unless it may be committed: then nothing is removed, and the outcome will tell."""
        if self._own.may_be_committed:
            self._leave(writing)
            if isinstance(error, Exception):
                raise self._unknown(error) from error
            return
        for part in writing:
            part.abort(str(error) or type(error).__name__, disturbed=isinstance(error, RolledBackError))

    def _take_back(self) -> None:
        """The tables in which nothing was written."""
        for part in self.parts:
            if part.state is TransactionState.OPEN:
                part.end_unwritten()

    def abort(self, reason: str = "") -> None:
        """Withdraw it from every table. Never raises for storage: what is left, the next writers remove."""
        for part in self.parts:
            if part.state is TransactionState.WRITTEN:
                part.abort(reason)
        self._take_back()

    def __enter__(self) -> MultiTableTransaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state is TransactionState.OPEN:
            self.abort("" if error is None else str(error) or type(error).__name__)


def _moved(parts: Sequence[Participant]) -> frozenset[str]:
    """The tables in which something was decided or completed after the transaction began there. Two listings for each.

    Where nothing was, each table is now as its baseline shows it, and was when the last of them was begun.
    """
    if len(parts) < 2:
        return frozenset()
    looks = [look for part in parts for look in (part.table.timeline, partial(part.table.log.numbers, part.baseline.first))]
    found = parts[0].table.at_once(*looks)
    pairs = zip(parts, found[::2], found[1::2], strict=True)
    return frozenset(
        part.uri
        for part, timeline, decided in pairs
        if decided or timeline.completed_instants != part.baseline.timeline.completed_instants
    )


MOMENT_ROUNDS = 5
"""How often the heads may move before the tables are looked at under their locks."""


def timelines_of_one_moment(tables: Sequence[OpenTable]) -> tuple[Timeline, ...]:
    """The timeline of each table, all as of one moment, in the order in which the tables are given. Writes nothing.

    A commit that has its outcome, and is still to be published somewhere, is completed in each of them. If others commit so
    often that five looks do not suffice, the tables are looked at under their commit locks. `SnapshotTooOld` if that fails.
    """
    uris = {table.storage.uri for table in tables}
    if not uris or len(uris) < len(tables) or len(tables) > MOST_TABLES:
        raise InputError("a snapshot needs different tables", hint=f"name each table once, at most {MOST_TABLES}")
    for _ in range(MOMENT_ROUNDS):
        found = _views_once(tables)
        if found is not None:
            return found
    with all_locked([(table, partial(table.locked, operation="SNAPSHOT")) for table in tables]):
        for table in tables:
            finish_head(table, table.log.look(), table.timeline())
        found = _views_once(tables)
    if found is None:
        raise SnapshotTooOld(f"others kept committing to {', '.join(sorted(uris))} in each look", hint="run it again")
    return found


def _views_once(tables: Sequence[OpenTable]) -> tuple[Timeline, ...] | None:
    """One look; None if a head has moved meanwhile."""
    views = [table.log.look() for table in tables]
    timelines = [table.timeline_of_one_moment() for table in tables]
    open_heads = {
        at: head for at, head in enumerate(map(_prepared, views)) if head and not timelines[at].is_visible(head.instant)
    }
    # Each transaction is judged once, and the same in all of its tables: between two looks it could be decided.
    committed: dict[str, bool] = {}
    for at, head in open_heads.items():
        transaction = head.transaction
        assert transaction is not None
        if transaction.id not in committed:
            outcome = read_outcome(tables[at].storage_of(transaction.home), transaction.id)
            committed[transaction.id] = by_outcome(tables[at], head, outcome).resolution is Resolution.COMMITTED
        if committed[transaction.id]:
            done = Instant(head.instant, head.action, State.COMPLETED, head.completion)
            timelines[at] = timelines[at].with_completed(done)
    heads = [table.log.look(newest=0).head for table in tables]
    return tuple(timelines) if heads == [view.head for view in views] else None


def _prepared(view: LogView) -> Decision | None:
    head = view.decisions[-1] if view.decisions else None
    return head if head is not None and head.kind is DecisionKind.PREPARE else None
