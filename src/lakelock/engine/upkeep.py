"""Upkeep with the Arrow engine: what the tasks of an optimize or restore do, in plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.file_tasks import move_rows, rewrite_group
from lakelock.errors import InputError
from lakelock.markers.task_token import TaskToken
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.targets import Targets, resources_of, within
from lakelock.occ.services.optimize import Join
from lakelock.occ.services.restore import Copy
from lakelock.occ.transaction import Transaction
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.partitions import partition_values
from lakelock.table.rewriting import Kernels

_PATH = "path of the partition"
"""With spaces, as no column of a table has."""


def chosen_partitions(coordinator: Coordinator, where: pc.Expression | None, partition: Targets) -> Callable[[str], bool]:
    """Which partitions are named, and satisfy a condition on the partition columns; `InputError` for one on other columns."""
    targets = resources_of(partition, coordinator.properties)
    if where is None:
        return lambda path: not targets or within(path, targets)
    paths = coordinator.snapshot().partitions
    values = partition_values(paths, coordinator.schema().arrow, coordinator.properties)
    try:
        found = values.append_column(_PATH, pa.array(paths, pa.string())).filter(where).column(_PATH).to_pylist()
    except (pa.ArrowException, KeyError, TypeError) as error:
        raise InputError(
            f"the condition {where} does not choose partitions: {error}",
            hint=f"use the partition columns only: {', '.join(coordinator.properties.partition_fields) or 'there are none'}",
        ) from error
    chosen = frozenset(found)
    return lambda path: path in chosen and (not targets or within(path, targets))


def write_joins(
    coordinator: Coordinator,
    kernels: Kernels,
    sort_by: Sequence[str],
    tx: Transaction,
    joins: Sequence[Join],
    ensure_wanted: Callable[[], None],
) -> list[WriteStat]:
    """Write the rows of each join into its new files, one join after the other."""
    table, context, stats = coordinator.table, tx.write_context(), list[WriteStat]()
    for number, join in enumerate(joins):
        ensure_wanted()
        batches, file_rows = kernels.stored(join.sources, tx.schema, table.storage), None
        if sort_by and (found := list(batches)):
            rows = kernels.in_order(found, sort_by)
            batches, file_rows = iter([rows]), max(1, -(-rows.num_rows // join.files))
        stats += move_rows(
            context, join.partition, batches, TaskToken(number, 0, 0), file_rows=file_rows,
            storage=table.storage, runtime=table.runtime, kernels=kernels,
        )  # fmt: skip
    return stats


def write_copies(coordinator: Coordinator, kernels: Kernels, tx: Transaction, copies: Sequence[Copy]) -> list[WriteStat]:
    """Write the rows of old slices again, one after the other."""
    table, context, stats = coordinator.table, tx.write_context(), list[WriteStat]()
    for number, copy in enumerate(copies):
        tx.check_alive()
        task = TaskToken(number, 0, 0)
        if copy.base is not None:
            stat = rewrite_group(
                context, copy.base, task, content=copy.source,
                storage=table.storage, runtime=table.runtime, kernels=kernels,
            )  # fmt: skip
            assert stat is not None, "the content of another slice is always written"
            stats.append(stat)
            continue
        rows = kernels.stored([copy.source], tx.schema, table.storage)
        stats += move_rows(
            context, copy.source.partition, rows, task, bucket=copy.bucket(context.properties),
            storage=table.storage, runtime=table.runtime, kernels=kernels,
        )  # fmt: skip
    return stats
