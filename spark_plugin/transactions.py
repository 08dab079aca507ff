"""The transactions of a `LakeTable`: a user's own, whose reads and writes are validated as one, and that of each single write.

A write's own transaction is run again where that is safe. Its result is for people and programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from lakelock.checked_calls import checked_calls
from lakelock.engine.batch import AttemptCache, Batch, Place
from lakelock.engine.group_commit import NotTogether, SmallWrite, alone_or_together, may_group
from lakelock.engine.small_writes import SmallWrites
from lakelock.errors import ConflictError, InputError, LakelockError, SchemaError, TransactionStateError
from lakelock.events import current
from lakelock.occ import commit_keys as keys
from lakelock.occ.committed import Committed, RunResult, WriteResult
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import block_of
from lakelock.occ.footprint import WholeTable
from lakelock.occ.request import Every, Targets, WriteRequest, numbered, resources_of, target_of_condition
from lakelock.occ.retry import applied_instead, run
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.spark_plugin import changing, inserting, merging
from lakelock.spark_plugin.arguments import (
    Assignments,
    changed,
    checked_assignments,
    chosen_rows,
    delta_arguments,
    delta_update,
)
from lakelock.spark_plugin.lookup import RowsRead, is_quick
from lakelock.spark_plugin.merge_builder import TARGET, MergeBuilder, MergeSpec, with_columns_equated
from lakelock.spark_plugin.merging import MergePlan
from lakelock.spark_plugin.spark_jobs import job_group
from lakelock.spark_plugin.spark_session import KeptFrames, ended_by, outcome_reported, require_batch, require_running
from lakelock.spark_plugin.sql_planning import StatementPlanner
from lakelock.spark_plugin.stage_rows import FewRows, few_rows, is_little
from lakelock.spark_plugin.write_attempt import Attempt, Memory, Write, Written, fitting_frame, fitting_keys
from lakelock.table.properties import TableProperties
from lakelock.table.record_keys import require_key
from lakelock.table.rewriting import ARROW, KeyedRows
from lakelock.table.schema import TableSchema


class Beginning(Protocol):
    """Where the transaction of a block comes from."""

    def begin(self, locks: ExitStack, *, anew: bool = False) -> Transaction:
        """Begin it; `locks` are given back when the block ends. `anew`: not as its application's version, which is applied."""

    def attempt(self, tx: Transaction) -> Attempt:
        """What Spark needs to write for it."""

    def applied(self, error: LakelockError) -> Committed | None:
        """The result if the error says that its application has applied its version before; None for any other error."""


@dataclass(frozen=True)
class GivenTransaction:
    """A transaction that was begun elsewhere, for a function that runs again if need be, or over several tables."""

    tx: Transaction
    attempt_of: Callable[[Transaction], Attempt]

    def begin(self, locks: ExitStack, *, anew: bool = False) -> Transaction:
        return self.tx

    def attempt(self, tx: Transaction) -> Attempt:
        return self.attempt_of(tx)

    def applied(self, error: LakelockError) -> Committed | None:
        return None


