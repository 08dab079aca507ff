"""Which rows satisfy a condition is what Spark says of the rows themselves, whatever their files tell Parquet's reader."""

from __future__ import annotations

from weakref import WeakSet

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from tests.spark.reading.test_session_settings import configured

from lakelock.spark_plugin import LakeTable, reading
from lakelock.spark_plugin.spark_session import java_class, scala_object

COLUMNS = "id long, x double, f float, p struct<x:double>, l array<double>"
ZERO = [
    "x = 0",
    "x = -0.0D",
    "x in (0.0, 7.0)",
    "x <=> -0D",
    "not (x = 0)",
    "x >= 0D and x <= -0D",
    "f = 0",
    "f in (-0.0, 7)",
    "p.x = 0",
    "array_contains(l, -0D)",
]
NAN = ["x = double('NaN')", "x > 5", "f in (float('NaN'), 7)"]


def numbers(spark: SparkSession, zero: float, other: float) -> DataFrame:
    """Rows of one file; each number is there several times, so that its column has a dictionary."""
    given = [(number, zero if number % 2 else other) for number in range(8)]
    return spark.createDataFrame([(number, x, x, (x,), [x]) for number, x in given], COLUMNS).coalesce(1)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_a_spark_with_other_classes_is_read_slower_and_that_is_told_once(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id")
    table.insert(numbers(spark, 0.0, 1.0))
    monkeypatch.setattr(reading, "relation_over", _unknown_classes)
    monkeypatch.setattr(reading, "reported_slow", WeakSet())  # other tests of this session have read so, too
    with caplog.at_level("WARNING", "lakelock"):
        assert ids(table.read()) == ids(table.read()) == list(range(8))
    assert len([line for line in caplog.messages if "slow-reads" in line]) == 1


@pytest.mark.parametrize("zero", [-0.0, 0.0])
@pytest.mark.parametrize("listed_again", [False, pytest.param(True, marks=pytest.mark.in_ci)])
def test_both_zeros_are_one_number_and_so_is_nan(
    spark: SparkSession, path: str, zero: float, listed_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbers(spark, zero, float("nan"))
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id")
    table.insert(rows)
    if listed_again:
        monkeypatch.setattr(reading, "relation_over", _unknown_classes)
    for condition in [*ZERO, *NAN]:
        expected = ids(rows.where(condition))
        assert ids(table.read(condition)) == ids(table.read().where(condition)) == expected, condition
        assert expected, condition


def test_a_mistake_of_the_readers_own_is_not_taken_for_another_spark(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id")
    table.insert(numbers(spark, 0.0, 1.0))
    monkeypatch.setattr(reading, "relation_over", lambda: None)
    with pytest.raises(TypeError):
        table.read()


def test_a_class_that_a_spark_lacks_is_an_error_of_the_jvm(spark: SparkSession) -> None:
    with pytest.raises(Py4JError, match="no class org.example.Missing"):
        java_class(spark, "org.example.Missing")
    with pytest.raises(Py4JError, match="no class org.example.Missing"):
        scala_object(spark, "org.example.Missing")


def _unknown_classes(*_: object) -> DataFrame:
    raise Py4JError("as of a Spark with other internal classes")


def test_changes_find_the_rows_that_hold_the_other_zero(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id")
    table.insert(numbers(spark, -0.0, 3.0))
    assert table.update({"f": "1.0"}, "x = 0").rows_updated == 4
    zero = spark.createDataFrame([(0.0,)], "x double")
    assert table.merge(zero, "target.x = source.x").when_matched_update({"f": "2.0"}).execute().rows_updated == 4
    replaced = table.overwrite(spark.createDataFrame([(1, 0.0, None, None, None)], COLUMNS), where="x = 0 and id = 1")
    assert (replaced.rows_deleted, replaced.rows_inserted) == (1, 1)
    assert table.delete("x = -0D").rows_deleted == 4
    assert ids(table.read()) == [0, 2, 4, 6]


def test_other_conditions_still_spare_spark_rows(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema="id long, x double", key="id")
    table.insert(spark.range(600_000).selectExpr("id", "id * 1.0D as x").coalesce(1))
    assert scanned(table.read("id = 5")) < 600_000
    assert scanned(table.read("x > 599000")) < 600_000
    assert scanned(table.read("x = 0")) == 600_000
    assert scanned(table.read("x = 0 and id = 5")) < 600_000


def scanned(frame: DataFrame) -> int:
    """How many rows Parquet's reader gave Spark."""
    plan = frame._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    return int(plan.collectLeaves().head().metrics().get("numOutputRows").get().value())


OLD = "id long, place struct<street:string>, l array<struct<a:int>>, m map<string,struct<a:int>>, s struct<i:struct<a:int>>"
NESTED = {
    "place is null or place.zip = 'q'": [2],
    "place is not null and place.zip is null": [1],
    "l is null or l.b[0] = 7": [2],
    "exists(l, e -> e is not null and e.b is null)": [1],
    "m['x'] is not null and m['x'].b is null": [1],
    "s.i is not null and s.i.b is null": [1],
    "s.i is null": [2],
}
OF_OLDER_SPARK = {"spark__sql__legacy__parquet__returnNullStructIfAllFieldsMissing": "true"}
"""What Spark before 4.1 always does."""


@pytest.fixture
def grown(spark: SparkSession, path: str) -> LakeTable:
    """A table with a file that is older than the fields `zip` and `b`: rows 1, whose structs are stored, and 2, without any."""
    table = LakeTable.create(spark, path, schema=OLD, key="id")
    table.insert(
        spark.createDataFrame([(1, ("A",), [(1,)], {"x": (1,)}, ((1,),)), (2, None, None, None, None)], OLD).coalesce(1)
    )
    table.columns.add({"place.zip": "string", "l.element.b": "int", "m.value.b": "int", "s.i.b": "int"})
    row = [(4, ("S", "Z"), [(1, 2)], {"x": (1, 2)}, ((1, 2),))]
    table.insert(spark.createDataFrame(row, table.schema).coalesce(1))
    return table


def test_a_stored_struct_is_never_taken_for_null_by_its_new_field(spark: SparkSession, grown: LakeTable) -> None:
    with configured(spark, **OF_OLDER_SPARK):
        for condition, expected in NESTED.items():
            assert ids(grown.read(condition)) == ids(grown.read().where(condition).select("id")) == expected, condition
        with grown.transaction() as tx:
            assert ids(tx.read("s.i is null").select("id")) == [2]


def test_changes_by_a_new_field_keep_the_stored_structs(spark: SparkSession, grown: LakeTable) -> None:
    kept = "place is not null and place.zip is null"
    with configured(spark, **OF_OLDER_SPARK):
        assert grown.update({"l": "l"}, kept).rows_updated == 1
        nobody = spark.createDataFrame([], "id long")
        gone = grown.merge(nobody, "target.id = source.id")
        assert gone.when_not_matched_by_source_delete(f"not ({kept}) and target.id = 4").execute().rows_deleted == 1
        assert grown.delete("place is null or place.zip = 'q'").rows_deleted == 1
    assert [row.place.street for row in grown.read().collect()] == ["A"]
