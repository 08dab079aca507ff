"""A transaction that reads, computes and writes, validated as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Protocol

from pyspark.sql import Column, DataFrame

from lakelock.checked_calls import checked_calls
from lakelock.errors import ConflictError, InputError, LakelockError, TransactionStateError
from lakelock.occ.committed import Committed
from lakelock.occ.footprint import WholeTable
from lakelock.occ.results import WriteResult
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns
from lakelock.spark_plugin.arguments import Every, changed, chosen_rows
from lakelock.spark_plugin.changing import by_key, updating
from lakelock.spark_plugin.changing.assignments import Assignments, checked_assignments
from lakelock.spark_plugin.frames import require_batch
from lakelock.spark_plugin.merging import execution
from lakelock.spark_plugin.merging.builder import TARGET, MergeBuilder, MergeSpec
from lakelock.spark_plugin.merging.condition import with_columns_equated
from lakelock.spark_plugin.merging.plan import MergePlan
from lakelock.spark_plugin.peers.methods import delta_arguments, delta_update
from lakelock.spark_plugin.session.lost_spark import ended_by, outcome_told
from lakelock.spark_plugin.statements.planning import StatementPlanner
from lakelock.spark_plugin.writing import deleting, inserting
from lakelock.spark_plugin.writing.attempt import Attempt, Write, Written
from lakelock.spark_plugin.writing.memory import Memory
from lakelock.spark_plugin.writing.row_reads import RowsRead
from lakelock.table.record_keys import require_key


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

    It is rejected (`ConflictError`) if somebody commits what its reads would have seen. A block is never run again
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
        return None if self.committed is None else WriteResult.of(self.committed)

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
            with outcome_told(spark, tx, path):
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
        attempt.tx.reads(RowsRead(condition, pruning, attempt.read))
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
        self._write(lambda attempt: by_key.upsert(replace(attempt, settings=settings), df))

    @delta_arguments(condition="what")
    def delete(self, what: str | Column | DataFrame | Every = Every.ROW) -> None:
        """Delete by condition, by a data frame of keys, or all rows, at the commit; see `LakeTable.delete`."""
        what = chosen_rows(what)
        if isinstance(what, str | Column):
            condition = self._open().condition(what)
            self._write(partial(deleting.delete_where, condition=condition))
        else:
            require_key(self._open().properties, "a delete by keys")
            self._write(partial(by_key.delete_keys, df=require_batch(what, "delete")))

    @delta_update
    def update(self, set: Assignments, where: str | Column | None = None) -> None:  # noqa: A002 - as `LakeTable.update`
        """Give the rows that satisfy `where`, or all rows, new values at the commit; see `LakeTable.update`."""
        attempt = self._open()
        values = checked_assignments(
            attempt.spark, set, attempt.schema, attempt.properties, "update", merge_schema=attempt.settings.merge_schema
        )
        condition = None if where is None else attempt.condition(where)
        self._write(partial(updating.update_where, values=values, condition=condition))

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
        self._write(partial(execution.merge, plan=plan))

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
