"""What conflicts with what, in Spark: as the page says, and a sample as `explain_conflict` says beforehand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import conflict_pairs
from tests.api import ConflictRule, Event, EventKind
from tests.conflict_pairs import Side
from tests.faults.worker import open_engine, rows
from tests.spark.writer_process import COLUMNS, frame

from lakelock.conflict import Verdict
from lakelock.errors import ConflictError
from lakelock.spark_plugin import LakeTable

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


def does(spark: SparkSession, path: Path, operation: str, side: Side) -> None:
    table = LakeTable.for_path(spark, str(path))
    given = side.inserted if operation == "INSERT" else side.brought if operation == "OVERWRITE" else side.upserted
    frame = spark.createDataFrame(given.to_pylist(), table.read().schema)
    if operation == "UPDATE":
        assert table.update({"v": "v + 1"}, f"month = '{side.month}' and g = {side.mark}").rows_updated == 1
    elif operation == "MERGE":
        marked = f"target.month = '{side.month}' and target.g = {side.mark} and target.g = source.g - {5 - side.mark}"
        merge = table.merge(frame, marked).when_matched_update(set={"v": "source.v + 1"})
        done = merge.when_not_matched_insert_all().execute()
        assert (done.rows_updated, done.rows_inserted) == (1, 2)
    elif operation == "OPTIMIZE":
        assert table.optimize(partition=f"month={side.month}").execute().commits
    elif operation == "OVERWRITE":
        table.overwrite_partitions(frame)
    else:
        {"INSERT": table.insert, "UPSERT": table.upsert}[operation](frame)


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("in_buckets", [False, True], ids=["without-index", "bucket"])
def test_each_pair_ends_as_the_page_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_buckets: bool
) -> None:
    operations = ["INSERT", "UPSERT", "UPDATE", "MERGE", "OVERWRITE", *([] if in_buckets else ["OPTIMIZE"])]
    count, wrong = conflict_pairs.wrong_pairs(monkeypatch, tmp_path, partial(does, spark), operations, in_buckets=in_buckets)
    assert count > 100 and wrong == []
