"""The new values of updates and merges: nested types go by name, and what is not a value of one row is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import in_ci

import lakelock
from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin import LakeTable

PLACE = "struct<city:string,zip:bigint>"
COLUMNS = f"id long, place {PLACE}, stops array<{PLACE}>, marks map<string,{PLACE}>, v long"
STORED = (1, ("Ulm", 89), [("Ulm", 1)], {"x": ("Ulm", 2)}, 7)
NESTED = ["place", "stops", "marks"]
TURNED = "struct<zip:int,city:string>"
"""The fields in another order, one of them narrower."""

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def content(table: LakeTable) -> list[tuple[object, ...]]:
    """Rows as plain values, structs as tuples in the table's order."""

    def plain(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        if isinstance(value, list):
            return [plain(each) for each in value]
        return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value

    return sorted((tuple(plain(value) for value in row) for row in table.read().collect()), key=repr)


def filled(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=spark.createDataFrame([], COLUMNS), key="id")
    made.insert(spark.createDataFrame([STORED, (2, None, None, None, 8)], COLUMNS))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


def turned(spark: SparkSession, *ids: int) -> DataFrame:
    """Rows whose structs have their fields in another order."""
    columns = f"id long, place {TURNED}, stops array<{TURNED}>, marks map<string,{TURNED}>, v long"
    return spark.createDataFrame(
        [(n, (5, "Bonn"), [(6, "Bonn"), None], {"y": (7, "Bonn"), "z": None}, 9) for n in ids], columns
    )


NEW = (("Bonn", 5), [("Bonn", 6), None], {"y": ("Bonn", 7), "z": None}, 9)


def test_one_field_of_a_struct_gets_a_value_and_the_others_stay(table: LakeTable) -> None:
    table.update({"place": F.col("place").withField("city", F.upper("place.city"))}, "id = 1")
    assert content(table)[0] == (1, ("ULM", 89), *STORED[2:])


def test_the_fields_of_new_structs_go_by_name_in_an_update(table: LakeTable) -> None:
    values = {
        "place": "named_struct('zip', 5, 'city', 'Bonn')",
        "stops": "array(named_struct('zip', 6, 'city', 'Bonn'), null)",
        "marks": "map('y', named_struct('zip', 7, 'city', 'Bonn'), 'z', null)",
        "v": "9",
    }
    assert table.update(values).rows_updated == 2
    assert content(table) == [(1, *NEW), (2, *NEW)]


def test_the_fields_of_new_structs_go_by_name_in_every_clause_of_a_merge(spark: SparkSession, table: LakeTable) -> None:
    (
        table.merge(turned(spark, 1, 2, 3, 4), "target.id = source.id")
        .when_matched_update({name: f"source.{name}" for name in [*NESTED, "v"]}, "target.id = 1")
        .when_matched_update_all()
        .when_not_matched_insert({"id": "source.id", **{name: f"source.{name}" for name in [*NESTED, "v"]}}, "source.id = 3")
        .when_not_matched_insert_all()
        .execute()
    )
    assert content(table) == [(n, *NEW) for n in (1, 2, 3, 4)]


def test_a_value_is_drawn_once_however_many_fields_it_has(spark: SparkSession, table: LakeTable) -> None:
    def draw() -> tuple[int, str]:
        number = random.randrange(10**9)
        return number, str(number)

    drawn = F.udf(draw, TURNED).asNondeterministic()
    source = spark.createDataFrame([(1,), (2,)], "id long")
    table.merge(source, "target.id = source.id").when_matched_update({"place": drawn()}).execute()
    assert all(row.place.city == str(row.place.zip) for row in table.read().collect())


REFUSED = [
    ({"place.city": "'Bonn'"}, SchemaError, "no column 'place.city'.*withField"),
    ({"place": "named_struct('city', 'Bonn')"}, SchemaError, "lacks fields of the column: place.zip"),
    ({"stops": "array(named_struct('zip', 1L))"}, SchemaError, r"lacks fields of the column: stops\[\].city"),
    ({"place": "named_struct('city', 'Bonn', 'zip', 1L, 'more', 1)"}, SchemaError, "place.more: not a field"),
    ({"place": "named_struct('city', 'Bonn', 'zip', 1.5)"}, SchemaError, "place.zip: decimal.* does not fit int64"),
    ({"v": "sum(v)"}, (AnalysisException, InputError), "(?i)group|aggregat|one row alone"),
    ({"v": "explode(array(1L, 2L))"}, InputError, "not computed from one row alone"),
    ({"v": "row_number() over (order by id)"}, InputError, "not computed from one row alone"),
]


@pytest.mark.parametrize(("values", "error", "problem"), REFUSED)
def test_what_cannot_be_a_new_value_is_refused_before_any_work(
    spark: SparkSession, settled: LakeTable, values: dict[str, str], error: type, problem: str
) -> None:
    before = sorted(Path(settled.path.removeprefix("file://")).rglob("*"))
    with pytest.raises(error, match=f"(?s){problem}"):
        settled.update(values, "id = 1")
    other_names = spark.createDataFrame([(1,)], "given long")
    with pytest.raises(error, match=f"(?s){problem}"):
        settled.merge(other_names, "id = given").when_matched_update(values).execute()
    assert sorted(Path(settled.path.removeprefix("file://")).rglob("*")) == before


@pytest.mark.parametrize("as_given", [str, *in_ci(F.col)])
def test_a_merge_may_name_the_key_that_its_condition_equates(spark: SparkSession, table: LakeTable, as_given: Callable) -> None:
    source = spark.createDataFrame([(1, 100)], "id int, v long")
    values = {"target.id": as_given("source.id"), "v": "source.v"}
    table.merge(source, "source.id = target.id").when_matched_update(values).execute()
    assert content(table)[0] == (*STORED[:4], 100)


def _named(value: str) -> Callable:
    return lambda merge: merge.when_matched_update({"id": value, "v": "source.v"})


@pytest.mark.parametrize(
    ("clauses", "error", "problem"),
    [
        (_named("source.v"), SchemaError, "id is a record key column"),
        (_named("source.id + 1"), SchemaError, "id is a record key column"),
        (_named("target.id"), SchemaError, "id is a record key column"),
        (lambda merge: merge.when_matched_update({"v": "1", "target.v": "2"}), InputError, "sets v twice"),
    ],
)
def test_another_value_for_a_key_is_refused(
    spark: SparkSession, table: LakeTable, clauses: Callable, error: type, problem: str
) -> None:
    source = spark.createDataFrame([(1, 100)], "id long, v long")
    with pytest.raises(error, match=problem):
        clauses(table.merge(source, "source.id = target.id")).execute()


@pytest.mark.in_ci
def test_update_all_does_not_take_a_key_by_another_column_than_the_condition_equates(
    spark: SparkSession, table: LakeTable
) -> None:
    source = turned(spark, 1).withColumn("was", F.lit(2).cast("long"))
    with pytest.raises(SchemaError, match="another value of id"):
        table.merge(source, "target.id = source.was").when_matched_update_all().execute()
    assert content(table)[0] == STORED
    table.merge(source.withColumn("was", F.col("id")), "target.id = source.was").when_matched_update_all().execute()
    assert content(table)[0] == (1, *NEW)


NUMBERS = "id long, amount decimal(6,2), few int, ratio double"


@pytest.mark.parametrize("ansi", ["true", *in_ci("false")])
def test_a_number_is_assigned_as_sql_does_and_as_without_spark(
    spark: SparkSession, path: str, tmp_path: Path, ansi: str
) -> None:
    """Sums of decimals have more digits than their terms, and 0 is an int: they become values of the column, rounded."""
    row = (1, Decimal("2.50"), 3, 0.5)
    with_spark = LakeTable.create(spark, path, schema=NUMBERS, key="id")
    with_spark.insert(spark.createDataFrame([row], NUMBERS))
    without = lakelock.create(tmp_path / "plain", schema=NUMBERS, key="id")
    without.insert([dict(zip(["id", "amount", "few", "ratio"], row, strict=True))])
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for values, wanted in (
            ({"amount": "amount + 1.25"}, (1, Decimal("3.75"), 3, 0.5)),
            ({"amount": "amount * 1.5"}, (1, Decimal("5.63"), 3, 0.5)),
            ({"amount": 0, "few": "few + 1", "ratio": "2.5"}, (1, Decimal("0.00"), 4, 2.5)),
            ({"amount": "few - 5"}, (1, Decimal("-1.00"), 4, 2.5)),
        ):
            with_spark.update(values)
            without.update(values)
            assert tuple(with_spark.read().first()) == wanted == tuple(without.read().to_pylist()[0].values()), values
        before = with_spark.history().count(), len(without.history())
        for values in ({"amount": "amount + 20000"}, {"few": "id + 2147483647"}):
            for update in (with_spark.update, without.update):
                with pytest.raises(SchemaError, match="a new value of (amount|few) does not fit") as caught:
                    update(values)
                assert caught.value.hint
        assert before == (with_spark.history().count(), len(without.history()))
        growing = LakeTable.for_path(spark, path, options={"write.merge_schema": True})
        growing.update({"amount": "7"}, "id = 1")
        assert growing.read().first().amount == 7 and str(growing.schema["amount"].dataType) == "DecimalType(6,2)"
        with_spark.sql("INSERT INTO `table` VALUES (2, 7, 1, 3)")
        more = {"amount": "target.amount + source.amount"}
        with_spark.merge(with_spark.read("id = 2"), "id").when_matched_update(more).execute()
        assert tuple(with_spark.read("id = 2").first()) == (2, Decimal("14.00"), 1, 3.0)
        with pytest.raises(SchemaError, match="a new value of few does not fit int"):
            with_spark.sql("INSERT INTO `table` VALUES (3, 7, 3000000000, 3)")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_what_is_told_of_new_values_is_about_them(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema=NUMBERS, key="id")
    with pytest.raises(SchemaError, match=r"the new values do not fit their columns:\n  few: string does not fit") as caught:
        table.update({"few": "'x'"})
    assert "drop" not in caught.value.hint


def test_a_value_that_is_drawn_is_stored_as_it_was_looked_at(spark: SparkSession, path: str) -> None:
    """Drawn again it would not fit in about half of all cases, and Spark would cut it without a word."""
    table = LakeTable.create(spark, path, schema="id long, n int, price decimal(4, 1)", key="id")
    table.insert(spark.range(64).selectExpr("id", "0 AS n", "cast(0 AS decimal(4, 1)) AS price"))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for column, value, most in (("n", "cast(rand() * 4e9 AS bigint)", 2**31), ("price", "cast(rand() * 2e3 AS int)", 1000)):
            for number in range(8):
                with suppress(SchemaError):
                    table.update({column: value}, f"id = {number}")
            found = [row[column] for row in table.read(f"id < 8 AND {column} <> 0 OR {column} IS NULL").collect()]
            assert found
            assert all(drawn is not None and 0 <= drawn < most for drawn in found)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
