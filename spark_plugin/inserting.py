"""Inserts and overwrites: rows become new file groups, or join groups in buckets. No key is looked up: inserts never collide.

An overwrite replaces the partitions that the new rows are in, the rows that satisfy a condition, or everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakelock.data_locks import Resource
from lakelock.engine.file_tasks import FileTasks, generated_keys
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.begin import WriteContext
from lakelock.occ.footprint import WholeTable
from lakelock.occ.request import within
from lakelock.spark_plugin.bucketing import FITS, fitting, write_buckets
from lakelock.spark_plugin.change_stages import ACTION, DRAWN, INSERT, ChangePlan, NewPlaces
from lakelock.spark_plugin.changing import deletions, remove_rows, write_changes
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.lookup import files_with
from lakelock.spark_plugin.spark_session import arrow_schema, column, rebalanced, with_generated
from lakelock.spark_plugin.stage_rows import is_little
from lakelock.spark_plugin.write_attempt import Attempt, KeptFiles, Redoing, Written, prepared
from lakelock.spark_plugin.write_stages import REPORT_SCHEMA, this_task, while_wanted
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import partition_paths
from lakelock.table.properties import TableProperties
from lakelock.table.rows import conform
from lakelock.table.schema import KeptColumn, renamed, replacing_schema
from lakelock.table.snapshot import DataFile

GATHERED_ROWS, GATHERED_BYTES = 1_000_000, 256 << 20
"""How much a task with unordered rows holds in memory to group them by partition."""


def insert(attempt: Attempt, df: DataFrame, *, anew: bool = False) -> Written:
    """Write the rows of `df` as new files, or, in a table with buckets, into the file groups of their buckets.

    With `anew` they join no existing file group.
    """
    frame, schema = prepared(attempt, df)
    redoing = None if anew else Redoing.of(attempt, schema)
    if attempt.properties.bucket_index is not None:
        return Written(write_buckets(attempt, frame, schema, schema, "add", redoing=redoing, anew=anew), schema)
    context = attempt.context(schema)
    if redoing is None:
        return Written(write_rows(attempt, frame, context, "writing rows"), schema)
    # The rows are not kept: either all files of the attempt before are copied, or all rows are computed again.
    new = dict.fromkeys(redoing.before.new)
    kept = redoing.claimed_and_kept((), (), new)
    if not new or kept.new.keys() < new.keys():
        return Written(redoing.note((), write_rows(attempt, frame, context, "writing rows"), KeptFiles(), {}), schema)
    return Written(redoing.note((), (), kept, new), schema)


def write_rows(attempt: Attempt, frame: DataFrame, context: WriteContext, what: str) -> tuple[WriteStat, ...]:
    """Write a prepared frame; in a partitioned table, each partition's rows are gathered in few tasks.

    REBALANCE lets Spark split a partition that is much bigger than the others, and join small ones.
    """
    fields, few = context.properties.partition_fields, attempt.few(frame)
    if few is not None and is_little(_partitions(few.arrow, context.properties), 0):
        stage = partial(insert_stage, context, in_order=False)
        return attempt.written(attempt.in_driver(few.arrow).through(stage, REPORT_SCHEMA), what)
    if few is not None:
        frame = few.frame
    if fields:
        columns = [column(name) for name in fields]
        frame = rebalanced(frame, columns).sortWithinPartitions(*columns)
    return attempt.written(attempt.on_executors(frame).through(partial(insert_stage, context), REPORT_SCHEMA), what)


def _partitions(rows: pa.Table, properties: TableProperties) -> int:
    """How many partitions the rows are in."""
    fields = properties.partition_fields
    return rows.select(fields).group_by(fields).aggregate([]).num_rows if fields else 1


def insert_stage(
    context: WriteContext,
    batches: Iterator[pa.RecordBatch],
    *,
    in_order: bool = True,
    shared: SharedHeartbeat | None = None,
) -> Iterator[WriteStat]:
    """On an executor: write the rows of one task, partition after partition, and report the files.

    Unless the rows arrive grouped by partition (`in_order`), they are grouped here, in bounded memory.
    """
    task, tasks = this_task(), FileTasks.of(context)
    generated = generated_keys(context, task)
    rows: Iterator[pa.Table] = (conform(fitting(batch), context.schema.arrow) for batch in batches if batch.num_rows)
    if not in_order and context.properties.partition_fields:
        rows = gathered(rows, context.properties)
    partitions = groupby(by_partition(rows, context.properties), key=lambda piece: piece[0])
    files = (
        tasks.write_new_files(partition, (piece for _, piece in pieces), task, generated=generated)
        for partition, pieces in partitions
    )
    yield from while_wanted(context, chain.from_iterable(files), shared)


def by_partition(rows: Iterator[pa.Table], properties: TableProperties) -> Iterator[tuple[str, pa.Table]]:
    """The rows in pieces of one partition each, in their order."""
    if not properties.partition_fields:
        yield from (("", table) for table in rows)
        return
    for table in rows:
        paths = partition_paths(table, properties)
        codes = np.asarray(paths.indices)
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, end in pairwise(bounds):
            yield paths.dictionary[int(codes[start])].as_py(), table.slice(start, end - start)


def gathered(rows: Iterator[pa.Table], properties: TableProperties) -> Iterator[pa.Table]:
    """The rows grouped by partition, as many at once as memory allows."""
    pending: list[pa.Table] = []
    count = size_bytes = 0
    for table in rows:
        pending.append(table)
        count, size_bytes = count + table.num_rows, size_bytes + table.nbytes
        if count >= GATHERED_ROWS or size_bytes >= GATHERED_BYTES:
            yield _together(pa.concat_tables(pending), properties)
            pending, count, size_bytes = [], 0, 0
    if pending:
        yield _together(pa.concat_tables(pending), properties)


def _together(rows: pa.Table, properties: TableProperties) -> pa.Table:
    paths = partition_paths(rows, properties)
    if len(paths.dictionary) == 1:
        return rows
    return rows.take(pa.array(np.argsort(np.asarray(paths.indices), kind="stable")))


def overwrite_partitions(attempt: Attempt, df: DataFrame) -> Written:
    """Replace the whole content of every partition that `df` has rows for."""
    written = insert(attempt, df, anew=True)
    return _replacing(attempt, written, {stat.partition_path or "" for stat in written.stats})


def overwrite_table(attempt: Attempt, df: DataFrame, *, overwrite_schema: bool = False) -> Written:
    """Replace the whole table, with `overwrite_schema` its columns, too. No other writer may add rows meanwhile."""
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
    """Write the whole table again, with other names for some columns and without others.

    No other writer may add rows meanwhile.
    """
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
    files = files_with(attempt, condition)
    frame, schema = prepared(attempt, df)
    frame = frame.withColumn(FITS, F.coalesce(condition.on(frame), F.lit(False)))
    attempt = attempt.growing(schema).forgetful()
    if attempt.properties.bucket_index is not None:
        return Written(_replaced_in_buckets(attempt, files, frame, condition), schema)
    removed = remove_rows(attempt, files, condition)
    return Written((*removed, *write_rows(attempt, frame, attempt.context(), "writing rows")), schema)


def _replaced_in_buckets(
    attempt: Attempt, read: Sequence[DataFile], frame: DataFrame, condition: Condition
) -> tuple[WriteStat, ...]:
    """A file group may both lose rows and get some: it is rewritten once."""
    files = tuple(dict.fromkeys((*read, *attempt.tx.current().files)))
    gone = deletions(attempt, read, condition).withColumn(FITS, F.lit(True))
    new = frame.withColumn(ACTION, F.lit(INSERT)).withColumn(DRAWN, F.lit(0).cast("long"))
    rows = attempt.rows(gone.unionByName(new, allowMissingColumns=True))
    places = NewPlaces(attempt.context(), files, may_repeat=True)
    return write_changes(attempt, ChangePlan(attempt.context(), files, (), places), read, lambda _: rows)


def _replacing(attempt: Attempt, written: Written, partitions: Iterable[str]) -> Written:
    replaced, snapshot = attempt.tx.overwrites(partitions), attempt.tx.current()
    attempt.tx.claim(file.group for partition in replaced for file in snapshot.in_partition(partition))
    return replace(written, replaced=replaced)
