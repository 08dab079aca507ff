"""Delete by condition: Spark finds the rows, their file groups are claimed, and rewritten without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lakelock.engine.file_tasks import rewrite_group
from lakelock.occ.write_context import WriteContext
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.writing.attempt import Attempt, Written
from lakelock.spark_plugin.writing.late_tasks import while_wanted
from lakelock.spark_plugin.writing.packing import pack_of
from lakelock.spark_plugin.writing.parcels import ROUTE
from lakelock.spark_plugin.writing.redoing import Redoing
from lakelock.spark_plugin.writing.reports import REPORT_SCHEMA, REPORTS_ONLY, reporting, this_task
from lakelock.spark_plugin.writing.routing import FileTarget, plan_routes
from lakelock.spark_plugin.writing.row_reads import RowsRead
from lakelock.spark_plugin.writing.selecting import POSITIONS, AtPositions, Selection, select_rows
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted


def delete_where(attempt: Attempt, condition: Condition) -> Written:
    """Delete the rows that satisfy the condition. Nobody may add such a row meanwhile."""
    if not condition.repeatable:
        attempt = attempt.forgetful()
    pruning = attempt.pruning(condition)
    attempt.tx.reads(RowsRead(condition, pruning, attempt.read))
    redoing, matched = Redoing.of(attempt, attempt.schema), attempt.memory.matched
    files = tuple(pruning.files_of(attempt.tx.current()))
    # An attempt before has looked into these, and has either found nothing or written what is left.
    known = {number for number, file in enumerate(files) if redoing.before.made_from(file) is not None}
    asked = [file for number, file in enumerate(files) if number not in known and matched.get(file.key, True)]
    selection = select_rows(attempt, asked, condition)
    matched.update((file.key, number in selection.counts) for number, file in enumerate(asked))
    found = known | {number for number, file in enumerate(files) if number not in known and matched[file.key]}
    kept = redoing.claimed_and_kept(files, found, {})
    removed = remove_rows(attempt, selection)
    lost = [files[number] for number in sorted(known - kept.files.keys())]
    if lost:
        removed += remove_rows(attempt, select_rows(attempt, lost, condition))
    return Written(redoing.note(files, removed, kept, {}))


def remove_rows(attempt: Attempt, selection: Selection) -> tuple[WriteStat, ...]:
    """Rewrite the file groups that have selected rows, without those rows. The groups must be claimed."""
    if not selection.counts:
        return ()
    files = selection.files
    counts = {(files[number].partition, number): count for number, count in selection.counts.items()}
    targets = [FileTarget(file.partition, file.size_bytes, 0) for file in files]
    routes = plan_routes(counts, targets, tasks=2 * attempt.tasks, target_rows=1, task_rows=10_000_000)
    plan = RemovePlan(attempt.context(), files)
    stage = reporting(REPORT_SCHEMA, partial(remove_stage, plan))
    packed = selection.positions().repartition(routes.packs, pack_of(routes, ROUTE))
    what = f"rewriting {counted(len(counts), 'file group')}"
    return attempt.written(packed.mapInArrow(stage, REPORTS_ONLY), what, rows=sum(counts.values()))


@dataclass(frozen=True)
class RemovePlan:
    """What a task that removes rows needs."""

    context: WriteContext
    files: tuple[DataFile, ...]


def remove_stage(plan: RemovePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[WriteStat]:
    """On an executor: rewrite each file group whose positions came to this task."""
    packed: dict[int, list[bytes]] = {}
    for batch in batches:
        columns = batch.select([ROUTE, POSITIONS]).to_pydict()
        for number, positions in zip(columns[ROUTE], columns[POSITIONS], strict=True):
            packed.setdefault(number, []).append(positions)
    task = this_task()
    masks = {number: AtPositions(np.frombuffer(b"".join(parts), "<i8")) for number, parts in sorted(packed.items())}
    written = (rewrite_group(plan.context, plan.files[number], task, delete_mask=mask) for number, mask in masks.items())
    yield from while_wanted(plan.context, written)
