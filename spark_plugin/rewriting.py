"""The second stage of an upsert or delete, on the executors: each task writes its pack of file groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.occ.file_tasks import WriteContext, rewrite_group, write_new_files
from lakelock.spark_plugin.reports import this_task
from lakelock.spark_plugin.routing import Routes
from lakelock.spark_plugin.tagging import ROUTE
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.fitting import conform
from lakelock.table.keyed import Keyed, dedupe
from lakelock.table.merge import keys_among
from lakelock.table.partitions import partition_paths
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile

Target = int | tuple[str, int]
"""A file by its number, or a new file group of a partition by its number there."""


@dataclass(frozen=True)
class RewritePlan:
    """What a write task needs. With `deletes` the incoming rows are keys, and the rows that have them go."""

    context: WriteContext
    columns: TableSchema
    files: tuple[DataFile, ...]
    routes: Routes
    deletes: bool = False


def rewrite_stage(plan: RewritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """Write every file group whose rows came to this task, one after the other, and report the files."""
    received = [batch for batch in batches if batch.num_rows]
    if not received:
        return
    rows = pa.Table.from_batches(received)
    routes = rows.column(ROUTE).to_numpy()
    keyed = Keyed.of(conform(rows, plan.columns.arrow), plan.context.properties)
    del rows, received
    task, settings = this_task(), plan.context.settings.write
    ordering = plan.context.properties.ordering_field
    for target, positions in _by_target(plan, keyed, routes).items():
        mine = keyed.pick(positions)
        if plan.deletes:
            assert isinstance(target, int), "keys that no file holds were left out before"
            yield rewrite_group(plan.context, plan.files[target], task, doomed=keys_among(mine.keys))
            continue
        mine = dedupe(mine, ordering, take_any=settings.duplicates == "any")
        if isinstance(target, int):
            yield rewrite_group(plan.context, plan.files[target], task, upserts=mine)
        else:
            yield from write_new_files(plan.context, target[0], [mine.rows], task)


def _by_target(plan: RewritePlan, keyed: Keyed, routes: npt.NDArray[Any]) -> dict[Target, npt.NDArray[Any]]:
    """The positions of the rows of each target, in their order."""
    files = len(plan.files)
    found: dict[Target, list[npt.NDArray[Any]]] = {}
    order = np.argsort(routes, kind="stable")
    ordered = routes[order]
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    for start, end in pairwise(bounds):
        route, positions = int(ordered[start]), order[start:end]
        if route < files:
            found.setdefault(route, []).append(positions)
            continue
        # Several partitions may share a slot.
        paths = partition_paths(keyed.rows.take(pa.array(positions)), plan.context.properties)
        codes = np.asarray(paths.indices)
        for code, partition in enumerate(paths.dictionary.to_pylist()):
            target = plan.routes.target_of(partition, route - files)
            found.setdefault(target, []).append(positions[codes == code])
    return {target: np.sort(np.concatenate(parts)) for target, parts in found.items()}
