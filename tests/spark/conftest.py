"""One real Spark session for all tests of the plugin, and tables in temporary folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from tests.golden_tables import unpack
from tests.sizes import in_ci
from tests.spark.known_classes import remember_classes
from tests.spark.preloaded_daemon import __name__ as PRELOADED_DAEMON
from tests.spark.processes import short_lived_jvms
from tests.spark.sparks import HAS_DATA_SOURCES

short_lived_jvms()
remember_classes()

collect_ignore = [] if HAS_DATA_SOURCES else ["data_source", "first_day"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,3]")
        .appName("lakelock-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.default.parallelism", "2")
        .config("spark.ui.enabled", "false")
        # Fewer than Spark has: tests/spark/writing/test_few_tasks.py runs with its default.
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.python.daemon.module", PRELOADED_DAEMON)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


DRIVER_ROWS = "spark.lakelock.write.driver_rows"


@pytest.fixture
def on_executors(spark: SparkSession) -> Iterator[None]:
    """Writes run on executors, however few their rows are."""
    spark.conf.set(DRIVER_ROWS, "0")
    yield
    spark.conf.unset(DRIVER_ROWS)


@pytest.fixture(params=["driver", *in_ci("executors")])
def both_ways(request: pytest.FixtureRequest) -> None:
    """Writes of few rows run in the driver, as by default, or on executors."""
    if request.param == "executors":
        request.getfixturevalue("on_executors")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a table of the test may be."""
    return str(tmp_path / "table")


@pytest.fixture
def golden(tmp_path: Path) -> Callable[[str], str]:
    """Unpack a table that real Java Hudi wrote; its path."""
    return lambda name: str(unpack(name, tmp_path))
