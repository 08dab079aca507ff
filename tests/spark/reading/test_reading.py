"""Reads show one committed state: now, as it was, or what has changed since."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.api import DataFile, parse_instant
from tests.sizes import but_in_ci

from lakelock.errors import InputError, StorageError
from lakelock.spark_plugin import LakeTable, reading
from lakelock.spark_plugin.reading import FILE_GONE


def rows(spark: SparkSession, *values: tuple[int, str, int]) -> DataFrame:
    return spark.createDataFrame(list(values), "id int, p string, v int")


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p", application="tests")


def ids(frame: DataFrame) -> list[int]:
    return sorted(row["id"] for row in frame.collect())


def test_a_table_without_commits_is_an_empty_frame_with_its_columns(spark: SparkSession, table: LakeTable) -> None:
    assert table.read().columns == ["id", "p", "v"]
    assert table.read().collect() == []
    assert table.read(include_meta=True).columns[:2] == ["_hoodie_commit_time", "_hoodie_commit_seqno"]
    assert table.history().collect() == []


def test_a_frame_keeps_to_the_state_it_was_made_from(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (1, "a", 1)))
    before = table.read()
    table.upsert(rows(spark, (1, "a", 2), (2, "b", 1)))
    assert [tuple(row) for row in before.collect()] == [(1, "a", 1)]


def test_as_of_takes_instants_times_and_texts(spark: SparkSession, table: LakeTable) -> None:
    first = table.insert(rows(spark, (1, "a", 1)))
    second = table.upsert(rows(spark, (1, "a", 2), (2, "b", 1)))
    table.overwrite_partitions(rows(spark, (3, "a", 3)))
    table.delete("id = 2")
    assert ids(table.read()) == [3]
    assert ids(table.read(as_of=first.instant)) == [1]
    assert ids(table.read(as_of=second.instant)) == [1, 2]
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=parse_instant(second.instant))
    assert ids(table.read(as_of=moment)) == [1, 2]
    assert ids(table.read(as_of=moment.astimezone(timezone(timedelta(hours=5))))) == [1, 2]
    assert ids(table.read(as_of=moment.strftime("%Y-%m-%d %H:%M:%S.%f"))) == [1, 2]
    assert ids(table.read(as_of="2020-01-01")) == []
    with pytest.raises(InputError, match="neither an instant time nor"):
        table.read(as_of="yesterday")


def test_changes_are_the_rows_that_later_commits_touched_in_their_newest_version(spark: SparkSession, table: LakeTable) -> None:
    first = table.insert(rows(spark, (1, "a", 1), (2, "a", 1), (3, "b", 1)))
    second = table.upsert(rows(spark, (2, "a", 2), (4, "b", 2)))
    third = table.upsert(rows(spark, (4, "b", 3)))

    def changed(**bounds: str) -> set[tuple[int, int]]:
        return {(row["id"], row["v"]) for row in table.changes(**bounds).collect()}

    assert changed(since=first.instant) == {(2, 2), (4, 3)}
    assert changed(since=second.completion) == {(4, 3)}
    assert changed(since=third.instant) == set()
    assert changed(since="2020-01-01") == {(1, 1), (2, 2), (3, 1), (4, 3)}
    assert changed(since="2020-01-01", until=second.completion) == {(1, 1), (2, 2), (3, 1), (4, 2)}


def test_history_tells_who_did_what(spark: SparkSession, table: LakeTable) -> None:
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)), tag="nightly load")
    LakeTable.for_path(spark, table.path).delete("id = 1")
    newest, oldest = table.history(full=True).collect()
    assert (newest["operation"], newest["rows_deleted"], newest["decision"]) == ("DELETE", 1, 2)
    assert (oldest["operation"], oldest["rows_inserted"], oldest["partitions"], oldest["tag"]) == (
        "INSERT",
        2,
        2,
        "nightly load",
    )
    assert oldest["writer"].startswith("tests (") and oldest["completion"] > oldest["instant"]
    assert newest["writer"].startswith("lakelock-tests (")
    assert table.history(limit=1).count() == 1


def files_of(table: LakeTable) -> tuple[str, list[DataFile]]:
    root = table.path.removeprefix("file://")
    found = [DataFile.parse(str(file.relative_to(root)), file.stat().st_size) for file in Path(root).glob("p=*/*.parquet")]
    return f"file:{root}", [file for file in found if file]


@pytest.mark.parametrize("ignoring", ["false", "true"])
def test_a_file_that_is_gone_is_an_error_and_never_fewer_rows(spark: SparkSession, table: LakeTable, ignoring: str) -> None:
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    frame = table.read()
    assert ids(frame) == [1, 2]
    next(Path(table.path.removeprefix("file://")).glob("p=a/*.parquet")).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", ignoring)
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=FILE_GONE):
            frame.collect()
        assert ids(frame.where("p = 'b'")) == [2]
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@pytest.mark.parametrize("few", [0, 32])
def test_a_file_that_is_gone_is_an_error_also_where_spark_lists_once_more(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(reading, "FEW_FILES", few)
    table.insert(rows(spark, (1, "a", 1), (2, "b", 1)))
    root, files = files_of(table)
    assert ids(reading.read_files_by_name(spark, root, files, table.schema)) == [1, 2]
    next(Path(root.removeprefix("file:")).glob("p=a/*.parquet")).unlink()
    with pytest.raises(StorageError, match="of this snapshot (is|are) gone"):
        reading.read_files_by_name(spark, root, files, table.schema)


EXPECTED = {
    "java12_ops": [("k1", 12, "eu"), ("k5", 5, "eu"), ("k8", 8, "ap"), ("k9", 9, "us")],
    "java12_services": [("k1", 4, "eu"), ("k2", 2, "eu")],
    "mixed_java_then_python": [("k1", 1000, "eu"), ("k5", 5, "eu"), ("k9", 9, "us"), ("ow", 7, "ap"), ("p1", 1001, "eu")],
}


@pytest.mark.parametrize("name", but_in_ci(EXPECTED, {"mixed_java_then_python"}))
def test_tables_of_java_hudi_are_read_and_written_on(spark: SparkSession, golden: Callable[[str], str], name: str) -> None:
    table = LakeTable.for_path(spark, golden(name))
    before = sorted(tuple(row) for row in table.read().select("id", "v", "region").collect())
    assert before == EXPECTED[name]
    assert table.read().count() == table.read(as_of=datetime.now(timezone.utc)).count()
    change = spark.createDataFrame(
        [("k1", 77, 2**40, "eu"), ("new", 1, 1, "eu")], "id string, v bigint, ts bigint, region string"
    )
    result = table.upsert(change)
    assert (result.rows_inserted, result.rows_updated) == (1, 1)
    after = {row["id"]: row["v"] for row in table.read().collect()}
    assert after == {**{key: v for key, v, _ in before}, "k1": 77, "new": 1}
    assert ids_of(table.changes(since=table.history(full=True).collect()[1]["completion"])) == {"k1", "new"}
    table.delete("region = 'eu'")
    assert {row["region"] for row in table.read().collect()} == {region for _, _, region in before if region != "eu"}


def ids_of(frame: DataFrame) -> set[str]:
    return {row["id"] for row in frame.collect()}


def test_rows_with_nan_are_greater_than_any_number_to_reads_updates_and_deletes(spark: SparkSession, path: str) -> None:
    """As in Spark. Its Parquet reader passes over row groups whose bounds rule a condition out, whoever reads the files."""
    table = LakeTable.create(spark, path, schema="id int, x double, y float", key="id")
    nan = float("nan")
    table.insert(spark.createDataFrame([(1, 1.0, 1.0), (2, nan, nan), (3, 2.0, None)], "id int, x double, y float").coalesce(1))

    for condition in ("x > 5", "y > 5", "x >= double('NaN')", "not x <= 5", "x = double('NaN')"):
        assert ids(table.read().where(condition)) == ids(table.read(condition)) == [2]
    assert ids(spark.read.parquet(*table.read().inputFiles()).where("x > 5")) == [2]
    assert table.update({"y": "cast(7 as float)"}, where="x > 5").rows_updated == 1
    assert ids(table.read("y = 7")) == ids(table.read("x > 5")) == [2]
    assert table.delete("x > 5").rows_deleted == 1
    assert ids(table.read()) == [1, 3]
