"""A transaction: begin, write without any lock, commit in a short critical section.

```
begin ──► open ──► commit ──► committed          visible to everybody
            │         ├─────► rejected           conflict, or rolled back by somebody else; nothing remains
            │         └─────► unknown            storage gave no answer; nothing is cleaned up; the log will tell
            └──► abort ─────► rejected
```
A commit that conflicts may also be set aside: it never commits, and its files stay until the next attempt has copied them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TypeAlias

from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    RolledBackError,
    WriteFailed,
)
from lakelock.events import EventKind
from lakelock.markers import direct
from lakelock.markers.direct import MarkerSet
from lakelock.markers.reconcile import files_to_delete
from lakelock.occ.certainty import IllegalTransition, News
from lakelock.occ.committing.commit import Commit, Stock
from lakelock.occ.committing.deciding import Deciding
from lakelock.occ.committing.pending_commit import PendingCommit
from lakelock.occ.conflicts.collision import worth_keeping
from lakelock.occ.conflicts.isolation import Isolation, Level
from lakelock.occ.foreign.overlaps import alarm
from lakelock.occ.foreign.undone import undone_error
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.phases import Phase
from lakelock.occ.records import commit_keys as keys
from lakelock.occ.records.decisions import Decision
from lakelock.occ.recovery.ending import TransactionState, outcome_unknown, remove_uncounted, tidy_up, withdraw
from lakelock.occ.recovery.rollback import RollbackTarget
from lakelock.occ.redo import goes_aside
from lakelock.occ.steps import Step, reached
from lakelock.occ.upkeep.run import after_commit
from lakelock.occ.work import Work
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.instants import Action
from lakelock.table.layout import FileGroupId
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import FileStatistics

Last: TypeAlias = Callable[[], Sequence[WriteStat]]
"""Writes the last of a write's files and tells what they hold."""
Replaced: TypeAlias = Mapping[str, Sequence[str]]
"""The ids of file groups by partition."""


