"""Never executed: what a type checker must make of the Spark side, as users write it."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType
from typing_extensions import assert_type

from lakelock.catalogs import Synced
from lakelock.spark_plugin import LakeTable, RunResult, WriteResult


def open_and_write(spark: SparkSession, df: DataFrame, schema: StructType) -> None:
    table = LakeTable.create(
        spark, "s3://lake/flights", schema=schema, key=["carrier", "flight"], partition_by="month", order_by="updated_at"
    )
    assert_type(table, LakeTable)
    assert_type(LakeTable.for_path(spark, "/lake", config="redis.toml", options={"lock.wait_s": 5}), LakeTable)
    assert_type(table.insert(df), WriteResult)
    assert_type(table.upsert(df, duplicates="any", merge_schema=True), WriteResult)
    assert_type(table.delete("tail_number = 'N14228'"), WriteResult)
    assert_type(table.delete(df), WriteResult)
    assert_type(table.delete(), WriteResult)
    assert_type(LakeTable.exists(spark, "/lake"), bool)
    assert_type(LakeTable.forPath(spark, "/lake"), LakeTable)
    assert_type(LakeTable.for_name(spark, "sales.orders"), LakeTable)
    assert_type(LakeTable.from_parquet(spark, "/lake", folder="/files", key="id"), LakeTable)
    assert_type(LakeTable.for_name(spark, "sales.orders").register(), Synced)
    assert_type(table.alias("t").merge(df.alias("s"), "t.id = s.id").when_matched_delete().execute(), WriteResult)
    assert_type(table.update({"delay": "delay + 1", "checked": True}, "month = 1"), WriteResult)
    merge = table.merge(df, "target.id = source.id", partition="month=1").when_matched_update({"delay": 0}, "source.delay = 0")
    assert_type(merge.when_not_matched_insert_all().execute(), WriteResult)
    assert_type(table.sql("DELETE FROM flights WHERE month = :month", {"month": 1}, partition="month=1"), WriteResult)
    assert_type(table.overwrite_partitions(df), WriteResult)
    assert_type(table.overwrite(df, where="month = 1"), WriteResult)
    assert_type(table.overwrite(df, overwrite_schema=True), WriteResult)
    assert_type(table.columns.add({"note": "string", "place.zip": StringType()}), WriteResult)
    assert_type(table.columns.widen({"delay": "bigint"}), WriteResult)
    assert_type(table.columns.relax(["delay"]), WriteResult)
    assert_type(table.columns.add({"note": "string"}), WriteResult)
    assert_type(table.columns.rename({"note": "remark"}), WriteResult)
    assert_type(table.upkeep.restore("2026-11-20"), WriteResult)
    assert_type(table.locks(partition="month=1"), DataFrame)
    assert_type(table.locks.explain("INSERT"), DataFrame)
    with table.locks.reading(partition="month=1") as locked:
        assert_type(locked, DataFrame)
    assert_type(table.insert(df, partition={"month": 1}), WriteResult)
    assert_type(table.overwrite_partitions(df, partition=["month=1", "month=2"]), WriteResult)
    df.writeStream.foreachBatch(table.upsert_batch)


def read_back(table: LakeTable, result: WriteResult) -> None:
    assert_type(table.read(as_of=result.instant), DataFrame)
    assert_type(table.read(as_of=datetime(2026, 11, 20)), DataFrame)
    assert_type(table.changes(since=result.instant), DataFrame)
    assert_type(table.history(), DataFrame)
    assert_type(table.detail(), DataFrame)
    assert_type(table.to_df(), DataFrame)
    assert_type(table.read("v > 1", partition="month=1", options={"as_of": "2026-11-20"}), DataFrame)
    assert_type(result.rows_updated, int)
    with table.locks.reading(partition="month=1") as df:
        assert_type(df, DataFrame)
    assert_type(table.locks(), DataFrame)
    assert_type(table.locks.explain("DROP PARTITION", partition="month=1"), DataFrame)
    with table.transaction() as tx:
        assert_type(tx.read("month = 1"), DataFrame)
        tx.upsert(tx.read())
        tx.merge(tx.read(), "target.id = source.id").when_matched_delete().execute()
        tx.sql("UPDATE flights SET delay = 0")
    assert_type(table.run(lambda tx: tx.read().count()), RunResult[int])
    assert_type(table.run(lambda tx: tx.read().count(), txn_app_id="job", txn_version=1).value, int | None)
