"""What conflicts with what, in Spark: as the page says."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import conflict_pairs
from tests.conflict_pairs import Side

from lakelock.spark_plugin import LakeTable


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
