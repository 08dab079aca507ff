"""A frame over file slices with log files, which tasks merge in Python, a file slice at a time."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from lakelock.spark_plugin.scans.numbered import Numbered
from lakelock.storage.location import StorageLocation
from lakelock.table.merged_slices import LoggedSlice, MergedRows


def merged_rows(spark: SparkSession, location: StorageLocation, rows: MergedRows, slices: Sequence[LoggedSlice]) -> DataFrame:
    """The rows of these slices, at least one. A file that was cleaned meanwhile fails the job."""
    return Numbered(location, tuple(slices), rows.read).frame(spark, rows.columns)
