"""New rows of a merge whose keys the table may have: they are looked up, before anything is claimed or written.

A condition that equates the whole key has compared each new row with all stored rows of its key, so there is nothing to look
up. Any other condition, and an equation with a null, says nothing about the key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakelock.errors import DuplicateKeyError
from lakelock.spark_plugin.changing.changes import PLACE, ChangePlan
from lakelock.spark_plugin.frames import spark_schema
from lakelock.spark_plugin.writing.attempt import Attempt
from lakelock.spark_plugin.writing.key_lookup import look_up, look_up_anywhere
from lakelock.spark_plugin.writing.key_reads import KeysRead
from lakelock.spark_plugin.writing.memory import Memory
from lakelock.spark_plugin.writing.reports import REPORT
from lakelock.spark_plugin.writing.tagging import TagPlan
from lakelock.table.schema import TableSchema


def require_new_keys(attempt: Attempt, plan: ChangePlan, packed: DataFrame) -> None:
    """`DuplicateKeyError` if the table has the key of a new row among the `packed` changes: in the row's partition or, where
    keys are looked up in all partitions, in any. The keys count as read: an insert of one meanwhile is a conflict.
    """
    properties, memory = attempt.properties, Memory(attempt.kept)
    names = {*properties.record_keys, *(() if properties.keys_span_partitions else properties.partition_fields)}
    columns = pa.schema([field for field in plan.carried if field.name in names])
    keys = packed.where(F.col(REPORT).isNull()).drop(REPORT)
    keys = keys.mapInArrow(partial(_keys_of_new_rows, plan, columns), spark_schema(columns))
    if properties.keys_span_partitions:
        context = replace(plan.context, properties=properties.unpartitioned())
        anywhere = look_up_anywhere(attempt, keys, TagPlan(context, TableSchema(columns)), memory)
        assert anywhere is not None, "there are new rows"
        partitions, files, looked_up, told = None, anywhere.files, anywhere.looked_up, anywhere.keys
    else:
        tagged = look_up(attempt, keys, TagPlan(plan.context, TableSchema(columns)), memory)
        assert tagged is not None, "there are new rows"
        partitions, looked_up, told = frozenset(partition for partition, _ in tagged.counts), tagged.looked_up, tagged.keys
        all_files = tagged.plan.files
        files = tuple(all_files[number] for number in sorted({route for _, route in tagged.counts if route < len(all_files)}))
    read = KeysRead("the keys of the merge's new rows", partitions, attempt, looked_up, told)
    attempt.tx.reads(read)
    held = read.matches(files) if files else None
    if held is not None:
        raise DuplicateKeyError(
            f"the merge would insert a row whose key the table has already: {held}",
            hint="equate the key in the condition of the merge; table.upsert(df) replaces such rows, and table.insert(df) "
            "stores them beside the others, as does this merge with write.merge_may_duplicate_keys=true",
            keys=[held],
        )


def _keys_of_new_rows(plan: ChangePlan, columns: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    assert plan.inserts is not None
    for _, rows in plan.parcels.unpacked(batches):
        new = rows.filter(pc.is_null(rows.column(PLACE)))
        yield from new.filter(plan.inserts.may_be_stored(new)).select(columns.names).to_batches()
