"""Registers `format("lakelock")` with Spark, which imports every top-level `pyspark_*` module and looks for `DefaultSource`.

One such module that fails to import disables all data sources of a session, so this one imports almost nothing.
"""

from lakelock.spark_plugin.source_class import LakelockDataSource as DefaultSource

__all__ = ["DefaultSource"]
