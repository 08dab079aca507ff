"""Columns grow in Spark: its own Parquet reader shows old files in the new types, and a session's names in any case."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.api import Committed, ConflictRule, Transaction
from tests.sizes import in_ci
from tests.spark.sparks import since_spark_4

from lakelock.errors import ConflictError, InputError, SchemaError
from lakelock.spark_plugin import LakeTable

PLACE = "struct<street: string, floor: int>"
OLD = (
    f"id int, n int, m int, ratio float, price decimal(5, 2), place {PLACE}, "
    f"stops array<{PLACE}>, by_day map<string, {PLACE}>, p string"
)
WIDER = {
    "n": "bigint", "m": "double", "ratio": "double", "price": "decimal(20, 4)", "place.floor": "bigint",
    "stops.element.floor": "double", "by_day.value.floor": "bigint",
}  # fmt: skip


def old(spark: SparkSession, *keys: int) -> DataFrame:
    place = ("s", 7)
    values = [(key, key, key, 0.5, Decimal("1.25"), place, [place, None], {"mon": place}, "a") for key in keys]
    return spark.createDataFrame(values, OLD).coalesce(1)


def filled(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=old(spark, 1), key="id", partition_by="p")
    made.insert(old(spark, 1, 2, 3))
    return made


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return filled(spark, path)


def shown(frame: DataFrame) -> dict[int, Row]:
    return {row["id"]: row for row in frame.collect()}


@since_spark_4
def test_every_read_shows_old_files_in_wider_types(spark: SparkSession, table: LakeTable) -> None:
    first = table.history(1).collect()[0]["instant"]
    result = table.columns.widen(WIDER)
    table.columns.add({"note": "string", "place.zip": "string"})
    assert (result.operation, result.files) == ("ALTER_SCHEMA", 0)
    source = spark.read.format("lakelock").load(table.detail().collect()[0]["location"])
    assert source.schema == table.schema == table.read().schema
    place = Row(street="s", floor=7, zip=None)
    expected = Row(id=2, n=2, m=2.0, ratio=0.5, price=Decimal("1.2500"), place=place, stops=[Row(street="s", floor=7.0), None],
                   by_day={"mon": Row(street="s", floor=7)}, p="a", note=None)  # fmt: skip
    for frame in (table.read(), table.read(as_of=first), source):
        assert shown(frame)[2] == expected
    for condition in ("n = 2 and note is null", "m = 2 and place.floor = 7", "price = 1.25 and n > 1 and n < 3"):
        assert list(shown(table.read(condition))) == [2]
    assert shown(table.changes("2000-01-01"))[3]["n"] == 3


@pytest.mark.in_ci
def test_every_write_joins_old_files_and_wider_rows(spark: SparkSession, table: LakeTable) -> None:
    table.columns.widen(WIDER)
    table.update({"N": "n + 10000000000", "m": "m / 4"}, "ID = 1")
    table.upsert(table.read().where("id = 2").withColumn("price", F.lit(Decimal("12345678.1234"))))
    table.merge(old(spark, 3).withColumnRenamed("n", "N"), "target.id = source.id and target.p = source.p").when_matched_update(
        {"N": "source.n * 3000000000"}
    ).execute()
    table.insert(old(spark, 4))
    table.delete("N = 4")
    found = shown(table.read())
    assert {key: (row["n"], row["m"]) for key, row in found.items()} == {
        1: (10000000001, 0.25),
        2: (2, 2.0),
        3: (9000000000, 3.0),
    }
    assert found[2]["price"] == Decimal("12345678.1234")


@pytest.mark.in_ci
@since_spark_4
def test_rows_bring_new_columns_and_wider_types_with_them(spark: SparkSession, table: LakeTable) -> None:
    wider = old(spark, 3, 4).selectExpr(
        "ID", "n * 3000000000 as N", "p as P", "struct(1 as FLOOR, 'z' as zip) as PLACE", "'x' as note"
    )
    with pytest.raises(SchemaError, match="n: int64 does not fit int32") as refused:
        table.insert(wider)
    assert "merge_schema" in str(refused.value)
    table.upsert(wider, merge_schema=True, missing_columns="keep")
    found = shown(table.read())
    assert (found[3]["n"], found[4]["n"], found[1]["n"]) == (9000000000, 12000000000, 1)
    assert found[3]["place"] == Row(street="s", floor=1, zip="z") and found[1]["place"] == Row(street="s", floor=7, zip=None)
    assert table.schema.names == [*old(spark).schema.names, "note"]
    old(spark, 9).withColumnRenamed("id", "Id").write.format("lakelock").mode("append").save(
        table.detail().collect()[0]["location"]
    )
    assert shown(table.read())[9]["n"] == 9


@pytest.mark.in_ci
@since_spark_4
def test_an_overwrite_of_the_table_may_replace_its_columns(spark: SparkSession, table: LakeTable) -> None:
    first, location = table.history(1).head()["instant"], table.detail().head()["location"]
    before = shown(table.read())
    other = table.read().selectExpr("'n' || n as n", "price as cost", "p", "id")
    with pytest.raises(SchemaError, match="cost: not a column"):
        table.overwrite(other)
    with pytest.raises(SchemaError, match="the key column 'id' is not in the schema"):
        table.overwrite(other.drop("id"), overwrite_schema=True)
    with pytest.raises(InputError, match="an overwrite of the whole table"):
        table.overwrite(other, "id = 1", overwrite_schema=True)
    table.overwrite(other, overwrite_schema=True)
    assert table.read().columns == ["n", "cost", "p", "id"]
    assert shown(table.read())[2] == Row(n="n2", cost=Decimal("1.25"), p="a", id=2)
    assert (
        shown(table.read(as_of=first)) == before == shown(spark.read.format("lakelock").option("as_of", first).load(location))
    )
    with pytest.raises(InputError, match="its columns have been replaced since"):
        table.restore(first)
    then = table.read(as_of=first).drop("m")
    again = spark.createDataFrame(then.collect(), then.schema)
    again.write.format("lakelock").mode("overwrite").option("overwriteSchema", "true").save(location)
    assert shown(table.read("n = 2"))[2]["ratio"] == 0.5 and "m" not in table.read().columns


def test_columns_are_renamed_dropped_and_reordered_and_nobodys_commit_is_lost(spark: SparkSession, table: LakeTable) -> None:
    first, other = table.history(1).head()["instant"], LakeTable.for_path(spark, table.path, application="other")
    assert table.columns.reorder(["P", "ratio"]).files == 0
    assert table.read().columns == ["p", "ratio", "id", "n", "m", "price", "place", "stops", "by_day"]
    table.update({"n": "n + 100"})
    with pytest.raises(ConflictError) as late, other.transaction() as tx:  # noqa: PT012 - a transaction is a block
        tx.read("id = 1")
        table.columns.rename({"N": "m", "m": "n"}, tag="swapped")
        tx.update({"n": 70}, "id = 1")
    assert late.value.conflict.rule is ConflictRule.FILE_GROUP
    table.columns.drop(["stops", "by_day", "place"])
    assert table.read().columns == ["p", "ratio", "id", "m", "n", "price"]
    assert shown(table.read())[2] == Row(p="a", ratio=0.5, id=2, m=102, n=2, price=Decimal("1.25"))
    assert "place" in table.read(as_of=first).columns
    table.columns.add({"place": "string"})
    assert {row["place"] for row in table.read().collect()} == {None}
    batches = HudiTableBuilder.from_base_uri(table.path).build().read()
    theirs = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    assert theirs.column_names[-7:] == table.read().columns and theirs.num_rows == 3


@pytest.mark.in_ci
def test_fields_inside_columns_are_renamed_and_dropped_and_what_is_null_stays_null(
    spark: SparkSession, table: LakeTable
) -> None:
    table.insert(spark.createDataFrame([(4, 4, 4, 0.5, None, None, None, {"tue": None}, "a")], OLD))
    assert table.columns.reorder(["place.FLOOR", "stops.element.floor", "p"]).files == 0
    assert table.schema.names[0] == "p" and table.schema["place"].dataType.names == ["floor", "street"]
    assert table.schema["stops"].dataType.elementType.names == ["floor", "street"]
    assert shown(table.read())[1]["place"] == Row(floor=7, street="s") and shown(table.read())[1]["stops"][0].street == "s"
    first = table.history(1).head()["instant"]
    names = {"Place.street": "road", "place": "spot", "stops.element.floor": "level", "by_day.value.street": "road"}
    assert table.columns.rename(names).rows_inserted == 4
    table.columns.drop(["spot.FLOOR", "stops.element.street"])
    found = shown(table.read())
    assert found[1]["spot"] == Row(road="s") and found[1]["stops"] == [Row(level=7), None]
    assert found[1]["by_day"] == {"mon": Row(road="s", floor=7)}
    assert (found[4]["spot"], found[4]["stops"], found[4]["by_day"]) == (None, None, {"tue": None})
    assert shown(table.read(as_of=first))[1]["place"] == Row(floor=7, street="s")
    batches = HudiTableBuilder.from_base_uri(table.path).build().read()
    theirs = {row["id"]: row for batch in batches for row in pa.record_batch(batch).to_pylist()}
    assert theirs[1]["spot"] == {"road": "s"} and theirs[4]["spot"] is None and theirs[1]["stops"] == [{"level": 7}, None]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.columns.rename({"id": "key"}), "id is the table's key column, and stays"),
        (lambda table: table.columns.drop(["n", "P"]), "p is the table's partition column"),
        (lambda table: table.columns.rename({"n": "M"}), "M.*m|m.*M"),
        (lambda table: table.columns.rename({"place.street": "Floor"}), "place.Floor.*place.floor"),
        (lambda table: table.columns.rename({"place.street": "place.road"}), "name the field alone"),
        (lambda table: table.columns.rename({"stops.element": "stop"}), "stops.element stands for what stops holds"),
        (lambda table: table.columns.rename({"n": "a", "N": "b"}), "n is named twice"),
        (lambda table: table.columns.drop("nn"), "no column 'nn'"),
        (lambda table: table.columns.drop("place.flor"), "place has no column 'flor'.*did you mean 'floor'"),
        (lambda table: table.columns.drop("n.x"), "n has no column 'x'"),
        (lambda table: table.columns.drop(["by_day.value.street", "by_day.value.floor"]), "by_day.value would have no fields"),
        (lambda table: table.columns.drop(["place", "place.floor"]), "place.floor is part of place, which is dropped"),
        (lambda table: table.columns.reorder(["n", "N"]), "n is named twice"),
        (lambda table: table.columns.reorder("place.flor"), "no column 'place.flor'.*did you mean 'floor'"),
        (lambda table: table.columns.reorder("n.x"), "n is int32, whose parts have no order"),
        (lambda table: table.columns.rename({"n": 1}), "not a mapping from old to new names"),
    ],
)
def test_a_change_of_names_that_a_table_cannot_have_is_refused_before_any_work(
    settled: LakeTable, change: Callable[[LakeTable], object], problem: str
) -> None:
    with pytest.raises((SchemaError, InputError), match=f"(?s){problem}"):
        change(settled)


def test_types_are_named_as_in_sql_and_columns_by_a_mapping(table: LakeTable) -> None:
    with pytest.raises(InputError, match="columns is 'note string', of the type str"):
        table.columns.add("note string")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="cannot become string") as refused:
        table.columns.widen({"n": "string"})
    assert "overwrite_schema=True" in refused.value.hint
    with pytest.raises(SchemaError, match="m may be null already"):
        table.columns.relax("m")


def test_a_table_says_when_it_is_made_which_columns_it_stores_as_int(spark: SparkSession, path: str) -> None:
    narrow = spark.createDataFrame([(1, 2)], "id short, small byte")
    with pytest.warns(UserWarning, match="id: int16 is stored as int32; small: int8 is stored as int32") as told:
        made = LakeTable.create(spark, path, schema=narrow, key="id")
    assert told[0].filename == __file__
    made.insert(narrow)
    assert made.read().dtypes == [("id", "int"), ("small", "int")]
    assert made.read().head() == narrow.head()


@pytest.mark.parametrize(
    ("profile", "meanwhile", "lost"),
    [
        ("strict", "delete", "readers take the columns"),
        *in_ci(("hive", "append", "wrote files with the columns"), ("hudi", "append", "wrote files with the columns")),
    ],
)
def test_a_rename_that_others_would_undo_begins_again(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, profile: str, meanwhile: str, lost: str
) -> None:
    """A later instant repeats the old columns, or a file with them would stay."""
    other, commit, done = LakeTable.for_path(spark, table.path), Transaction.commit, list[str]()
    appended = other.transaction()
    if meanwhile == "append":
        appended.__enter__().insert(old(spark, 9).withColumn("p", F.lit("new")))

    def second(tx: Transaction, *given: Any, **more: Any) -> Committed:
        if not done:
            done.append(meanwhile)
            if meanwhile == "append":
                appended.__exit__(None, None, None)
            else:
                other.delete("id = 77")
        return commit(tx, *given, **more)

    monkeypatch.setattr(Transaction, "commit", second)
    mine = LakeTable.for_path(spark, table.path, options={"concurrency.profile": profile})
    result = mine.columns.rename({"n": "count"})
    assert result.attempts == 2 and lost in str(result.conflicts[0])
    assert "n" not in table.read().columns
    assert {row["id"]: row["count"] for row in table.read().collect()} == {
        key: key for key in (1, 2, 3, *((9,) if meanwhile == "append" else ()))
    }


def test_names_mean_the_columns_of_the_table_in_whatever_case(spark: SparkSession, table: LakeTable) -> None:
    """Also fields of structs, and the columns of conditions and merges, which still open no other file than they have to."""
    table.update({"place": F.col("PLACE").withField("Street", F.lit("new"))}, "ID = 1")
    table.sql("UPDATE `table` SET stops = array(named_struct('STREET', 'x', 'Floor', 1)) WHERE id = 2")
    found = shown(table.read())
    assert found[1]["place"] == Row(street="new", floor=7) and found[2]["stops"] == [Row(street="x", floor=1)]
    table.insert(old(spark, 4).withColumn("p", F.lit("b")))
    assert len(table.read("P = 'b' and Id = 4").inputFiles()) == 1
    with table.transaction() as tx:
        source = spark.createDataFrame([(4, "b", 40)], "id int, p string, n int")
        merge = tx.merge(source, "target.ID = source.id and target.P = source.p").when_matched_update({"n": "source.n"})
        merge.execute()
        table.insert(old(spark, 5).withColumn("p", F.lit("c")))
    assert shown(table.read())[4]["n"] == 40
