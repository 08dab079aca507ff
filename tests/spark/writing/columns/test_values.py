"""Every type, and every odd partition value, comes back as it was written."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import in_ci

from lakelock.errors import SchemaError
from lakelock.spark_plugin import LakeTable, reading

TYPES = """
    k string, bo boolean, b byte, s short, i int, l long, f float, d double, small decimal(9,2), big decimal(38,18), t string,
    bin binary, day date, at timestamp, wall timestamp_ntz, st struct<x:int,y:struct<z:string>>, arr array<int>,
    m map<string,bigint>, deep array<struct<a:string,b:array<double>>>
"""
ROW = (
    "k1", True, -128, 32767, -(2**31), 2**62, 1.5, 0.1, Decimal("1234567.89"),
    Decimal("12345678901234567890.123456789012345678"),
    "naïve 💧 'quoted'", bytearray(b"\x00\xff"), date(1899, 12, 31), datetime(2026, 3, 8, 7, 30, 0, 123456),
    datetime(1, 1, 1, 0, 0, 0, 1), (1, ("deep",)), [1, None, 3], {"a": 1, "b": None}, [("x", [1.0, None]), None],
)  # fmt: skip


def test_every_type_survives_insert_rewrite_and_read(spark: SparkSession, path: str) -> None:
    nothing = ("k2", *([None] * (len(ROW) - 1)))
    frame = spark.createDataFrame([ROW, nothing], TYPES)
    table = LakeTable.create(spark, path, schema=frame, key="k")
    table.insert(frame)
    table.upsert(spark.createDataFrame([("k3", *ROW[1:])], TYPES))
    table.upsert(frame.where("k = 'k1'"))
    found = {row["k"]: row for row in table.read().collect()}
    expected = {row["k"]: row for row in frame.collect()}
    assert found["k1"] == expected["k1"]
    assert found["k2"] == expected["k2"]
    assert tuple(found["k3"])[1:] == tuple(expected["k1"])[1:]


def test_bytes_and_shorts_come_back_as_integers(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=spark.createDataFrame([ROW], TYPES), key="k")
    kinds = {field.name: field.dataType.simpleString() for field in table.schema}
    assert (kinds["b"], kinds["s"], kinds["at"], kinds["wall"]) == ("int", "int", "timestamp", "timestamp_ntz")


def test_a_timestamp_is_the_same_instant_in_every_time_zone(spark: SparkSession, path: str) -> None:
    frame = spark.sql("select 1 id, timestamp'2026-01-01 00:00:00 UTC' at, timestamp_ntz'2026-01-01 00:00:00' wall")
    table = LakeTable.create(spark, path, schema=frame, key="id", partition_by="at")
    table.insert(frame)
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        table.upsert(frame.withColumn("wall", F.expr("timestamp_ntz'2027-01-01 00:00:00'")))
        assert table.read().selectExpr("unix_timestamp(at) s", "cast(wall as string) w").collect() == [
            (int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()), "2027-01-01 00:00:00")
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.parametrize("kind", ["map<int,string>", "interval day", "void", "variant", "char(3)", "varchar(3)"])
def test_a_type_that_a_table_cannot_hold_is_refused_before_anything_is_made(spark: SparkSession, path: str, kind: str) -> None:
    schema: DataFrame | str = f"id bigint, x {kind}"  # a frame has no column of char or varchar: Spark makes them strings
    if "char" not in kind:
        schema = spark.sql("select 1 id").withColumn("x", F.lit(None) if kind == "void" else F.expr(f"cast(null as {kind})"))
    with pytest.raises(SchemaError, match="x|type"):
        LakeTable.create(spark, path, schema=schema, key="id")
    assert not Path(path).exists() or not any(Path(path).iterdir())


def unknown_classes(*_: object) -> DataFrame:
    raise Py4JError("'JavaPackage' object is not callable")


PLACES = [
    "plain",
    "a b",
    "a/b",
    "100%",
    "x=y",
    "ünï/çödé",
    "a:b",
    "_hidden",
    ".dot",
    "{a,b}",
    "[z]*?",
    "'q'\"",
    "a\\b",
    "..",
    None,
]


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("hive_style", [True, False])
def test_every_partition_value_is_written_found_and_read(spark: SparkSession, tmp_path: Path, hive_style: bool) -> None:
    root = str(tmp_path / "ta{b}le [1] *")
    frame = spark.createDataFrame([(n, place, 0) for n, place in enumerate(PLACES)], "id int, place string, v int")
    table = LakeTable.create(spark, root, schema=frame, key="id", partition_by="place", hive_style=hive_style)
    possible = frame if hive_style else frame.where("place <> '..' or place is null")
    table.insert(possible)
    table.upsert(possible.withColumn("v", F.lit(1)))
    expected = sorted(((row.id, row.place, 1) for row in possible.collect()), key=str)
    assert sorted((tuple(row) for row in table.read().collect()), key=str) == expected
    same = [F.col("place").eqNullSafe(F.lit(place)) for _, place, _ in expected]
    whole = table.read()
    asked = [frame for chosen in same for frame in (whole.where(chosen), table.read(chosen))]
    assert reduce(DataFrame.union, asked).orderBy("id").collect() == sorted([*whole.collect()] * 2)
    more = possible.withColumn("id", F.col("id") + 100).repartition(8)
    for _ in range(2):
        table.insert(more)
    assert table.read().count() == 3 * len(expected)
    # Without the JVM's classes Spark gets the names of the files: above this number a name filter instead of paths.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "relation_over", unknown_classes)
        assert table.read().count() == 3 * len(expected)
        patch.setattr(reading, "FEW_FILES", 2)
        assert table.read().count() == 3 * len(expected)
    assert table.delete("place is null").rows_deleted == 3


@pytest.mark.parametrize("kind", ["date", *in_ci("int", "timestamp", "boolean", "decimal(5,2)")])
def test_partition_columns_of_other_types_work(spark: SparkSession, path: str, kind: str) -> None:
    value = {
        "int": "-5",
        "date": "2026-02-28",
        "timestamp": "2026-02-28 10:11:12.5",
        "boolean": "true",
        "decimal(5,2)": "1.50",
    }[kind]
    frame = spark.sql(f"select 1 id, cast('{value}' as {kind}) p, 1 v union all select 2, cast(null as {kind}), 1")
    table = LakeTable.create(spark, path, schema=frame, key="id", partition_by="p")
    table.insert(frame)
    assert table.upsert(frame.withColumn("v", F.lit(2))).rows_updated == 2
    assert {tuple(r) for r in table.read().collect()} == {tuple(r) for r in frame.withColumn("v", F.lit(2)).collect()}


def test_a_partition_value_that_would_lead_out_of_the_table_is_refused(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame([(1, "..")], "id int, p string")
    table = LakeTable.create(spark, path, schema=frame, key="id", partition_by="p", hive_style=False)
    with pytest.raises(SchemaError, match="not inside the table"):
        table.insert(frame)
    assert table.read().count() == 0
