"""One table's part in a transaction over several: it is written like any transaction, and commits only with the others.

In place of a commit's decision each table gets a prepare, or a mere validation if it was only read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from lakelock.errors import ConflictError, RolledBackError, TableError
from lakelock.events import EventKind, Step, reached
from lakelock.occ import commit_keys as keys
from lakelock.occ.begin import Baseline, give_up, inflight_key
from lakelock.occ.commit import Commit, Deciding, PendingCommit
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.ending import News, OwnDecision, TransactionState
from lakelock.occ.footprint import CommitCost
from lakelock.occ.foreign import alarm
from lakelock.occ.log import Decision, DecisionKind, LogView, TableInstant, TransactionName
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publish import InstantFate, fate_of
from lakelock.occ.transaction import Last, Replaced, Transaction
from lakelock.occ.upkeep import after_commit
from lakelock.providers.base import Lease
from lakelock.storage import Created
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.instants import Action
from lakelock.table.schema import TableSchema
from lakelock.table.timeline import Timeline


class Preparing(Deciding):
    """Puts a prepare under the next number, and publishes it on request."""

    def __init__(
        self, table: OpenTable, baseline: Baseline, draft: PendingCommit, own: OwnDecision, name: TransactionName
    ) -> None:
        super().__init__(table, baseline, draft, own)
        self._name = name
        self._prepared: tuple[Decision, Timeline, Lease | None, KeptMetadata | None] | None = None

    def stands(self, mine: Decision) -> bool:
        """Whether it is the prepare: one whose reply got lost is found in the log."""
        return mine.kind is DecisionKind.PREPARE

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """Put the prepare. None when another writer has the number, or no reply came: then the log is looked at again.

        It decides nothing before the outcome, so an unanswered request needs no withdrawal: should it land later, its number is
        the one that the next look finds it under, or one that was collected.
        """
        table = self._table
        record = self._record(DecisionKind.PREPARE, view, timeline, schema_json, cost)
        prepare = replace(record, transaction=self._name)
        if table.log.decide(prepare) is not Created.OURS or table.log.boundary() >= prepare.number:
            return None
        reached(Step.PREPARED)
        table.emit(EventKind.PREPARED, prepare.instant, prepare.operation, decision=prepare.number, transaction=self._name.id)
        return prepare

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None, metadata: KeptMetadata | None) -> Decision:
        """Keep the prepare for its publication."""
        self._prepared = decision, timeline, lease, metadata
        return decision

    def publish(self) -> Decision:
        """Make the prepared commit visible, after the outcome; `RolledBackError` if another engine has rolled it back."""
        assert self._prepared is not None, "it is prepared before the outcome is put"
        return super().conclude(*self._prepared)


class Validating(Deciding):
    """Decides nothing: in a table that is only read, validation is all there is."""

    def decide(self, view: LogView, timeline: Timeline, schema_json: str, cost: CommitCost) -> Decision | None:
        """The record that a commit would have had; it is not stored."""
        return self._record(DecisionKind.COMMIT, view, timeline, schema_json, cost)

    def conclude(self, decision: Decision, timeline: Timeline, lease: Lease | None, metadata: KeptMetadata | None) -> Decision:
        """There is nothing to publish."""
        return decision


class Participant(Transaction):
    """A transaction on one table whose `commit` only notes what was written: it is committed with the other tables, or not.

    It reads and writes as any other does, so each engine's functions that end with a commit work with it.
    """

    _written: tuple[Sequence[WriteStat], TableSchema | None, Replaced | None] | None = None
    _name: TransactionName | None = None
    _preparing: Preparing | None = None
    _commit: Commit | None = None
    _decided: Decision | None = None

    @property
    def uri(self) -> str:
        return self._table.storage.uri

    @property
    def writes(self) -> bool:
        """Whether its write is complete."""
        return self._written is not None

    @property
    def has_read(self) -> bool:
        """Whether the transaction depends on what it read here."""
        return bool(self._touched.reads)

    @property
    def application(self) -> AppTransaction | None:
        return self._application

    @property
    def where(self) -> TableInstant:
        return TableInstant(self.uri, self.instant, self.baseline.action)

    def commit(
        self,
        stats: Sequence[WriteStat],
        *,
        schema: TableSchema | None = None,
        replaced: Replaced | None = None,
        last: Last | None = None,
    ) -> Committed:
        """Note what is to be committed with the other tables. The result has no decision yet: nothing is visible."""
        self._ensure_open()
        written = stats if last is None else (*stats, *last())
        reached(Step.DATA_WRITTEN)
        self._written = written, schema, replaced
        self.state = TransactionState.WRITTEN
        return Committed(self.operation, self.instant, "")

    def commit_alone(self) -> Committed:
        """Commit as a plain transaction: it turned out that no other table takes part."""
        assert self._written is not None
        self.state = TransactionState.OPEN
        stats, schema, replaced = self._written
        return super().commit(stats, schema=schema, replaced=replaced)

    def get_ready(self, name: TransactionName) -> None:
        """Everything that needs no lock: remove files that do not count, build the commit, look at what others committed."""
        self._name = name
        self._decision.learn(News.COMMITS)
        stats, schema, replaced = self._written or ((), None, None)
        self._touch(stats, replaced)
        if self.writes:
            self.extra[keys.TRANSACTION] = name.to_json()
            staged = self._stage_files(stats, schema, replaced)
        else:
            staged = self._staged(schema, replaced)
        self._commit = self._new_commit()
        self._commit.look_ahead(staged)

    def _deciding(self, draft: PendingCommit) -> Deciding:
        if self._name is None:
            return super()._deciding(draft)
        if not self.writes:
            return Validating(self._table, self.baseline, draft, self._decision)
        self._preparing = Preparing(self._table, self.baseline, draft, self._decision, self._name)
        return self._preparing

    def refuse_foreign(self) -> None:
        """`TableError` where another engine writes this table, too, unless `transaction.allow_foreign` is set.

        Java's rollback asks for no outcome. If this writer dies between the outcome and the publication, it may void this
        table's part of a transaction that is visible in the others.
        """
        table = self._table
        if table.observed.foreign_writers and not table.settings.transaction.allow_foreign:
            raise TableError(
                f"{self.uri} is written by another Hudi engine, too, which could roll back this table's part of a transaction "
                "over several tables after it was committed",
                hint="write this table in a transaction of its own, or set transaction.allow_foreign if the rollbacks of that "
                "engine keep to the lock (hoodie.clean.failed.writes.policy=LAZY)",
                table=self.uri,
            )

    @contextmanager
    def locked(self) -> Iterator[Lease | None]:
        """Hold the table's commit lock."""
        assert self._commit is not None
        with self._commit.lock.holding(self.instant, self.operation) as held:
            yield held.lease

    def prepare(self, lease: Lease | None) -> None:
        """Validate, and in a table that is written put the prepare. Hold the table's lock. Raises as a commit does."""
        assert self._commit is not None
        try:
            self._decided = self._commit.decide_under(lease, puts=self.writes)
        except ConflictError as error:
            lost = self._lost = _in_table(self._rejection(error.conflict, error.hint), self.uri)
            self._tell(EventKind.CONFLICT, lost.conflict)
            raise lost.with_traceback(error.__traceback__) from error.__cause__
        except RolledBackError as error:
            self._lost = _in_table(error, self.uri)
            raise

    def publish(self) -> None:
        """Make it visible, after the outcome. `RolledBackError` if it is void, `CommitOutcomeUnknown` if that is unknown."""
        assert self._preparing is not None
        self._decided = self._preparing.publish()

    def fate(self) -> InstantFate:
        """What the timeline says of it now. One listing."""
        return fate_of(self._table, self.instant, self._table.timeline())

    def is_in_place(self) -> bool:
        """Whether the table still has what announced this, so that it was not published in an empty place. One request."""
        return self._table.storage.get(inflight_key(self.instant, Action(self.baseline.action))) is not None

    def end_committed(self, *more: str) -> Committed:
        """Tidy up after the commit; `more` are keys that are removed in the same request."""
        assert self._decided is not None and self._commit is not None and self._written is not None
        decision, commit = self._decided, self._commit
        self.state = TransactionState.COMMITTED
        self._tidy_up(more)
        result = Committed.of(
            decision, self._stats, kept=0, lock=commit.lock, took_s=self.took_s(), phases=self.phases.seconds()
        )
        self._emit(EventKind.COMMITTED, **result.facts)
        alarm(table=self._table, baseline=self.baseline, decision=decision, known=commit.judged)
        return result

    def do_chores(self) -> None:
        """Run what follows a commit (checkpoint, catalog, upkeep); no transaction waits for this one any more."""
        if self._decided is not None and self.writes:
            after_commit(self._table, self._decided.number)

    def end_unknown(self) -> None:
        """Leave everything as it is: the outcome will tell, and others finish or remove it."""
        self.state = TransactionState.UNKNOWN
        self._heartbeat.stop(delete=False)

    def end_unwritten(self) -> None:
        """Take the instant back: nothing was written in this table. Never raises."""
        if self._writing or self._touched.announced.claimed:
            self.abort("nothing was written")
            return
        self.state = TransactionState.REJECTED
        give_up(self._table, self._heartbeat, self.instant, Action(self.baseline.action))

    def abort(self, reason: str = "", *, disturbed: bool = False) -> None:
        """Withdraw it and remove its files; see `Transaction.abort`."""
        if self.state is TransactionState.WRITTEN:
            self.state = TransactionState.OPEN
        super().abort(reason, disturbed=disturbed)


E = TypeVar("E", ConflictError, RolledBackError)


def _in_table(error: E, uri: str) -> E:
    """The error, which now names the table that it is about."""
    error.message = f"in {uri}: {error.message}"
    error.details["table"] = uri
    return error
