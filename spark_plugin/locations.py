"""The table's path as Spark's Hadoop file systems know it, and whether they can read it at all."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakelock.errors import SettingsError

_HADOOP = {"s3": "s3a", "s3n": "s3a", "gcs": "gs", "az": "abfss", "azure": "abfss"}
_JARS = {
    "s3": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "gs": "org.apache.hadoop:hadoop-gcp:{hadoop}",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
}
_SETTINGS = {
    "s3": "where the keys are not in the environment, or the service is not AWS, set spark.hadoop.fs.s3a.access.key, "
    "...secret.key, ...endpoint and ...path.style.access",
    "gs": "set the credentials in spark.hadoop.fs.gs.auth.*",
    "abfs": "set the credentials in spark.hadoop.fs.azure.account.*",
}
_GOOGLES = (
    "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26",
    "set spark.hadoop.fs.gs.impl=com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem and the credentials in "
    "spark.hadoop.fs.gs.auth.*",
)
"""For gs before Hadoop 3.5, which has a connector of its own: by the defaults of that Google's does not start."""


def spark_path(spark: SparkSession, path: str | Path, uri: str) -> str:
    """The path to give to Spark's readers: as the user wrote it if Spark knows that scheme, otherwise with one that it knows.

    Local paths become absolute, so that a default file system other than the local one does not matter.
    `SettingsError` with the jars and settings that are needed when Spark has no file system for the path.
    """
    if uri.startswith("file://"):
        return "file:" + uri.removeprefix("file://")
    given, _, rest = str(path).strip().partition(":")
    scheme = given.lower()
    if scheme in _HADOOP and not _knows(spark, scheme):
        scheme = _HADOOP[scheme]
    _require_file_system(spark, scheme, uri)
    return f"{scheme}:{rest}".rstrip("/")


def _knows(spark: SparkSession, scheme: str) -> bool:
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    return configuration.get(f"fs.{scheme}.impl") is not None


def _require_file_system(spark: SparkSession, scheme: str, uri: str) -> None:
    """One call into the JVM, which loads the class of the file system if it has not been loaded yet."""
    hadoop = spark._jvm.org.apache.hadoop  # type: ignore[union-attr]
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Py4JJavaError as error:
        version = hadoop.util.VersionInfo.getVersion()
        kind = uri.partition(":")[0]
        jars, settings = _JARS[kind].format(hadoop=version), _SETTINGS[kind]
        if kind == "gs" and tuple(map(int, version.split(".")[:2])) < (3, 5):
            jars, settings = _GOOGLES
        raise SettingsError(
            f"Spark cannot read {scheme}: paths, so it cannot read the table {uri}: {_cause(error)} (Hadoop {version})",
            hint=f"start the session with spark.jars.packages={jars}; {settings}. "
            'Without these jars format("lakelock") reads the table and appends to it',
            scheme=scheme,
        ) from error


def _cause(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {str(cause.getMessage()).splitlines()[0]}"
