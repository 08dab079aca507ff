"""What each write of a LakeTable does to the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import in_ci
from tests.spark import without_jobs

from lakelock.errors import DuplicateKeyError, InputError, SchemaError
from lakelock.spark_plugin import LakeTable, WriteResult

pytestmark = pytest.mark.usefixtures("both_ways")

COLUMNS = "id long, p string, v long, ts long"


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(without_jobs.content(table), key=str)


def filled(spark: SparkSession, path: str) -> LakeTable:
    """Three rows in two partitions, ordered by `ts`."""
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", order_by="ts")
    without_jobs.fill(made, (1, "a", 10, 5), (2, "a", 20, 5), (3, "b", 30, 5))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


def test_an_upsert_replaces_known_keys_and_adds_new_ones(spark: SparkSession, table: LakeTable) -> None:
    result = table.upsert(rows(spark, (1, "a", 11, 6), (4, "b", 40, 1), (5, "c", 50, 1)))
    assert content(table) == [(1, "a", 11, 6), (2, "a", 20, 5), (3, "b", 30, 5), (4, "b", 40, 1), (5, "c", 50, 1)]
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (2, 1, 0)
    assert repr(result).startswith(f"UPSERT {result.instant}: 2 inserted, 1 updated (3 files")


def test_a_key_is_unique_within_its_partition_only(spark: SparkSession, table: LakeTable) -> None:
    table.upsert(rows(spark, (1, "b", 99, 9)))
    assert content(table) == [(1, "a", 10, 5), (1, "b", 99, 9), (2, "a", 20, 5), (3, "b", 30, 5)]


def test_of_two_versions_the_newer_by_the_ordering_column_wins(spark: SparkSession, table: LakeTable) -> None:
    table.upsert(rows(spark, (1, "a", -1, 4), (2, "a", -2, 5), (3, "b", -3, 6), (3, "b", -4, 7), (3, "b", -5, None)))
    assert content(table) == [(1, "a", 10, 5), (2, "a", -2, 5), (3, "b", -4, 7)]


@pytest.mark.parametrize("index", ["", *in_ci("bucket:2", "global")])
def test_an_upsert_of_older_rows_rewrites_no_file(spark: SparkSession, path: str, index: str) -> None:
    options = {"order_by": "ts", "key": "id", "partition_by": "p", **({"index": index} if index else {})}
    table = LakeTable.create(spark, path, schema=rows(spark), **options)  # type: ignore[arg-type]
    table.insert(rows(spark, (1, "a", 10, 5), (2, "b", 20, 5)))
    before = set(table.read().inputFiles())
    older = table.upsert(rows(spark, (1, "a", -1, 4), (2, "b", -2, None)), txn_app_id="job", txn_version=1)
    assert (older.rows_inserted, older.rows_updated, older.files) == (0, 0, 0) and "no rows changed" in repr(older)
    assert set(table.read().inputFiles()) == before
    assert table.upsert(rows(spark, (1, "a", -1, 9)), txn_app_id="job", txn_version=1).already_applied
    some = table.upsert(rows(spark, (1, "a", -1, 4), (2, "b", 22, 6)))
    assert (some.rows_updated, some.files) == (1, 1) and len(before & set(table.read().inputFiles())) == 1
    assert content(table) == [(1, "a", 10, 5), (2, "b", 22, 6)]


def test_a_key_given_twice_with_no_newest_is_refused_with_examples(spark: SparkSession, table: LakeTable) -> None:
    twice = rows(spark, (1, "a", 1, 9), (1, "a", 2, 9), (7, "n", 1, 9), (7, "n", 2, 9))
    with pytest.raises(DuplicateKeyError, match=r"\b[17]\b"):
        table.upsert(twice)
    assert len(content(table)) == 3
    table.upsert(twice, duplicates="any")
    assert len(content(table)) == 4


def test_an_insert_looks_no_key_up(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (1, "a", 12, 5)))
    assert [row for row in content(table) if row[0] == 1] == [(1, "a", 10, 5), (1, "a", 12, 5)]
    table.upsert(rows(spark, (1, "a", 13, 6)))
    assert [row for row in content(table) if row[0] == 1] == [(1, "a", 13, 6), (1, "a", 13, 6)]


def test_a_delete_by_condition_removes_exactly_the_rows_that_satisfy_it(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (1, "a", None, 1), (1, "a", 77, 1)))
    result = table.delete("v >= 20")
    assert content(table) == [(1, "a", 10, 5), (1, "a", None, 1)]
    assert result.rows_deleted == 3
    assert table.delete(F.col("id") == 1).rows_deleted == 2
    assert content(table) == []
    assert table.delete("id = 1").files == 0


def test_a_delete_by_keys_needs_their_columns_only(spark: SparkSession, table: LakeTable) -> None:
    keys = spark.createDataFrame([("a", 1), ("b", 1), ("b", 3)], "p string, id int")
    assert table.delete(keys).rows_deleted == 2
    assert content(table) == [(2, "a", 20, 5)]
    with pytest.raises(SchemaError, match="partition column 'p' is missing"):
        table.delete(spark.createDataFrame([(1,)], "id long"))


def test_overwriting_partitions_leaves_the_others_alone(spark: SparkSession, table: LakeTable) -> None:
    table.overwrite_partitions(rows(spark, (9, "a", 90, 1), (8, "z", 80, 1)))
    assert content(table) == [(3, "b", 30, 5), (8, "z", 80, 1), (9, "a", 90, 1)]
    table.upsert(rows(spark, (1, "a", 1, 1)))
    assert (1, "a", 1, 1) in content(table)


def test_overwriting_by_condition_takes_rows_that_satisfy_it_only(spark: SparkSession, table: LakeTable) -> None:
    table.overwrite(rows(spark, (6, "a", 15, 1), (7, "b", 17, 1)), where="v < 25")
    assert content(table) == [(3, "b", 30, 5), (6, "a", 15, 1), (7, "b", 17, 1)]
    before = content(table)
    with pytest.raises(SchemaError, match="does not satisfy the condition"):
        table.overwrite(rows(spark, (6, "a", 99, 1)), where="v < 25")
    assert content(table) == before


def test_overwriting_without_a_condition_replaces_everything(spark: SparkSession, table: LakeTable) -> None:
    table.overwrite(rows(spark, (6, "q", 15, 1)))
    assert content(table) == [(6, "q", 15, 1)]


@pytest.mark.parametrize("verb", ["insert", "upsert", "overwrite_partitions", "delete"])
def test_an_empty_frame_changes_nothing_and_is_committed(spark: SparkSession, table: LakeTable, verb: str) -> None:
    before = content(table)
    result = getattr(table, verb)(rows(spark))
    assert content(table) == before
    assert (result.files, result.rows_inserted, result.rows_deleted) == (0, 0, 0)
    assert table.history().head()["instant"] == result.instant


def test_a_table_that_is_not_partitioned_takes_every_write(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([(1, "x"), (2, "y")], "id int, v string")
    table = LakeTable.create(spark, path, schema=frame, key="id")
    table.insert(frame)
    table.upsert(spark.createDataFrame([(2, "Y"), (3, "Z")], "id int, v string"))
    table.delete("id = 1")
    assert content(table) == [(2, "Y"), (3, "Z")]
    table.overwrite_partitions(frame)
    assert content(table) == [(1, "x"), (2, "y")]


def test_a_composite_key_is_all_of_its_columns(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([("a", 1, 1), ("a", 2, 1), (None, 1, 1), ("", 1, 1)], "k string, n int, v int")
    table = LakeTable.create(spark, path, schema=frame, key=["k", "n"])
    table.insert(frame)
    table.upsert(spark.createDataFrame([("a", 2, 2), (None, 1, 3), ("", 1, 4)], "k string, n int, v int"))
    assert {tuple(row) for row in table.read().collect()} == {("a", 1, 1), ("a", 2, 2), (None, 1, 3), ("", 1, 4)}


def test_columns_may_come_in_any_order_and_with_hudis_own_among_them(spark: SparkSession, table: LakeTable) -> None:
    meta = table.read(include_meta=True).where("id = 1").withColumn("v", F.lit(5)).withColumn("ts", F.lit(6))
    table.upsert(meta.select(*reversed(meta.columns)))
    assert (1, "a", 5, 6) in content(table)


def test_new_columns_need_merge_schema_and_are_null_in_old_rows(spark: SparkSession, table: LakeTable) -> None:
    wider = rows(spark, (4, "b", 40, 6)).withColumn("note", F.lit("new"))
    with pytest.raises(SchemaError, match="merge_schema"):
        table.upsert(wider)
    table.upsert(wider, merge_schema=True)
    assert table.schema.names == ["id", "p", "v", "ts", "note"]
    assert {row["id"]: row["note"] for row in table.read().collect()} == {1: None, 2: None, 3: None, 4: "new"}
    table.insert(rows(spark, (5, "b", 50, 6)))
    assert table.read().where("note is null").count() == 4
    reopened = LakeTable.for_path(spark, table.path)
    assert reopened.read().columns == ["id", "p", "v", "ts", "note"]


def test_big_inserts_are_split_into_files_of_the_target_size(spark: SparkSession, path: str) -> None:
    frame = spark.range(1000).withColumn("v", F.lit("x"))
    table = LakeTable.create(spark, path, schema=frame, key="id", options={"write.target_file_rows": 300})
    assert table.insert(frame.coalesce(1)).files == 4
    assert table.upsert(frame.withColumn("v", F.lit("y"))).rows_updated == 1000
    assert table.upsert(spark.range(1000, 2000).withColumn("v", F.lit("n"))).files >= 3
    assert table.read().groupBy("v").count().collect() in ([("y", 1000), ("n", 1000)], [("n", 1000), ("y", 1000)])


@pytest.mark.in_ci
def test_a_write_with_a_number_of_its_job_is_applied_once_whatever_it_is(spark: SparkSession, table: LakeTable) -> None:
    one = rows(spark, (1, "a", 11, 9))
    writes: list[Callable[..., WriteResult]] = [
        partial(table.insert, one),
        partial(table.upsert, one),
        partial(table.delete, "id = 2"),
        partial(table.delete, rows(spark, (3, "b", 0, 0))),
        partial(table.overwrite_partitions, one),
        partial(table.overwrite, one, "id = 1"),
        partial(table.overwrite, one),
    ]
    for version, write in enumerate(writes):
        done = write(txn_app_id="nightly", txn_version=version)
        assert not done.already_applied
        table.upsert(rows(spark, (7, "z", version, version)))
        before = content(table)
        for again in (version, version - 1):
            repeated = write(txn_app_id="nightly", txn_version=again)
            assert repeated.already_applied and repeated.instant == done.instant
            assert repr(repeated).endswith("applied before, nothing changed")
        assert content(table) == before
    assert not table.delete("id = 7", txn_app_id="weekly", txn_version=0).already_applied


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"txn_app_id": "nightly"}, "txn_app_id is given without txn_version"),
        ({"txn_version": 1}, "txn_version is given without txn_app_id"),
        ({"txn_app_id": "nightly", "txn_version": "1"}, "txn_version is '1', not a whole number"),
        ({"txn_app_id": "nightly", "txn_version": 1.0}, "not a whole number"),
        ({"txn_app_id": "nightly", "txn_version": True}, "not a whole number"),
        ({"txn_app_id": "nightly", "txn_version": 2**63}, "not a whole number of 64 bits"),
        ({"txn_app_id": "", "txn_version": 1}, "txn_app_id is ''"),
    ],
)
def test_a_number_that_is_none_is_refused_before_any_work(
    spark: SparkSession, settled: LakeTable, given: dict[str, Any], problem: str
) -> None:
    one = rows(spark, (1, "a", 11, 9))
    calls = [
        partial(settled.insert, one),
        partial(settled.upsert, one),
        partial(settled.delete, "id = 2"),
        partial(settled.overwrite_partitions, one),
        partial(settled.overwrite, one),
        settled.transaction,
    ]
    for call in calls:
        with pytest.raises(InputError, match=problem):
            call(**given)