@checked_calls
class LakeTransaction:
    """`with table.transaction() as tx:` — reads see the table as it was at the beginning, writes are committed together.

    It is rejected (`ConflictError`) if another writer commits what its reads would have seen. A block is never run again
    automatically; a function is, by `table.run`. An exception in the block rolls everything back. After the block `result`
    says what was committed.

    A transaction whose version its application has applied before can still read, but its writes do nothing: `already_applied`
    says so in the block, which may return at once, and `result` says so after it.

    Its reads do not see its own writes. Its writes do: they are applied one after the other, so a delete after an upsert of the
    same key deletes it, and an upsert after a delete stores it.
    """

    def __init__(self, beginning: Beginning) -> None:
        self._beginning = beginning
        self._applied: Committed | None = None
        self._locks = ExitStack()
        self._attempt: Attempt | None = None
        self.committed: Committed | None = None

    @property
    def result(self) -> WriteResult | None:
        """What was committed; None before the end of the block."""
        return self.committed

    def __enter__(self) -> LakeTransaction:
        if self._attempt is not None:
            raise TransactionStateError("this transaction was used before", hint="call table.transaction() for a new one")
        try:
            self._attempt = self._beginning.attempt(self._begun())
        except BaseException:
            self._locks.close()
            raise
        return self

    def _begun(self) -> Transaction:
        try:
            return self._beginning.begin(self._locks)
        except ConflictError as error:
            self._applied = self._beginning.applied(error)
            if self._applied is None:
                raise
        self._locks.close()
        return self._beginning.begin(self._locks, anew=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        attempt = self._open()
        spark, path = attempt.spark, attempt.storage.uri
        with self._locks, closing(attempt), attempt.tx as tx:
            if error is not None:
                tx.abort(str(error) or type(error).__name__)
                if gone := ended_by(error, spark, tx, path):
                    raise gone from error
                return
            with outcome_reported(spark, tx, path):
                self.committed = self._applied or self._commit(tx, attempt.earlier)

    def _commit(self, tx: Transaction, written: Written) -> Committed:
        try:
            return tx.commit((), schema=written.schema, replaced=written.replaced)
        except ConflictError as error:
            applied = self._beginning.applied(error)
            if applied is None:
                raise
            return applied

    @property
    def attempt(self) -> Attempt:
        """What it works with, and what it has written so far."""
        return self._open()

    @property
    def instant(self) -> str:
        return self._open().tx.instant

    @property
    def already_applied(self) -> bool:
        """Whether the application had applied this version before this transaction began; if so, its writes do nothing."""
        self._open()
        return self._applied is not None

    def read(self, where: str | Column | None = None, *, include_meta: bool = False) -> DataFrame:
        """The rows (that satisfy `where`) as of the transaction's beginning. Put into `where` everything that the result
        depends on: only rows that satisfy it are watched."""
        attempt = self._open()
        snapshot = attempt.tx.snapshot()
        if where is None:
            attempt.tx.reads(WholeTable())
            return attempt.read(snapshot.files, meta=include_meta, pruned=True)
        condition = attempt.condition(where)
        pruning = attempt.pruning(condition)
        attempt.tx.reads(RowsRead(condition, pruning, attempt))
        frame = attempt.read(pruning.files_of(snapshot), meta=include_meta, pruned=True)
        return frame.where(condition.on(frame))

    def insert(self, df: DataFrame) -> None:
        """Append the rows at the commit."""
        self._write(partial(inserting.insert, df=require_batch(df, "insert")))

    def upsert(self, df: DataFrame, *, missing_columns: MissingColumns | None = None) -> None:
        """Insert or replace the rows by key at the commit; `missing_columns` is as for `LakeTable.upsert`."""
        require_batch(df, "upsert")
        require_key(self._open().properties, "an upsert")
        settings = changed(self._open().settings, missing_columns=missing_columns)
        self._write(lambda attempt: changing.upsert(replace(attempt, settings=settings), df))

    @delta_arguments(condition="what")
    def delete(self, what: str | Column | DataFrame | Every = Every.ROW) -> None:
        """Delete by condition, by a data frame of keys, or all rows, at the commit; see `LakeTable.delete`."""
        what = chosen_rows(what)
        if isinstance(what, str | Column):
            condition = self._open().condition(what)
            self._write(partial(changing.delete_where, condition=condition))
        else:
            require_key(self._open().properties, "a delete by keys")
            self._write(partial(changing.delete_keys, df=require_batch(what, "delete")))

    @delta_update
    def update(self, set: Assignments, where: str | Column | None = None) -> None:  # noqa: A002 - as `LakeTable.update`
        """Give the rows that satisfy `where`, or all rows, new values at the commit; see `LakeTable.update`."""
        attempt = self._open()
        values = checked_assignments(
            attempt.spark, set, attempt.schema, attempt.properties, "update", merge_schema=attempt.settings.merge_schema
        )
        condition = None if where is None else attempt.condition(where)
        self._write(partial(changing.update_where, values=values, condition=condition))

    @delta_arguments(condition="on")
    def merge(
        self,
        source: DataFrame,
        on: str | Column | Sequence[str],
        *,
        target_alias: str = TARGET,
        source_alias: str | None = None,
    ) -> MergeBuilder[None]:
        """Describe a merge of `source` into the table, to be committed with the transaction; see `LakeTable.merge`."""
        return MergeBuilder(MergeSpec.of(source, on, target_alias, source_alias), self._merge)

    def sql(self, statement: str, args: Mapping[str, object] | None = None) -> None:
        """Run one UPDATE, DELETE, MERGE or INSERT INTO in SQL, to be committed with the transaction; see `LakeTable.sql`.

        It may read views of what the transaction has read."""
        attempt = self._open()
        uri = attempt.storage.uri
        planned = StatementPlanner(
            attempt.spark, attempt.schema, attempt.properties, uri, partial(attempt.known, attempt.tx), in_transaction=True,
            merge_schema=attempt.settings.merge_schema,
        ).plan(statement, args)  # fmt: skip
        if planned.replaces:
            raise InputError(
                "a transaction takes no INSERT OVERWRITE and no REPLACE WHERE",
                hint="run it with table.sql, which is a transaction of its own; or write DELETE FROM and then INSERT INTO",
            )
        self._write(planned.write)

    def _merge(self, spec: MergeSpec) -> None:
        attempt = self._open()
        spec = replace(spec, merge_schema=spec.merge_schema or attempt.settings.merge_schema)
        spec, known = with_columns_equated(spec, attempt.schema), partial(attempt.known, attempt.tx)
        plan = MergePlan.of(spec, attempt.schema, attempt.properties, known)
        self._write(partial(merging.merge, plan=plan))

    def _write(self, write: Write) -> None:
        attempt = self._open()
        if self._applied is not None:
            return
        try:
            # Each write has rows of its own, and none of them is ever run again by itself.
            written = write(replace(attempt, memory=Memory(attempt.kept)))
        except BaseException as error:
            attempt.tx.abort(str(error) or type(error).__name__)
            raise
        attempt.tx.wrote(written.stats, written.schema)
        self._attempt = replace(attempt, earlier=attempt.earlier + written)

    def _open(self) -> Attempt:
        if self._attempt is None:
            raise TransactionStateError("the transaction has not begun", hint="use it as `with table.transaction() as tx:`")
        return self._attempt


T = TypeVar("T")


@checked_calls
class TableTransactions:
    """The part of a `LakeTable` that begins, commits and repeats transactions."""

    _spark: SparkSession
    _coordinator: Coordinator
    _root: str

    def transaction(
        self,
        operation: str = "UPSERT",
        *,
        partition: Targets = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> LakeTransaction:
        """Read, compute and write as one: `with table.transaction() as tx:`. Commits when the block ends without error.

        `partition` is where it may write. In PESSIMISTIC mode this part, or the whole table, is locked from the beginning.
        With `txn_app_id` and `txn_version` it is applied once as a whole: if repeated, `tx.already_applied` is True in it,
        and the block's writes do nothing.
        """
        request = WriteRequest(operation, partition, application=numbered(txn_app_id, txn_version))
        resources_of(partition, self._coordinator.properties)  # a wrong one is refused here, not in the block
        return LakeTransaction(_OwnTransaction(self, request))

    def run(
        self,
        function: Callable[[LakeTransaction], T],
        operation: str = "UPSERT",
        *,
        partition: Targets = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> RunResult[T]:
        """Read, compute and write as one, again until no other commit came between: `table.run(lambda tx: ...)`.

        The function gets what `table.transaction` gives to its block, and its writes are committed when it returns. If a
        conflict rejects them, it is called again on the new state of the table, with the bounds and pauses of every write
        (`retry.*`). So it reads with `tx.read`, writes with `tx`, and does nothing else that must not happen twice. Whatever
        else it raises rolls its writes back and passes through. Another write to the table from within it is a
        `TransactionStateError`.

        `value` of the result is what the function returned. `partition`, `txn_app_id` and `txn_version` are as for
        `table.transaction`, except that the function of a version that is applied already is not called.
        """
        require_running(self._spark)
        request = WriteRequest(operation, partition, application=numbered(txn_app_id, txn_version))
        if not callable(function):
            raise InputError(f"{function!r} cannot be called", hint="run takes a function: table.run(lambda tx: ...)")
        values: list[T] = []

        def work(tx: Transaction) -> Committed:
            with LakeTransaction(GivenTransaction(tx, self._attempt)) as block:
                values[:] = [function(block)]
            assert block.committed is not None
            return block.committed

        done = run(self._coordinator, request, work)
        return RunResult.of_run(done, None if done.already_applied else values[0])

    def _write(
        self,
        request: WriteRequest,
        write: Write,
        *,
        where: str | Column | None = None,
        settings: WriteSettings | None = None,
    ) -> WriteResult:
        """Run a write until no other commit came between. `where`: a condition that says which rows it is about."""
        require_running(self._spark)
        coordinator = self._coordinator
        if isinstance(where, str) and coordinator.data.for_writes:
            likely = target_of_condition(where, coordinator.schema().arrow, coordinator.properties)
            request = replace(request, likely=likely)
        request = replace(request, redoes=True)
        with closing(Memory()) as memory:
            steps = _RepeatedWrite(self._attempt, write, settings or self._settings, memory)
            small = _SmallWrite(self._spark, coordinator, request, steps)
            return alone_or_together(coordinator, ARROW, request, steps.run, small)

    @property
    def _settings(self) -> WriteSettings:
        return self._coordinator.table.settings.write

    def _attempt(self, tx: Transaction) -> Attempt:
        coordinator = self._coordinator
        storage, runtime, kept = coordinator.table.storage, coordinator.table.runtime, KeptFrames()
        return Attempt(
            self._spark, tx, storage, self._root, runtime, self._settings, coordinator.known_schemas,
            kept=kept, memory=Memory(kept),
        )  # fmt: skip


@dataclass(frozen=True)
class _RepeatedWrite:
    """The write of one call, in each of its attempts: it prepares, writes files, and commits them.

    `memory` is what the attempts share.
    """

    attempt_of: Callable[[Transaction], Attempt]
    write: Write
    settings: WriteSettings
    memory: Memory

    def attempt_in(self, tx: Transaction) -> Attempt:
        """What the write needs in one of its transactions."""
        return replace(self.attempt_of(tx), settings=self.settings, memory=self.memory)

    def run(self, tx: Transaction) -> Committed:
        """One attempt, in a transaction that has just begun."""
        attempt = self.attempt_in(tx)
        with outcome_reported(attempt.spark, tx, attempt.storage.uri), closing(attempt):
            written = self.write(attempt)
            tx.redo.keeps_files = tx.redo.keeps_files and self.memory.has_files_of(tx.instant)
            return tx.commit(written.stats, schema=written.schema, replaced=written.replaced)


class _SmallWrite:
    """What others may carry out of a single write: few rows to insert or upsert, or keys to delete, also as a merge that does
    just this. Asked once, and answered in the driver. The rows are computed once for all attempts.
    """

    def __init__(self, spark: SparkSession, coordinator: Coordinator, request: WriteRequest, steps: _RepeatedWrite) -> None:
        self._spark, self._coordinator, self._request, self._steps = spark, coordinator, request, steps
        self._small_write: tuple[SmallWrite | None] | None = None

    def __call__(self, tx: Transaction | None) -> SmallWrite | None:
        """None where the write is no such write, or its rows do not fit the table: then it says so itself."""
        if self._small_write is None:
            try:
                self._small_write = (self._tell(tx),)
            except SchemaError:
                self._small_write = (None,)
        return self._small_write[0]

    def _tell(self, tx: Transaction | None) -> SmallWrite | None:
        write, request, settings, seen = self._steps.write, self._request, self._steps.settings, self._coordinator.last_seen
        apart = request.partition is not None or request.application is not None or not settings.driver_rows
        if apart or seen is None or not isinstance(write, partial) or not may_group(self._coordinator):
            return None
        schema, properties = seen
        small, tag, given = SmallWrites(self._coordinator, ARROW, self._batch), request.tag, write.keywords
        if write.func is merging.merge:
            return self._merge(tx, given["plan"], seen, small)
        if write.func is inserting.insert:
            frame, _ = fitting_frame(given["df"], properties, schema, merge=False, missing="null")
            return None if (rows := self._rows(tx, frame, seen)) is None else small.insert(rows, tag)
        if properties.keys_span_partitions:
            return None
        if write.func is changing.upsert:
            frame, _ = fitting_frame(given["df"], properties, schema, merge=False, missing=settings.missing_columns)
            return None if (rows := self._rows(tx, frame, seen)) is None else small.upsert(rows, tag, settings)
        if write.func is changing.delete_keys:
            frame, _ = fitting_keys(given["df"], properties, schema)
            return None if (rows := self._rows(tx, frame, seen)) is None else small.delete(rows, tag)
        if write.func is changing.delete_where:
            keys = small.keys_of(given["condition"].named(schema))
            return None if keys is None else small.delete(keys, tag)
        return None

    def _merge(
        self, tx: Transaction | None, plan: MergePlan, seen: tuple[TableSchema, TableProperties], small: SmallWrites
    ) -> SmallWrite | None:
        same = plan.as_write_by_key() if (plan.before, plan.properties) == seen else None
        if same is None:
            return None
        few, tag = self._few(tx, plan.source), self._request.tag
        merging.keep_source(plan, few, self._steps.memory)
        rows = None if few is None else same.rows(few.arrow)
        if rows is None:
            return None
        if same.operation == "DELETE":
            return small.delete(rows, tag)
        return small.upsert(rows, tag, replace(self._steps.settings, duplicates="error"))

    def _rows(self, tx: Transaction | None, frame: DataFrame, seen: tuple[TableSchema, TableProperties]) -> pa.Table | None:
        """The rows of the call, if they are few."""
        few = self._few(tx, frame)
        self._steps.memory.give(few, *seen)
        return None if few is None else few.arrow

    def _few(self, tx: Transaction | None, frame: DataFrame) -> FewRows | None:
        if tx is None:
            runtime, what = self._coordinator.table.runtime, f"{self._request.operation.lower()}: computing the rows"
            running = partial(job_group, self._spark, what, runtime, lambda: None, current())
            return few_rows(frame, self._steps.settings.driver_rows, running, little=False)
        with outcome_reported(self._spark, tx, self._coordinator.table.storage.uri):
            return self._steps.attempt_in(tx).few(frame)

    def _batch(self, tx: Transaction, schema: TableSchema, rows: pa.Table) -> Batch:
        tx.extra[keys.RAN_ON] = keys.DRIVER
        return _DriverBatch(self._coordinator, ARROW, tx, schema, rows, AttemptCache())


class _DriverBatch(Batch):
    """The rows of a group: the driver looks into as many files for them, and writes as many, as for a write of its own."""

    def tagged(self, keyed: Mapping[str, KeyedRows]) -> Place:
        snapshot, fpp = self.tx.current(), self.context.settings.write.bloom_fpp
        possible = [
            file
            for partition, rows in keyed.items()
            for file in self.kernels.may_hold(rows, list(snapshot.in_partition(partition)), snapshot.stats_of)
        ]
        self._ensure(is_quick(possible, sum(map(len, keyed.values())), fpp))
        place = super().tagged(keyed)
        self._ensure(is_little(len(place.known) + len(place.new), sum(file.size_bytes for file in place.files)))
        return place

    def _ensure(self, possible: bool) -> None:
        """`NotTogether` otherwise, and the next writes are done by themselves, too."""
        if not possible:
            self.coordinator.table.observed.crowded_until_s = 0.0
            raise NotTogether


@dataclass(frozen=True)
class _OwnTransaction:
    """The transaction of a block, which begins and ends with it."""

    table: TableTransactions
    request: WriteRequest

    def begin(self, locks: ExitStack, *, anew: bool = False) -> Transaction:
        table, request = self.table, replace(self.request, application=None) if anew else self.request
        require_running(table._spark)
        coordinator = table._coordinator
        coordinator.ensure_same_provider()
        targets = resources_of(request.partition, coordinator.properties)
        locks.enter_context(coordinator.data.writing(request.operation, targets))
        tx = coordinator.begin(request)
        locks.enter_context(block_of(tx.instant))
        tx.keep_within(targets)
        return tx

    def attempt(self, tx: Transaction) -> Attempt:
        return self.table._attempt(tx)

    def applied(self, error: LakelockError) -> Committed | None:
        return applied_instead(self.table._coordinator, self.request.application, self.request.operation, error)
