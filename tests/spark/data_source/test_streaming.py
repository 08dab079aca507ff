"""Structured Streaming: each micro-batch is in the table exactly once, however often Spark replays it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelock.spark_plugin import LakeTable, unregister

COLUMNS = "id long, p string, v long"


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return LakeTable.create(spark, path, schema=spark.createDataFrame([], COLUMNS), key="id", partition_by="p")


class Source:
    """A folder of files that a query streams from, and the query's checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.files, self.checkpoint = spark, folder / "source", folder / "checkpoint"

    def add(self, first: int, last: int, v: int = 0) -> None:
        frame = self.spark.range(first, last).select(
            "id", F.concat(F.lit("p"), F.col("id") % 2).alias("p"), F.lit(v).alias("v")
        )
        frame.select("id", "p", F.col("v").cast("long")).coalesce(1).write.mode("append").parquet(str(self.files))

    def forget_last_commit(self) -> None:
        """As if the query had died after the sink committed and before Spark noted it."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()

    def run(self, start: Callable[[object], object]) -> None:
        stream = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(self.files))
        writer = stream.writeStream.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = start(writer)
        query.awaitTermination(120)  # type: ignore[attr-defined]
        assert query.exception() is None  # type: ignore[attr-defined]


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


def test_a_replayed_batch_of_upserts_changes_nothing(spark: SparkSession, table: LakeTable, source: Source) -> None:
    def start(writer: object) -> object:
        return writer.foreachBatch(table.upsert_batch).start()  # type: ignore[attr-defined]

    source.add(0, 10)
    source.add(5, 15, v=1)
    source.run(start)
    assert table.read().count() == 15
    table.upsert(spark.createDataFrame([(0, "p0", 77)], COLUMNS))
    source.forget_last_commit()
    source.add(20, 22)
    source.run(start)
    found = {row["id"]: row["v"] for row in table.read().collect()}
    assert len(found) == 17 and found[0] == 77
    versions = [json.loads(row["application"])["version"] for row in table.history(full=True).collect() if row["application"]]
    assert versions == [2, 1, 0]


def test_a_replayed_batch_of_inserts_is_there_once(spark: SparkSession, table: LakeTable, source: Source) -> None:
    source.add(0, 10)
    for _ in range(2):
        source.run(lambda writer: writer.foreachBatch(table.insert_batch).start())  # type: ignore[attr-defined]
        source.forget_last_commit()
    assert table.read().count() == 10


def test_a_batch_that_failed_between_data_and_commit_is_written_once(
    spark: SparkSession, table: LakeTable, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.add(0, 10)
    left = [1]

    def once(df: DataFrame, batch: int) -> None:
        table.insert_batch(df, batch)
        if left:
            left.pop()
            raise RuntimeError("died after the commit")

    with pytest.raises(Exception, match="died after the commit"):
        source.run(lambda writer: writer.foreachBatch(once).start())  # type: ignore[attr-defined]
    source.run(lambda writer: writer.foreachBatch(once).start())  # type: ignore[attr-defined]
    assert table.read().count() == 10
    assert table.history().count() == 1


def test_the_sink_appends_each_batch_once_beside_other_writers(
    spark: SparkSession, table: LakeTable, source: Source, path: str
) -> None:
    unregister(spark)

    def start(writer: object) -> object:
        return writer.format("lakelock").start(path)  # type: ignore[attr-defined]

    source.add(0, 10)
    source.run(start)
    table.delete("id = 3")
    source.forget_last_commit()
    source.add(10, 20)
    source.run(start)
    assert sorted(row["id"] for row in table.read().collect()) == [n for n in range(20) if n != 3]
    folder = Path(path)
    assert len(list(folder.glob("p=*/*.parquet"))) == 5
    assert list(folder.glob(".hoodie/.heartbeat/[!.]*")) == []


def test_a_new_query_with_a_new_checkpoint_is_another_application(
    spark: SparkSession, table: LakeTable, source: Source
) -> None:
    source.add(0, 3)
    source.run(lambda writer: writer.foreachBatch(table.insert_batch).start())  # type: ignore[attr-defined]
    shutil.rmtree(source.checkpoint)
    source.run(lambda writer: writer.foreachBatch(table.insert_batch).start())  # type: ignore[attr-defined]
    assert table.read().count() == 6


def test_a_new_checkpoint_goes_on_where_the_application_has_a_name_and_says_that_it_replays(
    spark: SparkSession, table: LakeTable, source: Source, path: str
) -> None:
    unregister(spark)

    def start(writer: object) -> object:
        return writer.format("lakelock").options(txnAppId="orders", txn_replay="true").start(path)  # type: ignore[attr-defined]

    source.add(0, 3)
    source.run(start)
    shutil.rmtree(source.checkpoint)
    source.run(start)
    assert table.read().count() == 3
    source.add(3, 5)
    source.run(start)
    assert table.read().count() == 5


def test_a_stream_does_not_pass_over_a_batch_that_another_query_of_its_name_has_applied(
    spark: SparkSession, table: LakeTable, source: Source, path: str
) -> None:
    """Its rows were dropped without a word: batches are counted from 0 again with a new checkpoint."""
    unregister(spark)

    def start(writer: object) -> object:
        return writer.format("lakelock").option("txnAppId", "orders").start(path)  # type: ignore[attr-defined]

    source.add(0, 3)
    source.run(start)
    first = json.loads((source.checkpoint / "metadata").read_text())["id"]
    source.forget_last_commit()
    source.run(start)
    assert table.read().count() == 3, "a batch that comes again from its own checkpoint is passed over"
    shutil.rmtree(source.checkpoint)
    with pytest.raises(Exception, match=f"has applied it for the query {first}, and this is the query") as told:
        source.run(start)
    assert "txn_replay" in str(told.value)
    assert [row["rows_inserted"] for row in table.history(full=True).collect()] == [3]
    assert list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


def test_a_stream_takes_no_version(spark: SparkSession, table: LakeTable, source: Source, path: str) -> None:
    unregister(spark)
    source.add(0, 3)
    with pytest.raises(Exception, match="a stream has no txn_version"):
        source.run(
            lambda writer: writer.format("lakelock").option("txn_app_id", "a").option("txn_version", "1").start(path)  # type: ignore[attr-defined]
        )


def test_a_batch_in_foreach_batch_is_numbered_by_the_query_itself(
    spark: SparkSession, table: LakeTable, source: Source, path: str
) -> None:
    unregister(spark)

    def write(df: DataFrame, batch: int) -> None:
        numbered = {"txnAppId": "orders", "txnVersion": str(batch)}
        df.write.format("lakelock").options(**numbered).mode("append").save(path)

    source.add(0, 3)
    for _ in range(2):
        source.run(lambda writer: writer.foreachBatch(write).start())  # type: ignore[attr-defined]
        source.forget_last_commit()
    assert table.read().count() == 3
