"""The change feed: what each commit did, and what several did together, as rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelock.errors import InputError, TableError
from lakelock.spark_plugin import LakeTable

COLUMNS = "id int, p string, v int"


def rows(spark: SparkSession, *values: tuple[int, str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")


def told(feed: DataFrame) -> Counter[tuple[str, int, str, int]]:
    return Counter((row["_change_type"], row["id"], row["p"], row["v"]) for row in feed.collect())


def test_each_commit_tells_its_deletes_inserts_and_updates(spark: SparkSession, table: LakeTable) -> None:
    first = table.insert(rows(spark, (1, "a", 1), (2, "a", 1), (3, "b", 1)))
    second = table.upsert(rows(spark, (2, "a", 2), (4, "b", 2)))
    third = table.delete("id = 2")
    table.optimize().execute()
    table.overwrite_partitions(rows(spark, (9, "b", 9)))
    feed = table.changes(first.instant, feed="commits").cache()
    assert feed.columns == ["id", "p", "v", "_change_type", "_commit_version", "_commit_timestamp"]
    assert told(feed) == Counter(
        [
            ("update_preimage", 2, "a", 1), ("update_postimage", 2, "a", 2), ("insert", 4, "b", 2), ("delete", 2, "a", 2),
            ("delete", 3, "b", 1), ("delete", 4, "b", 2), ("insert", 9, "b", 9),
        ]
    )  # fmt: skip
    of_second = feed.where(f"_commit_version = {second.completion}")
    assert of_second.count() == 3
    history = {row["instant"]: row["timestamp"] for row in table.history(full=True).collect()}
    assert {row["_commit_timestamp"] for row in of_second.collect()} == {history[second.instant]}
    upto = table.changes(first.instant, until=third.instant, feed="commits")
    assert told(upto) == told(feed.where(f"_commit_version <= {third.completion}"))
    assert told(table.changes(int(second.completion), until=third.instant, feed="commits")) == {("delete", 2, "a", 2): 1}
    chosen = "p = 'a' and v = 2"
    assert told(table.changes(first.instant, feed="commits", where=chosen)) == told(feed.where(chosen))
    feed.unpersist()


def test_the_net_of_several_commits_has_one_change_for_each_key(spark: SparkSession, table: LakeTable) -> None:
    first = table.insert(rows(spark, (1, "a", 1), (2, "a", 1), (3, "b", 1), (5, "b", 1)))
    before = Counter(tuple(row) for row in table.read().collect())
    table.delete("id = 2")
    table.insert(rows(spark, (2, "a", 7), (8, "a", 1)))
    table.upsert(rows(spark, (8, "a", 2)))
    table.overwrite_partitions(rows(spark, (3, "b", 3), (9, "b", 9)))
    table.delete("id = 9")
    table.optimize().execute()
    feed = table.changes(first.instant, feed="net")
    assert told(feed) == Counter(
        [
            ("update_preimage", 2, "a", 1), ("update_postimage", 2, "a", 7), ("insert", 8, "a", 2),
            ("update_preimage", 3, "b", 1), ("update_postimage", 3, "b", 3), ("delete", 5, "b", 1),
        ]
    )  # fmt: skip
    assert {row["_commit_version"] for row in feed.collect()} == {int(table.history(1, full=True).collect()[0]["completion"])}
    table.restore(first.instant)
    assert told(table.changes(first.instant, feed="net")) == {}
    assert Counter(tuple(row) for row in table.read().collect()) == before


def test_a_file_that_is_cleaned_while_the_feed_is_read_fails_the_job(spark: SparkSession, table: LakeTable) -> None:
    first = table.insert(rows(spark, (1, "a", 1)))
    table.upsert(rows(spark, (1, "a", 2)))
    feed = table.changes(first.instant, feed="commits")
    for file in Path(table.path.removeprefix("file://")).glob(f"p=a/*{first.instant}.parquet"):
        file.unlink()
    with pytest.raises(PySparkException, match="was cleaned while its changes were read"):
        feed.collect()


def test_what_cannot_be_a_feed_is_refused_before_any_work(spark: SparkSession, table: LakeTable, tmp_path: Path) -> None:
    with pytest.raises(InputError, match='feed="commits"'):
        table.changes("2020-01-01", feed="all")  # type: ignore[arg-type]
    other = spark.createDataFrame([(1, "x")], "id int, _change_type string")
    named = LakeTable.create(spark, tmp_path / "named", schema=other, key="id")
    with pytest.raises(TableError, match="_change_type"):
        named.changes("2020-01-01", feed="commits")
