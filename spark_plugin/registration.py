"""Registers `format("lakelock")` with a session; the data source then carries the session's confs."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakelock.errors import InputError, UnsupportedSpark
from lakelock.spark_plugin.data_source.source_class import LakelockDataSource
from lakelock.spark_plugin.session.classes import java_class, scala_object
from lakelock.spark_plugin.session.versions import condition_of
from lakelock.spark_plugin.write_calls import FORMAT, session_conf, teach_writers, unteach_writers

_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"
_KNOWN_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Register `format("lakelock")` with the session's present confs under `spark.lakelock.`, and Hadoop's for object stores.

    Once per session is enough. Call it again after changing these confs: until then writes fail, rather than use the old ones.
    From the first call on, `df.write.format("lakelock")` takes all save modes, `partitionBy` and Hudi's operations,
    `df.writeStream.format("lakelock")` takes `partitionBy`, and what cannot work says what to type. Writes of other formats are
    Spark's own, as before. `unregister` undoes it.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InputError(
            "register needs the driver's own Spark session, this one is a Spark Connect client",
            hint='format("lakelock") works without it: give settings as options of each read and write',
        )
    # The class is not an attribute of its module, so it is pickled by value, with the confs, for Spark's Python processes.
    known = {"conf": session_conf(spark), "drivers_writers": True}
    _offer(spark, type(LakelockDataSource.__name__, (LakelockDataSource,), known))
    teach_writers()


def unregister(spark: SparkSession) -> None:
    """Undo `register`: the data source knows none of the session's confs any more, and Spark's writers have their own methods.

    The writers are those of all sessions of this process; where another one needs `register`, call it there again.
    """
    unteach_writers()
    _offer(spark, LakelockDataSource)


def _offer(spark: SparkSession, source: type[LakelockDataSource]) -> None:
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if condition_of(error) != _KNOWN_ALREADY:
            raise
        _replace(spark, source)


def _replace(spark: SparkSession, source: type[LakelockDataSource]) -> None:
    """Spark 4.0 has found the data source by itself, and refuses another: put it in the place of the one that was found.

    Other sessions of this JVM that begin later, and copies of this one, as streams make them, take it from the same place. A
    session whose confs are others is told so by its first task, and to call `register`.
    """
    try:
        manager: Any = spark._jsparkSession.sessionState().dataSourceManager()  # type: ignore[attr-defined]
        found, added = (_field(manager, name) for name in ("staticDataSourceBuilders", "runtimeDataSourceBuilders"))
        all_found = found.get(manager)
        found.set(manager, all_found.removed(FORMAT))
        try:
            spark.dataSource.register(source)
            all_found = all_found.updated(FORMAT, added.get(manager).remove(FORMAT))
        finally:
            found.set(manager, all_found)
        option: Any = java_class(spark, "scala.Option")
        getattr(scala_object(spark, _MANAGER), "dataSourceBuilders_$eq")(option.apply(all_found))
    except (AttributeError, TypeError, Py4JError) as error:
        raise UnsupportedSpark(
            f'this Spark ({spark.version}) has found format("lakelock") by itself, and does not let it be replaced',
            hint="give settings as options of each read and write, or use LakeTable; a newer Spark lets it be replaced",
            found=spark.version,
        ) from error


def _field(manager: Any, name: str) -> Any:
    field = manager.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
