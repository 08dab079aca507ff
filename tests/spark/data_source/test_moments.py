"""Moments that cannot be, in reads of a table and of its changes."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from lakelock.errors import InputError
from lakelock.spark_plugin import LakeTable, unregister


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    unregister(spark)
    return LakeTable.create(spark, path, schema="id long", key="id")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"as_of": "2099-01-01"}, "as_of is 20990101000000000, which is still to come"),
        ({"change_feed": "true", "since": "2099-01-01"}, "since is 20990101000000000, which is still to come"),
        ({"change_feed": "true", "since": "2020-01-01", "until": "2099-01-01"}, "until is 20990101000000000, which is still"),
        ({"change_feed": "true", "since": "2020-01-02", "until": "2020-01-01"}, "until .* is before since"),
    ],
)
def test_a_moment_still_to_come_and_a_range_that_ends_too_early_are_refused(
    spark: SparkSession, table: LakeTable, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        spark.read.format("lakelock").options(**options).load(table.path).collect()
    given = {name: value for name, value in options.items() if name != "change_feed"}
    with pytest.raises(InputError, match=problem):
        table.read(**given) if "as_of" in given else table.changes(**given)


def test_a_stream_begins_after_no_moment_that_is_still_to_come(spark: SparkSession, table: LakeTable) -> None:
    frame = spark.readStream.format("lakelock").option("since", "2099-01-01").load(table.path)
    query = frame.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="since is 20990101000000000, which is still to come"):
        query.awaitTermination(120)
