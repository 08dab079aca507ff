"""Upsert and delete by key; where keys are looked up in all partitions, a row moves to the partition of its new version.

Moves are changes to rows by their places: Spark joins the rows of the call with those that the table has of their keys. The row
in the old partition is deleted and the new version inserted in one commit, with the claims of both. All keys of the call are
watched in every partition, so of two who move or insert one key the later commit is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakelock.errors import DuplicateKeyError, SchemaError
from lakelock.spark_plugin.changing.applying import write_changes
from lakelock.spark_plugin.changing.changes import ACTION, DELETE, DRAWN, FILE, INSERT, ROW, UPDATE, ChangePlan
from lakelock.spark_plugin.changing.placing import NewPlaces
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.spark_plugin.session.versions import file_place
from lakelock.spark_plugin.writing import upserting
from lakelock.spark_plugin.writing.attempt import Attempt, Written, column, prepared, prepared_keys
from lakelock.spark_plugin.writing.key_lookup import FoundAnywhere, look_up_anywhere
from lakelock.spark_plugin.writing.key_reads import KeysRead
from lakelock.spark_plugin.writing.looked_up_keys import LookedUpKeys
from lakelock.spark_plugin.writing.tagging import TagPlan
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.record_keys import Keyed
from lakelock.table.rows import lacking
from lakelock.table.schema import TableSchema, columns_of_upserts
from lakelock.table.snapshot import DataFile

_STORED, _TIE = "_lakelock_stored_", "_lakelock_tie"
_NEWER, _IN_PLACE, _NTH = "_lakelock_newer", "_lakelock_in_place", "_lakelock_nth"
_SHOWN = 5


def upsert(attempt: Attempt, df: DataFrame) -> Written:
    """Insert or replace the rows of `df` by key."""
    if not attempt.properties.keys_span_partitions:
        return upserting.upsert(attempt, df)
    missing = attempt.missing_in(df)
    frame, schema = prepared(attempt, df, missing=missing)
    columns = columns_of_upserts(schema, arrow_schema(frame.schema), missing)
    _require_whole(columns, schema)
    return Written(_Moving(attempt, schema).upsert(frame, columns), schema)


def delete_keys(attempt: Attempt, df: DataFrame) -> Written:
    """Delete the rows that have the keys in `df`; where keys are looked up in all partitions, it needs no partition columns."""
    if not attempt.properties.keys_span_partitions:
        return upserting.delete_keys(attempt, df)
    frame, _ = prepared_keys(attempt, df, partition=False)
    return Written(_Moving(attempt, attempt.schema).delete(frame))


def _require_whole(columns: TableSchema, schema: TableSchema) -> None:
    """`SchemaError` if rows have columns of structs that lack fields: a row that moves has nothing to keep them from."""
    there = {field.name: field for field in schema.arrow}
    lacks = [lack.path for lack in lacking([there[name] for name in columns.names], columns.arrow)]
    if lacks:
        raise SchemaError(
            f"an upsert that may move rows to another partition needs whole columns, and the rows lack {', '.join(lacks)}",
            hint="write the column with all its fields, or leave out the whole column",
            columns=lacks,
        )


class _Moving:
    """One attempt of a write by keys that are looked up in all partitions."""

    def __init__(self, attempt: Attempt, schema: TableSchema) -> None:
        self._attempt, self._schema, self._context = attempt, schema, attempt.context(schema)
        self._properties = attempt.properties
        self._keys = [column(name) for name in self._properties.record_keys]
        # What an earlier attempt remembers is of another table if its schema or properties were others.
        attempt.memory.begin(attempt.tx.instant, attempt.tx.redo.earlier, schema, self._properties)

    def upsert(self, frame: DataFrame, columns: TableSchema) -> tuple[WriteStat, ...]:
        """Write the rows, which have these columns."""
        rows = self._attempt.memory.kept_rows(lambda: self._newest(frame))
        found = self._found(rows, columns, "the keys of the upsert")
        if found is None:
            return ()
        self._refuse_ties(rows, found)
        kept = [name for name in self._schema.names if name not in columns.names and name in self._attempt.schema.names]
        joined = rows.join(self._stored(found.files, kept), self._same_key(), "left")
        types = spark_schema(self._schema.arrow)
        values = [
            column(name) if name in frame.columns
            else (column(_STORED + name) if name in kept else F.lit(None)).cast(types[name].dataType).alias(name)
            for name in self._schema.names
        ]  # fmt: skip
        changes = self._actions(joined).select(FILE, ROW, ACTION, *values, F.lit(0).cast("long").alias(DRAWN))
        looked_up = None if found.keys is None else LookedUpKeys.of(found.keys.values())
        places = NewPlaces(self._context, found.files, looked_up=looked_up)
        return self._write(changes, ChangePlan(self._context, found.files, tuple(columns.names), places))

    def delete(self, frame: DataFrame) -> tuple[WriteStat, ...]:
        """Delete the rows with these keys."""
        rows = self._attempt.memory.kept_rows(lambda: frame.distinct())
        found = self._found(rows, TableSchema(arrow_schema(frame.schema)), "the keys of the delete")
        if found is None or not found.files:
            return ()
        joined = rows.join(self._stored(found.files, ()), self._same_key())
        changes = joined.select(FILE, ROW, F.lit(DELETE).alias(ACTION))
        return self._write(changes, ChangePlan(self._context, found.files, ()))

    def _write(self, changes: DataFrame, plan: ChangePlan) -> tuple[WriteStat, ...]:
        # The next attempt takes no file over: a row that moved has values of its old place, where they may be others by then.
        return write_changes(self._attempt.forgetful(), plan, plan.files, lambda _: changes)

    def _newest(self, frame: DataFrame) -> DataFrame:
        """One row for each key, the newest; of several that are as new, one, or, if that is an error, all."""
        ordering = self._properties.ordering_field
        by_key = Window.partitionBy(*self._keys)
        in_order = by_key.orderBy(F.lit(0) if ordering is None else column(ordering).desc_nulls_last())
        ranked = frame.select("*", F.row_number().over(in_order).alias(_TIE), F.rank().over(in_order).alias(_NTH))
        chosen = F.col(_TIE) if self._attempt.settings.duplicates == "any" else F.col(_NTH)
        return ranked.where(chosen == 1).select(*frame.columns, (F.col(_TIE) > 1).alias(_TIE))

    def _found(self, rows: DataFrame, columns: TableSchema, what: str) -> FoundAnywhere | None:
        """Look the keys up, and record that they were read, found or not, in every partition."""
        attempt = self._attempt
        context = replace(self._context, properties=self._properties.unpartitioned())
        keys = pa.schema([field for field in columns.arrow if field.name in context.properties.record_keys])
        plan = TagPlan(context, TableSchema(keys))
        found = look_up_anywhere(attempt, rows.select(*[column(name) for name in keys.names]), plan, attempt.memory)
        if found is not None:
            attempt.tx.reads(KeysRead(what, None, attempt, found.looked_up, found.keys))
        return found

    def _refuse_ties(self, rows: DataFrame, found: FoundAnywhere) -> None:
        """`DuplicateKeyError` if two rows of a key are equally new."""
        if found.keys is not None and found.count == len(found.keys[""].unique()):
            return
        with self._attempt.jobs("looking for rows of the same key"):
            ties = rows.where(_TIE).select(*self._keys).limit(_SHOWN).collect()
        if not ties:
            return
        keys = pa.schema([field for field in self._schema.arrow if field.name in self._properties.record_keys])
        ties = pa.Table.from_pylist([tie.asDict() for tie in ties], keys)
        examples = Keyed.of(ties, self._properties).keys.to_pylist()
        ordering = self._properties.ordering_field
        equal = f" and equal values of {ordering}" if ordering else ""
        raise DuplicateKeyError(
            f"several rows have the same key{equal}, in one partition or several: {', '.join(examples)}",
            hint="remove the duplicates, give the table an ordering column, or set write.duplicates=any to keep any of them",
            keys=examples,
        )

    def _stored(self, files: Sequence[DataFile], kept: Sequence[str]) -> DataFrame:
        """The rows of these files and their places: the key, partition and ordering columns, and those that are kept."""
        properties, stored = self._properties, self._attempt.read(files)
        ordering = [] if properties.ordering_field is None else [properties.ordering_field]
        names = dict.fromkeys((*properties.record_keys, *properties.partition_fields, *ordering, *kept))
        columns = [column(name).alias(_STORED + name) for name in names]
        if not files:
            return stored.select(*columns, F.lit(None).cast("string").alias(FILE), F.lit(None).cast("long").alias(ROW))
        place = file_place(stored)
        # Without the hint Spark may collect the stored rows on the driver, to send all of them to every task.
        return stored.select(*columns, place["file_name"].alias(FILE), place["row_index"].alias(ROW)).hint("merge")

    def _same_key(self) -> Column:
        return _all_equal(self._properties.record_keys)

    def _actions(self, joined: DataFrame) -> DataFrame:
        """What becomes of each stored row, and whether its key's new version is inserted, once.

        A stored row that is newer stays where it is, and its key gets no other.
        """
        there, newer, ordering = F.col(FILE).isNotNull(), F.lit(False), self._properties.ordering_field
        if ordering is not None:
            stored, given = column(_STORED + ordering), column(ordering)
            newer = there & stored.isNotNull() & ~F.coalesce(given >= stored, F.lit(False))
        in_place = there & _all_equal(self._properties.partition_fields)
        by_key = Window.partitionBy(*self._keys)
        told = joined.select(
            "*",
            F.max(newer).over(by_key).alias(_NEWER),
            F.max(in_place).over(by_key).alias(_IN_PLACE),
            F.row_number().over(by_key.orderBy(FILE, ROW)).alias(_NTH),
        )
        change = F.when(there & ~newer, F.when(in_place, F.lit(UPDATE)).otherwise(F.lit(DELETE)))
        insert = F.when((F.col(_NTH) == 1) & ~F.col(_NEWER) & ~F.col(_IN_PLACE), F.lit(INSERT))
        return told.select("*", F.explode(F.array(change, insert)).alias(ACTION)).where(F.col(ACTION).isNotNull())


def _all_equal(names: Sequence[str]) -> Column:
    return reduce(Column.__and__, [column(name).eqNullSafe(column(_STORED + name)) for name in names])
