"""The driver's part in changing rows at their places: changes are computed once, their file groups claimed, and rewritten.

A redo (ADR 19) takes over what the attempt before has made of the same. What becomes of a stored row follows from the row and
from what the call brought, so a file whose base file is still there is the same. Whether a row of a merge is new depends on
all stored rows: they are compared with it in each attempt, and files with new rows are taken over only if these are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.engine.file_tasks import Target
from lakelock.spark_plugin.changing.changes import ChangePlan, ChangeReport, change_stage, pack_stage
from lakelock.spark_plugin.changing.new_keys import require_new_keys
from lakelock.spark_plugin.changing.placing import NewPlaces
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.packing import among, pack_of
from lakelock.spark_plugin.writing.parcels import PARCELS, ROUTE
from lakelock.spark_plugin.writing.redoing import Kept, Redoing
from lakelock.spark_plugin.writing.reports import REPORT, REPORT_SCHEMA, REPORTS_ONLY, reporting
from lakelock.spark_plugin.writing.routing import FileTarget, Routes, plan_routes, tasks_for
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.index import bucket_group
from lakelock.table.snapshot import DataFile
from lakelock.texts import counted

Changes = Callable[[Sequence[DataFile]], DataFrame]
"""The changes to the rows of some files, and the new rows that there are beside all of them."""


def write_changes(attempt: Attempt, plan: ChangePlan, read: Sequence[DataFile], changes: Changes) -> tuple[WriteStat, ...]:
    """Apply the changes to the files that are `read`, which the plan has among its own; each change is computed once."""
    if plan.inserts is not None:
        return _with_new_rows(attempt, plan, plan.inserts, changes(read))
    files, matched = plan.files, attempt.memory.matched
    redoing = Redoing.of(attempt, plan.context.schema)
    # An attempt before has looked into these, and has either found nothing to change or written what came of it.
    known = {number for number, file in enumerate(files) if redoing.before.made_from(file) is not None}
    asked = [number for number, file in enumerate(files) if number not in known and matched.get(file.key, True)]
    packed, report = _packed(attempt, plan, changes([files[number] for number in asked])) if asked else (None, ChangeReport())
    found = {number for _, number in report.counts}
    matched.update((files[number].key, number in found) for number in asked)
    if not known | found:
        return ()
    kept = redoing.claimed_and_kept(files, known | found, {})
    written: tuple[WriteStat, ...] = ()
    if packed is not None and found:
        written = _rewritten(attempt, plan, packed, _routes(attempt, files, report.counts, report.row_bytes), report.counts)
    if lost := [files[number] for number in sorted(known - kept.files.keys())]:
        packed, report = _packed(attempt, plan, changes(lost))
        written += _rewritten(attempt, plan, packed, _routes(attempt, files, report.counts, report.row_bytes), report.counts)
    return redoing.note(files, written, kept, {})


def _with_new_rows(attempt: Attempt, plan: ChangePlan, inserts: NewPlaces, changes: DataFrame) -> tuple[WriteStat, ...]:
    files, redoing = plan.files, Redoing.of(attempt, plan.context.schema)
    packed, report = _packed(attempt, plan, changes)
    if not report.counts:
        return ()
    if report.unsure:
        require_new_keys(attempt, plan, packed)
    numbered = inserts.numbered()
    joined: dict[int, object] = {numbered[target]: rows for target, rows in report.new.sums.items() if target in numbered}
    new: dict[Target, object] = {target: rows for target, rows in report.new.sums.items() if target not in numbered}
    buckets = [bucket_group(partition, bucket) for partition, bucket in sorted(new) if bucket is not None]
    found = {route for _, route in report.counts if route < len(files)}
    kept = redoing.claimed_and_kept(files, found, new, buckets, joined)
    work = _left_over(inserts, report.counts, new, kept)
    if not work:
        return redoing.note(files, (), kept, new, joined=joined)
    routes = _routes(attempt, files, work, report.row_bytes)
    if kept.stats:
        packed = packed.where(among({route for _, route in work}, ROUTE))
    plan = replace(plan, inserts=replace(inserts, routes=routes, settled=frozenset(kept.new)))
    return redoing.note(files, _rewritten(attempt, plan, packed, routes, work), kept, new, routes.adopted, joined)


def _left_over(
    inserts: NewPlaces, counts: Mapping[tuple[str, int], int], new: Mapping[Target, object], kept: Kept
) -> Counter[tuple[str, int]]:
    """The changes that are not in files that were kept."""
    files, open_targets = len(inserts.files), new.keys() - kept.new.keys()
    slots = inserts.slots(open_targets) if inserts.in_buckets else frozenset()
    left = Counter[tuple[str, int]]()
    for (partition, route), count in counts.items():
        if route < files:
            wanted = route not in kept.files
        else:
            wanted = (partition, route) in slots if inserts.in_buckets else (partition, None) in open_targets
        if wanted:
            left[partition, route] = count
    return left


def _packed(attempt: Attempt, plan: ChangePlan, changes: DataFrame) -> tuple[DataFrame, ChangeReport]:
    packed = changes.mapInArrow(reporting(PARCELS, partial(pack_stage, plan)), spark_schema(PARCELS))
    attempt.keep(packed)
    with attempt.jobs("finding the rows"):
        reports = [report for report in attempt.collected(packed) if isinstance(report, ChangeReport)]
    return packed, sum(reports, ChangeReport())


def _routes(attempt: Attempt, files: Sequence[DataFile], counts: Counter[tuple[str, int]], row_bytes: int) -> Routes:
    settings = attempt.settings
    return plan_routes(
        counts, _targets(attempt, files), tasks=tasks_for(counts.total(), attempt.tasks),
        target_rows=settings.target_file_rows, target_bytes=settings.target_file_bytes, row_bytes=row_bytes,
        in_buckets=attempt.properties.bucket_index is not None,
    )  # fmt: skip


def _targets(attempt: Attempt, files: Sequence[DataFile]) -> list[FileTarget]:
    """A file of which nobody knows how many rows it has counts as full, so that new rows do not join it."""
    stats_of, full = attempt.tx.current().stats_of, attempt.settings.target_file_rows
    known = [(file, stats_of(file).rows) for file in files]
    return [FileTarget(file.partition, file.size_bytes, full if rows is None else rows) for file, rows in known]


def _rewritten(
    attempt: Attempt, plan: ChangePlan, packed: DataFrame, routes: Routes, counts: Counter[tuple[str, int]]
) -> tuple[WriteStat, ...]:
    rows = packed.where(F.col(REPORT).isNull()).drop(REPORT).repartition(routes.packs, pack_of(routes, ROUTE))
    stage = reporting(REPORT_SCHEMA, partial(change_stage, plan))
    what = f"rewriting {counted(len(routes.rewritten), 'file group')}"
    return attempt.written(rows.mapInArrow(stage, REPORTS_ONLY), what, rows=counts.total())
