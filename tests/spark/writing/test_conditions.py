"""A condition says the same of a row however often a write asks it: the time stands still, and lots are not drawn."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.sizes import but_in_ci
from tests.spark import without_jobs
from tests.waiting import eventually

from lakelock.errors import InputError
from lakelock.spark_plugin import LakeTable, changing

COLUMNS = "id long, p string, ts timestamp"
LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
Given = str | Column


def now() -> datetime:
    return datetime.now(timezone.utc)


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def ids(table: LakeTable) -> list[int]:
    return [key for (key,) in without_jobs.content(table, "id")]


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    made = LakeTable.create(spark, path, schema=rows(spark), key="id", partition_by="p")
    without_jobs.fill(made, (1, "a", LONG_AGO), (2, "a", LONG_AGO))
    without_jobs.fill(made, (3, "b", datetime(2100, 1, 1, tzinfo=timezone.utc)))
    return made


def lots(spark: SparkSession) -> list[Given]:
    spark.range(9).withColumn("lot", F.rand()).createOrReplaceTempView("lots")
    drawn = F.udf(lambda number: number % 2 == 0, "boolean").asNondeterministic()
    return [
        "rand() < 0.5",
        "id = 1 or rand(42) < 0.5",
        "uuid() < 'a'",
        "id in (select id from lots where lot < 0.5)",
        "input_file_name() > 'a'",
        F.rand() < 0.5,
        drawn(F.col("id")),
    ]


@pytest.mark.parametrize("number", range(7))
def test_a_condition_whose_answer_is_not_certain_is_refused_before_any_work(
    spark: SparkSession, table: LakeTable, number: int
) -> None:
    condition = lots(spark)[number]
    folder = Path(table.path.removeprefix("file://"))
    before = sorted(folder.rglob("*"))
    for write in (table.delete, lambda where: table.overwrite(rows(spark), where=where)):
        with pytest.raises(InputError, match="may give a different answer each time") as caught:
            write(condition)
        assert "table.delete(table.read().where(...))" in caught.value.hint
    assert sorted(folder.rglob("*")) == before
    with pytest.raises(InputError, match="may give a different answer"), table.transaction() as tx:
        tx.read(condition)
    with pytest.raises(InputError, match="may give a different answer"), table.transaction() as tx:
        tx.delete(condition)
    assert ids(table) == [1, 2, 3]


def certain(function: Callable[..., Column]) -> Column:
    return function(F.col("id")) & (F.col("ts") < F.current_timestamp())


PAST: dict[str, Callable[[], Given]] = {
    "text": lambda: "ts < now() - interval 1 microsecond and id < 100",
    "literal": lambda: "ts < timestamp 'now'",
    "udf": lambda: certain(F.udf(lambda number: number < 100, "boolean")),
    "correlated": lambda: "ts < now() and exists (select 1 from moments where moments.id < 9 and ts < now())",
}


@pytest.mark.parametrize("kind", but_in_ci(PAST, ["correlated"]))
def test_the_time_stands_still_from_the_first_look_of_a_delete_to_its_last_attempt(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    spark.createDataFrame([(7, LONG_AGO)], "id long, moment timestamp").createOrReplaceTempView("moments")
    plan_routes, meanwhile = changing.plan_routes, [(4, "c", LONG_AGO), None]

    def beside_others(*args: object, **more: object) -> object:
        if meanwhile:
            # A row of just now, in the past at the commit but not when the delete began; and first one that it must see.
            others = [row for row in (meanwhile.pop(0), (5 + len(meanwhile), "c", now())) if row]
            LakeTable.for_path(spark, table.path).insert(rows(spark, *others))
        return plan_routes(*args, **more)

    monkeypatch.setattr(changing, "plan_routes", beside_others)
    done = table.delete(PAST[kind]())
    assert (ids(table), done.rows_deleted, done.attempts) == ([3, 5, 6], 3, 2)


def test_an_overwrite_judges_old_and_new_rows_and_those_of_others_at_one_moment(
    spark: SparkSession, table: LakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_routes = changing.plan_routes

    def beside_others(*args: object, **more: object) -> object:
        LakeTable.for_path(spark, table.path).insert(rows(spark, (5, "c", now())))
        return plan_routes(*args, **more)

    monkeypatch.setattr(changing, "plan_routes", beside_others)
    # A narrower type than the table's: the condition fits it all the same.
    new = rows(spark, (8, "a", LONG_AGO)).withColumn("id", F.col("id").cast("int"))
    done = table.overwrite(new, where="ts < current_timestamp() and id < 100")
    assert (ids(table), done.attempts) == ([3, 5, 8], 1)


def test_a_read_of_a_transaction_keeps_to_the_moment_at_which_it_was_made(spark: SparkSession, table: LakeTable) -> None:
    soon = now() + timedelta(seconds=1)
    table.insert(rows(spark, (4, "c", soon)))
    with table.transaction() as tx:
        read = [tx.read("ts < current_timestamp()"), tx.read(F.col("ts") < F.current_timestamp())]
        seen = [frame.count() for frame in read]
        eventually(lambda: now() > soon)
        assert [frame.count() for frame in read] == seen


def counting(spark: SparkSession) -> tuple[object, Column]:
    asked = spark.sparkContext.accumulator(0)

    def count(number: int) -> int:
        asked.add(1)
        return number

    return asked, F.udf(count, "long").asNondeterministic()(F.col("id"))


def test_a_frame_that_draws_lots_is_computed_once_by_a_write_that_looks_at_it_often(
    spark: SparkSession, table: LakeTable
) -> None:
    asked, counted = counting(spark)
    drawn = spark.range(100, 300).select(counted.alias("id"), F.expr("if(rand() < 0.5, 'a', 'b')").alias("p"))
    done = table.upsert(drawn.withColumn("ts", F.current_timestamp()))
    assert (asked.value, done.rows_inserted) == (200, 200)  # type: ignore[attr-defined]
    assert ids(table) == [1, 2, 3, *range(100, 300)]

    asked, counted = counting(spark)
    doomed = table.read().where("id >= 100 and rand() < 0.5").select(counted.alias("id"), "p")
    done = table.delete(doomed)
    assert asked.value == done.rows_deleted == 203 - table.read().count()  # type: ignore[attr-defined]
    assert table.read().distinct().count() == table.read().count()
