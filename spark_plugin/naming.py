"""Names in a catalog: where the table of a name is, and which metastore a session has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelock.catalogs import TableName, open_catalog
from lakelock.clock import SystemRuntime
from lakelock.errors import TableError
from lakelock.identity import WriterIdentity
from lakelock.settings import Settings

_METASTORES = "hive.metastore.uris"


def with_metastore(spark: SparkSession, settings: Settings) -> Settings:
    """The settings, with the metastore of the session's Hadoop configuration where they want one and name none."""
    catalog = settings.catalog
    if catalog.type != "hive_metastore" or catalog.uris or settings.hive_metastore.uris:
        return settings
    conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # type: ignore[attr-defined]
    return replace(settings, catalog=replace(catalog, uris=str(conf.get(_METASTORES) or "")))


def location_of(spark: SparkSession, name: str, settings: Settings) -> str:
    """The path of the table that has this name: in the catalog of the settings, else in the session's own.

    `TableError` if there is no such table, or it has no place of its own.
    """
    if settings.catalog.type == "none":
        return _in_session(spark, name)
    found = TableName.parse(name)
    settings, runtime = with_metastore(spark, settings), SystemRuntime()
    catalog = open_catalog(settings, runtime, WriterIdentity.of_this_process(runtime, "").user)
    try:
        entry = catalog.find(found)
    finally:
        catalog.close()
    if entry is None or not entry.location:
        why = f"the catalog has no table {found}" if entry is None else f"{found} has no location in the catalog: is it a view?"
        raise TableError(
            why,
            hint="LakeTable.for_path(spark, path).register(name) gives a table its name",
            name=str(found),
        )
    return entry.location


def _in_session(spark: SparkSession, name: str) -> str:
    """The location of a table in Spark's own catalog: whatever its format, it need not be one that this session can read."""
    try:
        state: Any = spark._jsparkSession.sessionState()  # type: ignore[attr-defined]
        identifier = state.sqlParser().parseTableIdentifier(name)
        location = state.catalog().getTableMetadata(identifier).storage().locationUri()
    except (Py4JJavaError, PySparkException) as error:
        told = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
        why = str(told).splitlines()[0]
        raise TableError(
            f"the session's catalog has no table {name}: {why}",
            hint="set catalog.type to hive_metastore or glue to look there; or open it with LakeTable.for_path(spark, path)",
            name=name,
        ) from error
    if location.isEmpty():
        raise TableError(f"{name} has no location: it is a view", hint="open the table with LakeTable.for_path(spark, path)")
    # Java's URIs are encoded, and paths are not.
    return unquote(str(location.get().toString()))
