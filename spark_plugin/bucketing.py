"""Writes into a table whose rows lie in buckets: a row's key names its file group, so no file is opened to find it.

As in an upsert by look-up, there are two stages of tasks and one shuffle. In between, the driver claims existing file groups,
and the buckets that get their first one. Each bucket is written by one task, which holds its incoming rows in memory.

Rows may have to satisfy a condition before they are written: Spark evaluates it, and the task that gets the row checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from tempfile import TemporaryFile
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from lakelock.engine.file_tasks import FileTasks, Target
from lakelock.errors import SchemaError
from lakelock.markers.heartbeat import SharedHeartbeat
from lakelock.occ.begin import WriteContext
from lakelock.occ.committed import Phase
from lakelock.occ.footprint import BucketsRead
from lakelock.occ.transaction import ALL_ROWS
from lakelock.spark_plugin.lookup_stages import CHUNK_ROWS, chunked, chunks
from lakelock.spark_plugin.stage_rows import Rows
from lakelock.spark_plugin.write_attempt import Attempt, KeptFiles, Redoing, Staged
from lakelock.spark_plugin.write_stages import (
    PARCELS,
    REPORT_SCHEMA,
    SLOTS,
    FileTarget,
    Parcels,
    Routes,
    family_of,
    plan_routes,
    tasks_for,
    this_task,
    while_wanted,
)
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import BucketIndex, bucket_group, bucket_of
from lakelock.table.key_search import buckets_of
from lakelock.table.partitions import partition_paths
from lakelock.table.record_keys import Keyed, dedupe
from lakelock.table.rows import conform
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

FITS = "_lakelock_fits"
"""A boolean column that says whether the row may be written at all; the writer leaves it out."""


def fitting(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, unless a row of it must not be written: `SchemaError` with that row."""
    index = batch.schema.get_field_index(FITS)
    if index < 0:
        return batch
    misfits = np.flatnonzero(~np.asarray(batch.column(index).fill_null(False)))
    if len(misfits):
        shown = {name: value for name, value in batch.slice(int(misfits[0]), 1).to_pylist()[0].items() if name != FITS}
        raise SchemaError(
            f"a row to write does not satisfy the condition of the overwrite: {shown}",
            hint="filter the rows by the same condition, or widen it",
        )
    return batch


Place = int | tuple[str, int]
"""A file by its number, or a bucket of a partition that has no file group yet."""


@dataclass(frozen=True)
class BucketPlan:
    """What tasks need to place rows. `files` are those that rows may join: none, if they replace what is there.

    The rows of `settled` new buckets are in files that were kept.
    """

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]
    index: BucketIndex
    how: Literal["add", "upsert"]
    settled: frozenset[Target] = frozenset()

    @property
    def parcels(self) -> Parcels:
        """How the rows are packed for the next stage."""
        return Parcels.of(self.columns.arrow, self.context.properties)

    def numbered(self) -> dict[tuple[str, int], int]:
        """The number of the file of each partition and bucket."""
        named = ((file.partition, bucket_of(file.file_id)) for file in self.files)
        return {(partition, bucket): n for n, (partition, bucket) in enumerate(named) if bucket is not None}

    def slot_of(self, partition: str, bucket: int) -> int:
        """The route of a bucket that has no file; several may share one."""
        return len(self.files) + family_of(partition) * SLOTS + bucket % SLOTS

    def keyed(self, rows: pa.Table) -> Keyed:
        return Keyed.of(conform(rows, self.columns.arrow), self.context.properties)


