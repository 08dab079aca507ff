"""Insert: rows become new file groups; nothing is looked up, so nothing can collide. In buckets they join existing ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, groupby, pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lakelock.engine.file_tasks import generated_keys, write_new_files
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.session.versions import rebalanced
from lakelock.spark_plugin.writing.attempt import Attempt, Written, column, prepared
from lakelock.spark_plugin.writing.bucketing import write_buckets
from lakelock.spark_plugin.writing.fits import fitting
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.redoing import Kept, Redoing
from lakelock.spark_plugin.writing.reports import REPORT_SCHEMA, REPORTS_ONLY, reporting, this_task
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import partition_paths
from lakelock.table.properties import TableProperties
from lakelock.table.rows import conform

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
        return Written(redoing.note((), write_rows(attempt, frame, context, "writing rows"), Kept(), {}), schema)
    return Written(redoing.note((), (), kept, new), schema)


def write_rows(attempt: Attempt, frame: DataFrame, context: WriteContext, what: str) -> tuple[WriteStat, ...]:
    """Write a prepared frame; in a partitioned table, each partition's rows are gathered in few tasks.

    REBALANCE lets Spark split a partition that is much bigger than the others, and join small ones.
    """
    fields = context.properties.partition_fields
    if fields:
        columns = [column(name) for name in fields]
        frame = rebalanced(frame, columns).sortWithinPartitions(*columns)
    stage = reporting(REPORT_SCHEMA, partial(insert_stage, context))
    return attempt.written(frame.mapInArrow(stage, REPORTS_ONLY), what)


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
    task = this_task()
    generated = generated_keys(context, task)
    rows: Iterator[pa.Table] = (conform(fitting(batch), context.schema.arrow) for batch in batches if batch.num_rows)
    if not in_order and context.properties.partition_fields:
        rows = gathered(rows, context.properties)
    partitions = groupby(by_partition(rows, context.properties), key=lambda piece: piece[0])
    files = (
        write_new_files(context, partition, (piece for _, piece in pieces), task, generated=generated)
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
