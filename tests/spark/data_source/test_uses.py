"""Options of `format("lakelock")` where they do nothing: told before any work, with where they belong."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakelock.errors import SettingsError
from lakelock.spark_plugin import LakeTable, unregister
from lakelock.spark_plugin.source_reader import LakelockReader, LakelockStreamReader, schema_of
from lakelock.spark_plugin.source_sink import BatchSink, StreamSink

COLUMNS = StructType().add("id", "long").add("p", "string").add("v", "long")
WRITES = {
    "a write of a batch": lambda options: BatchSink(options, COLUMNS, False),
    "a stream into a table": lambda options: StreamSink(options, COLUMNS, False),
}
READS = {
    "a read in a batch": lambda options: LakelockReader(options, COLUMNS, {}),
    "a stream from a table": lambda options: LakelockStreamReader(options, COLUMNS, {}),
}
DAY = "2026-01-01"
OF_READS = {"as_of": DAY, "include_meta": "true", "readChangeFeed": "true", "since": DAY, "until": DAY}
OF_WRITES = {
    "overwrite": "partitions", "partitionOverwriteMode": "dynamic", "overwriteSchema": "true",
    "txn_app_id": "a", "txn_version": "1", "tag": "t",
}  # fmt: skip


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    unregister(spark)
    return LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p")


@pytest.mark.parametrize("use", [*WRITES, "a stream from a table"])
def test_an_option_of_the_other_direction_is_told_where_it_belongs(table: LakeTable, use: str) -> None:
    wrong = {**OF_READS, "maxFilesPerTrigger": "1", "skipChangeCommits": "true"} if use in WRITES else OF_WRITES
    for name, value in wrong.items():
        with pytest.raises(SettingsError, match=f"does nothing in {use}") as told:
            {**WRITES, **READS}[use]({"path": table.path, name: value})
        assert "leave it out here: it is an option of a " in told.value.hint


def test_a_value_that_asks_for_nothing_is_taken_everywhere(table: LakeTable) -> None:
    nothing = {
        "tag": "", "include_meta": "false", "change_feed": "false", "overwrite": "table",
        "partitionOverwriteMode": "static",
    }  # fmt: skip
    for make in (*WRITES.values(), *READS.values(), partial(schema_of, conf={})):
        make({"path": table.path, **nothing})


@pytest.mark.parametrize(
    ("use", "name"), [("a read in a batch", "max_files_per_trigger"), ("a stream from a table", "query_type")]
)
def test_options_of_batches_and_of_streams_are_told_apart(table: LakeTable, use: str, name: str) -> None:
    value = {"max_files_per_trigger": "1", "query_type": "read_optimized"}[name]
    with pytest.raises(SettingsError, match=f"the option {name} does nothing in {use}"):
        READS[use]({"path": table.path, name: value})


def test_an_append_does_not_take_what_to_overwrite(spark: SparkSession, table: LakeTable) -> None:
    for options in ({"overwrite": "partitions"}, {"partitionOverwriteMode": "dynamic"}):
        for write in WRITES.values():
            with pytest.raises(SettingsError, match="overwrite=partitions replaces partitions, and the mode is append"):
                write({"path": table.path, **options})
    assert not list(Path(table.path.removeprefix("file://")).glob(".hoodie/timeline/*"))


def test_an_overwrite_of_the_whole_table_does_not_take_a_partition(table: LakeTable) -> None:
    for sink in (BatchSink, StreamSink):
        with pytest.raises(SettingsError, match="whole table goes beyond partition=p=b") as told:
            sink({"path": table.path, "partition": "p=b"}, COLUMNS, True)
        assert '.option("overwrite", "partitions")' in told.value.hint
        sink({"path": table.path, "partition": "p=b", "overwrite": "partitions"}, COLUMNS, True)


def test_a_view_may_have_the_options_of_what_is_inserted_through_it(spark: SparkSession, table: LakeTable) -> None:
    options = f"path '{table.path}', tag 'nightly', overwrite 'partitions'"
    table.insert(spark.createDataFrame([(1, "a", 1), (2, "b", 2)], COLUMNS))
    spark.sql(f"create or replace temporary view stock using lakelock options ({options})")
    assert spark.table("stock").count() == 2
    spark.sql("insert overwrite stock values (3, 'b', 3)")
    spark.catalog.dropTempView("stock")
    assert sorted(row["id"] for row in table.read().collect()) == [1, 3]
    assert table.history(1, full=True).head()["tag"] == "nightly"
