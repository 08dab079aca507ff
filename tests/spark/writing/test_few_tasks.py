"""How many tasks a small write takes in a session with Spark's defaults: as many as its rows need, not 200 for each shuffle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import DRIVER_ROWS
from tests.spark.sparks import HAS_DATA_SOURCES

from lakelock.spark_plugin import LakeTable, register, sql

COLUMNS = "id long, p string, v string"
JOB_TASKS = 4
"""More than a job of a small write needs, on two cores."""

pytestmark = pytest.mark.skipif(not HAS_DATA_SOURCES, reason="Spark 3.5 does not join the partitions of a persisted frame")


@pytest.fixture
def defaults(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with Spark's own number of shuffle partitions."""
    session = spark.newSession()
    session.conf.unset("spark.sql.shuffle.partitions")
    assert session.conf.get("spark.sql.shuffle.partitions") == "200"
    session.conf.set(DRIVER_ROWS, "0")
    register(session)
    yield session
    register(spark)


def tasks(spark: SparkSession, work: Callable[[], object]) -> list[int]:
    """How many tasks each of its jobs ran."""
    context = spark.sparkContext._jsc.sc()  # type: ignore[attr-defined]

    def jobs() -> dict[int, int]:
        context.listenerBus().waitUntilEmpty()
        found = context.statusStore().jobsList(None)
        listed = [found.apply(number) for number in range(found.size())]
        return {job.jobId(): job.numTasks() - job.numSkippedTasks() for job in listed}

    before = jobs()
    work()
    return [count for job, count in sorted(jobs().items()) if job not in before]


def test_small_writes_take_few_tasks_with_sparks_defaults(defaults: SparkSession, path: str) -> None:
    spark = defaults
    table = LakeTable.create(spark, path, schema=COLUMNS, key="id", partition_by="p")
    rows = spark.createDataFrame([(1, "a", "new"), (3, "b", "new")], COLUMNS)
    rows.createOrReplaceTempView("few")
    # What a user computes may have shuffles of its own.
    shuffled = rows.union(rows).groupBy("id", "p").agg({"v": "max"}).toDF("id", "p", "v")
    merge = (
        "MERGE INTO {} t USING few s ON t.id = s.id AND t.p = s.p "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    by_value = "target.v = source.v and target.p = source.p"
    writes: dict[str, Callable[[], object]] = {
        "insert": lambda: table.insert(shuffled),
        "upsert": lambda: table.upsert(shuffled),
        "merge": lambda: table.merge(rows, "target.id = source.id").when_matched_update({"v": "source.v"}).execute(),
        "merge of shuffled rows": lambda: table.merge(shuffled, by_value).when_matched_delete().execute(),
        "table.sql": lambda: table.sql(merge.format("`table`")),
        "sql": lambda: sql(spark, merge.format(f"lakelock.`{path}`")),
        "update": lambda: table.update({"v": "'x'"}, "id = 1"),
        "delete by keys": lambda: table.delete(shuffled),
        "overwrite": lambda: table.overwrite(shuffled, "id > 0"),
        "optimize": lambda: table.optimize(sort_by="v").execute(),
    }
    counts = {name: tasks(spark, write) for name, write in writes.items()}
    assert all(1 <= most <= JOB_TASKS for most in (max(each, default=0) for each in counts.values())), counts
    assert sorted(map(tuple, table.read().collect())) == [(1, "a", "new"), (3, "b", "new")]


@pytest.mark.in_ci
def test_writes_that_move_rows_take_few_tasks_with_sparks_defaults(defaults: SparkSession, path: str) -> None:
    table = LakeTable.create(defaults, path, schema=COLUMNS, key="id", partition_by="p", index="global")
    table.insert(defaults.createDataFrame([(1, "a", "old"), (2, "a", "old")], COLUMNS))
    moved = defaults.createDataFrame([(1, "b", "new"), (3, "b", "new")], COLUMNS)
    assert max(tasks(defaults, lambda: table.upsert(moved))) <= JOB_TASKS
    assert max(tasks(defaults, lambda: table.delete(moved.where("id = 3").select("id")))) <= JOB_TASKS
    assert sorted(map(tuple, table.read().collect())) == [(1, "b", "new"), (2, "a", "old")]
