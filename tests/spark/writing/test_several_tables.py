"""One transaction over several tables, one moment to read them at, and micro-batches for all of them."""

# ruff: noqa: PT012 - a transaction is a block

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.errors import ConflictError, InputError, TransactionStateError
from lakelock.spark_plugin import LakeTable, snapshot, tables_batch, transaction

COLUMNS = "id long, p string, v long"


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def content(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> tuple[LakeTable, LakeTable]:
    tables = tuple(
        LakeTable.create(
            spark, str(tmp_path / name), schema=rows(spark), key="id", partition_by="p", options={"retry.attempts": 3}
        )
        for name in ("orders", "stock")
    )
    tables[1].insert(rows(spark, (1, "a", 10), (2, "a", 20)))
    return tables[0], tables[1]


def test_a_transaction_over_two_tables_is_committed_in_both_and_seen_in_both(
    spark: SparkSession, shop: tuple[LakeTable, LakeTable]
) -> None:
    orders, stock = shop
    before = snapshot(orders, stock)
    with transaction(orders, stock) as tx:
        left = tx[stock].read("id = 1")
        tx[orders].insert(rows(spark, (100, "x", 3)))
        tx[stock].upsert(left.withColumn("v", F.col("v") - 3))
        assert orders.read().count() == 0
    assert [result.operation for result in tx.results] == ["UPSERT", "UPSERT"]
    assert content(orders.read()) == [(100, "x", 3)]
    assert content(stock.read()) == [(1, "a", 7), (2, "a", 20)]
    after = snapshot(orders, stock)
    assert (content(before[orders].read()), content(before[stock].read("id = 1"))) == ([], [(1, "a", 10)])
    assert (content(after[orders].read()), content(after[stock].read("id = 1"))) == ([(100, "x", 3)], [(1, "a", 7)])


def test_several_writes_to_one_of_the_tables_are_applied_in_turn(
    spark: SparkSession, shop: tuple[LakeTable, LakeTable]
) -> None:
    orders, stock = shop
    with transaction(orders, stock) as tx:
        tx[stock].upsert(rows(spark, (1, "a", 7), (3, "a", 30)))
        tx[orders].insert(rows(spark, (100, "x", 3), (101, "x", 1)))
        tx[stock].delete(rows(spark, (2, "a", 0), (3, "a", 0)).select("id", "p"))
        tx[orders].delete("v = 1")
    assert (content(orders.read()), content(stock.read())) == ([(100, "x", 3)], [(1, "a", 7)])
    assert [(result.rows_inserted, result.rows_deleted) for result in tx.results] == [(2, 1), (1, 2)]


def test_a_conflict_in_one_table_rolls_back_both_and_names_it(spark: SparkSession, shop: tuple[LakeTable, LakeTable]) -> None:
    orders, stock = shop
    with pytest.raises(ConflictError, match="in file://.*stock: "), transaction(orders, stock) as tx:
        tx[orders].insert(rows(spark, (100, "x", tx[stock].read("id = 1").count())))
        stock.upsert(rows(spark, (1, "a", 99)))
    assert orders.read().count() == 0
    assert content(stock.read()) == [(1, "a", 99), (2, "a", 20)]


def test_an_error_in_the_block_rolls_back_both(spark: SparkSession, shop: tuple[LakeTable, LakeTable]) -> None:
    orders, stock = shop
    with pytest.raises(ZeroDivisionError), transaction(orders, stock) as tx:
        tx[orders].insert(rows(spark, (100, "x", 3)))
        tx[stock].delete("id = 1")
        raise ZeroDivisionError
    assert (orders.read().count(), stock.read().count()) == (0, 2)


def test_a_write_that_failed_ends_the_whole_even_if_the_block_goes_on(
    spark: SparkSession, shop: tuple[LakeTable, LakeTable]
) -> None:
    orders, stock = shop
    with pytest.raises(TransactionStateError, match="has ended in file://.*stock"), transaction(orders, stock) as tx:
        tx[orders].insert(rows(spark, (100, "x", 3)))
        with pytest.raises(InputError):
            tx[stock].upsert(spark.createDataFrame([(1,)], "other long"))
    assert (orders.read().count(), stock.read().count()) == (0, 2)


def test_a_table_that_is_not_named_is_not_part_of_it(shop: tuple[LakeTable, LakeTable]) -> None:
    orders, stock = shop
    with pytest.raises(InputError, match="not part of the transaction"), transaction(orders) as tx:
        tx[stock].read()
    with pytest.raises(InputError, match="not part of the snapshot"):
        snapshot(orders)[stock]


def test_a_micro_batch_is_written_to_several_tables_exactly_once(
    spark: SparkSession, shop: tuple[LakeTable, LakeTable], tmp_path: Path
) -> None:
    orders, stock = shop
    calls: list[int] = []

    @tables_batch(orders, stock)
    def write(tx, df):  # type: ignore[no-untyped-def]
        calls.append(df.count())
        tx[orders].insert(df)
        tx[stock].upsert(tx[stock].read("id = 1").withColumn("v", F.col("v") - 1))

    def twice(df: DataFrame, batch_id: int) -> None:
        write(df, batch_id)
        write(df, batch_id)

    rows(spark, (100, "x", 3), (101, "x", 4)).coalesce(1).write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "source"))
    query = stream.writeStream.foreachBatch(twice).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    assert calls == [2]
    assert content(orders.read()) == [(100, "x", 3), (101, "x", 4)]
    assert content(stock.read()) == [(1, "a", 9), (2, "a", 20)]
