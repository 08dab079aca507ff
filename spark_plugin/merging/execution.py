"""Merge: Spark joins the rows of a source with those of the table, and the clauses say what becomes of each.

What is read is as little as the condition allows. If it equates the key and partition columns, the keys of the source are
looked up as in an upsert, and nothing else is read. Otherwise the rows are read that the part of the condition about the
target selects. Clauses about rows that the source does not match read the rows that their own conditions select.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakelock.occ.footprint import WholeTable
from lakelock.spark_plugin.changing.applying import write_changes
from lakelock.spark_plugin.changing.changes import FILE, ROW, ChangePlan
from lakelock.spark_plugin.changing.placing import NewPlaces
from lakelock.spark_plugin.conditions import Condition
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.merging.clauses import When, may_match_often
from lakelock.spark_plugin.merging.plan import MergePlan
from lakelock.spark_plugin.session.versions import file_place
from lakelock.spark_plugin.writing.attempt import Attempt, Written, column
from lakelock.spark_plugin.writing.key_lookup import look_up
from lakelock.spark_plugin.writing.key_reads import KeysRead
from lakelock.spark_plugin.writing.looked_up_keys import LookedUpKeys
from lakelock.spark_plugin.writing.row_reads import RowsRead
from lakelock.spark_plugin.writing.tagging import TagPlan
from lakelock.table.schema import TableSchema
from lakelock.table.snapshot import DataFile


def merge(attempt: Attempt, plan: MergePlan) -> Written:
    """Run a merge. The source is computed once, for all attempts."""
    attempt.memory.keep(plan.source)
    plan = plan.now(attempt.schema, attempt.properties, partial(attempt.known, attempt.tx))
    spec, attempt = plan.spec, attempt.growing(plan.schema)
    after = plan.schema if plan.schema != plan.before else None
    if not plan.repeatable:
        attempt = attempt.forgetful()
    read = files = _read(attempt, plan)
    places = None
    if spec.has(When.NOT_MATCHED):
        # In buckets new rows join a file group that is there, whether or not it was read.
        files = tuple(dict.fromkeys((*read, *_joinable(attempt))))
        may_repeat = attempt.settings.merge_may_duplicate_keys and not attempt.properties.keys_span_partitions
        equated = None if may_repeat else plan.new_keys
        looked_up = _looked_up(attempt) if plan.inserts_equated else None
        places = NewPlaces(attempt.context(), files, looked_up=looked_up, equated=equated)
    elif not read:
        return Written((), after)
    misfit = f"when_matched_update_all would give a stored row another value of {', '.join(plan.compared)}"
    once = not may_match_often(spec.clauses)
    changes = ChangePlan(attempt.context(), files, plan.changed, places, once=once, misfit=misfit)
    return Written(write_changes(attempt, changes, read, lambda some: plan.changes(_stored(attempt, some))), after)


def _joinable(attempt: Attempt) -> tuple[DataFile, ...]:
    return attempt.tx.current().files if attempt.properties.bucket_index is not None else ()


def _stored(attempt: Attempt, files: Sequence[DataFile]) -> DataFrame:
    """The rows of these files and their places."""
    rows = attempt.read(files)
    if not files:
        return rows.select("*", F.lit(None).cast("string").alias(FILE), F.lit(None).cast("long").alias(ROW))
    place = file_place(rows)
    return rows.select("*", place["file_name"].alias(FILE), place["row_index"].alias(ROW))


def _read(attempt: Attempt, plan: MergePlan) -> tuple[DataFile, ...]:
    """Record what the merge reads, and return the files that may hold such rows."""
    files: list[DataFile] = []
    conditions = list(plan.by_source)
    if plan.spec.has(When.MATCHED, When.NOT_MATCHED):
        if plan.keys is None:
            conditions.append(plan.on.of_target)
        elif None not in conditions:
            files += _look_up(attempt, plan.keys, plan.source.alias(plan.spec.source_alias))
    if None in conditions:
        attempt.tx.reads(WholeTable())
        return attempt.tx.current().files
    for condition in conditions:
        assert condition is not None
        files += _selected(attempt, condition)
    return tuple(dict.fromkeys(files))


def _selected(attempt: Attempt, condition: Condition) -> Iterable[DataFile]:
    pruning = attempt.pruning(condition)
    attempt.tx.reads(RowsRead(condition, pruning, attempt.read))
    return pruning.files_of(attempt.tx.current())


def _looked_up(attempt: Attempt) -> LookedUpKeys | None:
    """The keys that were looked up for the merge; None if none were, or too many for the driver."""
    staged = attempt.memory.staged
    return None if staged is None or staged.keys is None else LookedUpKeys.of(staged.keys.values())


def _look_up(attempt: Attempt, keys: dict[str, Column], source: DataFrame) -> Iterable[DataFile]:
    """Look up the keys of the source. One with a null equals none."""
    columns = pa.schema([field for field in attempt.schema.arrow if field.name in keys])
    types = spark_schema(columns)
    frame = source.select(*[keys[name].cast(types[name].dataType).alias(name) for name in columns.names])
    frame = frame.where(reduce(Column.__and__, [column(name).isNotNull() for name in columns.names]))
    tagged = look_up(attempt, frame, TagPlan(attempt.context(), TableSchema(columns)), attempt.memory)
    if tagged is None:
        return ()
    partitions = frozenset(partition for partition, _ in tagged.counts)
    attempt.tx.reads(KeysRead("the keys of the merge", partitions, attempt, tagged.looked_up, tagged.keys))
    held = sorted({route for _, route in tagged.counts if route < len(tagged.plan.files)})
    return [tagged.plan.files[number] for number in held]
