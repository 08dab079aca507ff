"""What tasks tell the driver: Python values in one binary column of the frame that a stage returns.

A task that meets a definite error returns it as a report instead of raising it: the driver raises it typed, and no task
retry is wasted on something that cannot succeed. Errors that a second attempt may cure are raised, so that Spark retries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakelock.errors import LakelockError
from lakelock.markers.data_files import TaskToken

REPORT = "_lakelock_report"
REPORTS_ONLY = f"{REPORT} binary"
Batches = Iterator[pa.RecordBatch]


def report_of(value: object, schema: pa.Schema) -> pa.RecordBatch:
    """One row of `schema` that carries `value` in its report column; the other columns are null."""
    arrays = [
        pa.array([pickle.dumps(value)], pa.binary()) if field.name == REPORT else pa.nulls(1, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def reporting(schema: pa.Schema, stage: Callable[[Batches], Iterator[pa.RecordBatch | object]]) -> Callable[[Batches], Batches]:
    """Make a stage for `mapInArrow` whose values other than record batches travel as reports."""

    def run(batches: Batches) -> Batches:
        try:
            for item in stage(batches):
                yield item if isinstance(item, pa.RecordBatch) else report_of(item, schema)
        except LakelockError as error:
            if error.retryable:
                from lakelock.spark_plugin.session.job_group import in_task_text

                raise RuntimeError(in_task_text(error)) from error
            yield report_of(error, schema)

    return run


def received(rows: Iterable[tuple[bytes | bytearray]]) -> list[object]:
    """The values in collected report rows; raises the first error among them."""
    values = [pickle.loads(bytes(row[0])) for row in rows]
    for value in values:
        if isinstance(value, LakelockError):
            raise value
    return values


REPORT_SCHEMA = pa.schema([(REPORT, pa.binary())])


def this_task() -> TaskToken:
    """The identity of the running task attempt, for the names of its files."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskToken(0, 0, 0)
    return TaskToken(context.partitionId(), context.stageId(), context.taskAttemptId())
