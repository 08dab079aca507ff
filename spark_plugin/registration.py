"""Registers `format("lakelock")` with a session; the data source then carries the session's confs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lakelock.spark_plugin.data_source.source_class import LakelockDataSource
from lakelock.spark_plugin.data_source.write_calls import teach_writers
from lakelock.spark_plugin.frames import spark_conf
from lakelock.spark_plugin.session.conf import OVERWRITE_MODE
from lakelock.spark_plugin.session.hadoop import hadoop_settings


def register(spark: SparkSession) -> None:
    """Register `format("lakelock")` with the session's present confs under `spark.lakelock.`, and Hadoop's for object stores.

    Once per session is enough. Call it again after changing these confs: until then writes fail, rather than use the old ones.
    From the first call on, `df.write.format("lakelock")` takes all save modes and `partitionBy`, and what cannot work says what
    to type.
    """
    # The class is not an attribute of its module, so it is pickled by value, with the confs, for Spark's Python processes.
    mode = {OVERWRITE_MODE: str(spark.conf.get(OVERWRITE_MODE, "static"))}
    conf = {**spark_conf(spark), **mode, **hadoop_settings(spark)}
    known = type(LakelockDataSource.__name__, (LakelockDataSource,), {"conf": conf})
    spark.dataSource.register(known)
    teach_writers()
