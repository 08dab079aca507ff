"""Writes of few rows go through the driver: what they do is the same, and the history says so."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark import without_jobs

from lakelock.spark_plugin import LakeTable, stage_rows

COLUMNS = "id long, p string, v long"


@pytest.fixture(autouse=True)
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows are few as on a cluster, unless a test is about a local Spark."""
    if "local" not in request.node.name:
        monkeypatch.setattr(stage_rows, "LOCAL_TIMES", 1)


def rows(spark: SparkSession, *values: tuple[object, ...]) -> DataFrame:
    return spark.createDataFrame(list(values), COLUMNS)


def made(spark: SparkSession, path: str, driver_rows: int = 3, **more: object) -> LakeTable:
    options = {"key": "id", "partition_by": "p", **more}
    return LakeTable.create(
        spark, path, schema=rows(spark), options={"write.driver_rows": driver_rows}, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def ran_on(table: LakeTable) -> list[str]:
    """Where the commits have run, the newest first."""
    return [row.ran_on for row in table.history(full=True).select("ran_on").collect()]


def content(table: LakeTable) -> list[tuple[object, ...]]:
    return sorted(without_jobs.content(table), key=str)


def test_each_kind_of_write_of_few_rows_runs_in_the_driver_with_the_same_rows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = {}
    for driver_rows in (0, 10):
        path = str(tmp_path_factory.mktemp("table") / "table")
        with made(spark, path, driver_rows) as table:
            table.insert(rows(spark, (1, "a", 10), (2, "a", 20), (3, "b", 30)))
            table.upsert(rows(spark, (1, "a", 11), (4, "b", 40)))
            table.delete(rows(spark, (2, "a", 0), (9, "a", 0)).select("id", "p"))
            source = rows(spark, (3, "b", 1), (4, "b", 2), (5, "c", 50))
            merge = table.merge(source, "target.id = source.id AND target.p = source.p")
            merge = merge.when_matched_delete("source.v = 2").when_matched_update({"v": "target.v + source.v"})
            merge.when_not_matched_insert_all().execute()
            table.update({"v": "v * 2"}, "id = 1")
            table.delete("id = 5")
            found[driver_rows] = content(table), [row.operation for row in table.history(full=True).collect()], ran_on(table)
    assert found[10][0] == [(1, "a", 22), (3, "b", 31)]
    assert found[0][:2] == found[10][:2]
    assert (set(found[0][2]), set(found[10][2])) == ({"executors"}, {"driver"})


def test_more_rows_than_the_bound_go_to_the_executors(spark: SparkSession, path: str) -> None:
    with made(spark, path) as table:
        table.insert(rows(spark, *((number, "a", number) for number in range(4))))
        table.upsert(rows(spark, *((number, "a", 9) for number in range(3))))
        assert ran_on(table) == ["driver", "executors"]
        assert content(table) == [(0, "a", 9), (1, "a", 9), (2, "a", 9), (3, "a", 3)]


def test_on_a_local_spark_more_rows_are_few_for_a_write_by_key(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """They are rewritten in threads, a pack of file groups in each, with the rows that executors would write."""
    numbers = spark.range(0, 400).selectExpr("id", "cast(id % 4 as string) AS p", "id AS v")
    numbers.write.parquet(f"{tmp_path}/source")
    source = spark.read.parquet(f"{tmp_path}/source")
    with made(spark, path, 100) as table:
        table.insert(source)
        table.upsert(source.where("id % 3 = 0").withColumn("v", F.col("v") + 1000))
        table.upsert(source.where("id < 150").selectExpr("id + 390 AS id", "p", "-v AS v"))
        table.delete(source.where("id % 2 = 0").select("id", "p"))
        assert ran_on(table) == ["driver", "driver", "driver", "executors"]
        expected = {(n, str(n % 4)): n + 1000 * (n % 3 == 0) for n in range(400)}
        expected |= {(n + 390, str(n % 4)): -n for n in range(150)}
        left = {key: v for key, v in expected.items() if key[0] % 2 or key[0] >= 400 or key[1] != str(key[0] % 4)}
        assert {(n, p): v for n, p, v in content(table)} == left
        merge = table.merge(source.where("id < 150"), ["id", "p"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert ran_on(table)[0] == "executors"


def test_rows_that_cost_a_shuffle_of_unknown_size_are_not_computed_to_see_whether_they_are_few(
    spark: SparkSession, path: str
) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(number: int) -> int:
        computed.add(1)
        return number

    numbers = spark.sparkContext.parallelize(range(6), 2).map(lambda number: (number % 3, "a", counted(number)))
    source = spark.createDataFrame(numbers, COLUMNS).groupBy("id", "p").agg(F.sum("v").alias("v"))
    with made(spark, path) as table:
        table.insert(source)
        assert (ran_on(table), computed.value) == (["executors"], 6)


def test_rows_that_are_few_are_computed_once(spark: SparkSession, path: str) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(number: int) -> tuple[int, str, int]:
        computed.add(1)
        return (number, "a", number)

    with made(spark, path) as table:
        source = spark.createDataFrame(spark.sparkContext.parallelize(range(3), 2).map(counted), COLUMNS)
        table.merge(source, ["id", "p"]).when_matched_update_all().when_not_matched_insert_all().execute()
        assert (ran_on(table), computed.value, len(content(table))) == (["driver"], 3, 3)


KINDS = "id long, p string, s struct<d: date, t: timestamp>, m map<string, decimal(10, 2)>, b array<binary>, n timestamp_ntz"


def test_values_of_python_are_written_without_a_job(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    day, moment = dt.date(2026, 11, 29), dt.datetime(2026, 11, 29, 1, 2, 3, 4)
    some = (1, "a", (day, moment), {"k": Decimal("1.50")}, [b"x", None], moment)
    values = [some, (2, "b", None, {}, None, None), (3, None, (None, None), None, [], moment)]
    found = []
    for driver_rows in (0, 10):
        path, jobs = str(tmp_path_factory.mktemp("table") / "table"), _Jobs(spark)
        frame = spark.createDataFrame(values, KINDS)
        options = {"write.driver_rows": driver_rows}
        with LakeTable.create(spark, path, schema=frame, key="id", partition_by="p", options=options) as table:
            table.insert(frame)
            table.upsert(frame.where("id < 3").withColumn("p", F.upper("p")))
            table.upsert(spark.createDataFrame(values[:1], KINDS))
            found.append((content(table), jobs.count() > 0))
    assert len(found[0][0]) == 5
    assert found == [(found[0][0], True), (found[0][0], False)]


def test_values_that_a_function_of_the_user_changes_are_computed_with_it(spark: SparkSession, path: str) -> None:
    sent = spark.sparkContext.parallelize([(1, "a", 1), (2, "a", 2)], 2)
    with made(spark, path) as table:
        table.insert(spark.createDataFrame(sent, COLUMNS))
        table.insert(sent.map(lambda row: (row[0] + 10, row[1], row[2])).toDF(COLUMNS))
        table.insert(sent.flatMap(lambda row: [row, row]).filter(lambda row: row[0] == 2).toDF(COLUMNS))
        assert content(table) == [(1, "a", 1), (11, "a", 1), (12, "a", 2), (2, "a", 2), (2, "a", 2), (2, "a", 2)]
        assert set(ran_on(table)) == {"driver"}


class _Jobs:
    """Counts the jobs that the session runs from now on."""

    def __init__(self, spark: SparkSession) -> None:
        self._scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # type: ignore[attr-defined]
        self._before = self._scheduler.numTotalJobs()

    def count(self) -> int:
        return int(self._scheduler.numTotalJobs() - self._before)


def test_few_rows_for_many_files_go_on_to_the_executors(spark: SparkSession, path: str) -> None:
    with made(spark, path, 100) as table:
        many = rows(spark, *((number, f"p{number}", 1) for number in range(20)))
        table.insert(many)
        table.upsert(many.withColumn("v", F.lit(2).cast("long")))
        assert ran_on(table) == ["executors", "executors"]
        assert {row[2] for row in content(table)} == {2} and len(content(table)) == 20


def test_keys_that_are_made_up_differ_between_writes_of_one_transaction(spark: SparkSession, path: str) -> None:
    with LakeTable.create(spark, path, schema=rows(spark)) as table:
        with table.transaction() as tx:
            tx.insert(rows(spark, (1, "a", 1)))
            tx.insert(rows(spark, (1, "a", 1)))
        keys = [row["_hoodie_record_key"] for row in table.read(include_meta=True).collect()]
        assert len(keys) == len(set(keys)) == 2
