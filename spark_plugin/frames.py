"""Conversion between Spark's types and Arrow's, and the few facts about a session that writes need."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin.session.classes import scala_object
from lakelock.spark_plugin.session.lost_spark import require_running
from lakelock.spark_plugin.session.supported import require_supported_spark
from lakelock.spark_plugin.session.versions import is_older, session_confs

CONF_PREFIX = "spark.lakelock."
_MAY_JOIN_PARTITIONS = "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning"


@cache
def _to_arrow_arguments() -> Mapping[str, Any]:
    """Spark 4.3 requires the time zone of timestamps; earlier versions use UTC by themselves."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a Spark schema, timestamps in UTC; `SchemaError` for a type that Arrow cannot carry."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, **_to_arrow_arguments())
    except PySparkException as error:
        raise SchemaError(
            f"a column has a type that a table cannot hold: {error}", hint="cast it, for example to string, before writing"
        ) from error


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, all columns nullable. Timestamps without a zone are TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_schema

    nullable = pa.schema([field.with_nullable(True) for field in schema])
    found: StructType = from_arrow_schema(nullable, prefer_timestamp_ntz=True)
    return found


def spark_conf(spark: SparkSession) -> dict[str, str]:
    """The session's confs under `spark.lakelock.`, with that prefix."""
    return {key: str(value) for key, value in session_confs(spark).items() if key.startswith(CONF_PREFIX)}


def require_batch(df: object, verb: str) -> DataFrame:
    """`df` if it can be written in one go, otherwise an error that says what to use instead."""
    from pyspark.sql import DataFrame as AnyFrame

    if not isinstance(df, AnyFrame):
        raise InputError(
            f"{verb} needs a Spark DataFrame, not {type(df).__name__}", hint="make one with spark.createDataFrame(...)"
        )
    if df.isStreaming:
        raise InputError(
            f"{verb} was given a streaming DataFrame",
            hint="use df.writeStream.foreachBatch(table.upsert_batch) or table.insert_batch",
        )
    return df


def alias_of(df: DataFrame, otherwise: str = "source") -> str:
    """The alias that a frame was given last, by `df.alias(...)`."""
    plan = df._jdf.queryExecution().logical()
    return str(plan.alias()) if plan.nodeName() == "SubqueryAlias" else otherwise


class KeptFrames:
    """Frames that are persisted, in memory and on the disks of the executors, until `close`."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> None:
        """Persist a frame, unless that was done before: its rows must not change."""
        if not any(other is frame for other in self._frames):
            _persist(frame)
            self._frames.append(frame)

    def drop(self, frame: DataFrame) -> None:
        """Unpersist a frame that is not needed any more. If Spark is gone, nothing is left to free."""
        self._frames = [other for other in self._frames if other is not frame]
        with suppress(Py4JError, OSError, AttributeError):
            frame.unpersist()

    def close(self) -> None:
        """Unpersist everything."""
        for frame in self._frames:
            self.drop(frame)


def _persist(frame: DataFrame) -> None:
    """Persist a frame in as few tasks as suit its bytes, not in the `spark.sql.shuffle.partitions` of the session.

    Spark joins small partitions after a shuffle, but those of a persisted frame only where a conf allows it. The frame is
    persisted by a copy of the session that has this conf; the session itself stays as it is. Spark 3.5 cannot do it.
    """
    spark, level = frame.sparkSession, StorageLevel.MEMORY_AND_DISK
    if is_older(spark):
        frame.persist(level)
        return
    session: Any = spark._jsparkSession
    other = session.cloneSession()
    other.conf().set(_MAY_JOIN_PARTITIONS, "true")
    plan = frame._jdf.queryExecution().logical()
    scala_object(spark, "org.apache.spark.sql.classic.Dataset").ofRows(other, plan).persist(
        spark.sparkContext._getJavaStorageLevel(level)
    )


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster can run at once, as far as Spark reports it."""
    return max(1, spark.sparkContext.defaultParallelism)


def require_classic(spark: SparkSession) -> None:
    """`InputError` on Spark Connect, which has neither the job tags that lakelock needs nor a driver process to commit in.

    `SparkGone` for a session that was stopped, `UnsupportedSpark` for a JVM with an older Spark than PySpark's.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise InputError(
            "LakeTable needs the driver's own Spark session, this one is a Spark Connect client",
            hint='run in the driver, or append through df.write.format("lakelock"), which works with Connect',
        )
    require_running(spark)
    require_supported_spark(spark.version)
