"""Upserts whose rows lack columns of the table: refused, kept or null, as the setting or the call says."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import in_ci

from lakelock.errors import InputError, SchemaError
from lakelock.settings import MissingColumns
from lakelock.spark_plugin import LakeTable

COLUMNS = "id long, p string, ts long, v long, home struct<street: string, zip: string>, stops array<struct<a: int, b: int>>"
STORED = [(1, "a", 5, 10, ("X", "1"), [(1, 2)]), (2, "a", 5, 20, None, []), (3, "b", 5, 30, ("Z", "3"), None)]


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    """Three rows in two partitions, ordered by `ts`."""
    frame = spark.createDataFrame(STORED, COLUMNS)
    made = LakeTable.create(spark, path, schema=frame, key="id", partition_by="p", order_by="ts")
    made.insert(frame)
    return made


def content(table: LakeTable, *columns: str) -> dict[int, tuple[object, ...]]:
    names = columns or ("v", "home", "stops")
    rows = (row.asDict(recursive=True) for row in table.read().collect())
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


def streets(spark: SparkSession) -> DataFrame:
    """New streets of the rows 1 and 2, and a new row 4; nothing but the key, the order and the street."""
    rows = [(1, "a", 6, ("XX",)), (2, "a", 6, ("YY",)), (4, "b", 6, ("new",))]
    return spark.createDataFrame(rows, "id long, p string, ts long, home struct<street: string>")


BEFORE = {
    1: (10, {"street": "X", "zip": "1"}, [{"a": 1, "b": 2}]),
    2: (20, None, []),
    3: (30, {"street": "Z", "zip": "3"}, None),
}
NEW = {4: (None, {"street": "new", "zip": None}, None)}
KEPT = {1: (10, {"street": "XX", "zip": "1"}, BEFORE[1][2]), 2: (20, {"street": "YY", "zip": None}, []), 3: BEFORE[3], **NEW}
NULLED = {1: (None, {"street": "XX", "zip": None}, None), 2: (None, {"street": "YY", "zip": None}, None), 3: BEFORE[3], **NEW}


def test_an_upsert_that_lacks_columns_is_refused_before_any_work(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(SchemaError) as caught:
        table.upsert(streets(spark))
    assert caught.value.details["columns"] == ["v", "home.zip", "stops"]
    assert '"keep"' in (caught.value.hint or "") and "v, home.zip, stops" in str(caught.value)
    assert content(table) == BEFORE
    assert len(table.history().collect()) == 1


@pytest.mark.parametrize(("missing", "after"), [("keep", KEPT), ("null", NULLED)])
def test_a_call_says_what_becomes_of_missing_columns(
    spark: SparkSession, table: LakeTable, missing: MissingColumns, after: dict[int, object]
) -> None:
    result = table.upsert(streets(spark), missing_columns=missing)
    assert (result.rows_updated, result.rows_inserted) == (2, 1)
    assert content(table) == after


def test_the_option_and_the_conf_say_it_for_all_calls(spark: SparkSession, table: LakeTable) -> None:
    LakeTable.for_path(spark, table.path, options={"write.missing_columns": "keep"}).upsert(streets(spark))
    assert content(table) == KEPT
    spark.conf.set("spark.lakelock.write.missing_columns", "null")
    try:
        LakeTable.for_path(spark, table.path).upsert(streets(spark))
    finally:
        spark.conf.unset("spark.lakelock.write.missing_columns")
    assert content(table) == NULLED


def test_a_choice_that_is_none_is_refused(spark: SparkSession, table: LakeTable) -> None:
    with pytest.raises(InputError, match="missing_columns is 'ignore'"):
        table.upsert(streets(spark), missing_columns="ignore")  # type: ignore[arg-type]


def test_elements_of_lists_cannot_be_kept_and_the_field_is_named(spark: SparkSession, table: LakeTable) -> None:
    rows = spark.createDataFrame([(1, "a", 6, [(7,)])], "id long, p string, ts long, stops array<struct<a: int>>")
    with pytest.raises(SchemaError, match=r"stops\[\]\.b"):
        table.upsert(rows, missing_columns="keep")
    assert content(table) == BEFORE


def test_a_partial_update_goes_by_the_ordering_column(spark: SparkSession, table: LakeTable) -> None:
    rows = [(1, "a", 4, 0), (3, "b", 6, 31), (3, "b", 7, 32), (5, "c", 1, 50), (5, "c", 2, 51)]
    table.upsert(spark.createDataFrame(rows, "id long, p string, ts long, v long"), missing_columns="keep")
    assert content(table) == {**BEFORE, 3: (32, *BEFORE[3][1:]), 5: (51, None, None)}


def test_every_stored_row_of_a_key_keeps_its_own_values(spark: SparkSession, table: LakeTable) -> None:
    table.insert(spark.createDataFrame([(1, "a", 5, 11, ("other", "9"), None)], COLUMNS))
    table.upsert(spark.createDataFrame([(1, "a", 6, 12)], "id long, p string, ts long, v long"), missing_columns="keep")
    found = [row.asDict(recursive=True) for row in table.read().where("id = 1").collect()]
    assert sorted((row["v"], row["home"]["zip"]) for row in found) == [(12, "1"), (12, "9")]


def test_a_column_added_by_another_job_survives_the_upserts_of_an_older_one(spark: SparkSession, table: LakeTable) -> None:
    older = spark.createDataFrame(STORED, COLUMNS).withColumn("ts", F.lit(8)).withColumn("v", F.col("v") + 1)
    younger = spark.createDataFrame(STORED, COLUMNS).withColumn("ts", F.lit(7)).withColumn("note", F.lit("n"))
    table.upsert(younger, merge_schema=True)
    with pytest.raises(SchemaError, match="the rows lack a column of the table: note"):
        LakeTable.for_path(spark, table.path).upsert(older)
    table.upsert(older, missing_columns="keep")
    assert content(table, "v", "note") == {1: (11, "n"), 2: (21, "n"), 3: (31, "n")}
    both = older.drop("stops").withColumn("ts", F.lit(9)).withColumn("more", F.lit(1))
    table.upsert(both, merge_schema=True, missing_columns="keep")
    assert content(table, "stops", "note", "more") == {key: (row[2], "n", 1) for key, row in BEFORE.items()}


@pytest.mark.parametrize("missing", ["keep", *in_ci(None, "null")])
def test_a_transaction_that_adds_a_column_and_then_lacks_it(
    spark: SparkSession, table: LakeTable, missing: MissingColumns | None
) -> None:
    wider = spark.createDataFrame([(9, "z", 5, 90, None, None)], COLUMNS).withColumn("note", F.lit("n"))
    table = LakeTable.for_path(spark, table.path, options={"write.merge_schema": True})

    def both() -> None:
        with table.transaction() as tx:
            tx.insert(wider)
            tx.upsert(streets(spark).where("p = 'a'"), missing_columns=missing)

    if missing is None:
        with pytest.raises(SchemaError, match=r"v, home\.zip, stops, note"):
            both()
        assert content(table) == BEFORE
        return
    both()
    after = KEPT if missing == "keep" else NULLED
    assert content(table) == {1: after[1], 2: after[2], 3: BEFORE[3], 9: (90, None, None)}
    assert content(table, "note") == {1: (None,), 2: (None,), 3: (None,), 9: ("n",)}


@pytest.mark.parametrize(("missing", "after"), [("keep", KEPT), *in_ci((None, BEFORE), ("null", NULLED))])
def test_a_micro_batch_that_lacks_columns(
    spark: SparkSession, table: LakeTable, tmp_path: Path, missing: MissingColumns | None, after: dict[int, object]
) -> None:
    streets(spark).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(streets(spark).schema).parquet(str(tmp_path / "in")).writeStream
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    upsert = table.upsert_batch if missing is None else partial(table.upsert_batch, missing_columns=missing)
    query = stream.foreachBatch(upsert).start()
    if missing is None:
        with pytest.raises(Exception, match="the rows lack 3 columns of the table"):
            query.awaitTermination(120)
    else:
        assert query.awaitTermination(120)
    assert content(table) == after


@pytest.mark.parametrize("missing", ["error", *in_ci("keep", "null")])
def test_inserts_and_overwrites_may_lack_columns_whatever_the_setting(
    spark: SparkSession, table: LakeTable, missing: MissingColumns
) -> None:
    table = LakeTable.for_path(spark, table.path, options={"write.missing_columns": missing})
    table.insert(streets(spark).where("id = 4"))
    table.overwrite_partitions(streets(spark).where("id = 1"))
    assert content(table) == {1: NULLED[1], 3: BEFORE[3], **NEW}
