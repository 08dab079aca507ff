"""A sample of what conflicts with what, in Spark: each pair of operations ends as `explain_conflict` says beforehand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakelock.conflict import ConflictRule
from lakelock.errors import ConflictError
from lakelock.events import Event, EventKind
from lakelock.explanation import Verdict
from lakelock.spark_plugin import LakeTable
from tests.faults.worker import open_engine, rows
from tests.spark.writer_process import COLUMNS, frame

ONCE = {"retry.attempts": 1}


def run(table: LakeTable, spark: SparkSession, operation: str, key: str) -> object:
    """The operation on month 1; it brings or deletes the rows of a key, or replaces or changes all rows."""
    brought = frame(spark, [[key, 2, "1"]])
    if operation == "UPDATE":
        return table.update({"v": "v + 1"}, "month = '1'")
    if operation == "DELETE":
        return table.delete("month = '1'")
    writes = {"INSERT": table.insert, "UPSERT": table.upsert, "OVERWRITE": table.overwrite_partitions}
    return writes[operation](brought)


@pytest.mark.parametrize(
    ("profile", "level", "mine", "other"),
    [
        ("strict", "Serializable", "DELETE", "INSERT"),
        ("strict", "Serializable", "INSERT", "DELETE"),
        ("delta", "WriteSerializable", "DELETE", "INSERT"),
        ("delta", "Serializable", "UPSERT", "INSERT"),
        ("hive", "Serializable", "OVERWRITE", "INSERT"),
        ("hudi", "Serializable", "OVERWRITE", "INSERT"),
        ("hudi", "Serializable", "UPDATE", "UPDATE"),
    ],
)
def test_a_pair_of_operations_ends_as_the_rules_say(spark, path, profile, level, mine, other):
    schema = spark.createDataFrame([], COLUMNS).schema
    theirs = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", application="other")
    open_engine(path, {}).insert(rows([["a", 1, "1"], ["b", 1, "1"]]))
    left = [other]

    def meanwhile(event: Event) -> None:
        if event.kind is EventKind.WRITING and left:
            run(theirs, spark, left.pop(), "new")

    options = {**ONCE, "concurrency.profile": profile, "concurrency.isolation": level}
    table = LakeTable.for_path(spark, path, options=options, listeners=[meanwhile])
    told = table.explain_conflict(f"{mine} month=1", f"{other} month=1").chosen
    found: ConflictRule | None = None
    try:
        run(table, spark, mine, "b")
    except ConflictError as error:
        found = error.conflict.rule
    assert told.verdict is not Verdict.DEPENDS and not left
    assert (told.verdict is Verdict.COLLIDES, told.rule) == (found is not None, found)
