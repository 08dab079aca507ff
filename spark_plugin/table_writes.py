"""The writes of a `LakeTable`: each a transaction of its own, run again where that is safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession

from lakelock.data_locks import Resource
from lakelock.errors import InputError
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.targets import Targets, resources_of, target_of_condition
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.retrying import applied_instead, run, with_retries
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns, WriteSettings
from lakelock.spark_plugin import streaming
from lakelock.spark_plugin.arguments import Duplicates, changed, numbered
from lakelock.spark_plugin.changing import updating
from lakelock.spark_plugin.changing.assignments import Assignments, checked_assignments
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import require_batch, spark_schema
from lakelock.spark_plugin.lost_spark import needs_spark, outcome_told, require_running
from lakelock.spark_plugin.merging import execution
from lakelock.spark_plugin.merging.builder import MergeBuilder, MergeSpec
from lakelock.spark_plugin.merging.plan import require_mergeable
from lakelock.spark_plugin.results import RunResult, WriteResult
from lakelock.spark_plugin.statements.planning import StatementPlanner
from lakelock.spark_plugin.transactions import LakeTransaction
from lakelock.spark_plugin.writing import deleting, inserting, overwriting, upserting
from lakelock.spark_plugin.writing.attempt import Attempt, Write

T = TypeVar("T")


class TableWrites:
    """The part of a `LakeTable` that writes."""

    _spark: SparkSession
    _coordinator: Coordinator
    _root: str

    @needs_spark
    def insert(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Append the rows. Keys are not looked up: a key that the table already has is then stored twice.

        `partition` (of every write): the partitions or prefixes that it writes to, such as `"month=1"` or `{"month": 1}`. Rows
        for another are an `InputError`, and in PESSIMISTIC mode only these are locked, not the whole table.

        `txn_app_id` and `txn_version` (of every write, both or neither): the job's name and its own number of this write, as
        Delta's `txnAppId` and `txnVersion`. Once this number or a greater one is in the table, the write does nothing, and
        the result says `already_applied`.
        """
        write = partial(inserting.insert, df=require_batch(df, "insert"))
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        return self._write("INSERT", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def upsert(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        duplicates: Duplicates | None = None,
        missing_columns: MissingColumns | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Insert the rows whose keys the table lacks and replace the others; the newest by `order_by` wins.

        A key that occurs more than once in `df` with no newest row is a `DuplicateKeyError`, unless `duplicates="any"`.
        A `df` without some columns of the table is a `SchemaError`, unless `missing_columns="keep"` (replaced rows keep
        the stored values of these columns, new ones have null there) or `"null"` (all have null there).
        """
        write = partial(upserting.upsert, df=require_batch(df, "upsert"))
        txn = numbered(txn_app_id, txn_version)
        settings = changed(self._settings, merge_schema, duplicates, missing_columns)
        return self._write("UPSERT", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def delete(
        self,
        what: str | Column | DataFrame,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a data frame."""
        txn = numbered(txn_app_id, txn_version)
        if isinstance(what, str | Column):
            write: Write = partial(deleting.delete_where, condition=self._condition(what))
            return self._write("DELETE", write, partition=partition, where=what, tag=tag, txn=txn)
        write = partial(upserting.delete_keys, df=require_batch(what, "delete"))
        return self._write("DELETE", write, partition=partition, tag=tag, txn=txn)

    @needs_spark
    def update(
        self,
        set: Assignments,  # noqa: A002 - SQL's and Delta's word for it
        where: str | Column | None = None,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Give the rows that satisfy `where`, or all rows, new values: `table.update({"price": "price * 1.1"}, "kind = 'a'")`.

        Values are SQL texts or Columns, which see the old row, or Python values of other types, which are literals (None is
        null). Types must fit as in an upsert: cast where they do not. Key and partition columns cannot be changed: a
        `SchemaError`. The rows change whatever their `order_by` says.
        """
        txn, assigned = numbered(txn_app_id, txn_version), self._assignments(set, "update")
        condition = None if where is None else self._condition(where)
        write = partial(updating.update_where, values=assigned, condition=condition)
        return self._write("UPDATE", write, partition=partition, where=where, tag=tag, txn=txn)

    def merge(
        self,
        source: DataFrame,
        on: str | Column,
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> MergeBuilder[WriteResult]:
        """Describe a merge of `source` into the table, whose clauses say what becomes of its rows; `.execute()` runs it.

        >>> table.merge(updates, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
        ... # doctest: +SKIP

        `on` must equate something of both sides. If it equates the key and partition columns, only the keys of the source are
        looked up, as in an upsert; otherwise it reads the rows that its part about the target selects, or the whole table.
        """
        spec = MergeSpec(require_batch(source, "merge"), on, target_alias, source_alias)
        txn = numbered(txn_app_id, txn_version)
        return MergeBuilder(spec, partial(self._merge, partition=partition, tag=tag, txn=txn))

    @needs_spark
    def _merge(self, spec: MergeSpec, *, partition: Targets, tag: str, txn: AppTransaction | None) -> WriteResult:
        require_mergeable(spec, self._coordinator.schema(), self._coordinator.properties)
        return self._write("MERGE", partial(execution.merge, spec=spec), partition=partition, tag=tag, txn=txn)

    @needs_spark
    def overwrite_partitions(
        self,
        df: DataFrame,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the whole content of every partition that `df` has rows for; the others stay as they are."""
        write = partial(overwriting.overwrite_partitions, df=require_batch(df, "overwrite_partitions"))
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        return self._write("INSERT_OVERWRITE", write, partition=partition, settings=settings, tag=tag, txn=txn)

    @needs_spark
    def overwrite(
        self,
        df: DataFrame,
        where: str | Column | None = None,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the rows that satisfy `where` with `df`, whose rows must all satisfy it; without `where`, the whole table."""
        require_batch(df, "overwrite")
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        if where is None:
            _require_whole(partition)
            write: Write = partial(overwriting.overwrite_table, df=df)
            return self._write("INSERT_OVERWRITE_TABLE", write, settings=settings, tag=tag, txn=txn)
        write = partial(overwriting.overwrite_where, df=df, condition=self._condition(where))
        return self._write("UPSERT", write, partition=partition, where=where, settings=settings, tag=tag, txn=txn)

    def upsert_batch(self, df: DataFrame, batch_id: int, *, missing_columns: MissingColumns | None = None) -> None:
        """For `writeStream.foreachBatch`: upsert each micro-batch exactly once, however often Spark replays it.

        `missing_columns` is as for `upsert`; set it with `functools.partial`.
        """
        settings, txn = changed(self._settings, missing_columns=missing_columns), streaming.micro_batch(df, batch_id)
        self._write("UPSERT", partial(upserting.upsert, df=df), settings=settings, txn=txn)

    def insert_batch(self, df: DataFrame, batch_id: int) -> None:
        """For `writeStream.foreachBatch`: append each micro-batch exactly once, however often Spark replays it."""
        self._write("INSERT", partial(inserting.insert, df=df), txn=streaming.micro_batch(df, batch_id))

    @needs_spark
    def sql(
        self,
        statement: str,
        args: Mapping[str, object] | None = None,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Run one UPDATE, DELETE, MERGE or INSERT in Spark's SQL, as the operation of that name, with its rules and its result.

        >>> table.sql("UPDATE goods SET price = price * 2 WHERE shop = :shop", {"shop": "berlin"})  # doctest: +SKIP

        The statement names this table by its own name, or as lakelock.`path`; its sources are relations of the session. `args`
        are values for its markers. What has no exact counterpart is an `InputError` before any work, which says what to type
        instead. Needs sqlglot: `pip install 'lakelock[sql]'`.
        """
        coordinator, txn = self._coordinator, numbered(txn_app_id, txn_version)
        planner = StatementPlanner(self._spark, coordinator.schema(), coordinator.properties, coordinator.table.storage.uri)
        planned = planner.plan(statement, args)
        if planned.operation == "INSERT_OVERWRITE_TABLE":
            _require_whole(partition)
        return self._write(planned.operation, planned.write, partition=partition, where=planned.where, tag=tag, txn=txn)

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
        application = numbered(txn_app_id, txn_version)
        targets = resources_of(partition, self._coordinator.properties)
        begin = partial(self._begin, operation, targets)
        instead = partial(applied_instead, self._coordinator, application, operation)
        return LakeTransaction(begin, self._attempt, application, instead)

    def run(
        self,
        function: Callable[[LakeTransaction], T],
        operation: str = "UPSERT",
        *,
        partition: Targets = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> RunResult[T]:
        """Read, compute and write as one, again and again until nobody came between: `table.run(lambda tx: ...)`.

        The function gets what `table.transaction` gives to its block, and its writes are committed when it returns. If a
        conflict rejects them, it is called again on the new state of the table, with the bounds and pauses of every write
        (`retry.*`). So it reads with `tx.read`, writes with `tx`, and does nothing else that must not happen twice. Whatever
        else it raises rolls its writes back and passes through. Another write to the table from within it is a
        `TransactionStateError`.

        `value` of the result is what the function returned. `partition`, `txn_app_id` and `txn_version` are as for
        `table.transaction`, except that the function of a version that is applied already is not called.
        """
        require_running(self._spark)
        application = numbered(txn_app_id, txn_version)
        if not callable(function):
            raise InputError(f"{function!r} cannot be called", hint="run takes a function: table.run(lambda tx: ...)")
        values: list[T] = []

        def work(tx: Transaction) -> Committed:
            with LakeTransaction.of_function(tx, self._attempt) as block:
                values[:] = [function(block)]
            assert block.committed is not None
            return block.committed

        done = run(self._coordinator, operation, work, application=application, partition=partition)
        return RunResult.of_run(done, None if done.already_applied else values[0])

    def _begin(
        self, operation: str, targets: tuple[Resource, ...], application: AppTransaction | None, stack: ExitStack
    ) -> Transaction:
        require_running(self._spark)
        coordinator = self._coordinator
        coordinator.ensure_same_provider()
        stack.enter_context(coordinator.data.writing(operation, targets))
        tx = coordinator.begin(operation, application=application)
        tx.keep_within(targets)
        return tx

    def _write(
        self,
        operation: str,
        write: Write,
        *,
        partition: Targets = None,
        where: str | Column | None = None,
        settings: WriteSettings | None = None,
        tag: str = "",
        txn: AppTransaction | None = None,
    ) -> WriteResult:
        require_running(self._spark)
        coordinator = self._coordinator
        likely: tuple[Resource, ...] = ()
        if isinstance(where, str) and coordinator.data.for_writes:
            likely = target_of_condition(where, coordinator.schema().arrow, coordinator.properties)

        def work(tx: Transaction) -> Committed:
            told = outcome_told(self._spark, tx, coordinator.table.storage.uri)
            with told, closing(replace(self._attempt(tx), settings=settings or self._settings)) as attempt:
                written = write(attempt)
                return tx.commit(written.stats, schema=written.schema, replaced=written.replaced)

        done = with_retries(coordinator, operation, work, application=txn, tag=tag, partition=partition, likely=likely)
        return WriteResult.of(done)

    def _condition(self, given: str | Column) -> Condition:
        return Condition.of(self._spark, spark_schema(self._coordinator.schema().arrow), given)

    def _assignments(self, given: Assignments, what: str) -> Assignments:
        return checked_assignments(self._spark, given, self._coordinator.schema(), self._coordinator.properties, what)

    @property
    def _settings(self) -> WriteSettings:
        return self._coordinator.table.settings.write

    def _attempt(self, tx: Transaction) -> Attempt:
        storage = self._coordinator.table.storage
        return Attempt(self._spark, tx, storage, self._root, self._coordinator.table.runtime, self._settings)


def _require_whole(partition: Targets) -> None:
    if partition is not None:
        hint = "name the rows to replace by where=..., or use overwrite_partitions(df, partition=...)"
        raise InputError("an overwrite of the whole table takes no partition", hint=hint)
