"""A process in which Spark plans or commits for the data source spends no second on importing pandas."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from lakelock.spark_plugin import LakeTable

PLANS = """
import sys
import pyarrow as pa
from lakelock.spark_plugin.source_options import SourceOptions
with SourceOptions.parse({"path": sys.argv[1]}).open() as table:
    assert table.snapshot().files
    assert pa.array([1, 2]).to_pylist() == [1, 2]
print("pandas" in sys.modules, list(pa.table({"a": [1, 2]}).to_pandas()["a"]))
"""


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("pyspark.sql.worker.commit_data_source_write", False),
        ("pyspark.sql.streaming.python_streaming_source_runner", False),
        ("pyspark.worker", True),
    ],
)
def test_where_no_code_of_the_users_runs_pandas_is_imported_only_by_whoever_asks_for_it(
    spark: SparkSession, path: str, module: str, imported: bool
) -> None:
    LakeTable.create(spark, path, schema=spark.createDataFrame([], "id long"), key="id").insert(spark.range(2))
    command = [sys.executable, "-c", PLANS, path, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == f"{imported} [1, 2]\n"
