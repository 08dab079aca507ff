"""`format("lakelock")`: what Spark's own readers and writers can do with a table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import layout
from tests.sizes import in_ci

from lakelock.errors import SettingsError
from lakelock.spark_plugin import LakeTable, register, unregister
from lakelock.spark_plugin.source_options import OVERWRITE_MODE, SourceOptions
from lakelock.spark_plugin.source_sink import BatchSink
from lakelock.table.partitions import escape

COLUMNS = "id long, p string, v long"


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    unregister(spark)
    return LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")


def content(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_append_overwrite_and_read(spark: SparkSession, table: LakeTable, path: str) -> None:
    assert spark.read.format("lakelock").load(path).collect() == []
    many = spark.range(200).select("id", (F.col("id") % 4).cast("string").alias("p"), F.lit(0).cast("long").alias("v"))
    many.coalesce(2).write.format("lakelock").mode("append").option("tag", "first").save(path)
    assert len(list(Path(path).glob("p=*/*.parquet"))) == 8
    assert content(spark.read.format("lakelock").load(path)) == content(many)
    first = table.history(full=True).head()
    assert (first["operation"], first["rows_inserted"], first["tag"]) == ("INSERT", 200, "first")

    rows(spark, (1, "0", 9)).write.format("lakelock").option("overwrite", "partitions").mode("overwrite").save(path)
    assert content(table.read()) == sorted([*content(many.where("p <> '0'")), (1, "0", 9)])
    rows(spark, (7, "z", 7)).write.format("lakelock").mode("overwrite").save(path)
    assert content(table.read()) == [(7, "z", 7)]
    then = spark.read.format("lakelock").option("as_of", first["instant"]).load(path)
    assert then.count() == 200
    meta = spark.read.format("lakelock").option("include_meta", "true").load(path)
    assert [tuple(row) for row in meta.select("_hoodie_record_key", "_hoodie_partition_path", "v").collect()] == [
        ("7", "p=z", 7)
    ]


def test_sql_reaches_tables_through_temporary_views(spark: SparkSession, table: LakeTable, path: str) -> None:
    table.insert(rows(spark, (1, "a", 1)))
    spark.sql(f"create or replace temporary view stock using lakelock options (path '{path}')")
    try:
        assert spark.sql("select sum(v) from stock").head()[0] == 1
        spark.sql("insert into stock select 2, 'b', 5")
    finally:
        spark.catalog.dropTempView("stock")
    assert content(table.read()) == [(1, "a", 1), (2, "b", 5)]


@pytest.mark.parametrize(
    ("options", "frame", "problem"),
    [
        ({"as_off": "x"}, COLUMNS, r'unknown option "as_off"; did you mean "as_of"'),
        ({}, "id long, v long", "key and partition columns p are missing"),
        ({"partitionOverwriteMode": "dynamic", "overwrite": "table"}, COLUMNS, "contradict each other"),
        *in_ci(
            ({"lock.wait": "1"}, COLUMNS, r'did you mean "lock.wait_s"'),
            ({"operation": "upsert"}, COLUMNS, "operation upsert does not run in a data source in Python"),
            ({}, "id long, p string, w long", "w: not a column of the table"),
            ({}, "id string, p string, v long", "id: string does not fit int64"),
            ({"overwrite": "everything"}, COLUMNS, "use table or partitions"),
            ({"partitionOverwriteMode": "often"}, COLUMNS, "use static or dynamic"),
        ),
    ],
)
def test_bad_options_and_columns_are_told_before_any_work(
    spark: SparkSession, table: LakeTable, path: str, options: dict[str, str], frame: str, problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        spark.createDataFrame([], frame).write.format("lakelock").mode("append").options(**options).save(path)
    assert list(Path(path).glob(".hoodie/timeline/*")) == []


def test_a_path_is_needed() -> None:
    with pytest.raises(SettingsError, match="needs a path"):
        SourceOptions.parse({})


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_other_save_modes_are_refused(spark: SparkSession, table: LakeTable, path: str, mode: str) -> None:
    with pytest.raises(AnalysisException, match="SAVE_MODE"):
        rows(spark, (1, "a", 1)).write.format("lakelock").mode(mode).save(path)


def test_a_frame_whose_files_were_cleaned_is_told_to_be_loaded_again(spark: SparkSession, table: LakeTable, path: str) -> None:
    table.insert(rows(spark, (1, "a", 1)))
    frame = spark.read.format("lakelock").load(path)
    assert frame.count() == 1
    next(Path(path).glob("p=a/*.parquet")).unlink()
    with pytest.raises(PySparkException, match="it was cleaned since the first query over this frame or view") as told:
        frame.collect()
    assert "load the frame again" in str(told.value) and "changes" not in str(told.value)


def test_a_failed_write_leaves_nothing(spark: SparkSession, table: LakeTable, path: str) -> None:
    mixed = rows(spark, *((n, "a", 1) for n in range(50)), (None, "b", 1))
    with pytest.raises(PySparkException, match="key column id is null"):
        mixed.coalesce(1).write.format("lakelock").mode("append").save(path)
    assert table.read().collect() == []
    assert list(Path(path).glob("**/*.parquet")) == []
    assert list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


def test_the_shim_imports_without_optional_drivers_and_without_arrow() -> None:
    blocked = ["boto3", "kazoo", "redis", "thrift", "obstore", "fastavro", "pyarrow", "numpy", "lakelock.occ", "lakelock.table"]
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    program += "import pyspark_lakelock; print(pyspark_lakelock.DefaultSource.name())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "lakelock", done.stderr


@pytest.mark.parametrize("spelling", [("txn_app_id", "txn_version"), *in_ci((("txnAppId", "txnVersion"),))])
def test_a_numbered_batch_is_written_once_in_every_mode(
    spark: SparkSession, table: LakeTable, path: str, spelling: tuple[str, str]
) -> None:
    def write(version: int, mode: str, *values: tuple[object, ...]) -> None:
        numbered = dict(zip(spelling, ("nightly", str(version)), strict=True))
        rows(spark, *values).write.format("lakelock").options(**numbered).mode(mode).save(path)

    for _ in range(2):
        write(7, "append", (1, "a", 1))
    assert content(table.read()) == [(1, "a", 1)]
    table.insert(rows(spark, (2, "b", 2)))
    write(6, "overwrite", (5, "e", 5))
    write(7, "overwrite", (5, "e", 5))
    assert content(table.read()) == [(1, "a", 1), (2, "b", 2)]
    assert table.insert(rows(spark, (6, "f", 6)), txn_app_id="nightly", txn_version=7).already_applied
    for _ in range(2):
        write(8, "overwrite", (3, "c", 3))
        table.insert(rows(spark, (4, "d", 4)))
    assert content(table.read()) == [(3, "c", 3), (4, "d", 4), (4, "d", 4)]
    assert list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


def test_of_two_numbered_batches_at_once_one_is_written(spark: SparkSession, table: LakeTable, path: str) -> None:
    frames = [rows(spark, (1, "a", 1)), rows(spark, (1, "a", 2))]
    options = {"path": path, "txn_app_id": "nightly", "txn_version": "7"}
    sinks = [BatchSink(options, frame.schema, False) for frame in frames]
    for sink in sinks:
        sink.begin()
    messages = [sink.write(iter(frame.toArrow().to_batches())) for sink, frame in zip(sinks, frames, strict=True)]
    for sink, message in zip(sinks, messages, strict=True):
        sink.commit([message])
    assert content(table.read()) == [(1, "a", 1)]
    assert list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"txn_app_id": "nightly"}, "txn_app_id is given without txn_version"),
        *in_ci(
            ({"txnVersion": "1"}, "txn_version is given without txn_app_id"),
            ({"txn_app_id": "nightly", "txn_version": "1.5"}, "txn_version is '1.5', not a whole number"),
            ({"txn_app_id": "nightly", "txn_version": "1", "txnVersion": "1"}, "are the same option"),
        ),
    ],
)
def test_half_a_number_is_refused_before_any_work(
    spark: SparkSession, table: LakeTable, path: str, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(AnalysisException, match=problem):
        rows(spark, (1, "a", 1)).write.format("lakelock").mode("append").options(**options).save(path)
    assert list(Path(path).glob(".hoodie/timeline/*")) == []


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of its own, whose confs and data sources nobody else sees."""
    yield spark.newSession()
    unregister(spark)


