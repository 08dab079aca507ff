"""Merge-on-read tables and tables of version 6 in Spark: what Java showed of them, through both ways to read."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.golden_tables import MERGE_ON_READ, VERSION_6, golden_table, seen_by_java
from tests.sizes import but
from tests.spark.sparks import since_spark_4

from lakelock.errors import InputError, TableError
from lakelock.spark_plugin import LakeTable
from lakelock.table.log_files import Block, BlockHeader, BlockKind, positions_in, positions_text

NAME = "java12_mor_compaction"
"""Two file groups, one with log files and a plan for their compaction, one of which a log file deletes the last row."""


FLAT = [name for name in MERGE_ON_READ if name != "java12_mor_types"]


def values(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.select("id", "v", "region").collect())


def javas(name: str, query_type: str) -> list[tuple[object, ...]]:
    found = (json.loads(row) for row in seen_by_java(name)[query_type])
    return sorted((row["id"], row["v"], row["region"]) for row in found)


@pytest.fixture
def table(spark: SparkSession) -> LakeTable:
    return LakeTable.for_path(spark, golden_table(NAME))


def test_a_read_shows_what_java_shows(table: LakeTable) -> None:
    assert values(table.read()) == javas(NAME, "snapshot")
    assert values(table.read(query_type="read_optimized")) == javas(NAME, "read_optimized")
    assert values(table.read(options={"hoodie.datasource.query.type": "READ_OPTIMIZED"})) == javas(NAME, "read_optimized")
    with table.locks.reading(partition="region=eu") as frame:
        assert values(frame) == [row for row in javas(NAME, "snapshot") if row[2] == "eu"]


def test_conditions_partitions_and_earlier_times_choose_among_merged_rows(table: LakeTable) -> None:
    expected = javas(NAME, "snapshot")
    assert values(table.read("v > 5")) == [row for row in expected if row[1] > 5]  # type: ignore[operator]
    assert values(table.read("region = 'us'")) == [row for row in expected if row[2] == "us"]
    assert values(table.read(partition="region=eu")) == [row for row in expected if row[2] == "eu"]
    for moment, rows in seen_by_java(NAME)["moments"].items():
        assert len(values(table.read(as_of=moment))) == len(rows)


def test_merged_rows_have_hudis_columns_on_demand(table: LakeTable) -> None:
    found = {row["id"]: row for row in table.read(include_meta=True).collect()}
    assert found["a"]["_hoodie_record_key"] == "a" and found["a"]["_hoodie_commit_time"] > found["x"]["_hoodie_commit_time"]


def test_every_type_comes_out_of_a_log_file(spark: SparkSession) -> None:
    table = LakeTable.for_path(spark, golden_table("java12_mor_types"))
    (row,) = table.read("id = 'c'").select("i", "dec", "day", "st.y", "ar", "mp", "at").collect()
    (expected,) = (row for row in map(json.loads, seen_by_java("java12_mor_types")["snapshot"]) if row["id"] == "c")
    assert (row["i"], str(row["dec"]), str(row["day"]), row["y"], row["ar"], row["mp"]) == (
        expected["i"], expected["dec"], expected["day"], expected["st"]["y"], expected["ar"], dict(expected["mp"])
    )  # fmt: skip


def test_details_count_the_log_files_that_a_read_opens(spark: SparkSession) -> None:
    path = golden_table("java12_mor_events")
    files = [*path.rglob("*.parquet"), *(file for file in path.rglob(".*.log.*") if file.suffix != ".crc")]
    (detail,) = LakeTable.for_path(spark, path).detail().select("files", "size_bytes", "partitions").collect()
    assert tuple(detail) == (len(files), sum(file.stat().st_size for file in files), len({file.parent for file in files}))


def test_a_table_by_event_time_is_only_read(spark: SparkSession) -> None:
    table = LakeTable.for_path(spark, golden_table("java12_mor_events"))
    refused: list[Callable[[], object]] = [
        lambda: table.upsert(table.read()),
        lambda: table.delete("v = 1"),
        lambda: table.changes("20200101000000000"),
        lambda: table.optimize().execute(),
    ]
    for call in refused:
        with pytest.raises(TableError, match="MERGE_ON_READ|merge-on-read"):
            call()
    with pytest.raises(InputError, match=r"query_type is 'incremental'[^$]*changes\(since\)"):
        table.read(query_type="incremental")  # type: ignore[arg-type]


@since_spark_4
@pytest.mark.parametrize("name", but(FLAT, ["java12_mor_buckets"], ["java12_mor_events"]))
def test_the_format_shows_what_java_shows(spark: SparkSession, name: str) -> None:
    read = spark.read.format("lakelock")
    assert values(read.load(str(golden_table(name)))) == javas(name, "snapshot")
    bases = read.option("hoodie.datasource.query.type", "read_optimized").load(str(golden_table(name)))
    assert values(bases) == javas(name, "read_optimized")


@since_spark_4
def test_a_stream_of_such_a_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("lakelock").load(str(golden_table("java12_mor_events"))).writeStream.format("noop")
    query = stream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="MERGE_ON_READ|merge-on-read"):
        query.awaitTermination(60)


def test_a_table_of_version_6_is_read_like_any_other(spark: SparkSession) -> None:
    name = VERSION_6[0]
    table = LakeTable.for_path(spark, golden_table(name))
    assert values(table.read()) == javas(name, "snapshot")
    assert values(table.read("region = 'us'")) == [row for row in javas(name, "snapshot") if row[2] == "us"]
    assert table.history().count() == 8 and table.changes("20200101000000000").count() > 0
    with pytest.raises(TableError, match="it has table version 6"):
        table.insert(table.read())


@pytest.mark.in_ci
def test_positions_in_log_files_are_the_bitmap_that_the_java_library_makes(spark: SparkSession) -> None:
    """As arrays, bitmaps and runs, with and without offsets."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    evens, few, runs = range(0, 10_000, 2), range(5, 50_000, 9_999), [(7, 5_000), (70_000, 300_000)]
    chosen: list[tuple[list[int], list[tuple[int, int]]]] = [
        ([*evens], []), ([*few], []), ([], runs), ([*few], runs), ([number + (1 << 21) for number in evens], runs),
        ([], [(0, 65_536)]), ([number << 16 for number in range(6)], []),
    ]  # fmt: skip
    for numbers, ranges in chosen:
        bitmap = jvm.org.roaringbitmap.longlong.Roaring64NavigableMap()
        for number in numbers:
            bitmap.addLong(number)
        for start, end in ranges:
            bitmap.addRange(start, end)
        bitmap.runOptimize()
        output = jvm.java.io.ByteArrayOutputStream()
        bitmap.serializePortable(jvm.java.io.DataOutputStream(output))
        places = np.array(sorted({*numbers, *(number for each in ranges for number in range(*each))}))
        text = positions_text(places)
        assert base64.b64decode(text) == bytes(output.toByteArray())
        found = positions_in(Block(BlockKind.DELETE, {BlockHeader.RECORD_POSITIONS: text}, b""), len(places))
        assert found is not None and np.array_equal(found, places)
