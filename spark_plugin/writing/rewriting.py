"""The second stage of an upsert or delete, on the executors: each task writes its pack of file groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakelock.engine.file_tasks import rewrite_group, write_new_files
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.parcels import Parcels
from lakelock.spark_plugin.writing.reports import this_task
from lakelock.spark_plugin.writing.routing import Routes
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import partition_paths
from lakelock.table.record_keys import Keyed, dedupe
from lakelock.table.rewriting import keys_among
from lakelock.table.rows import conform
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

Target = int | tuple[str, int]
"""A file by its number, or a new file group of a partition by its number there."""


@dataclass(frozen=True)
class RewritePlan:
    """What a write task needs. With `deletes` the incoming rows are keys, and rows with these keys are removed.

    The new rows of `settled` partitions are in files that were kept.
    """

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]
    routes: Routes
    settled: frozenset[str] = frozenset()
    deletes: bool = False

    @property
    def parcels(self) -> Parcels:
        """How the rows arrive."""
        return Parcels.of(self.columns.arrow, self.context.properties)


def rewrite_stage(plan: RewritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write every file group whose rows came to this task, one after the other, and report the files."""
    yield from while_wanted(plan.context, _rewritten(plan, batches))


def _rewritten(plan: RewritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat | None]:
    found: dict[Target, list[pa.Table]] = {}
    for route, rows in plan.parcels.unpacked(batches):
        for target, mine in by_target(plan, route, rows):
            found.setdefault(target, []).append(mine)
    context, task = plan.context, this_task()
    take_any = context.settings.write.duplicates == "any"
    for target in list(found):
        keyed = Keyed.of(conform(pa.concat_tables(found.pop(target)), plan.columns.arrow), context.properties)
        if plan.deletes:
            assert isinstance(target, int), "keys that no file holds were left out before"
            yield rewrite_group(context, plan.files[target], task, delete_mask=keys_among(keyed.keys))
            continue
        keyed = dedupe(keyed, context.properties.ordering_field, take_any=take_any)
        if isinstance(target, int):
            yield rewrite_group(context, plan.files[target], task, upserts=keyed)
        else:
            yield from write_new_files(context, target[0], [keyed.rows], task)


def by_target(plan: RewritePlan, route: int, rows: pa.Table) -> Iterator[tuple[Target, pa.Table]]:
    """Where the rows of a route go: to the file that it names, or, if they are new, to a new place in each partition."""
    files = len(plan.files)
    if route < files:
        yield route, rows
        return
    # Several partitions may share a slot.
    paths = partition_paths(rows, plan.context.properties)
    if len(paths.dictionary) == 1:
        if (only := paths.dictionary[0].as_py()) not in plan.settled:
            yield plan.routes.target_of(only, route - files), rows
        return
    codes = np.asarray(paths.indices)
    for code, partition in enumerate(paths.dictionary.to_pylist()):
        if partition not in plan.settled:
            yield plan.routes.target_of(partition, route - files), rows.take(pa.array(np.flatnonzero(codes == code)))
