"""A write through `format("lakelock")` that finds no table makes it, if its options say how."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.sizes import in_ci

from lakelock.errors import InputError, SchemaError, TableError
from lakelock.spark_plugin import LakeTable, unregister
from lakelock.spark_plugin.registration import patch_writers
from lakelock.spark_plugin.source_sink import BatchSink

COLUMNS = "id long, p string, v long"
DEFINITION = {"key": "id", "partition_by": "p", "order_by": "v", "index": "bucket:1:id", "hive_style": "false", "name": "goods"}


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    unregister(spark)


def test_the_first_write_makes_the_table_and_the_same_program_appends_from_then_on(spark: SparkSession, path: str) -> None:
    rows = spark.createDataFrame([(1, "a", 1)], COLUMNS).coalesce(1)
    for _ in range(2):
        rows.write.format("lakelock").options(**DEFINITION).mode("append").save(path)
    with LakeTable.for_path(spark, path) as table:
        assert table.read().count() == 2
        made = table.detail().head()
        assert [made[name] for name in DEFINITION] == [["id"], ["p"], "v", "bucket:1:id", False, "goods"]
        assert [row["operation"] for row in table.history().collect()] == ["INSERT", "INSERT"]


@pytest.mark.in_ci
def test_without_the_option_key_the_table_has_none_and_only_takes_what_looks_no_key_up(spark: SparkSession, path: str) -> None:
    rows = spark.createDataFrame([(1, "a", 1), (1, "a", 1), (2, "b", 2)], COLUMNS).repartition(2)
    for _ in range(2):
        rows.write.format("lakelock").option("partition_by", "p").mode("append").save(path)
    with LakeTable.create(spark, path, schema=rows, partition_by="p", if_not_exists=True) as table:
        for refused in (
            lambda: table.upsert(rows),
            lambda: table.delete(rows),
            lambda: table.merge(rows, "target.v = source.v").when_matched_delete().execute(),
            lambda: table.upsert_batch(rows, 1),
        ):
            with pytest.raises(InputError, match="finds rows by their key, and the table .* was made without one"):
                refused()
        with pytest.raises(InputError, match="a merge finds rows by their key"):
            table.sql(f"MERGE INTO lakelock.`{path}` t USING (SELECT 1 v) s ON t.v = s.v WHEN MATCHED THEN DELETE")
        assert table.history().count() == 2
        table.insert(rows)
        table.update({"v": "v + 10"}, "v = 1")
        table.overwrite(rows.where("v = 2"), "v = 2")
        assert table.delete("id = 2").rows_deleted == 1
        table.optimize().execute()
        first, *_ = (row["instant"] for row in table.history().orderBy("instant").collect())
        shown = table.read(include_meta=True)
        assert [tuple(row)[5:] for row in shown.collect()] == [(1, "a", 11)] * 6
        assert shown.select("_hoodie_record_key").distinct().count() == 6
        assert table.changes(first).count() == 6
        table.restore(first)
        assert table.read().count() == 3
        with table.transaction("INSERT") as tx:
            tx.insert(rows)
            tx.insert(rows)
        assert table.read(include_meta=True).select("_hoodie_record_key").distinct().count() == 9


@pytest.mark.parametrize(
    ("option", "value", "has"),
    [
        ("key", "v", "id"),
        ("partition_by", "", "p"),
        ("order_by", "id", "v"),
        ("name", "others", "goods"),
        ("index", "bucket:2:id", "bucket:1:id"),
        ("table_version", "8", "9"),
    ],
)
def test_options_that_are_not_true_of_the_table_are_told_with_both_sides(
    spark: SparkSession, path: str, option: str, value: str, has: str
) -> None:
    columns = StructType.fromDDL(COLUMNS)
    BatchSink({"path": path, **DEFINITION}, columns, False).begin()
    with pytest.raises(TableError, match=rf"{option}: {value or 'none'} was given, the table has {has}"):
        BatchSink({"path": path, option: value}, columns, False)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"order_by": "v"}, r"a table without a key has no order_by(?s:.*)key="),
        ({"index": "bucket:2"}, "a table without a key has no index"),
        *in_ci(
            ({"key": "nr"}, "key column 'nr' is not in the schema"),
            ({"key": "id", "hive_style": "perhaps"}, "use true or false"),
            ({"key": "id", "index": "hash"}, "hash"),
            ({"key": "id", "table_version": "7"}, r"table_version is 7; lakelock makes 8 and 9(?s:.*)EMR 7"),
            ({"key": "id", "table_version": "nine"}, "table_version is 'nine', which is no number"),
        ),
    ],
)
def test_a_table_that_cannot_be_made_leaves_no_folder(
    spark: SparkSession, path: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        spark.createDataFrame([(1, "a", 1)], COLUMNS).write.format("lakelock").options(**options).mode("append").save(path)
    assert not Path(path).exists()


def test_hudis_name_for_the_table_version_makes_a_table_of_that_version(spark: SparkSession, path: str) -> None:
    rows = spark.createDataFrame([(1, "a", 1)], COLUMNS)
    given = {"key": "id", "partition_by": "p", "hoodie.write.table.version": "8"}
    rows.write.format("lakelock").options(**given).mode("append").save(path)
    with LakeTable.create(spark, path, schema=rows, key="id", partition_by="p", table_version=8, if_not_exists=True) as table:
        table.upsert(spark.createDataFrame([(1, "a", 2), (2, "b", 3)], COLUMNS))
        assert sorted(tuple(row) for row in table.read().collect()) == [(1, "a", 2), (2, "b", 3)]
        assert table.detail().head()["table_version"] == 8


def test_a_writer_that_is_only_planned_makes_no_table(spark: SparkSession, path: str) -> None:
    BatchSink({"path": path, **DEFINITION}, StructType.fromDDL(COLUMNS), False)
    assert not Path(path).exists()


def test_of_two_first_writers_at_once_the_second_must_fit_the_table_of_the_first(spark: SparkSession, path: str) -> None:
    options = {"path": path, "key": "id"}
    first = BatchSink(options, StructType.fromDDL(COLUMNS), False)
    second = BatchSink(options, StructType.fromDDL(f"{COLUMNS}, w long"), False)
    third = BatchSink({**options, "key": "v"}, StructType.fromDDL(COLUMNS), False)
    first.begin()
    with pytest.raises(SchemaError, match="w: not a column of the table"):
        second.begin()
    with pytest.raises(TableError, match="key: v was given, the table has id"):
        third.begin()
    assert LakeTable.for_path(spark, path).schema == StructType.fromDDL(COLUMNS)


def test_a_first_write_that_fails_leaves_an_empty_table(spark: SparkSession, path: str) -> None:
    rows = spark.createDataFrame([(None, "a", 1)], COLUMNS).coalesce(1)
    with pytest.raises(PySparkException, match="key column id is null"):
        rows.write.format("lakelock").option("key", "id").mode("append").save(path)
    assert LakeTable.for_path(spark, path).read().collect() == []


@pytest.mark.parametrize("mode", ["append", *in_ci("overwrite", "ignore", "errorifexists")])
def test_no_first_write_makes_a_table_among_the_files_of_something_else(spark: SparkSession, path: str, mode: str) -> None:
    patch_writers()
    spark.range(1).write.parquet(path)
    with pytest.raises(PySparkException, match="it has files of something else, such as part-"):
        spark.range(1).write.format("lakelock").option("key", "id").mode(mode).save(path)
    assert not LakeTable.exists(spark, path)
