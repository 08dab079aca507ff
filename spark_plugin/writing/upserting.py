"""Upsert and delete by key: look the keys up, claim the file groups that hold them, rewrite those.

Three stages of tasks (`tagging.py`), then a shuffle and the stage that writes. The driver claims all file groups before that,
so that a conflict costs the look-up only. A redo (`redoing.py`) shuffles and writes only the rows of what collided.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame

from lakelock.engine.file_tasks import Target
from lakelock.spark_plugin.frames import arrow_schema
from lakelock.spark_plugin.writing.attempt import Attempt, Written, prepared, prepared_keys
from lakelock.spark_plugin.writing.bucketing import write_buckets
from lakelock.spark_plugin.writing.key_lookup import Tagged, look_up
from lakelock.spark_plugin.writing.key_reads import KeysRead
from lakelock.spark_plugin.writing.packing import among, pack_of
from lakelock.spark_plugin.writing.parcels import ROUTE
from lakelock.spark_plugin.writing.redoing import Redoing
from lakelock.spark_plugin.writing.reports import REPORT, REPORT_SCHEMA, REPORTS_ONLY, reporting
from lakelock.spark_plugin.writing.rewriting import RewritePlan, rewrite_stage
from lakelock.spark_plugin.writing.routing import FileTarget, Routes, plan_routes, tasks_for
from lakelock.spark_plugin.writing.tagging import TagPlan
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.schema import TableSchema, columns_of_upserts
from lakelock.texts import counted


def upsert(attempt: Attempt, df: DataFrame) -> Written:
    """Insert or replace the rows of `df` by key."""
    missing = attempt.missing_in(df)
    frame, schema = prepared(attempt, df, missing=missing)
    columns = columns_of_upserts(schema, arrow_schema(frame.schema), missing)
    if attempt.properties.bucket_index is not None:
        redoing = Redoing.of(attempt, schema)
        return Written(write_buckets(attempt, frame, columns, schema, "upsert", redoing=redoing), schema)
    return _by_key(attempt, frame, columns, schema, deletes=False)


def delete_keys(attempt: Attempt, df: DataFrame) -> Written:
    """Delete the rows that have the keys in `df`, which needs the key and partition columns only."""
    frame, columns = prepared_keys(attempt, df)
    return _by_key(attempt, frame, columns, attempt.schema, deletes=True)


def _by_key(attempt: Attempt, frame: DataFrame, columns: TableSchema, schema: TableSchema, *, deletes: bool) -> Written:
    context = attempt.context(schema)
    redoing = Redoing.of(attempt, schema)
    tagged = look_up(attempt, frame, TagPlan(context, columns), attempt.memory)
    if tagged is None:
        return Written((), None if deletes else schema)
    partitions = frozenset(partition for partition, _ in tagged.counts)
    # Keys were read, found or not: an insert of one of them meanwhile would make this a different write.
    what = "the keys of the delete" if deletes else "the keys of the upsert"
    attempt.tx.reads(KeysRead(what, partitions, attempt, tagged.looked_up, tagged.keys))
    files = tagged.plan.files
    new: dict[Target, object] = {} if deletes else {(partition, None): keys for partition, keys in tagged.new.items()}
    kept = redoing.claimed_and_kept(files, {route for _, route in tagged.counts if route < len(files)}, new)
    settled = frozenset(partition for partition, _ in kept.new)
    work = {
        (partition, route): count
        for (partition, route), count in tagged.counts.items()
        if (route not in kept.files if route < len(files) else not deletes and partition not in settled)
    }
    routes = _routes(attempt, tagged, work)
    plan = RewritePlan(context, columns, files, routes, settled, deletes=deletes)
    stats = redoing.note(files, _rewritten(attempt, tagged, plan, work), kept, new, routes.adopted)
    return Written(stats, None if deletes else schema)


def _routes(attempt: Attempt, tagged: Tagged, work: Mapping[tuple[str, int], int]) -> Routes:
    targets = [
        FileTarget(file.partition, file.size_bytes, tagged.file_rows.get(number, 0))
        for number, file in enumerate(tagged.plan.files)
    ]
    settings = attempt.settings
    return plan_routes(
        work, targets, tasks=tasks_for(sum(work.values()), attempt.tasks), target_rows=settings.target_file_rows,
        target_bytes=settings.target_file_bytes, row_bytes=tagged.row_bytes,
    )  # fmt: skip


def _rewritten(
    attempt: Attempt, tagged: Tagged, plan: RewritePlan, work: Mapping[tuple[str, int], int]
) -> tuple[WriteStat, ...]:
    if not work:
        return ()
    rows, wanted = tagged.frame.drop(REPORT), {route for _, route in work}
    if wanted != {route for _, route in tagged.counts}:
        rows = rows.where(among(wanted, ROUTE))
    stage = reporting(REPORT_SCHEMA, partial(rewrite_stage, plan))
    packed = rows.repartition(plan.routes.packs, pack_of(plan.routes, ROUTE))
    what = f"rewriting {counted(len(plan.routes.rewritten), 'file group')}"
    return attempt.written(packed.mapInArrow(stage, REPORTS_ONLY), what, rows=sum(work.values()))
