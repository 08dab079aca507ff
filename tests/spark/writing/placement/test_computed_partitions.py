"""Partitions by what is computed of columns, in Spark: every write finds them, whatever the session's time zone."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sparks import since_spark_4
from tests.spark.unchanged import unchanged
from tests.spark.without_jobs import content

from lakelock.errors import InputError, SchemaError, TableError
from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.spark_session import arrow_schema, computed
from lakelock.table.transforms import Transform, parsed_transform

pytestmark = pytest.mark.in_ci
COLUMNS = "id bigint, at timestamp, n bigint"
FIRST, SECOND, THIRD = (datetime(2026, *rest, tzinfo=timezone.utc) for rest in ((1, 31, 23, 30), (2, 1, 0, 30), (3, 1, 0, 0)))
JANUARY, FEBRUARY, MARCH = date(2026, 1, 31), date(2026, 2, 1), date(2026, 3, 1)


def rows(spark: SparkSession, *values: tuple[int, datetime, int]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark).schema, key="id", partition_by="days(AT)")
    made.insert(rows(spark, (1, FIRST, 1), (2, SECOND, 2), (3, THIRD, 3)))
    return made


def now(table: LakeTable) -> list[tuple[object, ...]]:
    return content(table, "id", "n", "at_day")


def folders(table: LakeTable) -> set[str]:
    return {path.parent.name for path in Path(table.path.removeprefix("file://")).rglob("*.parquet")}


SAMPLES = {
    "timestamp": ["1969-12-31 22:30:00", "1970-01-01 00:00:00", "2026-03-08 02:30:00", "2026-11-01 05:59:59.999999",
                  "0101-02-03 04:05:06", "2300-12-31 23:59:59.999999", None],
    "timestamp_ntz": ["1969-12-31 22:30:00", "2026-03-08 02:30:00", "2026-11-01 01:30:00", None],
    "date": ["1969-12-31", "2026-03-08", "0999-01-01", None],
    "string": ["", "a", "añ\U0001f600x", None],
    "int": [-5, 0, 2147483647, None],
    "bigint": [-(2**40), 7, None],
}  # fmt: skip
TRANSFORMS = ("years(c)", "months(c)", "days(c)", "hours(c)", "bucket(7, c)", "truncate(2, c)")


def transforms_of(kind: pa.DataType) -> list[Transform]:
    return [found for text in TRANSFORMS if (found := parsed_transform(text)) is not None and found.takes(kind)]


def test_spark_computes_what_arrow_computes(spark: SparkSession) -> None:
    checked = 0
    for name, values in SAMPLES.items():
        frame = spark.createDataFrame([(None if v is None else str(v),) for v in values], "v string").selectExpr(
            f"cast(v as {name}) as c"
        )
        kind = arrow_schema(frame.schema).field("c").type
        transforms = transforms_of(kind)
        spark_type = frame.schema["c"].dataType
        made = frame.select("c", *[computed(each, frame["c"], spark_type).alias(each.name) for each in transforms]).collect()
        source = pa.array([row["c"] for row in made], kind)
        for each in transforms:
            assert [row[each.name] for row in made] == each.of(source).to_pylist(), (name, str(each))
            checked += 1
    assert checked == 4 + 4 + 4 + 2 + 1 + 1


def test_rows_are_in_the_folder_of_their_day_and_every_write_finds_it(spark: SparkSession, table: LakeTable) -> None:
    assert folders(table) == {"at_day=2026-01-31", "at_day=2026-02-01", "at_day=2026-03-01"}
    assert table.schema.names == ["id", "at", "n", "at_day"]
    table.upsert(rows(spark, (1, FIRST, 10), (4, SECOND, 4)))
    table.upsert(table.read().selectExpr("id", "at_day", "n + 1 as n").where("id = 4"), missing_columns="keep")
    table.delete(rows(spark, (2, SECOND, 0)).select("id", "at"))
    table.update({"n": "n * 2"}, "id = 3")
    assert now(table) == [(1, 10, JANUARY), (3, 6, MARCH), (4, 5, FEBRUARY)]
    table.overwrite(rows(spark, (5, SECOND, 5)), "at >= '2026-01-31T20:00:00Z' and at < '2026-03-01T00:00:00Z'")
    assert now(table) == [(3, 6, MARCH), (5, 5, FEBRUARY)]
    table.overwrite(rows(spark, (6, FIRST, 6)))
    assert now(table) == [(6, 6, JANUARY)]


def test_merges_compute_the_partition_of_new_rows_and_need_no_more_than_the_key_and_the_time(
    spark: SparkSession, table: LakeTable
) -> None:
    source = rows(spark, (1, FIRST, 100), (7, THIRD, 7))
    merge = table.merge(source, "target.id = source.id and target.at = source.at")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    named = source.selectExpr("id + 7 as key", "at as moment", "n as many")
    table.merge(named, "target.id = source.key and target.at = source.moment").when_not_matched_insert(
        {"id": "source.key", "at": "source.moment", "n": "source.many"}
    ).execute()
    assert now(table) == [(1, 100, JANUARY), (2, 2, FEBRUARY), (3, 3, MARCH), (7, 7, MARCH), (8, 100, JANUARY), (14, 7, MARCH)]


def test_a_read_with_a_condition_on_the_time_opens_its_days_only(table: LakeTable) -> None:
    found = table.read("at > '2026-02-01T00:00:00Z' and at < '2026-02-02T00:00:00Z'")
    assert [row["id"] for row in found.collect()] == [2]
    assert {Path(name).parent.name for name in found.inputFiles()} == {"at_day=2026-02-01"}


def test_the_column_that_the_partition_is_computed_of_stays_as_it_is(table: LakeTable) -> None:
    with unchanged(table):
        with pytest.raises(SchemaError, match=r"at is the column of days\(at\), a partition, whose stored values cannot"):
            table.update({"at": "at + interval 1 day"})
        with pytest.raises(SchemaError, match=r"at is the table's source of days\(at\), a partition column"):
            table.columns.rename({"at": "moment"})


def test_a_table_is_opened_again_by_the_same_partitions_and_says_them(spark: SparkSession, table: LakeTable, path: str) -> None:
    assert table.detail().head()["partition_by"] == ["days(at)"]
    for schema in (rows(spark).schema, table.schema):
        LakeTable.create(spark, path, schema=schema, key="id", partition_by="day(at)", if_not_exists=True).close()
    with pytest.raises(TableError, match=r"partition_by: months\(at\) was given, the table has days\(at\)"):
        LakeTable.create(spark, path, schema=rows(spark).schema, key="id", partition_by="months(at)", if_not_exists=True)
    with pytest.raises(InputError, match="there is no partition transform 'weeks'"):
        LakeTable.create(spark, f"{path}2", schema=rows(spark).schema, key="id", partition_by="weeks(at)")


def test_statements_leave_the_computed_column_out(spark: SparkSession, table: LakeTable) -> None:
    name = f"lakelock.`{table.path}`"
    table.sql(f"INSERT INTO {name} VALUES (8, TIMESTAMP '2026-02-01 00:00:00Z', 8)")
    table.sql(f"INSERT INTO {name} (n, id, at) VALUES (9, 9, TIMESTAMP '2026-03-01 00:00:00Z')")
    assert now(table)[-2:] == [(8, 8, FEBRUARY), (9, 9, MARCH)]


@since_spark_4
def test_the_data_source_makes_and_writes_such_a_table(spark: SparkSession, path: str) -> None:
    given = {"key": "id", "partition_by": "days(at), bucket(4, id)"}
    rows(spark, (1, FIRST, 1), (2, SECOND, 2)).write.format("lakelock").options(**given).mode("append").save(path)
    again = {**given, "partition_by": "day(AT), Bucket(4, id)"}
    rows(spark, (3, SECOND, 3)).write.format("lakelock").options(**again).mode("append").save(path)
    table = LakeTable.for_path(spark, path)
    assert now(table) == [(1, 1, JANUARY), (2, 2, FEBRUARY), (3, 3, FEBRUARY)]
    rows(spark, (4, SECOND, 4)).write.format("lakelock").mode("overwrite").option("overwrite", "partitions").save(path)
    assert {row[0] for row in now(table)} >= {1, 4}
    rows(spark, (5, FIRST, 5)).write.format("lakelock").mode("overwrite").option("overwriteSchema", "true").save(path)
    assert now(table) == [(5, 5, JANUARY)]