def recorded_lock(path: str) -> str:
    file = Path(path, layout.LOCK_IDENTITY)
    return str(json.loads(file.read_text())["provider"]) if file.exists() else ""


@pytest.mark.in_ci
@pytest.mark.parametrize("key", ["lock.provider", "write.compression", "config", "storage.timeout", "lock.provyder"])
def test_confs_of_the_session_that_do_not_reach_a_write_stop_it(
    session: SparkSession, table: LakeTable, path: str, key: str
) -> None:
    session.conf.set(f"spark.lakelock.{key}", "memory:")
    with pytest.raises(PySparkException, match=r"(?s)spark\.lakelock\." + key + r".*lakelock\.spark_plugin\.register\(spark\)"):
        rows(session, (1, "a", 1)).write.format("lakelock").mode("append").save(path)
    assert content(table.read()) == [] and recorded_lock(path) == ""
    assert list(Path(path).glob("**/*.parquet")) == [] and list(Path(path).glob(".hoodie/.heartbeat/[!.]*")) == []


@pytest.mark.in_ci
def test_an_option_goes_before_a_conf_of_the_session(session: SparkSession, table: LakeTable, path: str) -> None:
    session.conf.set("spark.lakelock.lock.provider", "memory:")
    rows(session, (1, "a", 1)).write.format("lakelock").option("lock_provider", "storage:").mode("append").save(path)
    assert content(table.read()) == [(1, "a", 1)] and recorded_lock(path).startswith("storage:")


