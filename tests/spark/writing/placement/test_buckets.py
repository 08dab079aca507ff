"""Every write of a LakeTable leaves each row in the bucket of its key, and one file group for each bucket."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import BucketIndex
from tests.spark.sparks import register_without_confs, since_spark_4, to_arrow

from lakelock.errors import ConcurrentAppendException, ConflictError, InputError, SchemaError, TableError
from lakelock.spark_plugin import LakeTable, bucketing
from lakelock.table.index import bucket_of
from lakelock.table.key_search import buckets_of_keys

COLUMNS = "id long, day date, p string, v long"


def rows(spark: SparkSession, count: int, v: int, p: str = "a") -> DataFrame:
    made = spark.range(count).withColumns({"day": F.expr("date'2026-11-23'"), "p": F.lit(p), "v": F.lit(v)})
    return made.select("id", "day", "p", F.col("v").cast("long"))


def table_with(spark: SparkSession, path: str, index: str = "bucket:3:id", **more: object) -> LakeTable:
    return LakeTable.create(spark, path, schema=rows(spark, 1, 0), key=["id", "day"], partition_by="p", index=index, **more)  # type: ignore[arg-type]


def content(table: LakeTable) -> Counter[tuple[object, ...]]:
    """How many rows each partition and value has; every row is in the file group of its bucket, and none has two."""
    found = table.read(include_meta=True).collect()
    files = {(row["_hoodie_partition_path"], row["_hoodie_file_name"]) for row in found}
    groups = Counter((partition, bucket_of(name)) for partition, name in files)
    assert max(groups.values(), default=1) == 1
    index = BucketIndex(3, ("id",))
    placed = buckets_of_keys([row["_hoodie_record_key"] for row in found], index)
    assert placed == [bucket_of(row["_hoodie_file_name"]) for row in found]
    return Counter((row["p"], row["v"]) for row in found)


def test_every_write_places_rows_by_their_keys(spark: SparkSession, path: str) -> None:
    table = table_with(spark, path)
    table.insert(rows(spark, 30, 0).union(rows(spark, 10, 0, "b")))
    assert content(table) == {("a", 0): 30, ("b", 0): 10}
    result = table.upsert(rows(spark, 40, 1))
    assert (result.rows_inserted, result.rows_updated, result.files) == (10, 30, 3)
    assert content(table) == {("a", 1): 40, ("b", 0): 10}
    deleted = table.delete(rows(spark, 5, 9).union(rows(spark, 1, 9, "nowhere")))
    assert deleted.rows_deleted == 5
    table.delete("id = 39")
    assert content(table) == {("a", 1): 34, ("b", 0): 10}
    table.insert(rows(spark, 1, 2))
    table.insert(rows(spark, 1, 2))
    assert content(table) == {("a", 1): 34, ("a", 2): 2, ("b", 0): 10}
    table.overwrite(rows(spark, 7, 2), where="v = 2")
    assert content(table) == {("a", 1): 34, ("a", 2): 7, ("b", 0): 10}
    table.overwrite(rows(spark, 10, 3, "b"), where="p = 'b' and v <= 3")
    assert content(table) == {("a", 1): 34, ("a", 2): 7, ("b", 3): 10}
    with pytest.raises(SchemaError, match="does not satisfy"):
        table.overwrite(rows(spark, 7, 3), where="v = 2")
    table.overwrite_partitions(rows(spark, 6, 4, "b"))
    assert content(table) == {("a", 1): 34, ("a", 2): 7, ("b", 4): 6}
    table.upsert(rows(spark, 6, 5, "b"))
    assert content(table) == {("a", 1): 34, ("a", 2): 7, ("b", 5): 6}
    table.overwrite(rows(spark, 2, 6, "c"))
    assert content(table) == {("c", 6): 2}


def test_two_writes_of_a_transaction_may_meet_in_a_bucket(spark: SparkSession, path: str) -> None:
    table = table_with(spark, path)
    with table.transaction() as tx:
        tx.insert(rows(spark, 9, 0))
        tx.upsert(rows(spark, 9, 0, "b"))

    assert content(table) == {("a", 0): 9, ("b", 0): 9}
    with table.transaction() as tx:
        tx.insert(rows(spark, 1, 1))
        tx.insert(rows(spark, 1, 1, "c"))
        tx.insert(rows(spark, 2, 2, "c"))
        tx.upsert(rows(spark, 2, 3, "c"))
    assert content(table) == {("a", 0): 9, ("a", 1): 1, ("b", 0): 9, ("c", 3): 3}


def test_an_upsert_that_makes_the_first_file_of_a_bucket_is_no_blind_append(spark: SparkSession, path: str) -> None:
    table_with(spark, path)
    options = {"concurrency.profile": "delta", "concurrency.isolation": "WriteSerializable"}
    table = LakeTable.for_path(spark, path, options=options)
    with pytest.raises(ConcurrentAppendException), table.transaction() as tx:  # noqa: PT012 - a transaction is a block
        seen = tx.read("v >= 0").count()
        LakeTable.for_path(spark, path, options=options).upsert(rows(spark, 1, 5))
        tx.upsert(rows(spark, 1, seen, "b"))
    assert content(table) == {("a", 5): 1}


@pytest.mark.in_ci
def test_a_stream_places_its_micro_batches(spark: SparkSession, path: str, tmp_path: Path) -> None:
    table = table_with(spark, path)
    for number in range(2):
        rows(spark, 10 + number, number).write.parquet(str(tmp_path / "in" / str(number)))
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in" / "*"))
    query = (
        stream.writeStream.foreachBatch(table.upsert_batch)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert sum(content(table).values()) == 11


def test_an_index_that_cannot_be_is_refused_before_anything_is_made(spark: SparkSession, path: str) -> None:
    for index, said in (("buckets:3", "did you mean"), ("bucket:0", "from 1 to"), ("bucket:3:v", "no key column")):
        with pytest.raises(InputError, match=said):
            table_with(spark, path, index)
    assert not Path(path).exists()
    table_with(spark, path)
    table_with(spark, path, if_not_exists=True)
    with pytest.raises(TableError, match="index: bucket:4:id was given, the table has bucket:3:id"):
        table_with(spark, path, "bucket:4:id", if_not_exists=True)


@pytest.fixture
def source(spark: SparkSession) -> None:
    register_without_confs(spark)


def write(df: DataFrame, path: str, mode: str = "append", **options: str) -> None:
    df.write.format("lakelock").options(**options).mode(mode).save(path)


@pytest.mark.in_ci
@since_spark_4
@pytest.mark.usefixtures("source")
def test_the_data_source_writes_buckets_whose_rows_are_in_one_task(spark: SparkSession, path: str) -> None:
    table = table_with(spark, path)
    write(rows(spark, 30, 0).union(rows(spark, 10, 0, "b")).repartition(2, "p"), path)
    assert content(table) == {("a", 0): 30, ("b", 0): 10}
    write(rows(spark, 5, 1).coalesce(1), path)
    assert content(table) == {("a", 0): 30, ("a", 1): 5, ("b", 0): 10}
    assert spark.read.format("lakelock").load(path).exceptAll(table.read()).count() == 0
    assert spark.read.format("lakelock").option("partition", "p=a").load(path).count() == 35
    write(rows(spark, 6, 2, "b").coalesce(1), path, "overwrite", partitionOverwriteMode="dynamic", partition="p=b")
    assert content(table) == {("a", 0): 30, ("a", 1): 5, ("b", 2): 6}
    assert table.upsert(rows(spark, 6, 3, "b")).rows_updated == 6
    write(rows(spark, 7, 4, "c").coalesce(1), path, "overwrite")
    assert content(table) == {("c", 4): 7}


@pytest.mark.in_ci
@since_spark_4
@pytest.mark.usefixtures("source")
def test_the_data_source_refuses_rows_of_one_bucket_in_two_tasks(spark: SparkSession, path: str) -> None:
    table = table_with(spark, path)
    said = r"(?s)two tasks have rows for bucket \d of the partition p=a.*repartition\('p'\)"
    for number in range(2):  # buckets that are to be made, then those that are there
        with pytest.raises(PySparkException, match=said):
            write(rows(spark, 30, 9).repartition(2), path)
        assert content(table) == ({("a", 0): 30} if number else {})
        if not number:
            table.insert(rows(spark, 30, 0))
    assert len(list(Path(path).glob("p=a/*.parquet"))) == 3
    assert list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


@pytest.mark.in_ci
@since_spark_4
@pytest.mark.usefixtures("source")
def test_the_data_source_streams_into_buckets(spark: SparkSession, path: str, tmp_path: Path) -> None:
    table = table_with(spark, path)
    for number in range(2):
        rows(spark, 10 + number, number).write.parquet(str(tmp_path / "in" / str(number)))
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in" / "*"))
    writer = stream.repartition("p").writeStream.format("lakelock").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(path).awaitTermination(240)
    assert content(table) == {("a", 0): 10, ("a", 1): 11}


def begun(df: DataFrame, path: str) -> tuple[Any, list[object]]:
    """A batch write whose only task has written its rows."""
    from lakelock.spark_plugin.source_sink import BatchSink

    made = BatchSink({"path": path}, df.schema, False)
    made.begin()
    sink = pickle.loads(pickle.dumps(made))
    return sink, [sink.write(iter(to_arrow(df).to_batches(max_chunksize=3)))]


@since_spark_4
def test_of_two_writes_of_the_data_source_to_a_bucket_one_is_refused(spark: SparkSession, path: str) -> None:
    table = table_with(spark, path)
    for expected in ({("a", 1): 30}, {("a", 1): 60}):  # buckets that are to be made, then those that are there
        (first, done), (second, late) = begun(rows(spark, 30, 1), path), begun(rows(spark, 30, 2), path)
        first.commit(done)
        with pytest.raises(ConflictError):
            second.commit(late)
        assert content(table) == expected


@since_spark_4
def test_a_task_of_the_data_source_holds_few_rows_at_once(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucketing, "CHUNK_ROWS", 7)
    table = table_with(spark, path)
    for _ in range(2):
        sink, done = begun(rows(spark, 40, 1).union(rows(spark, 40, 2, "b")), path)
        sink.commit(done)
    assert content(table) == {("a", 1): 80, ("b", 2): 80}
