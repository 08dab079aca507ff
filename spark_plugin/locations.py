"""The table's path as Spark's Hadoop file systems know it, and whether they can read it at all."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakelock.errors import SettingsError
from lakelock.spark_plugin.session.classes import java_class
from lakelock.storage.hadoop import connector

_HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs"}
_UNKNOWN_TO_HADOOP = ("az", "azure")


def spark_path(spark: SparkSession, path: str | Path, uri: str) -> str:
    """A path in full, for Spark's readers: as the user wrote it if Spark knows that scheme, otherwise with one that it knows.

    Local paths become absolute and name their file system, so that Spark looks for them nowhere else.
    `SettingsError` with the jars and settings that are needed when Spark has no file system for the path.
    """
    if uri.startswith("file://"):
        return "file:" + uri.removeprefix("file://")
    given, _, rest = str(path).strip().partition(":")
    scheme = given.lower()
    if scheme in _HADOOP and not _knows(spark, scheme):
        scheme = _HADOOP[scheme]
    if scheme in _UNKNOWN_TO_HADOOP and not _knows(spark, scheme):
        raise _without_account(spark, scheme, uri)
    _require_file_system(spark, scheme, uri)
    return f"{scheme}:{rest}".rstrip("/")


def _knows(spark: SparkSession, scheme: str) -> bool:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    return configuration.get(f"fs.{scheme}.impl") is not None


def _require_file_system(spark: SparkSession, scheme: str, uri: str) -> None:
    """One call into the JVM, which loads the class of the file system if it has not been loaded yet."""
    file_systems = java_class(spark, "org.apache.hadoop.fs.FileSystem")
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        file_systems.getFileSystemClass(scheme, configuration)
    except Py4JJavaError as error:
        hadoop = _hadoop(spark)
        raise SettingsError(
            f"Spark cannot read {scheme}: paths, so it cannot read the table {uri}: {_cause(error)} (Hadoop {hadoop})",
            hint=f'{_what_brings_it(uri, hadoop)}. Without these jars format("lakelock") reads the table and appends to it',
            scheme=scheme,
        ) from error


def _without_account(spark: SparkSession, scheme: str, uri: str) -> SettingsError:
    """Such a path has the container and not the account, which is half of the host that Hadoop has to ask."""
    return SettingsError(
        f"Spark has no {scheme}: paths, so it cannot read the table {uri}",
        hint="name the table abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, as Hadoop does, and "
        f'{_what_brings_it(uri, _hadoop(spark))}. By its present name format("lakelock") reads the table and appends to it',
        scheme=scheme,
    )


def _what_brings_it(uri: str, hadoop: str) -> str:
    needed = connector(uri.partition(":")[0], hadoop)
    assert needed is not None, uri
    return f"start the session with spark.jars.packages={needed.coordinates}; {needed.settings}"


def _hadoop(spark: SparkSession) -> str:
    return str(java_class(spark, "org.apache.hadoop.util.VersionInfo").getVersion())


def _cause(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {str(cause.getMessage()).splitlines()[0]}"
