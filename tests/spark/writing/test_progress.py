"""A long write shows one line on the terminal: what it does, how far it is and how much is left; elsewhere it shows nothing."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.api import SystemRuntime
from tests.spark.sparks import since_spark_4

from lakelock.spark_plugin import LakeTable
from lakelock.spark_plugin.spark_jobs import Step, Tasks, line, progress_line

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

BOUND_S = 60


@contextmanager
def terminal() -> Iterator[int]:
    """A terminal in the place of standard error; what it shows can be read here."""
    screen, end = pty.openpty()
    with open(end, "w", encoding="utf-8") as stderr, redirect_stderr(stderr):
        yield screen
    os.close(screen)


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


def seen_until(screen: int, text: str) -> str:
    """What the terminal has shown when this text is there."""
    shown, deadline = "", time.monotonic() + BOUND_S
    while text not in shown and select.select([screen], [], [], max(0.0, deadline - time.monotonic()))[0]:
        shown += os.read(screen, 4096).decode()
    return shown


@since_spark_4  # an older Spark does not tell which jobs have a tag
def test_a_long_write_tells_how_far_it_is_and_leaves_nothing_behind(
    spark: SparkSession, table: LakeTable, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    with terminal() as screen, ThreadPoolExecutor(1) as pool:
        written = pool.submit(table.upsert, held_up(spark, go_on))
        shown = seen_until(screen, "s left: upsert ")
        go_on.touch()
        assert written.result(BOUND_S).rows_inserted == 4
        assert "lakelock: " in shown and " of 4 tasks, about " in shown
        sys.stderr.write("prompt")
        sys.stderr.flush()
        last = seen_until(screen, "prompt").rpartition("prompt")[0]
        assert last.split("\r")[-2].strip() == ""  # the line was wiped


def test_nothing_is_shown_where_it_is_not_wanted_or_there_is_no_terminal() -> None:
    runtime, step = SystemRuntime(), Step("upsert 1: packing the rows")
    with terminal():
        with progress_line(step, runtime, 5.0, wanted=False) as shown:
            assert shown is None
        with progress_line(step, runtime, 5.0, wanted=True) as shown:
            assert shown is not None
    with redirect_stderr(io.StringIO()), progress_line(step, runtime, 5.0, wanted=True) as shown:
        assert shown is None


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        (None, "lakelock: 14 s: upsert 1: rewriting 3 file groups, 1,200,000 rows"),
        (Tasks(7, 0, 12), "lakelock: 14 s, 0 of 12 tasks: upsert 1: rewriting 3 file groups, 1,200,000 rows"),
        (Tasks(7, 4, 12), "lakelock: 14 s, 4 of 12 tasks, about 10 s left: upsert 1: rewriting 3 file groups, 1,200,000 rows"),
    ],
)
def test_the_line_has_what_is_known(tasks: Tasks | None, text: str) -> None:
    assert line(Step("upsert 1: rewriting 3 file groups", 1_200_000), tasks, 14.2, 5.0) == text
