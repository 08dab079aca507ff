"""A long write shows one line on the terminal: what it does, how far it is and how much is left; elsewhere it shows nothing."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.sparks import since_spark_4
from tests.terminal import BOUND_S, seen_until, terminal

from lakelock.spark_plugin import LakeTable

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def table(spark: SparkSession, path: str) -> LakeTable:
    return LakeTable.create(spark, path, schema=spark.createDataFrame([], "id long, v long"), key="id")


def held_up(spark: SparkSession, go_on: Path) -> DataFrame:
    """Rows in four tasks, of which the second and later ones wait for a file."""

    def wait(number):
        deadline = time.monotonic() + BOUND_S
        while number and not go_on.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return number

    return spark.range(0, 4, 1, 4).withColumn("v", F.udf(wait, "long")("id"))


@since_spark_4  # an older Spark does not tell which jobs have a tag
def test_a_long_write_tells_how_far_it_is_and_leaves_nothing_behind(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    with terminal() as screen, ThreadPoolExecutor(1) as pool:
        written = pool.submit(table.upsert, held_up(spark, go_on))
        shown = seen_until(screen, "s left")
        go_on.touch()
        assert written.result(BOUND_S).rows_inserted == 4
        assert "lakelock: UPSERT " in shown and " of 4 tasks" in shown
        sys.stderr.write("prompt")
        sys.stderr.flush()
        last = seen_until(screen, "prompt").rpartition("prompt")[0]
        assert last.rpartition("lakelock:")[2].count("\x1b[2K")  # the line was wiped
