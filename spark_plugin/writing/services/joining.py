"""Joining small files, on the executors: each task writes one join, from files that it reads itself or from sorted rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.engine.file_tasks import move_rows
from lakelock.errors import WriteFailed
from lakelock.occ.optimize import Join
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.session.versions import file_place
from lakelock.spark_plugin.writing.attempt import Attempt, column
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.reports import REPORT_SCHEMA, REPORTS_ONLY, reporting, this_task
from lakelock.spark_plugin.writing.routing import values_for
from lakelock.storage import Storage
from lakelock.table.base_files import CONSTANT, BaseFile
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.rewriting import ARROW
from lakelock.table.rows import conform
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

_FILE, _JOIN = "_lakelock_file", "_lakelock_join"


@dataclass(frozen=True)
class JoinPlan:
    """What a task needs; the numbers of its joins arrive as rows. `rows` are those of each join, where they are sorted."""

    context: WriteContext
    joins: tuple[Join, ...]
    rows: tuple[int, ...] = ()


def join_files(
    attempt: Attempt, joins: Sequence[Join], sort_by: Sequence[str], check: Callable[[], None]
) -> tuple[WriteStat, ...]:
    """Write these joins, one task for each. `check` is called now and then, and raises to stop. `WriteFailed` if Spark gave
    other rows than the old files have, which must not be committed."""
    what = f"joining {counted(sum(len(join.sources) for join in joins), 'file')}"
    plan = JoinPlan(attempt.context(), tuple(joins))
    if not sort_by:
        numbers = attempt.spark.range(0, len(joins), 1, len(joins))
        frame = numbers.mapInArrow(reporting(REPORT_SCHEMA, partial(join_stage, plan)), REPORTS_ONLY)
        return attempt.written(frame, what, check=check)
    plan = replace(plan, rows=_stored_rows(attempt, joins))
    stage = reporting(REPORT_SCHEMA, partial(sorted_stage, plan))
    stats = attempt.written(_in_order(attempt, joins, sort_by).mapInArrow(stage, REPORTS_ONLY), what, check=check)
    ensure_all_written(sum(plan.rows), stats)
    return stats


def ensure_all_written(rows: int, stats: Sequence[WriteStat]) -> None:
    """`WriteFailed` unless so many rows were written."""
    written = sum(stat.num_writes or 0 for stat in stats)
    if written != rows:
        raise WriteFailed(
            f"the files to join have {rows:,} rows, and Spark gave {written:,} of them: nothing was committed",
            hint="look for a setting of the session that makes Spark leave rows out, such as spark.sql.files.ignore*",
        )


def _stored_rows(attempt: Attempt, joins: Sequence[Join]) -> tuple[int, ...]:
    """How many rows the files of each join have, by their footers."""
    reads = [partial(_footer_rows, attempt.storage, file) for join in joins for file in join.sources]
    counts = iter(attempt.runtime.gather(reads, limit=attempt.context().requests_at_once))
    return tuple(sum(islice(counts, len(join.sources))) for join in joins)


def _footer_rows(storage: Storage, file: DataFile) -> int:
    with BaseFile(storage.open_input(file.key, size_bytes=file.size_bytes), file.key) as base:
        return base.rows


def _in_order(attempt: Attempt, joins: Sequence[Join], sort_by: Sequence[str]) -> DataFrame:
    """The rows of all joins with Hudi's columns and the number of their join, each join in a partition of its own, sorted."""
    rows = attempt.read([file for join in joins for file in join.sources], meta=True)
    rows = rows.withColumn(_FILE, file_place(rows)["file_name"])
    names = [(file.name, number) for number, join in enumerate(joins) for file in join.sources]
    numbers = attempt.spark.createDataFrame(names, f"{_FILE} string, {_JOIN} int")
    packs = ",".join(map(str, values_for(len(joins))))
    pack = F.expr(f"element_at(cast(split('{packs}', ',') as array<int>), {_JOIN} + 1)")
    rows = rows.join(F.broadcast(numbers), _FILE).drop(_FILE).repartition(len(joins), pack)
    return rows.sortWithinPartitions(_JOIN, *(column(name).asc_nulls_last() for name in sort_by))


def join_stage(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the joins whose numbers came to this task, a batch of rows at a time."""
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    yield from while_wanted(plan.context, _joined(plan, numbers))


def _joined(plan: JoinPlan, numbers: Sequence[int]) -> Iterator[WriteStat]:
    storage, task = plan.context.location.open(holds_table=True), this_task()
    for number in numbers:
        join = plan.joins[number]
        rows = ARROW.stored(join.sources, plan.context.schema, storage)
        yield from move_rows(plan.context, join.partition, rows, task)


def sorted_stage(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: write the sorted rows of a join into as many files as planned."""
    yield from while_wanted(plan.context, _sorted(plan, batches))


def _sorted(plan: JoinPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    task = this_task()
    pieces = (piece for batch in batches for piece in _by_join(batch))
    for number, rows in groupby(pieces, key=lambda piece: piece[0]):
        join = plan.joins[number]
        stored = (_stamped(plan, batch) for _, batch in rows)
        yield from move_rows(plan.context, join.partition, stored, task, file_rows=max(1, -(-plan.rows[number] // join.files)))


def _by_join(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Joins may share a task: the rows come join by join."""
    start = 0
    for number, same in groupby(batch.column(_JOIN).to_pylist()):
        count = sum(1 for _ in same)
        yield number, batch.slice(start, count)
        start += count


def _stamped(plan: JoinPlan, batch: pa.RecordBatch) -> pa.Table:
    """Spark's rows as stored rows."""
    schema = plan.context.schema.arrow
    rows = conform(batch.select(schema.names), schema)
    times = pa.chunked_array([batch.column(COMMIT_TIME).dictionary_encode().cast(CONSTANT)])
    seqnos, keys = (pa.chunked_array([batch.column(name)]) for name in (COMMIT_SEQNO, RECORD_KEY))
    stamps = pa.schema([(COMMIT_TIME, CONSTANT), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())])
    return pa.table([times, seqnos, keys, *rows.columns], schema=pa.schema([*stamps, *schema]))
