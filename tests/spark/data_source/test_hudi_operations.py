"""Hudi's operations through `format("lakelock")` after `register(spark)`: Hudi's options do what they do in Hudi."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakelock.errors import DuplicateKeyError, InputError, LakelockError, SettingsError, TableError
from lakelock.spark_plugin import LakeTable, register, unregister

COLUMNS = "id long, day string, v long"
HUDI = {
    "hoodie.table.name": "goods",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.precombine.field": "v",
}
OPERATION = "hoodie.datasource.write.operation"
TO_DELETE = "hoodie.datasource.write.partitions.to.delete"


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    unregister(spark)


class Job:
    """Writes rows by Hudi's options, and tells what the table has."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path

    def frame(self, *rows: tuple[object, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), COLUMNS).coalesce(1)

    def write(self, *rows: tuple[object, ...], mode: str = "append", **options: str) -> list[tuple[Any, ...]]:
        self.frame(*rows).write.format("lakelock").options(**{**HUDI, **options}).mode(mode).save(self.path)
        return self.rows()

    def rows(self) -> list[tuple[Any, ...]]:
        with LakeTable.for_path(self.spark, self.path) as table:
            return sorted(tuple(row) for row in table.read().collect())

    def history(self) -> list[tuple[str, str]]:
        with LakeTable.for_path(self.spark, self.path) as table:
            return [(row["operation"], row["tag"]) for row in table.history(full=True).orderBy("instant").collect()]


@pytest.fixture
def job(spark: SparkSession, path: str) -> Job:
    return Job(spark, path)


def test_hudis_options_without_an_operation_upsert_and_the_first_write_makes_the_table(job: Job) -> None:
    first = ((1, "a", 1), (2, "b", 1), (2, "b", 2))
    assert job.write(*first) == [(1, "a", 1), (2, "b", 2)]
    assert job.write(*first) == [(1, "a", 1), (2, "b", 2)]
    assert job.write((1, "a", 5), (3, "c", 1), userMetadata="nightly") == [(1, "a", 5), (2, "b", 2), (3, "c", 1)]
    assert job.write((1, "a", 5), **{OPERATION: "insert"}) == [(1, "a", 5), (1, "a", 5), (2, "b", 2), (3, "c", 1)]
    assert job.history() == [("UPSERT", ""), ("UPSERT", ""), ("UPSERT", "nightly"), ("INSERT", "")]
    with LakeTable.for_path(job.spark, job.path) as table:
        made = table.detail().head()
        assert (made["name"], made["key"], made["partition_by"], made["order_by"]) == ("goods", ["id"], ["day"], "v")


def test_each_of_hudis_operations_does_what_its_name_says(job: Job) -> None:
    job.write((1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "d", 1), (5, "d", 1))
    assert job.write((1, "a", 0), **{OPERATION: "delete"}) == [(2, "b", 1), (3, "c", 1), (4, "d", 1), (5, "d", 1)]
    assert job.write((6, "d", 1), **{OPERATION: "insert_overwrite"}) == [(2, "b", 1), (3, "c", 1), (6, "d", 1)]
    assert job.write((0, "b", 0), **{OPERATION: "delete_partition"}) == [(3, "c", 1), (6, "d", 1)]
    assert job.write((0, "x", 0), **{OPERATION: "DELETE_PARTITION", TO_DELETE: "day=d, day=e"}) == [(3, "c", 1)]
    assert job.write((7, "x", 1), **{OPERATION: "insert_overwrite_table"}) == [(7, "x", 1)]
    assert [operation for operation, _ in job.history()][1:] == [
        "DELETE",
        "INSERT_OVERWRITE",
        "DELETE_PARTITION",
        "DELETE_PARTITION",
        "INSERT_OVERWRITE_TABLE",
    ]


def test_the_mode_overwrite_replaces_the_table_by_one_row_for_each_key_as_hudis_quickstart_does(job: Job) -> None:
    for _ in range(2):
        assert job.write((1, "a", 1), (1, "a", 2), (2, "b", 1), mode="overwrite") == [(1, "a", 2), (2, "b", 1)]
    assert job.write((3, "c", 1), mode="overwrite") == [(3, "c", 1)]
    with pytest.raises(DuplicateKeyError, match="several rows have the same key, and none of them is newer: 1/a"):
        job.write((1, "a", 1), (1, "a", 1), mode="overwrite")
    assert job.write((8, "c", 1), mode="ignore") == [(3, "c", 1)]
    with pytest.raises(TableError, match="is a table already, and the mode is Spark's default"):
        job.write((8, "c", 1), mode="error")


@pytest.mark.in_ci
def test_an_operation_applies_once_where_the_application_numbers_it(job: Job) -> None:
    job.write((1, "a", 1), (2, "b", 1))
    number = {OPERATION: "delete_partition", "txnAppId": "nightly", "txnVersion": "1"}
    assert job.write((0, "a", 0), **number) == [(2, "b", 1)]
    assert job.write((0, "b", 0), **number) == [(2, "b", 1)]


@pytest.mark.in_ci
@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({OPERATION: "bootstrap"}, SettingsError, "use insert, bulk_insert, upsert, delete"),
        ({OPERATION: "delete_partition", TO_DELETE: "day=*"}, InputError, "name a partition in full"),
        ({OPERATION: "delete_partition", TO_DELETE: "month=1"}, InputError, "'month' is not a partition column"),
        ({OPERATION: "delete", "partition": "day=a"}, InputError, "is for day=a, but has rows for day=b"),
        ({"hoodie.datasource.write.recordkey.field": "v"}, TableError, "key: v was given, the table has id"),
    ],
)
def test_an_operation_that_cannot_run_changes_nothing(job: Job, options: dict[str, str], error: type, told: str) -> None:
    before = job.write((1, "a", 1), (2, "b", 1))
    with pytest.raises(error, match=told):
        job.write((2, "b", 1), **options)
    assert job.rows() == before


def test_a_delete_where_there_is_no_table_makes_none(job: Job) -> None:
    for operation in ("delete", "delete_partition"):
        with pytest.raises(TableError, match="so there is nothing to delete"):
            job.write((1, "a", 1), **{OPERATION: operation})
    assert not LakeTable.exists(job.spark, job.path)


def test_without_register_it_is_refused_and_never_taken_for_an_insert(job: Job) -> None:
    unregister(job.spark)
    with pytest.raises(
        Exception, match=r"operation upsert, the default(?s:.*)call lakelock\.spark_plugin\.register\(spark\)"
    ) as told:
        job.write((1, "a", 1))
    assert not isinstance(told.value, LakelockError), "no writer of the driver has looked"
    assert not LakeTable.exists(job.spark, job.path)
