"""Tables without Spark: `lakelock.create` and `lakelock.open` give a `Table` that reads and writes Arrow in this process.

The same transactions as `LakeTable`'s, on the same tables, with the same other writers. No Java, no cluster: rows to write
are held in memory, and a read gives a pyarrow table or its batches one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pyarrow as pa

from lakelock.checked_calls import NamesElsewhere, checked, checked_calls
from lakelock.clock import SystemRuntime
from lakelock.engine.arrow import ArrowEngine
from lakelock.engine.python_values import Condition, Rows, Values, chosen_rows, condition_of, rows_of, schema_of, values_of
from lakelock.errors import InputError, TransactionStateError
from lakelock.events import Listener
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed, RunResult, WriteResult
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import Definition, table_exists
from lakelock.occ.history import HistoryEntry
from lakelock.occ.multi_table import MultiTableTransaction, transaction_over
from lakelock.occ.request import Every, Targets, WriteRequest, key_of, names, numbered, resources_of
from lakelock.occ.retry import run
from lakelock.occ.transaction import Transaction
from lakelock.settings import MissingColumns, Settings
from lakelock.storage.location import StorageLocation
from lakelock.table.change_feed import FeedMode, checked_mode
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.instants import time_text
from lakelock.table.properties import COPY_ON_WRITE, NEWEST_VERSION
from lakelock.table.rows import spelled
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint

T = TypeVar("T")

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("to_arrow", "to_pyarrow_table", "to_table", "load", "scan"), "table.read()"),
    **dict.fromkeys(("to_pandas", "toPandas", "df"), "table.read().to_pandas()"),
    "to_polars": "polars.from_arrow(table.read())",
    "to_batches": "table.read_batches()",
    **dict.fromkeys(("count", "num_rows"), "table.read(columns=table.key).num_rows"),
    "columns": "table.schema.names",
    **dict.fromkeys(("show", "head"), "print(table.read().slice(0, 20).to_pandas())"),
    **dict.fromkeys(("where", "filter"), "table.read(where)"),
    "select": "table.read(columns=[...])",
    **dict.fromkeys(("write", "append"), "table.insert(rows), or table.upsert(rows) to replace rows with the same key"),
    "overwrite": "table.overwrite_partitions(rows)",
    "merge": "table.upsert(rows); merges by other conditions need Spark: LakeTable.merge",
    "version": "table.history()[0].instant",
    "optimize": "lakelock optimize PATH, in a terminal",
    "restore": "lakelock restore PATH --as-of INSTANT, in a terminal",
    **dict.fromkeys(("vacuum", "clean", "upkeep"), "nothing: old files go by themselves; lakelock clean PATH does it now"),
}
"""Names that tables of other libraries have (deltalake, pyiceberg, data frames), and what to type here."""


@checked_calls
class Table(NamesElsewhere):
    """One table, without Spark. Every write is a transaction of its own: it is in the table as a whole, or not at all.

    Writes that lose a conflict are run again (`retry.*`) where that is safe. Cheap to keep open, safe to use from several
    threads; a process that was forked opens its own.

    >>> table = lakelock.create("/lake/goods", schema="id bigint, name string", key="id")     # doctest: +SKIP
    >>> table.upsert([{"id": 1, "name": "tea"}])                                              # doctest: +SKIP
    UPSERT 20261121092737397: 1 inserted (1 file, 434.1 KiB) in 0.1 s
    """

    _instead = _INSTEAD

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator, self._engine = coordinator, ArrowEngine(coordinator)

    @property
    def path(self) -> str:
        """The table's URI in its one spelling."""
        return self._coordinator.table.storage.uri

    @property
    def schema(self) -> pa.Schema:
        """The table's columns now."""
        return self._coordinator.schema().arrow

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; none in a table without a key."""
        return tuple(self._coordinator.properties.record_keys)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The columns, or functions of columns, by which the table is partitioned."""
        return tuple(self._coordinator.properties.partition_by)

    def read(
        self,
        where: Condition | None = None,
        *,
        columns: Sequence[str] | None = None,
        as_of: str | datetime | None = None,
        partition: Targets = None,
    ) -> pa.Table:
        """The rows as they are now, or as they were.

        `where` chooses rows; partitions and files that cannot have any are not read. `columns` in this order; all by default.
        `as_of` is an instant (`result.instant`), or a time (UTC unless it says otherwise). `partition` (`"month=1"`) reads only
        these partitions or prefixes.
        """
        with closing(self.read_batches(where, columns=columns, as_of=as_of, partition=partition)) as reader:
            return reader.read_all()

    def read_batches(
        self,
        where: Condition | None = None,
        *,
        columns: Sequence[str] | None = None,
        as_of: str | datetime | None = None,
        partition: Targets = None,
    ) -> pa.RecordBatchReader:
        """The same rows as batches, which are read file by file as the reader comes to them: for tables larger than memory."""
        engine, properties = self._engine, self._coordinator.properties
        shown = engine.shown(None if as_of is None else time_text(as_of))
        chosen = _columns(shown.schema, columns)
        condition = None if where is None else condition_of(where, shown.schema)
        named = resources_of(partition, properties)
        pieces = engine.pieces(shown, named, condition, chosen)
        names = chosen or shown.schema.names
        schema = pa.schema([shown.schema.field(name) for name in names])
        batches = (batch for piece in pieces for batch in piece.to_batches() if batch.num_rows)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def insert(
        self,
        rows: Rows,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Append the rows. Keys are not looked up: a key that the table already has is then stored twice.

        `partition` (of every write): the partitions or prefixes that it writes to, such as `"month=1"`; rows for another are an
        `InputError`. `tag` is kept in the history. `txn_app_id` and `txn_version` (both or neither): the job's name and its own
        number of this write. Once this number or a greater one is in the table, the write does nothing, and the result says
        `already_applied`.
        """
        application, found = numbered(txn_app_id, txn_version), self._rows(rows)
        return self._engine.insert(found, application=application, tag=tag, partition=partition)

    def upsert(
        self,
        rows: Rows,
        *,
        partition: Targets = None,
        missing_columns: MissingColumns | None = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Insert the rows whose keys the table lacks and replace the others; the newest by `order_by` wins.

        A key that occurs more than once in `rows` with no newest row is a `DuplicateKeyError`. Rows without some columns of the
        table are a `SchemaError`, unless `missing_columns="keep"` (replaced rows keep the stored values of these columns, new
        ones have null there) or `"null"` (all have null there).
        """
        application, found = numbered(txn_app_id, txn_version), self._rows(rows)
        return self._engine.upsert(
            found, application=application, tag=tag, partition=partition, missing_columns=missing_columns
        )

    def delete(
        self,
        what: Condition | Rows | Every = Every.ROW,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Delete the rows that satisfy a condition, those whose key and partition columns are in these rows, or all.

        Only `table.delete()` deletes all rows; None is an `InputError`.
        """
        application, chosen = numbered(txn_app_id, txn_version), chosen_rows(what, self._coordinator.schema())
        return self._engine.delete(chosen, application=application, tag=tag, partition=partition)

    def update(
        self,
        set: Values,  # noqa: A002 - SQL's word for it, as in LakeTable.update
        where: Condition | None = None,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Give the rows that satisfy `where`, or all rows, new values: `table.update({"price": "price * 2"}, "kind = 'a'")`.

        Values are SQL texts or pyarrow expressions, which see the old row, or Python values of other types, which are literals.
        Key and partition columns cannot be changed: a `SchemaError`. The rows change whatever their `order_by` says.
        """
        application, schema = numbered(txn_app_id, txn_version), self._coordinator.schema()
        condition = None if where is None else condition_of(where, schema)
        return self._engine.update(
            values_of(set, schema), condition, application=application, tag=tag, partition=partition
        )  # fmt: skip

    def overwrite_partitions(
        self,
        rows: Rows,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the whole content of every partition that `rows` has rows for; the others stay as they are."""
        application, found = numbered(txn_app_id, txn_version), self._rows(rows)
        return self._engine.overwrite_partitions(found, application=application, tag=tag, partition=partition)

    def run(
        self,
        function: Callable[[TableTransaction], T],
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> RunResult[T]:
        """Read, compute and write as one, again until no other commit came between: `table.run(lambda tx: ...)`.

        The function reads with `tx.read` and writes with `tx`, and its writes are committed when it returns. If a conflict
        rejects them, it is called again on the new state of the table, up to `retry.attempts` times, so it does nothing else
        that must not happen twice. Whatever else it raises rolls its writes back and passes through. `value` of the result is
        what the function returned; a function whose version is applied already is not called.
        """
        application = numbered(txn_app_id, txn_version)
        if not callable(function):
            raise InputError(f"{function!r} cannot be called", hint="run takes a function: table.run(lambda tx: ...)")
        values: list[T] = []

        def work(tx: Transaction) -> Committed:
            block = TableTransaction(self._engine, tx)
            values[:] = [function(block)]
            return block.committed()

        done = run(self._coordinator, WriteRequest("UPSERT", partition, tag, application), work)
        return RunResult.of_run(done, None if done.already_applied else values[0])

    def transaction(
        self, *, tag: str = "", txn_app_id: str | None = None, txn_version: int | None = None
    ) -> OneTableTransaction:
        """Read, compute and write as one: `with table.transaction() as tx:`. Commits when the block ends without error.

        It is not run again after a conflict (`ConflictError`); `table.run` does that with a function.
        """
        return OneTableTransaction(self, numbered(txn_app_id, txn_version), tag)

    def changes(
        self, since: str | datetime | int = 0, *, until: str | datetime | int | None = None, feed: FeedMode = "commits"
    ) -> pa.Table:
        """What commits changed that completed after `since`, and not after `until`: instants, times, or a `_commit_version`.

        With `feed="commits"` what each commit did, as Delta's change data feed has it: the table's columns, `_change_type`
        (`insert`, `update_preimage`, `update_postimage`, `delete`), `_commit_version` and `_commit_timestamp`. With
        `feed="net"` what the commits did together, at most one change for each key. 0 is the beginning; `InputError` that says
        from when on the feed is whole, if old files that it needs were cleaned.
        """
        end = None if until is None else _position(until)
        return self._engine.changes(_position(since), end, checked_mode(feed))

    def history(self, limit: int = 1000) -> list[HistoryEntry]:
        """The newest commits, newest first: who, when, what, how much, how long."""
        return self._coordinator.history(limit)

    def close(self) -> None:
        """Release the lock service. Rows that were read stay usable."""
        self._coordinator.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Table({self.path!r})"

    def _rows(self, rows: Rows) -> pa.Table:
        return rows_of(rows, self._coordinator.schema())


@checked_calls
class TableTransaction:
    """One table within a transaction: reads of what was there at the beginning, and writes, each of which sees those before it.

    The transaction is rejected if another writer commits what its reads would have seen.
    """

    def __init__(self, engine: ArrowEngine, tx: Transaction) -> None:
        self._engine, self._tx = engine, tx
        self._added_to: TableSchema | None = None
        self._wrote = False

    @property
    def instant(self) -> str:
        """The name of the transaction in this table."""
        return self._tx.instant

    def read(self, where: Condition | None = None, *, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows as of the transaction's beginning. Put into `where` everything that the result depends on: only rows that
        satisfy it are watched."""
        chosen = _columns(self._tx.schema, columns)
        found = self._engine.read_in(self._tx, None if where is None else condition_of(where, self._tx.schema))
        return found.select(chosen) if chosen else found

    def insert(self, rows: Rows) -> None:
        """Append the rows at the commit; keys are not looked up."""
        self._engine.insert_in(self._tx, rows_of(rows, self._tx.current_schema), end=self._end)

    def upsert(self, rows: Rows, *, missing_columns: MissingColumns | None = None) -> None:
        """Insert or replace the rows by key at the commit; `missing_columns` is as for `Table.upsert`."""
        self._engine.upsert_in(self._tx, rows_of(rows, self._tx.current_schema), missing_columns, end=self._end)

    def delete(self, what: Condition | Rows | Every = Every.ROW) -> None:
        """Delete by condition, by rows with keys, or all rows, at the commit; see `Table.delete`."""
        chosen = chosen_rows(what, self._tx.current_schema)
        if isinstance(chosen, pa.Table):
            self._engine.delete_keys_in(self._tx, chosen, end=self._end)
        else:
            self._engine.delete_where_in(self._tx, chosen, end=self._end)

    def update(self, set: Values, where: Condition | None = None) -> None:  # noqa: A002 - as `Table.update`
        """Give the rows that satisfy `where`, or all rows, new values at the commit; see `Table.update`."""
        schema = self._tx.current_schema
        condition = None if where is None else condition_of(where, schema)
        self._engine.update_in(self._tx, values_of(set, schema), condition, end=self._end)

    def _end(self, stats: Sequence[WriteStat], *, schema: TableSchema | None = None) -> Committed:
        self._tx.wrote(stats, schema)
        self._added_to, self._wrote = schema or self._added_to, True
        return Committed(self._tx.operation, self._tx.instant, "")

    def committed(self) -> Committed:
        """Commit what was written."""
        return self._tx.commit((), schema=self._added_to)

    @property
    def wrote(self) -> bool:
        """Whether it has a write."""
        return self._wrote


class _Block:
    """A transaction over tables that a `with` statement begins and ends."""

    def __init__(self, tables: Sequence[Table], application: AppTransaction | None, tag: str) -> None:
        self._tables, self._request = tuple(tables), WriteRequest("UPSERT", tag=tag, application=application)
        self._tx: MultiTableTransaction | None = None
        self._held = ExitStack()
        self._blocks: tuple[TableTransaction, ...] = ()
        self.results: tuple[WriteResult, ...] = ()
        """What was committed, for each table that was written, once the block has ended."""

    def _begin(self) -> tuple[TableTransaction, ...]:
        if self._tx is not None:
            raise TransactionStateError("this transaction was used before", hint="call transaction(...) for a new one")
        self._tx = self._held.enter_context(transaction_over([table._coordinator for table in self._tables], self._request))
        pairs = zip(self._tables, self._tx.parts, strict=True)
        self._blocks = tuple(TableTransaction(table._engine, part) for table, part in pairs)
        return self._blocks

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._tx is not None
        if error is not None:
            self._held.__exit__(kind, error, trace)
            return
        with self._held:
            for block in self._blocks:
                if block.wrote:
                    block.committed()
            self.results = self._tx.commit()


class OneTableTransaction(_Block):
    """`with table.transaction() as tx:` reads with `tx.read` and writes with `tx`; see `TableTransaction`."""

    def __init__(self, table: Table, application: AppTransaction | None, tag: str) -> None:
        super().__init__([table], application, tag)

    def __enter__(self) -> TableTransaction:
        return self._begin()[0]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(TableTransaction, name):
                raise TransactionStateError(
                    f"{name} is called of a transaction that has not begun", hint="use it as `with table.transaction() as tx:`"
                )
            raise AttributeError(f"{type(self).__name__} has no {name!r}", name=name, obj=self)


class TablesTransaction(_Block):
    """`with lakelock.transaction(orders, stock) as tx:` reads and writes `tx[orders]` and `tx[stock]`, and commits at its end.

    Everything becomes visible in all tables, or nothing in any. An exception in the block rolls everything back. The block is
    not run again after a conflict: `ConflictError` names the table. `results` says what was committed, once it has ended.
    """

    def __enter__(self) -> TablesTransaction:
        self._begin()
        return self

    def __getitem__(self, table: Table) -> TableTransaction:
        """The part of one of the tables that the transaction was begun with."""
        place = next((at for at, each in enumerate(self._tables) if each is table), None)
        if place is None:
            raise InputError(f"{table!r} is not part of the transaction", hint="name it in lakelock.transaction(...)")
        if not self._blocks:
            raise TransactionStateError(
                "the transaction has not begun", hint="use it as `with lakelock.transaction(...) as tx:`"
            )  # fmt: skip
        return self._blocks[place]


@checked
def create(
    path: str | Path,
    *,
    schema: Any,
    key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] = (),
    order_by: str | None = None,
    name: str | None = None,
    index: str | None = None,
    hive_style: bool = True,
    table_version: int = NEWEST_VERSION,
    table_type: str = COPY_ON_WRITE,
    if_not_exists: bool = False,
    settings: Mapping[str, object] | None = None,
    config: str | Path | None = None,
    application: str = "",
    listeners: Sequence[Listener] = (),
) -> Table:
    """Make an empty table and open it; `TableError` if there is one.

    `schema`: its columns, as a pyarrow schema, rows that have them, or a text: `"id bigint, place struct<x: double>"`.
    `key`: the columns that identify a row within its partition. Without one, rows are appended, updated and deleted by
    condition, and an upsert is an `InputError`.
    `partition_by`: columns, or `years(c)`, `months(c)`, `days(c)`, `hours(c)`, `bucket(n, c)`, `truncate(n, c)`.
    `order_by`: of two versions of a row the one with the greater value wins; without it the later write does.
    `index="bucket:16"`: the rows of each partition lie in 16 buckets by their keys' hash.
    `table_type="MERGE_ON_READ"` is for small changes of many large files, which then get log files instead of being rewritten.
    `if_not_exists`: an existing table is opened, if its definition is the same and it has these columns.

    The others are as for `open`; what each means in full is in `LakeTable.create`, which makes the same tables.
    """
    found = Settings.resolve(settings or {}, file=config).settings
    location = StorageLocation.of(path, found.storage)
    definition = Definition.of(
        location,
        schema_of(schema),
        key=key_of(key),
        partition_by=names(partition_by),
        order_by=order_by,
        name=name,
        hive_style=hive_style,
        index=index,
        table_version=table_version,
        table_type=table_type,
    )
    made = definition.make(location, SystemRuntime(), if_not_exists=if_not_exists)
    coordinator = Coordinator.open(location, found, application=application, listeners=listeners)
    if not made:
        try:
            definition.check(coordinator.table, coordinator.schema())
        except BaseException:
            coordinator.close()
            raise
    return Table(coordinator)


@checked
def open(  # noqa: A001 - as gzip.open and tarfile.open
    path: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    config: str | Path | None = None,
    application: str = "",
    listeners: Sequence[Listener] = (),
) -> Table:
    """Open a table of any engine; `TableError` if there is none, or says why it cannot be read.

    `path`: a folder, or a URI such as `s3://bucket/table`. `settings` are those of the reference, such as
    `{"lock.provider": "zookeeper://..."}` or `{"storage.endpoint": "..."}`, and win over those of the file `config`.
    `application` is the name under which others see this writer. `listeners` are called with each event, in the thread that
    writes.
    """
    found = Settings.resolve(settings or {}, file=config).settings
    location = StorageLocation.of(path, found.storage)
    return Table(Coordinator.open(location, found, application=application, listeners=listeners))


@checked
def exists(
    path: str | Path, *, settings: Mapping[str, object] | None = None, config: str | Path | None = None
) -> bool:  # fmt: skip
    """Whether there is a Hudi table at `path`. It may be one that cannot be opened: `open` says so."""
    found = Settings.resolve(settings or {}, file=config).settings
    return table_exists(StorageLocation.of(path, found.storage).open())


@checked
def transaction(
    *tables: Table, tag: str = "", txn_app_id: str | None = None, txn_version: int | None = None
) -> TablesTransaction:
    """One transaction over several tables, see `TablesTransaction`.

    With `txn_app_id` and `txn_version` it is applied at most once: a block whose version is applied already is a
    `ConflictError` before it begins.
    """
    given: Sequence[object] = tables
    wrong = next((each for each in given if not isinstance(each, Table)), None)
    if wrong is not None or not tables:
        raise InputError(
            f"{wrong!r} is not a table" if tables else "a transaction needs tables",
            hint="open them first: lakelock.transaction(lakelock.open(path), lakelock.open(other_path))",
        )
    return TablesTransaction(tables, numbered(txn_app_id, txn_version), tag)


def _columns(schema: TableSchema, columns: Sequence[str] | None) -> list[str]:
    """Columns as the table spells them; none for all."""
    if columns is None:
        return []
    found = []
    for name in columns:
        column = spelled(name, schema.names)
        if column is None:
            raise InputError(f"the table has no column {name!r}", hint=column_hint(name, schema.names))
        found.append(column)
    if not found or len(set(found)) < len(found):
        raise InputError(f"columns is {list(columns)}", hint="name each column once; leave it out for all columns")
    return found


def _position(moment: str | datetime | int) -> str | int:
    return moment if isinstance(moment, int) else time_text(moment)
