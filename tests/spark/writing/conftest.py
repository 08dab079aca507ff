"""What tests do to `table`, which each module makes for itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.spark.unchanged import unchanged

from lakelock.spark_plugin import LakeTable


@pytest.fixture
def other(spark: SparkSession, table: LakeTable) -> LakeTable:
    """The same table, opened by somebody else."""
    return LakeTable.for_path(spark, table.path, application="other")


@pytest.fixture(scope="module")
def settled(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LakeTable]:
    """A table that no test of the module changes: after all of them it is as it was."""
    table = request.module.filled(spark, str(tmp_path_factory.mktemp("settled")))
    with unchanged(table):
        yield table


@pytest.fixture
def untouched(table: LakeTable) -> Iterator[None]:
    """After the test the table is as it was, with nothing pending and no stray file."""
    with unchanged(table):
        yield
