"""The transactions of a `LakeTable`: a user's own, and that of each write, which is run again where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql import Column, SparkSession

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError, LakelockError
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import block_of
from lakelock.occ.request import WriteRequest
from lakelock.occ.results import RunResult, WriteResult
from lakelock.occ.retry import applied_instead, run, with_retries
from lakelock.occ.targets import Targets, resources_of, target_of_condition
from lakelock.occ.transaction import Transaction
from lakelock.settings import WriteSettings
from lakelock.spark_plugin.arguments import numbered
from lakelock.spark_plugin.session.lost_spark import outcome_told, require_running
from lakelock.spark_plugin.transactions import GivenTransaction, LakeTransaction
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
        """Run a write until nobody came between. `where`: a condition that says which rows it is about."""
        require_running(self._spark)
        coordinator = self._coordinator
        if isinstance(where, str) and coordinator.data.for_writes:
            likely = target_of_condition(where, coordinator.schema().arrow, coordinator.properties)
            request = replace(request, likely=likely)
        with closing(Memory()) as memory:
            steps = _RepeatedWrite(self._attempt, write, settings or self._settings, memory)
            return WriteResult.of(with_retries(coordinator, replace(request, redoes=True), steps.run))

    @property
    def _settings(self) -> WriteSettings:
        return self._coordinator.table.settings.write

    def _attempt(self, tx: Transaction) -> Attempt:
        coordinator = self._coordinator
        storage, runtime = coordinator.table.storage, coordinator.table.runtime
        return Attempt(self._spark, tx, storage, self._root, runtime, self._settings, coordinator.known_schemas)


@dataclass(frozen=True)
class _RepeatedWrite:
    """The write of one call, in each of its attempts: it prepares, writes files, and commits them.

    `memory` is what the attempts share.
    """

    attempt_of: Callable[[Transaction], Attempt]
    write: Write
    settings: WriteSettings
    memory: Memory

    def run(self, tx: Transaction) -> Committed:
        """One attempt, in a transaction that has just begun."""
        attempt = replace(self.attempt_of(tx), settings=self.settings, memory=self.memory)
        with outcome_told(attempt.spark, tx, attempt.storage.uri), closing(attempt):
            written = self.write(attempt)
            tx.redo.keeps_files = tx.redo.keeps_files and self.memory.has_files_of(tx.instant)
            return tx.commit(written.stats, schema=written.schema, replaced=written.replaced)


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
