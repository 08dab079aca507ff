"""The transactions of a `LakeTable`: a user's own, and that of each write, which is run again where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyspark.sql import Column, SparkSession

from lakelock.checked_calls import checked_calls
from lakelock.data_locks import Resource
from lakelock.errors import InputError
from lakelock.occ.attempts.retrying import applied_instead, run, with_retries
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.nesting import block_of
from lakelock.occ.locking.targets import Targets, resources_of, target_of_condition
from lakelock.occ.outcomes.committed import Committed
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.occ.transaction import Transaction
from lakelock.settings import WriteSettings
from lakelock.spark_plugin.arguments import numbered
from lakelock.spark_plugin.results import RunResult, WriteResult
from lakelock.spark_plugin.session.lost_spark import outcome_told, require_running
from lakelock.spark_plugin.transactions import LakeTransaction
from lakelock.spark_plugin.writing.attempt import Attempt, Write
from lakelock.spark_plugin.writing.memory import Memory

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
        stack.enter_context(block_of(tx.instant))
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

        memory = Memory()

        def work(tx: Transaction) -> Committed:
            told = outcome_told(self._spark, tx, coordinator.table.storage.uri)
            with told, closing(replace(self._attempt(tx), settings=settings or self._settings, memory=memory)) as attempt:
                written = write(attempt)
                tx.redo.keeps_files = tx.redo.keeps_files and memory.has_files_of(tx.instant)
                return tx.commit(written.stats, schema=written.schema, replaced=written.replaced)

        with closing(memory):
            done = with_retries(
                coordinator, operation, work,
                application=txn, tag=tag, partition=partition, likely=likely, redoes=True,
            )  # fmt: skip
        return WriteResult.of(done)

    @property
    def _settings(self) -> WriteSettings:
        return self._coordinator.table.settings.write

    def _attempt(self, tx: Transaction) -> Attempt:
        coordinator = self._coordinator
        storage, runtime = coordinator.table.storage, coordinator.table.runtime
        return Attempt(self._spark, tx, storage, self._root, runtime, self._settings, coordinator.known_schemas)
