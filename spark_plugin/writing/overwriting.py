"""Overwrites: of the partitions that the new rows are in, of the rows that satisfy a condition, or of everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakelock.data_locks import Resource
from lakelock.occ.footprint import WholeTable
from lakelock.occ.targets import within
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.spark_plugin.generated_columns import with_generated
from lakelock.spark_plugin.writing.attempt import Attempt, Written, column, prepared
from lakelock.spark_plugin.writing.bucketing import write_buckets
from lakelock.spark_plugin.writing.deleting import remove_rows
from lakelock.spark_plugin.writing.fits import FITS
from lakelock.spark_plugin.writing.inserting import insert, write_rows
from lakelock.spark_plugin.writing.row_reads import RowsRead
from lakelock.spark_plugin.writing.selecting import select_rows
from lakelock.table.schema_changes import KeptColumn, renamed, replacing_schema


def overwrite_partitions(attempt: Attempt, df: DataFrame) -> Written:
    """Replace the whole content of every partition that `df` has rows for."""
    written = insert(attempt, df, anew=True)
    return _replacing(attempt, written, {stat.partition_path or "" for stat in written.stats})


def overwrite_table(attempt: Attempt, df: DataFrame, *, overwrite_schema: bool = False) -> Written:
    """Replace the whole table, with `overwrite_schema` its columns, too. Nobody may add anything meanwhile."""
    if overwrite_schema:
        df = with_generated(df, attempt.properties)
        attempt = replace(
            attempt, earlier=Written((), replacing_schema(attempt.schema, arrow_schema(df.schema), attempt.properties))
        )
    attempt.tx.reads(WholeTable())
    partitions = attempt.tx.current().partitions
    attempt.tx.claim(file.group for file in attempt.tx.current().files)
    written = insert(attempt, df, anew=True)
    return _replacing(attempt, written, {*partitions, *(stat.partition_path or "" for stat in written.stats)})


def delete_partitions(attempt: Attempt, targets: Sequence[Resource]) -> Written:
    """Replace the whole content of the partitions that these targets name, or begin, by nothing."""
    named = {partition for partition in attempt.tx.snapshot().partitions if within(partition, targets)}
    return _replacing(attempt, Written((), attempt.schema), named)


def rename_columns(attempt: Attempt, *, rename: Mapping[str, str], drop: Sequence[str]) -> Written:
    """Write the whole table again, with other names for some columns and without others. Nobody may add anything meanwhile."""
    kept = renamed(attempt.schema, attempt.properties, rename, drop)
    rows = attempt.read(attempt.tx.current().files)
    left = [_left(column(each.old), rows.schema[each.old].dataType, each.inside).alias(each.new) for each in kept]
    return overwrite_table(attempt, rows.select(*left), overwrite_schema=True)


def _left(value: Column, spark: DataType, inside: Sequence[KeptColumn]) -> Column:
    """What stays of a value: all of it where nothing is said of its inside."""
    if not inside:
        return value
    if isinstance(spark, ArrayType):
        of_element, element = inside[0].inside, spark.elementType
        return F.transform(value, lambda each: _left(each, element, of_element))
    if isinstance(spark, MapType):
        of_value, held = inside[0].inside, spark.valueType
        return F.transform_values(value, lambda _, each: _left(each, held, of_value))
    assert isinstance(spark, StructType)
    fields = [_left(value.getField(each.old), spark[each.old].dataType, each.inside).alias(each.new) for each in inside]
    return F.when(value.isNotNull(), F.struct(*fields))


def overwrite_where(attempt: Attempt, df: DataFrame, condition: Condition) -> Written:
    """Delete the rows that satisfy the condition and insert `df`, whose rows must all satisfy it too."""
    pruning = attempt.pruning(condition)
    attempt.tx.reads(RowsRead(condition, pruning, attempt.read))
    selection = select_rows(attempt, pruning.files_of(attempt.tx.current()), condition)
    attempt.tx.claim(selection.groups)
    frame, schema = prepared(attempt, df)
    frame = frame.withColumn(FITS, F.coalesce(condition.on(frame), F.lit(False)))
    if attempt.properties.bucket_index is not None:
        # A file group may both lose rows and get some: it is rewritten once.
        return Written(write_buckets(attempt, frame, schema, schema, "add", without=selection), schema)
    added = write_rows(attempt, frame, attempt.context(schema), "writing rows")
    removed = remove_rows(replace(attempt, earlier=Written((), schema)), selection)
    return Written((*added, *removed), schema)


def _replacing(attempt: Attempt, written: Written, partitions: Iterable[str]) -> Written:
    attempt.tx.overwrites(partitions)
    snapshot = attempt.tx.current()
    gone = {partition: tuple(file.file_id for file in snapshot.in_partition(partition)) for partition in sorted(partitions)}
    replaced = {partition: ids for partition, ids in gone.items() if ids}
    attempt.tx.claim(file.group for partition in replaced for file in snapshot.in_partition(partition))
    return replace(written, replaced=replaced)
