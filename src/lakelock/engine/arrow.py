"""The engine without Spark: the same transactions and tasks on Arrow tables, in one process.

What Spark distributes is done here by plain loops. The rows to write are held in memory, and so are those of a change feed.
Only kernels touch them: with other kernels the same engine runs in the simulator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.checked_calls import checked_calls
from lakelock.data_locks import Resource
from lakelock.engine.batch import PATH, AttemptCache, Batch, chosen_partitions, compacts, write_copies, write_joins
from lakelock.engine.group_commit import SmallWrite, alone_or_together
from lakelock.engine.reads import RowsRead
from lakelock.engine.small_writes import SmallWrites, deleted, require_partitions_apart, upserted
from lakelock.engine.updating import checked_values, new_values
from lakelock.errors import InputError, LakelockError, StorageError
from lakelock.occ.alter import alter
from lakelock.occ.change_feed import feed_between, position_at
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import Committed
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign import why_missing
from lakelock.occ.optimize import Optimized, optimize
from lakelock.occ.reading import QueryType, ReadView, ensure_in_order, ensure_not_future
from lakelock.occ.request import Targets, WriteRequest, files_within, resources_of, target_of_expression, within
from lakelock.occ.restore import Repaired, repair, restore
from lakelock.occ.retry import run, with_retries
from lakelock.occ.transaction import ALL_ROWS, Transaction
from lakelock.settings import MissingColumns, OptimizeSettings
from lakelock.storage import is_missing
from lakelock.table.change_feed import FeedMode, in_need_of_pairs, position_of
from lakelock.table.index import file_id_without_bucket
from lakelock.table.instants import as_of_time
from lakelock.table.layout import FileGroupId
from lakelock.table.partitions import with_generated
from lakelock.table.record_keys import require_key
from lakelock.table.rewriting import ARROW, Condition, Kernels, selected
from lakelock.table.rows import missing_since
from lakelock.table.schema import Alteration, TableSchema
from lakelock.table.slice_differences import STAMPS, FeedRows, feed_schema, paired
from lakelock.table.snapshot import DataFile
from lakelock.table.spark_conditions import as_in_spark, values_named

# A call of `random` in the text of an expression; what is in quotation marks there is a value.
_RANDOM = re.compile(r'"(?:[^"\\]|\\.)*"|\b(random)\((?=[{)])')


def require_rows(rows: object, kernels: Kernels) -> None:
    """`InputError` for rows that are no Arrow table."""
    if kernels is ARROW and not isinstance(rows, pa.Table):
        raise InputError(
            f"rows are given as {type(rows).__name__}, but must be a pyarrow.Table",
            hint="make one: pa.Table.from_pylist(rows), pa.Table.from_pandas(frame) or pa.Table.from_batches([batch])",
        )


def require_condition(condition: Condition | None, schema: TableSchema, kernels: Kernels, *, optional: bool = True) -> None:
    """`InputError` for what is no condition on rows of the table: an unknown column, types that do not compare, no boolean."""
    if kernels is not ARROW or (condition is None and optional):
        return
    if not isinstance(condition, pc.Expression):
        raise InputError(
            f"a condition is a pyarrow expression, and {condition!r} is of the type {type(condition).__name__}",
            hint='write it as pc.field("id") == 1, with pyarrow.compute as pc',
        )
    try:
        schema.arrow.empty_table().filter(condition)
    except (pa.ArrowException, TypeError, KeyError) as error:
        raise InputError(
            f"{condition} is not a condition on the rows of this table: {str(error).splitlines()[0]}",
            hint=f"the columns are {', '.join(f'{field.name} ({field.type})' for field in list(schema.arrow)[:20])}",
        ) from error
    try:
        as_in_spark(condition, schema.arrow)
    except pa.ArrowNotImplementedError as error:
        raise InputError(
            f"{condition} cannot be evaluated by Spark's rule for floating-point numbers: {str(error).splitlines()[0]}",
            hint='name columns by their names: pc.field("id"), or pc.field("place", "zip") for a field of a struct',
        ) from error


def require_certain(condition: Condition | None) -> None:
    """`InputError` for a condition with `random`: a write asks it several times, and the answers must agree.

    A function that a user has registered with Arrow is trusted to answer the same of the same row.
    """
    if isinstance(condition, pc.Expression) and any(found[1] for found in _RANDOM.finditer(str(condition))):
        raise InputError(
            f"the condition {condition} may give a different answer each time it is evaluated for a row",
            hint="choose the rows first, and delete them by key: engine.delete(engine.read().filter(...))",
        )


def read_feed(coordinator: Coordinator, since: str, until: str | None, mode: FeedMode) -> pa.Table:
    """The changes of a range of positions as one table, in the order of the commits."""
    table, schema = coordinator.table, coordinator.schema()
    feed = feed_between(table, coordinator.properties, schema, since, until, mode)
    pairs = in_need_of_pairs(feed.units) if mode == "net" else frozenset()
    found = [feed_schema(schema).empty_table()]
    for partition, group in groupby(feed.units, lambda unit: unit.partition):
        units, together = list(group), partition in pairs
        reader = FeedRows.of(schema, units, coordinator.properties.timezone, stamped=together)
        rows = [reader.columns.empty_table(), *(part for unit in units for part in reader.read(unit, table.storage))]
        whole = pa.concat_tables(rows)
        found.append(paired(whole).drop_columns(list(STAMPS)) if together else whole)
    return pa.concat_tables(found)


End = Callable[..., Committed]
"""Takes what a write has written, as `Transaction.commit` does."""
SMALL_BYTES = 1 << 20
"""Rows that take no more are encoded and sent in about the time of a request."""


@checked_calls
class ArrowEngine:
    """Writes and reads one table with Arrow tables. Conflicts are retried as in Spark."""

    def __init__(self, coordinator: Coordinator, kernels: Kernels = ARROW) -> None:
        self._coordinator, self._kernels = coordinator, kernels
        self._small = SmallWrites(coordinator, kernels, lambda tx, schema, rows: self._batch_of(tx, schema, rows))
        compacts(coordinator, kernels)

    @property
    def coordinator(self) -> Coordinator:
        """Begins the transactions of this engine."""
        return self._coordinator

    def insert(
        self, rows: pa.Table, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Append the rows; keys are not looked up. In a table with buckets their file groups are rewritten.

        Rows outside `partition`, if it is named, are an `InputError`.
        """
        require_rows(rows, self._kernels)
        small = self._small.insert(rows, tag) if application is None and partition is None else None
        group = self._only_group(rows)
        request = WriteRequest("INSERT", partition, tag, application, redoes=True, new_group=group)
        work = partial(self._insert_in, rows=rows, memory=AttemptCache(), small=group is not None)
        return self._alone_or_together(request, work, small)

    def _alone_or_together(
        self, request: WriteRequest, work: Callable[[Transaction], Committed], small: SmallWrite | None
    ) -> Committed:  # fmt: skip
        return alone_or_together(self._coordinator, self._kernels, request, work, lambda _: small)

    def insert_in(
        self, tx: Transaction, rows: pa.Table, memory: AttemptCache | None = None, end: End | None = None
    ) -> Committed:  # fmt: skip
        """Append the rows as the only write of a transaction that may have read before; `end` as for `upsert_in`."""
        return self._insert_in(tx, rows, memory, end, small=False)

    def _insert_in(
        self, tx: Transaction, rows: pa.Table, memory: AttemptCache | None, end: End | None = None, *, small: bool
    ) -> Committed:  # fmt: skip
        """`small`: the rows are likely to be one file, which takes no longer than a request."""
        batch = self._batch(tx, rows, memory)
        place = batch.placed(batch.by_partition())
        batch.claim(dict.fromkeys(place.files, ALL_ROWS), place.claims, place.new)
        added = [stat for file, mine in place.known for stat in batch.rewritten(file, added=mine)]
        if small and not added:
            return tx.commit((), schema=batch.schema, last=partial(batch.new_files, place))
        return (end or tx.commit)([*added, *batch.new_files(place)], schema=batch.schema)

    def _only_group(self, rows: pa.Table) -> FileGroupId | None:
        """The new file group of a small insert into one partition; None where that is not known before it begins."""
        coordinator = self._coordinator
        properties = coordinator.properties
        if properties.bucket_index is not None or rows.nbytes > SMALL_BYTES:
            return None
        try:
            partitions = self._kernels.by_partition(with_generated(rows, properties), properties)
        except (LakelockError, pa.ArrowException, KeyError):
            return None  # the write itself tells what is wrong with the rows
        if len(partitions) != 1:
            return None
        return FileGroupId(next(iter(partitions)), f"{file_id_without_bucket(coordinator.table.runtime.uuid())}-0")

    def upsert(
        self,
        rows: pa.Table,
        *,
        application: AppTransaction | None = None,
        tag: str = "",
        partition: Targets = None,
        missing_columns: MissingColumns | None = None,
    ) -> Committed:
        """Insert the rows whose keys the table lacks and replace the others; the newest by the ordering column wins.

        `missing_columns` is the setting `write.missing_columns` of this call.
        """
        require_rows(rows, self._kernels)
        require_key(self._coordinator.properties, "an upsert")
        settings = self._coordinator.table.settings.write
        settings = replace(settings, missing_columns=missing_columns or settings.missing_columns)
        small = self._small.upsert(rows, tag, settings) if application is None and partition is None else None
        work = partial(self.upsert_in, rows=rows, missing_columns=missing_columns, memory=AttemptCache())
        return self._alone_or_together(WriteRequest("UPSERT", partition, tag, application, redoes=True), work, small)

    def upsert_in(
        self,
        tx: Transaction,
        rows: pa.Table,
        missing_columns: MissingColumns | None = None,
        memory: AttemptCache | None = None,
        end: End | None = None,
    ) -> Committed:
        """Upsert as the only write of a transaction that may have read before, or as one of several.

        `end` gets what was written in place of `tx.commit`, for another write to follow.
        """
        require_partitions_apart(tx.baseline.properties, "an upsert")
        settings = self._coordinator.table.settings.write
        rows = with_generated(rows, tx.baseline.properties)
        missing = missing_columns or settings.missing_columns
        if missing == "error":
            missing = missing_since(tx.current_schema.arrow, rows.schema, missing, partial(self._coordinator.known_schemas, tx))
        schema, fitted = self._kernels.fitted_upserts(
            rows, tx.current_schema, tx.baseline.properties, merge=settings.merge_schema, missing=missing
        )
        batch = self._batch_of(tx, schema, fitted, memory)
        keyed = {
            partition: self._kernels.dedupe(found, batch.ordering, take_any=settings.duplicates == "any")
            for partition, found in batch.by_partition().items()
        }
        stats = upserted(batch, keyed)[1]
        return (end or tx.commit)(stats, schema=batch.schema)

    def delete(
        self,
        what: pc.Expression | pa.Table,
        *,
        application: AppTransaction | None = None,
        tag: str = "",
        partition: Targets = None,
    ) -> Committed:
        """Delete the rows that satisfy a condition, or those whose key and partition columns are in a table."""
        delete = self.delete_keys if isinstance(what, pa.Table) else self.delete_where
        return delete(what, application=application, tag=tag, partition=partition)

    def delete_where(
        self, condition: Condition, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Delete the rows that satisfy a condition. `InputError` if its answers are not certain, as with `random`."""
        require_certain(condition)
        coordinator = self._coordinator
        require_condition(condition, coordinator.schema(), self._kernels, optional=False)
        likely: tuple[Resource, ...] = ()
        if coordinator.data.for_writes:
            likely = target_of_expression(str(condition), coordinator.schema().arrow, coordinator.properties)
        keys = self._small.keys_of(values_named(condition)) if isinstance(condition, pc.Expression) else None
        small = self._small.delete(keys, tag) if keys is not None and application is None and partition is None else None
        work = partial(self.delete_where_in, condition=condition, memory=AttemptCache())
        request = WriteRequest("DELETE", partition, tag, application, likely, redoes=True)
        return self._alone_or_together(request, work, small)

    def delete_keys(
        self, keys: pa.Table, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Delete the rows whose key and partition columns are in a table."""
        require_rows(keys, self._kernels)
        require_key(self._coordinator.properties, "a delete by keys")
        small = self._small.delete(keys, tag) if application is None and partition is None else None
        work = partial(self.delete_keys_in, keys=keys, memory=AttemptCache())
        return self._alone_or_together(WriteRequest("DELETE", partition, tag, application, redoes=True), work, small)

    def delete_where_in(
        self, tx: Transaction, condition: Condition, memory: AttemptCache | None = None, end: End | None = None
    ) -> Committed:
        """Delete by condition as the only write of a transaction that may have read before; `end` as for `upsert_in`."""
        require_condition(condition, tx.current_schema, self._kernels, optional=False)
        read = self._rows_read(tx, tx.current_schema, condition)
        tx.reads(read)
        batch = self._batch_of(tx, tx.current_schema, None, memory)
        groups = [file for file in read.files_of(tx.current()) if batch.memory.matches(file, read)]
        batch.claim(dict.fromkeys(groups))
        delete_mask = self._kernels.satisfying(condition)
        return (end or tx.commit)([stat for file in groups for stat in batch.rewritten(file, delete_mask=delete_mask)])

    def delete_keys_in(
        self, tx: Transaction, keys: pa.Table, memory: AttemptCache | None = None, end: End | None = None
    ) -> Committed:
        """Delete the rows with these keys as the only write of a transaction that may have read before; `end` as before."""
        require_partitions_apart(tx.baseline.properties, "a delete by keys")
        properties = tx.baseline.properties
        fitted = self._kernels.fitted_keys(with_generated(keys, properties), tx.current_schema, properties)
        batch = self._batch_of(tx, tx.current_schema, fitted, memory)
        return (end or tx.commit)(deleted(batch, batch.by_partition())[1])

    def update(
        self,
        values: Mapping[str, pc.Expression],
        where: Condition | None = None,
        *,
        application: AppTransaction | None = None,
        tag: str = "",
        partition: Targets = None,
    ) -> Committed:
        """Give the rows that satisfy a condition, or all rows, new values, computed from the old ones.

        Key, partition and ordering columns of other rows stay as they are; `SchemaError` for a column that cannot be set, or
        a type that does not fit. The rows change whatever their ordering column says.
        """
        require_certain(where)
        coordinator = self._coordinator
        require_condition(where, coordinator.schema(), self._kernels)
        checked_values(values, coordinator.schema(), coordinator.properties)
        likely: tuple[Resource, ...] = ()
        if where is not None and coordinator.data.for_writes:
            likely = target_of_expression(str(where), coordinator.schema().arrow, coordinator.properties)
        work = partial(self.update_in, values=values, where=where, memory=AttemptCache())
        return with_retries(coordinator, WriteRequest("UPDATE", partition, tag, application, likely, redoes=True), work)

    def update_in(
        self,
        tx: Transaction,
        values: Mapping[str, pc.Expression],
        where: Condition | None = None,
        memory: AttemptCache | None = None,
        end: End | None = None,
    ) -> Committed:
        """Update as the only write of a transaction that may have read before; `end` as for `upsert_in`."""
        schema = tx.current_schema
        require_condition(where, schema, self._kernels)
        checked_values(values, schema, tx.baseline.properties)
        read = self._rows_read(tx, schema, where)
        tx.reads(read)
        batch = self._batch_of(tx, schema, None, memory)
        groups = [file for file in read.files_of(tx.current()) if batch.memory.matches(file, read)]
        current = tx.current()
        batch.claim({file: None if where is not None else current.stats_of(file._replace(logs=())).rows for file in groups})
        chosen = None if where is None else self._kernels.satisfying(where)
        new = partial(new_values, schema=schema, values=values, chosen=chosen, storage=batch.storage)
        return (end or tx.commit)([stat for file in groups for stat in batch.rewritten(file, upserts=new(file))])

    def overwrite_partitions(
        self, rows: pa.Table, *, application: AppTransaction | None = None, tag: str = "", partition: Targets = None
    ) -> Committed:
        """Replace the whole content of every partition that `rows` has rows for."""
        require_rows(rows, self._kernels)
        work = partial(self.overwrite_partitions_in, rows=rows)
        return with_retries(self._coordinator, WriteRequest("INSERT_OVERWRITE", partition, tag, application), work)

    def overwrite_partitions_in(self, tx: Transaction, rows: pa.Table) -> Committed:
        """Replace partitions as the only write of a transaction that was begun as an overwrite, and may have read before."""
        batch = self._batch(tx, rows)
        parts = batch.by_partition()
        replaced = tx.overwrites(parts)
        place = batch.placed(parts, anew=True)
        tx.claim((f.group for p in parts for f in tx.snapshot().in_partition(p)), place.claims)
        return tx.commit(batch.new_files(place), schema=batch.schema, replaced=replaced)

    def run(
        self,
        function: Callable[[Transaction], Committed],
        operation: str = "UPSERT",
        *,
        application: AppTransaction | None = None,
        tag: str = "",
        partition: Targets = None,
    ) -> Committed:
        """Read, compute and write in `function`, which ends with one of the writes `..._in`, and returns its result.

        It is called again with a new transaction, up to `retry.attempts` times, as long as conflicts reject it. If the
        application has applied its version already, it is not called.
        """
        if not callable(function):
            raise InputError(f"{function!r} cannot be called", hint="run takes a function: engine.run(lambda tx: ...)")
        return run(self._coordinator, WriteRequest(operation, partition, tag, application), function)

    def alter(self, alteration: Alteration, *, tag: str = "") -> Committed:
        """Add columns, widen their types, or let them be null; no file is written."""
        return alter(self._coordinator, alteration, tag=tag)

    def optimize(
        self,
        where: pc.Expression | None = None,
        *,
        partition: Targets = None,
        sort_by: Sequence[str] = (),
        sizes: OptimizeSettings | None = None,
        tag: str = "",
    ) -> Optimized:
        """Join small files of the partitions that are named, or that satisfy a condition on the partition columns, and compact
        the log files that are left.

        Rows of one new file are in memory only where they are sorted.
        """
        matching = None if where is None else partial(self._matching, where)
        chosen = chosen_partitions(self._coordinator, partition, matching)
        write = partial(write_joins, self._coordinator, self._kernels, tuple(sort_by))
        copy = partial(write_copies, self._coordinator, self._kernels)
        return optimize(self._coordinator, write, copy, partitions=chosen, sort_by=sort_by, sizes=sizes, tag=tag)

    def _matching(self, where: pc.Expression, partitions: pa.Table) -> list[str]:
        """The paths of those that satisfy a condition; `InputError` for one on other columns than those of partitions."""
        try:
            found: list[str] = partitions.filter(where).column(PATH).to_pylist()
        except (pa.ArrowException, KeyError, TypeError) as error:
            columns = ", ".join(self._coordinator.properties.partition_fields) or "there are none"
            raise InputError(
                f"the condition {where} does not choose partitions: {error}", hint=f"use the partition columns only: {columns}"
            ) from error
        return found

    def restore(self, as_of: str, *, tag: str = "") -> Committed:
        """Make the table what it was as of an instant or a time in UTC: what came after is undone in a new commit."""
        return restore(self._coordinator, self._moment(as_of), partial(write_copies, self._coordinator, self._kernels), tag=tag)

    def repair(self, *, tag: str = "") -> Repaired:
        """Take commits out of the table that another engine has undone by removing their files: then it can be read again."""
        return repair(self._coordinator, partial(write_copies, self._coordinator, self._kernels), tag=tag)

    def read(
        self, as_of: str | None = None, where: pc.Expression | None = None, query_type: QueryType = "snapshot"
    ) -> pa.Table:
        """The table now, or as of an instant or a time in UTC, without the meta columns."""
        return self._read_shown(self.shown(as_of, query_type), (), where)

    def shown(self, as_of: str | None = None, query_type: QueryType = "snapshot") -> ReadView:
        """What a read of the table now, or as of then, shows."""
        return self._coordinator.shown(None if as_of is None else self._past(as_of, "as_of"), query_type)

    def pieces(
        self, shown: ReadView, named: Sequence[Resource] = (), where: pc.Expression | None = None, columns: Sequence[str] = ()
    ) -> Iterator[pa.Table]:
        """The rows file by file: in these partitions, that satisfy a condition, of these columns (all without one).

        Files that cannot have such a row are not opened, and columns that nothing needs are not read.
        """
        require_condition(where, shown.schema, self._kernels)
        return self._pieces(shown, named, where, columns)

    def _pieces(
        self, shown: ReadView, named: Sequence[Resource], where: pc.Expression | None, columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        coordinator, schema = self._coordinator, shown.schema
        needed = _needed(schema, columns, where, coordinator.properties.record_keys)
        read = RowsRead(coordinator.table.storage, self._kernels, schema, where, coordinator.properties)
        for file in read.files_of(shown.snapshot):
            if not named or within(file.partition, named):
                found = self.read_files([file], needed, where)
                yield found.select(columns) if columns else found
        for found in self._merged(shown, named, where, needed):
            yield found.select(columns) if columns else found

    def _merged(
        self, shown: ReadView, named: Sequence[Resource], where: pc.Expression | None, columns: TableSchema
    ) -> Iterator[pa.Table]:
        """Such rows of file slices with log files. Slices of partitions that cannot have any are not opened."""
        storage, properties = self._coordinator.table.storage, self._coordinator.properties
        read = RowsRead(storage, self._kernels, shown.schema, where, properties)
        merged = shown.merged(columns.arrow)
        for slice_ in shown.logged_within(named):
            if read.concerns(slice_.partition):
                for rows in merged.read(slice_, storage):
                    yield rows if where is None else selected(rows, where)

    def _moment(self, text: str) -> str:
        """The instant time that a text means; `InputError` for one that means none."""
        return as_of_time(text, self._coordinator.properties.timezone)

    def _past(self, text: str, name: str) -> str:
        """The same; `InputError` as well if it is still to come."""
        coordinator = self._coordinator
        return ensure_not_future(coordinator.table, coordinator.properties.timezone, self._moment(text), name)

    def _read_shown(self, shown: ReadView, named: Sequence[Resource], where: pc.Expression | None) -> pa.Table:
        require_condition(where, shown.schema, self._kernels)
        found = self.read_files(files_within(shown.snapshot, named), shown.schema, where)
        more = list(self._merged(shown, named, where, shown.schema))
        return self._kernels.together([found, *more]) if more else found

    def _position(self, moment: str | int, name: str) -> str:
        """The position that an instant, a time or a `_commit_version` means; `InputError` if it is still to come."""
        if isinstance(moment, int):
            return self._past(position_of(moment), name) if moment else ""
        table = self._coordinator.table
        return position_at(table, table.timeline_of_one_moment(), self._past(moment, name))

    def changes(self, since: str | int = 0, until: str | int | None = None, mode: FeedMode = "commits") -> pa.Table:
        """What commits changed that completed after `since`, and not after `until`: inserted and deleted rows, and updated ones
        before and after. In mode `net` from the first state to the last; `InputError` if that was cleaned.
        """
        begin = self._position(since, "since")
        end = None if until is None else self._position(until, "until")
        ensure_in_order(begin, end)
        return read_feed(self._coordinator, begin, end, mode)

    @contextmanager
    def reading(self, partition: Targets = None, where: pc.Expression | None = None) -> Iterator[pa.Table]:
        """The rows as of now, while no writer in PESSIMISTIC mode writes into the partitions that they are from."""
        coordinator = self._coordinator
        named = resources_of(partition, coordinator.properties)
        with coordinator.data.holding_for("SELECT", named):
            yield self._read_shown(coordinator.shown(), named, where)

    def read_in(self, tx: Transaction, where: Condition | None = None) -> pa.Table:
        """Read as part of a transaction: its commit is rejected if another commits what this read would have seen."""
        require_certain(where)
        require_condition(where, tx.schema, self._kernels)
        read = self._rows_read(tx, tx.schema, where)
        tx.reads(read)
        return self.read_files(read.files_of(tx.snapshot()), tx.schema, where)

    def _rows_read(self, tx: Transaction, schema: TableSchema, where: Condition | None) -> RowsRead:
        return RowsRead(self._coordinator.table.storage, self._kernels, schema, where, tx.baseline.properties)

    def read_files(self, files: Sequence[DataFile], schema: TableSchema, where: Condition | None = None) -> pa.Table:
        """The rows of these files that satisfy a condition, in the columns of a schema."""
        table = self._coordinator.table
        try:
            return self._kernels.read(files, schema, where, table.storage)
        except StorageError as error:
            if is_missing(error):
                raise why_missing(table, error) from error
            raise

    def _batch(self, tx: Transaction, rows: pa.Table, memory: AttemptCache | None = None) -> Batch:
        settings = self._coordinator.table.settings.write
        rows = with_generated(rows, tx.baseline.properties)
        schema, fitted = self._kernels.fitted(rows, tx.current_schema, merge=settings.merge_schema)
        return self._batch_of(tx, schema, fitted, memory)

    def _batch_of(
        self, tx: Transaction, schema: TableSchema, rows: pa.Table | None, memory: AttemptCache | None = None
    ) -> Batch:
        return Batch(self._coordinator, self._kernels, tx, schema, rows, memory or AttemptCache())


def _needed(schema: TableSchema, columns: Sequence[str], where: Condition | None, keys: Sequence[str]) -> TableSchema:
    """The columns to read for a read of some: those that the condition may name, and a key, so that no file lacks them all."""
    if not columns or not keys:
        return schema
    text = "" if where is None else str(where)
    wanted = {*columns, *keys}
    return TableSchema(pa.schema([field for field in schema.arrow if field.name in wanted or field.name in text]))
