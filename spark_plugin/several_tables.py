"""Several tables at once in Spark: one transaction over them, one moment to read them at, and micro-batches for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from types import TracebackType

from pyspark.sql import Column, DataFrame

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError, TransactionStateError
from lakelock.occ.committed import WriteResult
from lakelock.occ.multi_table import MultiTableTransaction, locked_for_writes, timelines_of_one_moment, transaction_over
from lakelock.occ.open_table import retry_if_overtaken
from lakelock.occ.participant import Participant
from lakelock.occ.reading import ReadView
from lakelock.occ.request import WriteRequest
from lakelock.occ.retry import run_over
from lakelock.spark_plugin import spark_session
from lakelock.spark_plugin.lake_table import LakeTable
from lakelock.spark_plugin.spark_session import outcome_reported, require_running
from lakelock.spark_plugin.transactions import GivenTransaction, LakeTransaction


class TablesTransaction:
    """`with transaction(orders, stock) as tx:` reads and writes `tx[orders]` and `tx[stock]`, each as in `table.transaction()`.

    When the block ends, everything becomes visible in all tables, or nothing in any. It is serializable with every other
    transaction of each table: a `ConflictError` names the table in which another writer came between. An exception in the block
    rolls everything back. The block is never run again automatically. After it, `results` says what was committed,
    table by table.
    """

    def __init__(self, tables: Sequence[LakeTable]) -> None:
        self._tables = tuple(tables)
        self._blocks: tuple[LakeTransaction, ...] = ()
        self._tx: MultiTableTransaction | None = None
        self._held = ExitStack()
        self.results: tuple[WriteResult, ...] = ()
        """One for each table that was written, in the order in which the tables were given."""

    @property
    def id(self) -> str:
        """The name of the transaction in the histories of its tables; empty before the end, and if it wrote one table only."""
        return self._tx.name.id if self._tx is not None and self._tx.name is not None else ""

    def __enter__(self) -> TablesTransaction:
        if self._tx is not None:
            raise TransactionStateError("this transaction was used before", hint="call transaction(...) for a new one")
        for table in self._tables:
            require_running(table._spark)
        coordinators = [table._coordinator for table in self._tables]
        with ExitStack() as stack:
            self._join(stack.enter_context(transaction_over(coordinators)))
            self._held = stack.pop_all()
        return self

    def _join(self, tx: MultiTableTransaction) -> TablesTransaction:
        """Work in a transaction that the caller has begun, and ends."""
        self._tx = tx
        pairs = zip(self._tables, tx.parts, strict=True)
        self._blocks = tuple(LakeTransaction(GivenTransaction(part, table._attempt)).__enter__() for table, part in pairs)
        return self

    def __getitem__(self, table: LakeTable) -> LakeTransaction:
        """The transaction on one of the tables that this was begun with."""
        if self._tx is None:
            raise TransactionStateError(
                "this transaction has not begun", hint="use it in its block: with transaction(orders, stock) as tx:"
            )
        return self._blocks[_place(table, self._tables, "transaction")]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tx is not None
        with self._held, ExitStack() as outcome:
            if error is None:
                outcome.enter_context(self._outcomes_reported())
                self._stage()
                self.results = self._tx.commit()
            else:
                self._close()
                self._tx.abort(str(error) or type(error).__name__)

    def _outcomes_reported(self) -> ExitStack:
        stack = ExitStack()
        for table, part in zip(self._tables, self._parts, strict=True):
            stack.enter_context(outcome_reported(table._spark, part, part.uri))
        return stack

    @property
    def _parts(self) -> tuple[Participant, ...]:
        assert self._tx is not None
        return self._tx.parts

    def _stage(self) -> None:
        """Note for each table what its block wrote, to be committed with the others."""
        for block, part in zip(self._blocks, self._parts, strict=True):
            with closing(block.attempt) as attempt:
                written = attempt.earlier
            if written.stats or written.replaced or written.schema is not None:
                part.commit((), schema=written.schema, replaced=written.replaced)

    def _close(self) -> None:
        for block in self._blocks:
            block.attempt.close()


def transaction(*tables: LakeTable) -> TablesTransaction:
    """One transaction over several tables, see `TablesTransaction`.

    In PESSIMISTIC mode all of them are locked from the beginning, together. `TableError` for a table that another engine
    writes, too, unless `transaction.allow_foreign` is set.
    """
    return TablesTransaction(_checked(tables, "transaction"))


def _checked(tables: Sequence[object], call: str) -> tuple[LakeTable, ...]:
    """The arguments of a call; `InputError` if one is no `LakeTable`."""
    for table in tables:
        if not isinstance(table, LakeTable):
            raise InputError(
                f"{call} takes tables, and was given {type(table).__name__}", hint=f"name each one: {call}(orders, stock)"
            )
    return tuple(table for table in tables if isinstance(table, LakeTable))


def _place(table: object, tables: Sequence[LakeTable], call: str) -> int:
    """Which of the tables this one is, by where it lies."""
    (wanted,) = _checked([table], call)
    uris = [each._coordinator.table.storage.uri for each in tables]
    uri = wanted._coordinator.table.storage.uri
    if uri not in uris:
        raise InputError(f"{uri} is not part of the {call}, which is over {', '.join(uris)}", hint=f"name it in {call}(...)")
    return uris.index(uri)


class TablesSnapshot:
    """Several tables as of one moment: `snapshot(orders, stock)[orders].read()`. Later commits do not show."""

    def __init__(self, tables: Sequence[LakeTable], shown: Sequence[ReadView]) -> None:
        self._tables, self._shown = tuple(tables), tuple(shown)

    def __getitem__(self, table: LakeTable) -> TableOfSnapshot:
        return TableOfSnapshot(table, self._shown[_place(table, self._tables, "snapshot")])


@checked_calls
class TableOfSnapshot:
    """One table as of the moment of a snapshot."""

    def __init__(self, table: LakeTable, shown: ReadView) -> None:
        self._table, self._shown = table, shown

    def read(self, where: str | Column | None = None, *, include_meta: bool = False) -> DataFrame:
        """The rows (that satisfy `where`), as `LakeTable.read` gives them."""
        return self._table._rows(self._shown, where, None, include_meta=include_meta)


def snapshot(*tables: LakeTable) -> TablesSnapshot:
    """Several tables as of one moment: each transaction over several of them shows in all, or in none. Writes nothing."""
    tables = _checked(tables, "snapshot")
    return retry_if_overtaken(partial(_look, tables))


def _look(tables: Sequence[LakeTable]) -> TablesSnapshot:
    timelines = timelines_of_one_moment([table._coordinator.table for table in tables])
    pairs = zip(tables, timelines, strict=True)
    return TablesSnapshot(tables, [table._coordinator.shown_at(timeline) for table, timeline in pairs])


def tables_batch(
    *tables: LakeTable,
) -> Callable[[Callable[[TablesTransaction, DataFrame], object]], Callable[[DataFrame, int], None]]:
    """Make a function for `writeStream.foreachBatch` that writes each micro-batch to several tables, exactly once, as a whole.

    ```python
    @tables_batch(orders, stock)
    def write(tx, df):
        tx[orders].insert(df)
        tx[stock].upsert(stock_after(df, tx[stock].read()))

    stream.writeStream.foreachBatch(write).start()
    ```
    The function is called again, with a new transaction, after a conflict (`retry.*`), and not at all for a batch that the
    tables have already: the query's id and the batch's number are part of the commit.
    """

    tables = _checked(tables, "tables_batch")

    def with_function(function: Callable[[TablesTransaction, DataFrame], object]) -> Callable[[DataFrame, int], None]:
        def write(df: DataFrame, batch_id: int) -> None:
            def attempt(tx: MultiTableTransaction) -> None:
                together = TablesTransaction(tables)._join(tx)
                try:
                    function(together, df)
                except BaseException:
                    together._close()
                    raise
                together._stage()

            coordinators = [table._coordinator for table in tables]
            with locked_for_writes(coordinators):
                run_over(coordinators, attempt, WriteRequest("UPSERT", application=spark_session.micro_batch(df, batch_id)))

        return write

    return with_function