@pytest.mark.in_ci
def test_registered_confs_reach_every_process_of_a_write(session: SparkSession, table: LakeTable, path: str) -> None:
    session.conf.set("spark.lakelock.lock.provider", "memory:")
    session.conf.set("spark.lakelock.write.target_file_rows", "10")
    register(session)
    session.range(35).selectExpr("id", "'a' p", "id v").coalesce(1).write.format("lakelock").mode("append").save(path)
    assert len(list(Path(path).glob("p=*/*.parquet"))) == 4
    assert recorded_lock(path) == "memory:"
    assert session.read.format("lakelock").load(path).count() == 35
    session.conf.set("spark.lakelock.write.target_file_rows", "20")
    with pytest.raises(PySparkException, match=r"does not know how the session sets spark\.lakelock\.write\.target_file_rows"):
        rows(session, (99, "a", 1)).write.format("lakelock").mode("append").save(path)
    session.conf.unset("spark.lakelock.write.target_file_rows")
    with pytest.raises(PySparkException, match=r"does not know how the session sets spark\.lakelock\.write\.target_file_rows"):
        rows(session, (99, "a", 1)).write.format("lakelock").mode("append").save(path)
    register(session)
    rows(session, (99, "a", 1)).write.format("lakelock").mode("append").save(path)
    assert session.read.format("lakelock").load(path).count() == 36


@pytest.mark.in_ci
def test_reads_need_the_confs_of_storage_only(session: SparkSession, table: LakeTable, path: str) -> None:
    table.insert(rows(session, (1, "a", 1)))
    session.conf.set("spark.lakelock.lock.provider", "memory:")
    assert session.read.format("lakelock").load(path).count() == 1
    session.conf.set("spark.lakelock.storage.timeout", "30s")
    with pytest.raises(PySparkException, match=r"spark\.lakelock\.storage\.timeout"):
        session.read.format("lakelock").load(path).collect()


