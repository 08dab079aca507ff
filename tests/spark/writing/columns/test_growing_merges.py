"""Merges and updates change a table's columns as upserts do, if `write.merge_schema` says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakelock.errors import SchemaError
from lakelock.spark_plugin import LakeTable

OLD = "id int, value struct<a:int>"
ON = "target.id = source.id"


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=OLD, key="id")
    made.insert(spark.createDataFrame([(1, (1,)), (3, (3,))], OLD).coalesce(1))
    return made


@pytest.fixture
def growing(spark: SparkSession, table: LakeTable) -> LakeTable:
    return LakeTable.for_path(spark, table.path, options={"write.merge_schema": "true"})


@pytest.fixture
def source(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, (11, 12), 5), (2, (21, 22), 6)], "id int, value struct<a:int,b:int>, extra int").coalesce(
        1
    )


def rows(table: LakeTable) -> list[tuple[object, ...]]:
    found = table.read().selectExpr("id", "value.*", "extra").collect()
    return sorted((tuple(row) for row in found), key=str)


def test_a_merge_adds_the_columns_and_fields_that_its_clauses_write(table: LakeTable, source: DataFrame) -> None:
    merge = table.merge(source, ON).when_matched_update_all().when_not_matched_insert_all()
    with pytest.raises(SchemaError, match="write.merge_schema=true"):
        merge.execute()
    merge.withSchemaEvolution().execute()
    assert rows(table) == [(1, 11, 12, 5), (2, 21, 22, 6), (3, 3, None, None)]


def test_clauses_that_name_columns_add_those_of_the_source(growing: LakeTable, source: DataFrame) -> None:
    with pytest.raises(SchemaError, match="no column 'extar'"):
        growing.merge(source, ON).when_matched_update({"extar": "source.extra"}).execute()
    merge = growing.merge(source, ON).when_matched_update({"extra": "source.extra"})
    merge.when_not_matched_insert({"id": "source.id", "extra": "source.extra + 1"}).execute()
    found = sorted(tuple(row) for row in growing.read().select("id", "extra").collect())
    assert found[:2] == [(1, 5), (2, 7)]
    assert "b" not in growing.schema["value"].dataType.names


def test_an_update_adds_the_fields_of_its_values(table: LakeTable, growing: LakeTable) -> None:
    wider = {"value": "named_struct('a', value.a, 'b', 2)"}
    with pytest.raises(SchemaError, match="write.merge_schema=true"):
        table.update(wider, "id = 1")
    growing.update(wider, "id = 1")
    assert sorted(tuple(row) for row in growing.read().select("id", "value.*").collect()) == [(1, 1, 2), (3, 3, None)]


def test_running_upserts_go_on_when_another_adds_a_column(spark: SparkSession, table: LakeTable) -> None:
    batch = spark.createDataFrame([(1, (7,)), (2, (2,))], OLD).coalesce(1)
    owner = LakeTable.for_path(spark, table.path)
    owner.columns.add({"extra": "int"})
    owner.update({"extra": "9"}, "id = 1")
    table.upsert(batch)
    table.upsert(batch)
    assert rows(table) == [(1, 7, 9), (2, 2, None), (3, 3, None)]
    with pytest.raises(SchemaError, match="lack a column of the table: extra"):
        owner.upsert(batch)


def test_running_merges_go_on_when_another_adds_a_column(spark: SparkSession, table: LakeTable) -> None:
    batch = spark.createDataFrame([(1, (7,)), (2, (2,))], OLD).coalesce(1)
    owner = LakeTable.for_path(spark, table.path)
    owner.columns.add({"extra": "int"})
    owner.update({"extra": "9"}, "id = 1")
    table.merge(batch, "id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert rows(table) == [(1, 7, 9), (2, 2, None), (3, 3, None)]
    with pytest.raises(SchemaError, match="the source has no column 'extra'"):
        owner.merge(batch, "id").when_matched_update_all().execute()


@pytest.mark.in_ci
def test_a_stream_of_upserts_goes_on_when_another_adds_a_column(spark: SparkSession, table: LakeTable, tmp_path: Path) -> None:
    for number in (1, 2):
        spark.createDataFrame([(number, (number * 10,))], OLD).coalesce(1).write.mode("append").parquet(
            str(tmp_path / "source")
        )
    owner, batches = LakeTable.for_path(spark, table.path), []

    def upsert(batch: DataFrame, number: int) -> None:
        if number == 1:
            owner.columns.add({"extra": "int"})
            owner.update({"extra": "9"}, "true")
        batches.append(table.upsert_batch(batch, number))

    stream = spark.readStream.schema(OLD).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "source")).writeStream
    query = stream.foreachBatch(upsert).trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
    started = query.start()
    assert started.awaitTermination(120) and started.exception() is None and len(batches) == 2
    assert {row["id"]: row["value"]["a"] for row in table.read().collect()} == {1: 10, 2: 20, 3: 3}
    assert table.read("extra = 9 and id in (1, 3)").count() == 2