@dataclass
class BucketReport:
    """What a task placed: rows by (partition, route), the buckets without a file group, and what the rows take in memory."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    new: set[tuple[str, int]] = field(default_factory=set)
    size_bytes: int = 0


def write_buckets(
    attempt: Attempt,
    frame: DataFrame,
    columns: TableSchema,
    schema: TableSchema,
    how: Literal["add", "upsert"],
    *,
    redoing: Redoing | None = None,
    anew: bool = False,
) -> tuple[WriteStat, ...]:
    """Write a prepared frame, each row into the file group of its bucket.

    "add" ignores keys; "upsert" replaces the rows of the same key. With `anew` the rows join no existing file group:
    they replace those that they meet. With `redoing` the rows stay for the next attempt, and files of the one before are kept.
    """
    index = attempt.properties.bucket_index
    assert index is not None
    files = () if anew else tuple(attempt.tx.current().files)
    plan = BucketPlan(attempt.context(schema), columns, files, index, how)
    placed, reports = _placed(attempt, frame, plan, stays=redoing is not None)
    work: Counter[tuple[str, int]] = sum((report.counts for report in reports), Counter())
    row_bytes = sum(report.size_bytes for report in reports) // max(1, work.total())
    if not work:
        return ()
    new = {bucket for report in reports for bucket in report.new}
    rewritten, groups = {n for _, n in work if n < len(files)}, [bucket_group(*bucket) for bucket in sorted(new)]
    if how == "upsert":
        attempt.tx.reads(BucketsRead("the keys of the upsert", [*(files[n].group for n in rewritten), *groups]))
    rows = placed.without_reports()
    if redoing is None:
        attempt.tx.claim((files[n].group for n in sorted(rewritten)), groups)
        return _written_by_tasks(attempt, rows, plan, work, row_bytes)
    targets: dict[Target, object] = dict.fromkeys(new)
    counts = {n: ALL_ROWS if how == "add" else count for (_, n), count in work.items() if n < len(files)}
    kept = redoing.claimed_and_kept(files, rewritten, targets, groups, counts=counts)
    plan = replace(plan, context=redoing.context)
    if kept.stats:
        plan = replace(plan, settled=frozenset(kept.new))
        work = _left_over(plan, work, new, kept)
        rows = rows.on_routes({route for _, route in work}) if work else rows
    return redoing.note(files, _written_by_tasks(attempt, rows, plan, work, row_bytes) if work else (), kept, targets)


def _placed(attempt: Attempt, frame: DataFrame, plan: BucketPlan, *, stays: bool) -> tuple[Rows, list[BucketReport]]:
    """Rows with their routes, kept, and how many take each. Those that stay for the next attempt are computed once."""
    staged = attempt.memory.staged if stays else None
    if staged is None:
        placed = attempt.rows(frame).through(partial(place_stage, plan), PARCELS)
    else:
        placed = staged.rows.without_reports().through(partial(place_again_stage, plan), PARCELS)
    if stays and staged is None:
        attempt.memory.keep(placed)
    else:
        attempt.keep(placed)
    answers = attempt.reports(placed, "placing rows in buckets", Phase.SHUFFLE)
    reports = [report for report in answers if isinstance(report, BucketReport)]
    if stays and staged is None:
        attempt.memory.staged = Staged(placed)
    return placed, reports


def _left_over(
    plan: BucketPlan, work: Mapping[tuple[str, int], int], new: Set[tuple[str, int]], kept: KeptFiles
) -> Counter[tuple[str, int]]:
    """The work without that for buckets whose files were kept."""
    slots = {(partition, plan.slot_of(partition, bucket)) for partition, bucket in new if (partition, bucket) not in kept.new}
    files = len(plan.files)
    left = {key: rows for key, rows in work.items() if (key[1] not in kept.files if key[1] < files else key in slots)}
    return Counter(left)


def _written_by_tasks(
    attempt: Attempt, rows: Rows, plan: BucketPlan, work: Mapping[tuple[str, int], int], row_bytes: int
) -> tuple[WriteStat, ...]:
    routes = _routes(attempt, plan.files, work, row_bytes)
    size_bytes = sum(plan.files[number].size_bytes for number in routes.rewritten)
    packed = rows.gathered(routes, files=len(work), size_bytes=size_bytes)
    what = f"writing buckets for {counted(sum(work.values()), 'row')}"
    return attempt.written(packed.through(partial(bucket_stage, plan), REPORT_SCHEMA), what)


def _routes(attempt: Attempt, files: tuple[DataFile, ...], work: Mapping[tuple[str, int], int], row_bytes: int) -> Routes:
    targets = [FileTarget(file.partition, file.size_bytes, 0) for file in files]
    tasks = tasks_for(sum(work.values()), attempt.tasks)
    return plan_routes(work, targets, tasks=tasks, target_rows=0, row_bytes=row_bytes, in_buckets=True)


def place_stage(plan: BucketPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BucketReport]:
    """Every incoming row once; its route is the file of its bucket, or a slot if the bucket has none."""
    return _with_routes(plan, chunks(map(fitting, batches), CHUNK_ROWS))


def place_again_stage(plan: BucketPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | BucketReport]:
    """As `place_stage`, for rows that an attempt before has placed among other files."""
    return _with_routes(plan, chunked(plan.parcels.unpacked(batches), CHUNK_ROWS))


def _with_routes(plan: BucketPlan, tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch | BucketReport]:
    numbered, report, parcels = plan.numbered(), BucketReport(), plan.parcels
    for rows in tables:
        keyed = plan.keyed(rows)
        report.size_bytes += keyed.rows.nbytes
        routes = np.zeros(len(keyed), np.int32)
        for partition, bucket, at in rows_by_bucket(plan, keyed):
            number = numbered.get((partition, bucket))
            if number is None:
                report.new.add((partition, bucket))
                number = plan.slot_of(partition, bucket)
            report.counts[partition, number] += len(at)
            routes[at] = number
        yield from parcels.packed(keyed.rows, np.arange(len(keyed)), routes)
    yield report


def bucket_stage(plan: BucketPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write every bucket whose rows came to this task, one after the other, and report the files."""
    yield from while_wanted(plan.context, _buckets_written(plan, batches))


