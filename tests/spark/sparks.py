"""What tests have to know about the Spark that they run on."""

from __future__ import annotations

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakelock.spark_plugin.supported import has_data_sources

HAS_DATA_SOURCES = has_data_sources(pyspark.__version__)
since_spark_4 = pytest.mark.skipif(not HAS_DATA_SOURCES, reason='of Spark 4, as format("lakelock") is')


def to_arrow(frame: DataFrame) -> pa.Table:
    """The rows of a frame: `DataFrame.toArrow`, which Spark 3.5 has by another name."""
    return frame.toArrow() if HAS_DATA_SOURCES else pa.Table.from_batches(frame._collect_as_arrow())  # type: ignore[operator]


def register_without_confs(spark: SparkSession) -> None:
    """`format("lakelock")` as it is without confs."""
    from lakelock.spark_plugin import unregister

    unregister(spark)
