"""Restoring, on the executors: the rows of old slices are written again, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lakelock.engine.file_tasks import move_rows, rewrite_group
from lakelock.occ.restore import Copy
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.reports import REPORT_SCHEMA, REPORTS_ONLY, reporting, this_task
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.rewriting import ARROW
from lakelock.texts import counted

MOST_TASKS = 1_000


@dataclass(frozen=True)
class CopyPlan:
    """What a task needs; the numbers of its copies arrive as rows."""

    context: WriteContext
    copies: tuple[Copy, ...]


def copy_slices(attempt: Attempt, copies: Sequence[Copy]) -> tuple[WriteStat, ...]:
    """Write all copies."""
    if not copies:
        return ()
    plan = CopyPlan(attempt.context(), tuple(copies))
    numbers = attempt.spark.range(0, len(copies), 1, min(len(copies), MOST_TASKS))
    stage = reporting(REPORT_SCHEMA, partial(copy_stage, plan))
    return attempt.written(numbers.mapInArrow(stage, REPORTS_ONLY), f"restoring {counted(len(copies), 'file group')}")


def copy_stage(plan: CopyPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the copies whose numbers came to this task."""
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    yield from while_wanted(plan.context, _copied(plan, numbers))


def _copied(plan: CopyPlan, numbers: Sequence[int]) -> Iterator[WriteStat | None]:
    storage, task = plan.context.location.open(holds_table=True), this_task()
    for number in numbers:
        copy = plan.copies[number]
        if copy.base is not None:
            yield rewrite_group(plan.context, copy.base, task, content=copy.source)
        else:
            rows = ARROW.stored([copy.source], plan.context.schema, storage)
            bucket = copy.bucket(plan.context.properties)
            yield from move_rows(plan.context, copy.source.partition, rows, task, bucket=bucket)
