"""The writes of a `LakeTable`: each is a transaction of its own. Changes of its columns are among them.

Some changes of columns leave all files as they are, others write all rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from lakelock.checked_calls import checked_calls
from lakelock.errors import InputError, SchemaError
from lakelock.occ.alter import alter
from lakelock.occ.commit_keys import AppTransaction
from lakelock.occ.committed import WriteResult
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.request import Every, Targets, WriteRequest, names, numbered
from lakelock.settings import MissingColumns
from lakelock.spark_plugin import changing, inserting, merging, spark_session
from lakelock.spark_plugin import inserting as overwriting
from lakelock.spark_plugin.arguments import (
    Assignments,
    Duplicates,
    changed,
    checked_assignments,
    chosen_rows,
    delta_arguments,
    delta_update,
)
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.inserting import rename_columns
from lakelock.spark_plugin.merge_builder import TARGET, MergeBuilder, MergeSpec, with_columns_equated
from lakelock.spark_plugin.merging import MergePlan
from lakelock.spark_plugin.spark_session import arrow_schema, needs_spark, require_batch, spark_schema
from lakelock.spark_plugin.sql_operations import Name
from lakelock.spark_plugin.sql_planning import StatementPlanner
from lakelock.spark_plugin.transactions import TableTransactions
from lakelock.spark_plugin.write_attempt import Write
from lakelock.table.record_keys import require_key
from lakelock.table.schema import Alteration, renamed

if TYPE_CHECKING:
    from lakelock.spark_plugin.sql_words import Words


@checked_calls
class TableWrites(TableTransactions):
    """The operations of a `LakeTable` that write."""

    _alias = TARGET

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
        return self._write(WriteRequest("INSERT", partition, tag, txn), write, settings=settings)

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
        In a table with `index="global"` a row whose key is in another partition moves: as one deleted, one inserted.
        """
        require_key(self._coordinator.properties, "an upsert")
        write = partial(changing.upsert, df=require_batch(df, "upsert"))
        txn = numbered(txn_app_id, txn_version)
        settings = changed(self._settings, merge_schema, duplicates, missing_columns)
        return self._write(WriteRequest("UPSERT", partition, tag, txn), write, settings=settings)

    @delta_arguments(condition="what")
    @needs_spark
    def delete(
        self,
        what: str | Column | DataFrame | Every = Every.ROW,
        *,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Delete the rows that satisfy a condition, those whose key and partition columns are in a data frame, or all.

        With `index="global"` the frame needs the key columns only. Only `table.delete()` deletes all rows; what is None is an
        `InputError`.
        """
        txn, what = numbered(txn_app_id, txn_version), chosen_rows(what)
        if isinstance(what, str | Column):
            write: Write = partial(changing.delete_where, condition=self._condition(what))
            return self._write(WriteRequest("DELETE", partition, tag, txn), write, where=what)
        require_key(self._coordinator.properties, "a delete by keys")
        write = partial(changing.delete_keys, df=require_batch(what, "delete"))
        return self._write(WriteRequest("DELETE", partition, tag, txn), write)

    @delta_update
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
        write = partial(changing.update_where, values=assigned, condition=condition)
        return self._write(WriteRequest("UPDATE", partition, tag, txn), write, where=where)

    @delta_arguments(condition="on")
    def merge(
        self,
        source: DataFrame,
        on: str | Column | Sequence[str],
        *,
        target_alias: str | None = None,
        source_alias: str | None = None,
        partition: Targets = None,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> MergeBuilder[WriteResult]:
        """Describe a merge of `source` into the table, whose clauses say what becomes of its rows; `.execute()` runs it.

        >>> table.merge(updates, "target.id = source.id").when_matched_update_all().when_not_matched_insert_all().execute()
        ... # doctest: +SKIP

        `on` is a condition that equates something of both sides, or the columns that are equal: `"id"`, `["id", "day"]`. If it
        equates the key and partition columns, only the keys of the source are looked up, as in an upsert; otherwise it reads
        the rows that its part about the target selects, or the whole table.
        The sides are called `target` and `source`, unless `table.alias(...)`, `df.alias(...)` or the arguments say otherwise.
        """
        spec = MergeSpec.of(source, on, target_alias or self._alias, source_alias)
        txn = numbered(txn_app_id, txn_version)
        return MergeBuilder(spec, partial(self._merge, partition=partition, tag=tag, txn=txn))

    @needs_spark
    def _merge(self, spec: MergeSpec, *, partition: Targets, tag: str, txn: AppTransaction | None) -> WriteResult:
        spec = replace(spec, merge_schema=spec.merge_schema or self._settings.merge_schema)
        schema = self._coordinator.schema()
        known = self._coordinator.known_schemas
        plan = MergePlan.of(with_columns_equated(spec, schema), schema, self._coordinator.properties, known)
        return self._write(WriteRequest("MERGE", partition, tag, txn), partial(merging.merge, plan=plan))

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
        return self._write(WriteRequest("INSERT_OVERWRITE", partition, tag, txn), write, settings=settings)

    @needs_spark
    def overwrite(
        self,
        df: DataFrame,
        where: str | Column | None = None,
        *,
        partition: Targets = None,
        merge_schema: bool | None = None,
        overwrite_schema: bool = False,
        tag: str = "",
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> WriteResult:
        """Replace the rows that satisfy `where` with `df`, whose rows must all satisfy it; without `where`, the whole table.

        With `overwrite_schema` the columns of `df` replace those of the whole table: renamed, dropped, in another order or of
        other types. Key, partition and ordering columns must be among them. `read(as_of=...)` shows the old ones as before.
        """
        require_batch(df, "overwrite")
        if overwrite_schema and where is not None:
            raise InputError(
                "overwrite_schema replaces the columns of all rows, so it goes with an overwrite of the whole table",
                hint="leave out where; merge_schema=True adds and widens columns",
            )
        txn, settings = numbered(txn_app_id, txn_version), changed(self._settings, merge_schema)
        if where is None:
            _require_whole(partition)
            write: Write = partial(overwriting.overwrite_table, df=df, overwrite_schema=overwrite_schema)
            return self._write(WriteRequest("INSERT_OVERWRITE_TABLE", tag=tag, application=txn), write, settings=settings)
        write = partial(overwriting.overwrite_where, df=df, condition=self._condition(where))
        request = WriteRequest("UPSERT", partition, tag, txn, called="OVERWRITE")
        return self._write(request, write, where=where, settings=settings)

    def upsert_batch(self, df: DataFrame, batch_id: int, *, missing_columns: MissingColumns | None = None) -> Any:
        """For `writeStream.foreachBatch`: upsert each micro-batch exactly once, however often Spark replays it.

        `missing_columns` is as for `upsert`; set it with `functools.partial`. It returns the `WriteResult`, which a
        function of your own can log; Spark ignores it, and its types ask for none.
        """
        require_key(self._coordinator.properties, "an upsert")
        txn = spark_session.micro_batch(require_batch(df, "upsert_batch"), batch_id)
        settings = changed(self._settings, missing_columns=missing_columns)
        return self._write(WriteRequest("UPSERT", application=txn), partial(changing.upsert, df=df), settings=settings)

    def insert_batch(self, df: DataFrame, batch_id: int) -> Any:
        """For `writeStream.foreachBatch`: append each micro-batch exactly once; it returns the `WriteResult`, too."""
        txn = spark_session.micro_batch(require_batch(df, "insert_batch"), batch_id)
        return self._write(WriteRequest("INSERT", application=txn), partial(inserting.insert, df=df))

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
        return self._run_statement(statement, args, partition=partition, tag=tag, txn=numbered(txn_app_id, txn_version))

    @needs_spark
    def _run_statement(
        self,
        statement: str | Words,
        args: Mapping[str, object] | None,
        *,
        own: Name | None = None,
        partition: Targets = None,
        tag: str = "",
        txn: AppTransaction | None = None,
    ) -> WriteResult:
        """As `sql`, for a text or its words; `own` is a name that means this table there."""
        coordinator = self._coordinator
        planner = StatementPlanner(
            self._spark, coordinator.schema(), coordinator.properties, coordinator.table.storage.uri,
            coordinator.known_schemas, merge_schema=self._settings.merge_schema,
        )  # fmt: skip
        planned = planner.plan(statement, args, own=own)
        if planned.operation == "INSERT_OVERWRITE_TABLE":
            _require_whole(partition)
        return self._write(WriteRequest(planned.operation, partition, tag, txn), planned.write, where=planned.where)

    def _condition(self, given: str | Column) -> Condition:
        return Condition.of(self._spark, spark_schema(self._coordinator.schema().arrow), given)

    def _assignments(self, given: Assignments, what: str) -> Assignments:
        coordinator, merge_schema = self._coordinator, self._settings.merge_schema
        return checked_assignments(
            self._spark, given, coordinator.schema(), coordinator.properties, what, merge_schema=merge_schema
        )


def _require_whole(partition: Targets) -> None:
    if partition is not None:
        hint = "name the rows to replace by where=..., or use overwrite_partitions(df, partition=...)"
        raise InputError("an overwrite of the whole table takes no partition", hint=hint)


Types = Mapping[str, str | DataType]
"""Columns, or fields inside them such as `address.zip`, and their types: Spark's, or their names in SQL."""


@checked_calls
class Columns:
    """`table.columns`: what changes the columns of a `LakeTable`."""

    def __init__(self, spark: SparkSession, coordinator: Coordinator, write: Callable[..., WriteResult]) -> None:
        self._spark, self._coordinator, self._write = spark, coordinator, write

    @needs_spark
    def add(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Add columns that may be null: `table.columns.add({"note": "string", "address.zip": "string"})`.

        No file is written: stored rows have null in them. Running writers go on, and keep the new columns. Fields inside lists
        and maps are named `items.element.price` and `prices.value.net`. `SchemaError` for a column that is there.
        """
        return self._altered(Alteration(add=self._types(columns)), tag)

    @needs_spark
    def widen(self, columns: Types, *, tag: str = "") -> WriteResult:
        """Give columns wider types: `table.columns.widen({"quantity": "bigint", "price": "decimal(20, 4)"})`.

        int becomes bigint or double, float double, and decimals get more digits on both sides of the point; anything else is a
        `SchemaError`. No file is written: old ones are read in the new types.
        """
        return self._altered(Alteration(widen=self._types(columns)), tag)

    @needs_spark
    def relax(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Let columns be null that must not be, as Java's tables have them: `table.columns.relax("price")`."""
        return self._altered(Alteration(relax=names(columns)), tag)

    @needs_spark
    def reorder(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Put these columns first, in this order; the others follow in theirs: `table.columns.reorder(["price", "note"])`.

        Fields inside columns are named as `place.zip`, and come first there. No file is written: every reader finds columns by
        their names. Two who reorder at the same time conflict.
        """
        return self._altered(Alteration(first=names(columns)), tag)

    @needs_spark
    def rename(self, columns: Mapping[str, str], *, tag: str = "") -> WriteResult:
        """Give columns, or fields inside them, other names: `table.columns.rename({"price": "cost", "place.zip": "postcode"})`.

        All rows are written again, in one transaction that any other commit makes run again: files find their columns by
        name. Key, partition and ordering columns keep their names: a `SchemaError`.
        `read(as_of=...)` shows the old names as before; the change feed does not go across it.
        """
        return self._written_again("RENAME COLUMNS", _new_names(columns), (), tag)

    @needs_spark
    def drop(self, columns: str | Sequence[str], *, tag: str = "") -> WriteResult:
        """Remove columns, or fields inside them, and their values: `table.columns.drop(["note", "items.element.price"])`.

        All rows are written again, as by `rename`.
        """
        return self._written_again("DROP COLUMNS", {}, names(columns), tag)

    def _written_again(self, called: str, rename: Mapping[str, str], drop: Sequence[str], tag: str) -> WriteResult:
        renamed(self._coordinator.schema(), self._coordinator.properties, rename, drop)
        request = WriteRequest("INSERT_OVERWRITE_TABLE", tag=tag, called=called)
        return self._write(request, partial(rename_columns, rename=rename, drop=drop))

    def _altered(self, alteration: Alteration, tag: str) -> WriteResult:
        return alter(self._coordinator, alteration, tag=tag)

    def _types(self, columns: Types) -> dict[str, pa.DataType]:
        if not isinstance(columns, Mapping):
            raise InputError(
                f"{columns!r} is not a mapping from columns to types", hint='use {"column": "type"}, such as {"note": "string"}'
            )
        return {path: self._arrow(path, given) for path, given in columns.items()}

    def _arrow(self, path: str, given: str | DataType) -> pa.DataType:
        if isinstance(given, DataType):
            spark = given
        else:
            (column,) = self._spark.createDataFrame([], f"c {given}").schema
            if not column.nullable:
                raise SchemaError(f"{path}: a new or wider column may be null", hint="leave out NOT NULL", column=path)
            spark = column.dataType
        return arrow_schema(StructType([StructField(path, spark)])).field(0).type


def _new_names(given: object) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for pair in given.items() for name in pair):
        raise InputError(f"{given!r} is not a mapping from old to new names", hint='use {"old": "new"}')
    return dict(given)
