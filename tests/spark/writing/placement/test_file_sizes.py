"""Wide rows make files of a bounded size, and tasks that hold a bounded part of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakelock.spark_plugin import LakeTable, write_stages

TARGET = 200_000
SMALL = {"write.target_file_bytes": TARGET, "write.row_group_rows": 100}


def wide(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Rows of some 1,300 characters that zstd halves; the same each time."""
    text = "concat_ws('', transform(sequence(1, 20), n -> sha2(concat(id, '-', n), 256)))"
    return spark.range(first, end, 1, 1).selectExpr("id", f"{text} as text")


def sizes(path: str) -> list[int]:
    return sorted(file.stat().st_size for file in Path(path).glob("*.parquet"))


def test_an_insert_and_an_upsert_begin_a_new_file_at_the_target_size(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema="id long, text string", key="id", options=SMALL)
    table.insert(wide(spark, 0, 1_000))
    inserted = sizes(path)
    assert len(inserted) >= 3
    assert all(size < TARGET * 3 // 2 for size in inserted)
    table.upsert(wide(spark, 1_000, 2_000))
    assert len(sizes(path)) - len(inserted) >= 3
    assert sizes(path)[-1] < TARGET * 3 // 2
    assert table.read().count() == 2_000


def test_new_keys_go_to_new_files_where_the_rewritten_ones_are_full(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema="id long, text string", key="id", options=SMALL)
    table.insert(wide(spark, 0, 200))
    first = len(sizes(path))
    table.upsert(wide(spark, 100, 1_000))
    assert table.read().count() == 1_000
    assert sizes(path)[-1] < TARGET * 3 // 2
    assert len(sizes(path)) > first + 3


@pytest.mark.parametrize("index", [None, "bucket:8"])
def test_an_upsert_of_wide_rows_has_as_many_tasks_as_bound_what_each_holds(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, index: str | None
) -> None:
    planned = list[int]()
    monkeypatch.setattr(write_stages, "TASK_BYTES", 300_000)
    values_for = write_stages.values_for
    monkeypatch.setattr(write_stages, "values_for", lambda packs: planned.append(packs) or values_for(packs))
    table = LakeTable.create(spark, path, schema="id long, text string", key="id", index=index)
    table.upsert(wide(spark, 0, 1_000))
    assert planned[-1] >= 4
    assert table.read().count() == 1_000
