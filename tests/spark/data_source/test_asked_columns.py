"""`.schema(...)` of a read through `format("lakelock")`: which columns and types a query may name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from lakelock.errors import SchemaError
from lakelock.spark_plugin import LakeTable, unregister
from lakelock.spark_plugin.source_reader import check_asked
from lakelock.spark_plugin.spark_session import arrow_schema, columns_of

COLUMNS = "id long, f double, d decimal(20,4), n int, at timestamp, s struct<a: int, b: string>, l array<struct<x: int>>"
ROW = (3_000_000_000, 1.1, Decimal("1234567890123.4567"), 7, dt.datetime(2026, 1, 1), (1, "x"), [(5,)])


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    unregister(spark)
    found = LakeTable.create(spark, path, schema=COLUMNS, key="id")
    found.insert(spark.createDataFrame([ROW], COLUMNS))
    return found


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("id int", "id: the table has bigint, and the read asks for int"),
        ("f float", "f: the table has double, and the read asks for float"),
        ("d decimal(20,2)", r"d: the table has decimal\(20,4\), and the read asks for decimal\(20,2\)"),
        ("id double", "id: the table has bigint, and the read asks for double"),
        ("n string", "n: the table has int, and the read asks for string"),
        ("at timestamp_ntz", "at: the table has timestamp, and the read asks for timestamp_ntz"),
        ("s struct<a: smallint>", r"s\.a: the table has int, and the read asks for smallint"),
        ("s struct<a: int, c: int>", r"s\.c: the table's column has no such field"),
        ("l array<struct<x: string>>", r"l\[\]\.x: the table has int, and the read asks for string"),
    ],
)
def test_a_type_that_cannot_hold_the_tables_values_is_refused(spark: SparkSession, asked: str, problem: str) -> None:
    there, wanted = (arrow_schema(columns_of(text)) for text in (COLUMNS, asked))
    with pytest.raises(SchemaError, match=problem) as told:
        check_asked(there, wanted)
    assert "name in .schema(...) the table's type" in told.value.hint


def test_a_type_that_holds_all_values_is_read_and_fields_may_be_left_out(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    asked = "n long, d decimal(24,6), s struct<b: string>"
    read = spark.read.format("lakelock").schema(asked)
    assert [tuple(row) for row in read.load(table.path).collect()] == [(7, Decimal("1234567890123.456700"), Row(b="x"))]
    feed = read.schema("n long, _change_type string").options(change_feed="true", since="2020-01-01")
    assert [tuple(row) for row in feed.load(table.path).collect()] == [(7, "insert")]
    with pytest.raises(AnalysisException, match="f: the table has double, and the read asks for float"):
        spark.read.format("lakelock").schema("f float").load(table.path).collect()

    told: list[Row] = []
    assert run_stream(spark, table, "n long", tmp_path / "checkpoint", told) == [Row(n=7)]


@pytest.mark.in_ci
def test_a_stream_that_names_a_type_which_the_table_has_widened_is_told_to_name_the_wider_one(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    told: list[Row] = []
    run_stream(spark, table, "n int", tmp_path / "checkpoint", told)
    table.columns.widen({"n": "bigint"})
    table.insert(spark.createDataFrame([(2, 4_000_000_000)], "id long, n long"))
    with pytest.raises(StreamingQueryException, match="n: the table has bigint, and the read asks for int") as error:
        run_stream(spark, table, "n int", tmp_path / "checkpoint", told)
    assert "same checkpoint" not in str(error.value)
    assert run_stream(spark, table, "n long", tmp_path / "checkpoint", told) == [Row(n=7), Row(n=4_000_000_000)]


def run_stream(spark: SparkSession, table: LakeTable, asked: str, checkpoint: Path, told: list[Row]) -> list[Row]:
    """Read all that there is, and stop; all that was told so far."""

    def keep(batch: DataFrame, _: int) -> None:
        told.extend(batch.collect())

    frame = spark.readStream.format("lakelock").schema(asked).load(table.path)
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(180)
    if query.exception() is not None:
        raise query.exception()
    return told