@pytest.mark.parametrize("hive_style", [False, *in_ci(True)])
def test_a_read_of_a_partition_opens_only_its_files(spark: SparkSession, path: str, hive_style: bool) -> None:
    unregister(spark)
    columns = "id long, p string, q int"
    frame = spark.createDataFrame([(n, p, q) for n, (p, q) in enumerate(product(["a", "a b/ü=%", None], [1, 2]))], columns)
    table = LakeTable.create(spark, path, schema=frame, key="id", partition_by=["p", "q"], hive_style=hive_style)
    first = table.insert(frame)
    table.insert(spark.createDataFrame([(10, "a b/ü=%", 1), (11, "a", 1)], columns))
    read = spark.read.format("lakelock")
    null = "p=__HIVE_DEFAULT_PARTITION__"
    for partition, ids in (("p=a/q=1", [0, 11]), (null, [4, 5]), (f"{null}/q=2", [5]), ("p=b", [])):
        assert sorted(row.id for row in read.option("partition", partition).load(path).collect()) == ids
    special = escape("a b/ü=%")
    assert sorted(row.id for row in read.option("partition", f"p={special}").load(path).collect()) == [2, 3, 10]
    then = read.option("partition", f"p={special}/q=1").option("as_of", first.instant).load(path)
    assert [row.id for row in then.collect()] == [2]
    plain = spark.read.format("lakelock").option("partition", "a/1")
    if hive_style:
        with pytest.raises(AnalysisException, match="'a/1' is not a partition of this table"):
            plain.load(path).collect()
    else:
        assert sorted(row.id for row in plain.load(path).collect()) == [0, 11]
    kept = {*Path(path).glob("*a/*2/*.parquet")}
    for file in {*Path(path).glob("*/*/*.parquet")} - kept:
        file.write_bytes(b"x")
    assert [row.id for row in spark.read.format("lakelock").option("partition", "p=a/q=2").load(path).collect()] == [1]


def test_a_read_with_a_schema_opens_only_its_columns(spark: SparkSession, table: LakeTable, path: str) -> None:
    table.insert(rows(spark, (1, "a", 11), (2, "a", 12)))
    [file] = Path(path).glob("p=a/*.parquet")
    chunks = [pq.read_metadata(file).row_group(0).column(n) for n in range(8)]
    [ids] = [chunk for chunk in chunks if chunk.path_in_schema == "id"]
    data, begin = bytearray(file.read_bytes()), ids.dictionary_page_offset or ids.data_page_offset
    data[begin : begin + ids.total_compressed_size] = bytes(ids.total_compressed_size)
    file.write_bytes(data)
    read = spark.read.format("lakelock").schema("v long, p string").load(path)
    assert content(read) == [(11, "a"), (12, "a")]
    with pytest.raises(PySparkException, match="cannot be read"):
        spark.read.format("lakelock").load(path).collect()


PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.mark.in_ci
def test_queries_with_different_filters_over_one_frame_each_get_all_their_rows(
    spark: SparkSession, table: LakeTable, path: str
) -> None:
    table.insert(rows(spark, (1, "a", 1), (2, "b", 2), (3, None, 3)))
    spark.conf.set(PUSH_DOWN, "true")
    try:
        read = spark.read.format("lakelock").load(path)
        assert content(read.where("p = 'a'")) == [(1, "a", 1)]
        # Spark keeps one plan of the read for the frame: had the reader taken the filter, only its rows would be left.
        assert read.count() == 3
        assert content(read.where("p = 'a'").union(read.where("p = 'b'"))) == [(1, "a", 1), (2, "b", 2)]
    finally:
        spark.conf.unset(PUSH_DOWN)


@pytest.mark.in_ci
def test_sparks_own_option_overwrites_only_the_partitions_that_have_rows(
    spark: SparkSession, table: LakeTable, path: str
) -> None:
    table.insert(rows(spark, (1, "a", 1), (2, "b", 2)))
    writer = rows(spark, (3, "a", 3)).write.format("lakelock").mode("overwrite")
    writer.option("partitionOverwriteMode", "dynamic").save(path)
    assert content(table.read()) == [(2, "b", 2), (3, "a", 3)]
    spark.conf.set(OVERWRITE_MODE, "dynamic")
    try:
        with pytest.raises(PySparkException, match="partitionOverwriteMode"):
            rows(spark, (4, "a", 4)).write.format("lakelock").mode("overwrite").save(path)
        assert content(table.read()) == [(2, "b", 2), (3, "a", 3)]
        register(spark)
        rows(spark, (4, "a", 4)).write.format("lakelock").mode("overwrite").save(path)
        assert content(table.read()) == [(2, "b", 2), (4, "a", 4)]
        rows(spark, (5, "c", 5)).write.format("lakelock").option("overwrite", "table").mode("overwrite").save(path)
        assert content(table.read()) == [(5, "c", 5)]
    finally:
        spark.conf.unset(OVERWRITE_MODE)
        unregister(spark)
