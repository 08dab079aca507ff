"""The table's path as Spark's Hadoop file systems know it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

_HADOOP = {"s3": "s3a", "az": "abfss"}


def spark_path(spark: SparkSession, path: str | Path, uri: str) -> str:
    """The path to give to Spark's readers: as the user wrote it where Spark knows that scheme, else a scheme it knows.

    Local paths become absolute, so that a default file system other than the local one does not matter.
    """
    if uri.startswith("file://"):
        return "file:" + uri.removeprefix("file://")
    given, _, rest = str(path).strip().partition(":")
    scheme = given.lower()
    if scheme in _HADOOP and not _knows(spark, scheme):
        scheme = _HADOOP[scheme]
    return f"{scheme}:{rest}".rstrip("/")


def _knows(spark: SparkSession, scheme: str) -> bool:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    return configuration.get(f"fs.{scheme}.impl") is not None