class Transaction(Work):
    """One open transaction. Not for use by several threads at once; executors get a `WriteContext` instead.

    Use it as a context manager: an exception inside the block aborts it, and so does leaving the block without `commit`.
    """

    _markers: MarkerSet | None = None
    _stats: Sequence[WriteStat] = ()

    def commit(
        self,
        stats: Sequence[WriteStat],
        *,
        schema: TableSchema | None = None,
        replaced: Replaced | None = None,
        last: Last | None = None,
    ) -> Committed:
        """Validate, decide and publish; on return the transaction is visible to everybody.

        `stats`: one per base file, exactly one per file group, beside what was noted with `wrote` before. `schema`: the table's
        schema after this commit, if it changes. `replaced`: file groups by partition whose content this commit replaces.
        `last` writes what is still to be written, a small file; it is called while the lock is taken if nobody else is expected
        there.
        Raises `ConflictError` or `RolledBackError` (rejected, nothing remains), `CommitOutcomeUnknown` or `CommitUndone`.
        """
        self._ensure_open()
        if last is None:
            reached(Step.DATA_WRITTEN)
        commit: Commit | None = None
        try:
            # A job commits once, so nothing is decided before this, not even for an adopted transaction.
            self._decision.learn(News.COMMITS)
            with self.phases.during(Phase.VALIDATE):
                self._touch(stats, replaced)
                commit = self._new_commit()
                decision = commit.run(partial(self._take_stock, stats, schema, replaced, last), self._tidy_up)
        except (CommitOutcomeUnknown, IllegalTransition):
            self.state = TransactionState.UNKNOWN
            self._heartbeat.stop(delete=False)
            raise
        except BaseException as error:
            if isinstance(error, ConflictError | RolledBackError):
                self._decision.learn(News.REJECTED)
            if self._decision.may_be_committed:
                # The decision may have been made before the error: only the log knows, so nothing is removed.
                self.state = TransactionState.UNKNOWN
                self._heartbeat.stop(delete=False)
                if isinstance(error, Exception):
                    raise outcome_unknown(self._table, self.instant, self.operation, error) from error
            else:
                lost = self._lost = self._rejection(error.conflict, error.hint) if isinstance(error, ConflictError) else error
                if isinstance(lost, ConflictError):
                    self._tell(EventKind.CONFLICT, lost.conflict)
                if not self._is_set_aside(error, commit):
                    self._withdraw(str(error), disturbed=isinstance(error, RolledBackError | WriteFailed))
                if isinstance(lost, ConflictError):
                    raise lost.with_traceback(error.__traceback__) from error.__cause__
            raise
        return self._committed(commit, decision)

    def _committed(self, commit: Commit, decision: Decision) -> Committed:
        """What follows the publication. `CommitUndone` if another engine, which takes no lock, has undone it meanwhile."""
        self.state = TransactionState.COMMITTED
        if self.reserved.own is not None:
            self.reserved.own.end()
        result = Committed.of(
            decision, self._stats, kept=self.redo.kept, lock=commit.lock, took_s=self.took_s(), phases=self.phases.told()
        )
        self._emit(EventKind.COMMITTED, **result.facts)
        undone = alarm(table=self._table, baseline=self.baseline, decision=decision, known=commit.judged)
        after_commit(self._table, decision.number)
        if undone is not None and undone.gone:
            raise undone_error(self._table, undone)
        return result

    def _take_stock(
        self,
        stats: Sequence[WriteStat],
        schema: TableSchema | None,
        replaced: Replaced | None,
        last: Last | None = None,
    ) -> Stock:
        """Write what is still to be written, remove the announced files that are not part of the commit, note the markers."""
        listed = partial(direct.listed, self._table.storage, self.instant)
        if last is not None:
            # What was announced before it is written is among the markers that are listed meanwhile.
            written, markers = self._table.at_once(last, listed)
            self._stats = self.own.followed_by((*stats, *written)).stats
            reached(Step.DATA_WRITTEN)
            self._touch(self._stats, replaced)
            if not {stat.path for stat in self._stats} <= {marker.data_key for marker in markers.markers}:
                markers = listed()
        else:
            self._stats, markers = self.own.followed_by(stats).stats, listed()
        self.check_alive()
        self._markers, self.reconciled = markers, True
        try:
            uncounted = files_to_delete(markers, self._stats)
        except WriteFailed:
            self._table.timeline()  # a `TableError` says more, if the markers went with the table
            raise
        remove_uncounted(self._table.storage, markers, uncounted)
        reached(Step.RECONCILED)
        return self._stock(schema, replaced)

    def _touch(self, stats: Sequence[WriteStat], replaced: Replaced | None) -> None:
        self._touched.write_to({*(stat.partition_path or "" for stat in (*self.own.stats, *stats)), *(replaced or ())})

    def _tidy_up(self, more: Iterable[str] = ()) -> None:
        """After the publication: remove what announced the transaction, and `more`."""
        self._heartbeat.stop(delete=False)
        keys = self._markers.keys if self._markers is not None else ()
        tidy_up(self._table, self.instant, self.operation, keys, self._touched.announced.claimed, more)

    def _stock(self, schema: TableSchema | None, replaced: Replaced | None) -> Stock:
        draft = PendingCommit.of(
            self._touched.footprint.wrote(self._stats, replaced, in_buckets=self.baseline.properties.bucket_index is not None),
            self._stats,
            (replaced or {}) if self.baseline.action == Action.REPLACE_COMMIT.value else None,
            self.schema if schema is None or schema == self.schema else schema,
            {
                keys.TAG: self._tag,
                keys.SAW: self.baseline.timeline.newest_completion,
                keys.KEPT: str(self.redo.kept or ""),
                **self.extra,
            },
        )
        return draft, self._deciding(draft)

    def _new_commit(self) -> Commit:
        level = Level(self._table.settings.concurrency.isolation)
        return Commit(
            self._table,
            self.baseline,
            schema=self.schema,
            isolation=Isolation(self._file_before, self._statistics_before, level, self.schema),
            ensure_alive=self.check_alive,
            reserved=self.reserved,
            took_s=self.took_s,
            phases=self.phases,
        )

    def _deciding(self, draft: PendingCommit) -> Deciding:
        return Deciding(self._table, self.baseline, draft, self._decision)

    def _file_before(self, group: FileGroupId) -> DataFile | None:
        return self.snapshot().group(group)

    def _statistics_before(self, file: DataFile) -> FileStatistics | None:
        return self.snapshot().stats_of(file)

    def abort(self, reason: str = "", *, disturbed: bool = False) -> None:
        """Withdraw the transaction and remove its files. Never raises for storage: what is left, the next writer removes.

        An adopted transaction may have been committed by another process of its job: then it stays, and `state` says so.
        `disturbed`: others have rolled it back, and may have removed markers before the files that they announce were written.
        """
        if self.state in (TransactionState.OPEN, TransactionState.SET_ASIDE):
            self._withdraw(reason, disturbed=disturbed)

    def _is_set_aside(self, error: BaseException, commit: Commit | None) -> bool:
        """Set this transaction aside if the next attempt may use its files."""
        if commit is None or not (self.redo.keeps_files and isinstance(error, ConflictError) and self.is_alive):
            return False
        found = worth_keeping(error.conflict, commit.footprint, commit.judged.values())
        if found is None or not goes_aside(self._table, self._decision, self.party, found, self._touched.announced):
            return False
        self.state = TransactionState.SET_ASIDE
        return True

    def _withdraw(self, reason: str, *, disturbed: bool) -> None:
        """Remove what was written. Where this may be committed, only the log says whether it is."""
        self.state = TransactionState.UNKNOWN if self._decision.may_be_committed else TransactionState.REJECTED
        disturbed = disturbed or not self._heartbeat.alive()
        self._heartbeat.stop(delete=False)
        evidence = self.end_reason = reason.splitlines()[0] if reason else "aborted"
        claims = self._touched.announced.own_claims(disturbed=disturbed)
        target = RollbackTarget(self.instant, Action(self.baseline.action), self.operation, evidence, claims)
        self.state = withdraw(self._table, target, self._decision, disturbed=disturbed, lost=self._lost)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.state is TransactionState.OPEN:
            self.abort("" if error is None else str(error) or type(error).__name__)
