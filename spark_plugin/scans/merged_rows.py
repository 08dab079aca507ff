"""A frame over file slices with log files, which tasks merge in Python, a file slice at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakelock.spark_plugin.frames import spark_schema
from lakelock.storage.location import StorageLocation
from lakelock.table.log_files.merged import LoggedSlice, MergedRows

MOST_TASKS = 1_000


@dataclass(frozen=True)
class MergePlan:
    """What a task needs; the numbers of its slices arrive as rows."""

    location: StorageLocation
    rows: MergedRows
    slices: tuple[LoggedSlice, ...]


def merged_rows(spark: SparkSession, location: StorageLocation, rows: MergedRows, slices: Sequence[LoggedSlice]) -> DataFrame:
    """The rows of these slices, at least one. A file that was cleaned meanwhile fails the job."""
    plan = MergePlan(location, rows, tuple(slices))
    numbers = spark.range(0, len(slices), 1, min(len(slices), MOST_TASKS))
    return numbers.mapInArrow(partial(merge_stage, plan), spark_schema(rows.columns))


def merge_stage(plan: MergePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the slices whose numbers came to this task."""
    storage = plan.location.open()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for rows in plan.rows.read(plan.slices[number], storage):
            yield from rows.to_batches()
