"""Data locks as a PySpark user meets them: named partitions, reads that hold their locks, and the locks as data frames."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import Event
from tests.spark.sparks import register_without_confs, since_spark_4
from tests.waiting import eventually

from lakelock.errors import InputError, LockTimeout, SettingsError
from lakelock.spark_plugin import LakeTable, locked_together

PESSIMISTIC = {"concurrency.mode": "PESSIMISTIC", "data_locks.sleep_s": 0.05}
AT_ONCE = {"concurrency.mode": "PESSIMISTIC", "data_locks.attempts": 1}


def rows(spark: SparkSession, *values: tuple[int, str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "id int, month string, v int")


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    schema = rows(spark, (1, "1", 1)).schema
    made = LakeTable.create(spark, path, schema=schema, key="id", partition_by="month", options=PESSIMISTIC)
    made.insert(rows(spark, (1, "1", 10), (2, "2", 20)))
    return made


def taken(spark: SparkSession, table: LakeTable, write: Any) -> str:
    """The locks that a write takes, as its event tells."""
    events: list[Event] = []
    with LakeTable.for_path(spark, table.path, options=PESSIMISTIC, listeners=[events.append]) as mine:
        write(mine)
    (locked,) = [event.facts["locks"] for event in events if event.kind.value == "data-locked"]
    return str(locked)


def test_each_write_takes_its_locks_and_what_names_a_partition_takes_only_that(spark: SparkSession, table: LakeTable) -> None:
    one = rows(spark, (3, "1", 30))
    month = "S on the table, X on month=1"
    assert taken(spark, table, lambda t: t.insert(one)) == "X on the table"
    assert taken(spark, table, lambda t: t.insert(one, partition="month=1")) == month
    assert taken(spark, table, lambda t: t.upsert(one, partition={"month": "1"})) == month
    assert taken(spark, table, lambda t: t.delete("month = '1' AND v = 30")) == month
    assert taken(spark, table, lambda t: t.delete(F.col("month") == "1")) == "X on the table"
    assert taken(spark, table, lambda t: t.overwrite(one, "month = '1'")) == month
    assert taken(spark, table, lambda t: t.overwrite_partitions(one, partition="month=1")) == month

    def together(t: LakeTable) -> None:
        with t.transaction(partition="month=1") as tx:
            tx.upsert(tx.read("month = '1'").withColumn("v", F.col("v") + 1))

    assert taken(spark, table, together) == month
    assert sorted(tuple(row) for row in table.read().collect()) == [(2, "2", 20), (3, "1", 31)]
    assert table.locks().count() == 0


def test_rows_for_another_partition_than_the_named_one_are_refused(spark: SparkSession, table: LakeTable) -> None:
    both = rows(spark, (5, "1", 1), (6, "2", 1))
    with pytest.raises(InputError, match="is for month=1, but has rows for month=2"):
        table.insert(both, partition="month=1")
    with pytest.raises(InputError, match="is for month=1"), table.transaction(partition="month=1") as tx:
        tx.upsert(both)
    assert table.read().count() == 2 and table.locks().count() == 0


def test_a_read_with_locks_keeps_writers_of_its_partitions_waiting_and_shows_who_blocks_whom(
    spark: SparkSession, table: LakeTable
) -> None:
    other = LakeTable.for_path(spark, table.path, options=PESSIMISTIC, application="writer")
    hasty = LakeTable.for_path(spark, table.path, options=AT_ONCE)
    with ThreadPoolExecutor(1) as pool:
        with table.locks.reading(partition="month=1") as found:
            hasty.insert(rows(spark, (7, "2", 1)), partition="month=2")
            with pytest.raises(LockTimeout):
                hasty.insert(rows(spark, (8, "1", 1)), partition="month=1")
            waiting = pool.submit(other.insert, rows(spark, (9, "1", 1)), partition="month=1")
            eventually(lambda: table.locks().count() == 2, 60)
            first, second = table.locks().collect()
            assert (first.state, first.type, first.partition) == ("ACQUIRED", "SHARED", "month=1")
            assert (second.state, second.type, second.blocked_by) == ("WAITING", "EXCLUSIVE", str(first.token))
            assert second.agent_info == "writer: INSERT" and first.acquired_at is not None
            assert table.locks(partition="month=2").count() == 0
            assert table.locks(extended=True).where("partition = ''").count() == 2
            assert [row.id for row in found.collect()] == [1]
        waiting.result(timeout=120)
    with table.locks.reading() as everything:
        assert everything.count() == 4


def test_h4_an_insert_from_another_table_takes_the_locks_of_both_tables_at_once(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    path, one = str(tmp_path / "target"), rows(spark, (1, "1", 1))
    target = LakeTable.create(spark, path, schema=one.schema, key="id", partition_by="month", options=PESSIMISTIC)
    hasty = LakeTable.for_path(spark, table.path, options=AT_ONCE)
    with locked_together((target, "INSERT", "month=2"), (table, "SELECT", "month=1")), ThreadPoolExecutor(1) as pool:
        shown = [(row.partition, row.type) for each in (table, target) for row in each.locks(extended=True).collect()]
        assert shown == [("", "SHARED"), ("month=1", "SHARED"), ("", "SHARED"), ("month=2", "EXCLUSIVE")]
        with pytest.raises(LockTimeout, match="lakelock-tests"):
            pool.submit(hasty.upsert, one, partition="month=1").result(timeout=120)
        with table.locks.reading(partition="month=1") as found:
            target.insert(found.withColumn("month", F.lit("2")), partition="month=2")
    assert [tuple(row) for row in target.read().collect()] == [(1, "2", 10)]
    assert table.locks().count() == target.locks().count() == 0


def test_the_locks_of_an_operation_are_explained_without_taking_them(table: LakeTable) -> None:
    explained = table.locks.explain("INSERT OVERWRITE PARTITION (month=7)").collect()
    assert [(row.partition, row.type) for row in explained] == [("", "SHARED"), ("month=7", "EXCLUSIVE")]
    assert [row.partition for row in table.locks.explain("read").collect()] == ["", "month=1", "month=2"]
    with pytest.raises(InputError, match="did you mean"):
        table.locks.explain("inert")
    assert table.locks().count() == 0


@since_spark_4
def test_a_data_source_write_keeps_to_its_partition_and_takes_part_in_a_block_that_holds_the_locks(
    spark: SparkSession, table: LakeTable
) -> None:
    register_without_confs(spark)
    write = rows(spark, (5, "1", 1)).write.format("lakelock").mode("append")
    with table.locks.locked("INSERT", partition="month=1"):
        assert table.locks().count() == 1
        write.option("concurrency.mode", "OPTIMISTIC").option("partition", "month=1").save(table.path)
    with pytest.raises(Exception, match="is for month=2, but has rows for month=1"):
        write.option("concurrency.mode", "OPTIMISTIC").option("partition", "month=2").save(table.path)
    assert table.read().count() == 3


def test_a_micro_batch_holds_the_locks_of_its_write(spark: SparkSession, table: LakeTable, tmp_path: Path) -> None:
    rows(spark, (5, "1", 1), (6, "2", 1)).write.parquet(str(tmp_path / "source"))
    events: list[Event] = []
    with LakeTable.for_path(spark, table.path, options=PESSIMISTIC, listeners=[events.append]) as mine:
        stream = spark.readStream.schema(mine.schema).parquet(str(tmp_path / "source")).writeStream
        query = stream.foreachBatch(mine.insert_batch).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)
    assert [event.facts["locks"] for event in events if event.kind.value == "data-locked"] == ["X on the table"]
    assert table.read().count() == 4 and table.locks().count() == 0


def test_hives_switch_turns_data_locks_off(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(SettingsError, match="twice"):
        LakeTable.for_path(spark, table.path, options={**PESSIMISTIC, "hive.support.concurrency": "false"})
    with LakeTable.for_path(spark, table.path, options={"hive.support.concurrency": "false"}) as off:
        with off.locks.reading() as found:
            assert found.count() == 2 and off.locks().count() == 0
        off.insert(rows(spark, (3, "3", 1)))