def _buckets_written(plan: BucketPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat | None]:
    found: dict[Place, list[pa.Table]] = {}
    for route, rows in plan.parcels.unpacked(batches):
        for target, mine in by_target(plan, route, rows):
            found.setdefault(target, []).append(mine)
    context, task, tasks = plan.context, this_task(), FileTasks.of(plan.context)
    for target in list(found):
        keyed = plan.keyed(pa.concat_tables(found.pop(target)))
        if plan.how == "upsert":
            any_of = context.settings.write.duplicates == "any"
            keyed = dedupe(keyed, context.properties.ordering_field, take_any=any_of)
        if isinstance(target, int):
            upserts, added = (keyed, None) if plan.how == "upsert" else (None, keyed)
            yield tasks.rewrite_group(plan.files[target], task, upserts=upserts, added=added)
        else:
            yield from tasks.write_new_files(target[0], [keyed.rows], task, bucket=target[1])


def unrouted_stage(plan: BucketPlan, batches: Iterator[pa.RecordBatch], shared: SharedHeartbeat) -> Iterator[WriteStat]:
    """Add the rows of one task, which come in any order, to their buckets. No other task may have rows of these buckets.

    The rows wait in a temporary file: memory holds a chunk of them, then those of one bucket after the other. Nothing is
    claimed, so only the commit finds out whether another writer has rewritten one of these file groups.
    """
    yield from while_wanted(plan.context, _added(plan, batches), shared)


def _added(plan: BucketPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat | None]:
    numbered, task, tasks = plan.numbered(), this_task(), FileTasks.of(plan.context)
    places: dict[tuple[str, int], list[int]] = {}
    with TemporaryFile() as waiting:
        with pa.ipc.new_file(waiting, plan.columns.arrow) as sink:
            count = 0
            for rows in chunks(batches, CHUNK_ROWS):
                keyed = plan.keyed(rows)
                for partition, bucket, at in rows_by_bucket(plan, keyed):
                    for batch in keyed.rows.take(pa.array(at)).combine_chunks().to_batches():
                        sink.write_batch(batch)
                        places.setdefault((partition, bucket), []).append(count)
                        count += 1
        stored = pa.ipc.open_file(waiting)
        for (partition, bucket), numbers in places.items():
            mine = plan.keyed(pa.Table.from_batches([stored.get_batch(number) for number in numbers]))
            file = numbered.get((partition, bucket))
            if file is None:
                yield from tasks.write_new_files(partition, [mine.rows], task, bucket=bucket)
            else:
                yield tasks.rewrite_group(plan.files[file], task, added=mine)


def by_target(plan: BucketPlan, route: int, rows: pa.Table) -> Iterator[tuple[Place, pa.Table]]:
    """Where the rows of a route go: to the file that it names, or to new buckets, several of which may share a slot."""
    if route < len(plan.files):
        yield route, rows
        return
    for partition, bucket, at in rows_by_bucket(plan, plan.keyed(rows)):
        if (partition, bucket) not in plan.settled:
            yield (partition, bucket), rows.take(pa.array(at))


def rows_by_bucket(plan: BucketPlan, keyed: Keyed) -> Iterator[tuple[str, int, npt.NDArray[Any]]]:
    """The positions of the rows of each partition and bucket."""
    paths = partition_paths(keyed.rows, plan.context.properties)
    codes = np.asarray(paths.indices).astype(np.int64)
    buckets = buckets_of(keyed, plan.index, plan.context.properties.record_keys)
    both = codes * plan.index.count + buckets
    order = np.argsort(both, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(both[order])) + 1):
        if len(at):
            yield paths.dictionary[int(codes[at[0]])].as_py(), int(buckets[at[0]]), at
