"""Registering `format("lakelock")` with a session, whose confs it then carries."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakelock.spark_plugin.data_source.source_class import LakelockDataSource
from lakelock.spark_plugin.frames import spark_conf
from lakelock.spark_plugin.session_conf import OVERWRITE_MODE


def register(spark: SparkSession) -> None:
    """Register `format("lakelock")` with what the session sets under `spark.lakelock.` now. Once is enough for each session.

    After a change of these confs call it again: until then writes fail, they do not go on with the old ones.
    """
    # Of its own module it is not an attribute, so that it is sent to Spark's Python processes by value, with the confs.
    mode = {OVERWRITE_MODE: str(spark.conf.get(OVERWRITE_MODE, "static"))}
    known = type(LakelockDataSource.__name__, (LakelockDataSource,), {"conf": {**spark_conf(spark), **mode}})
    spark.dataSource.register(known)
