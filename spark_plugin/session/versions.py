"""What differs between the versions of Spark; what PySpark 3.5 lacks is done by the JVM's own calls that PySpark 4 makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.spark_plugin.session.classes import PYTHON_UTILS, java_class, scala_object
from lakelock.spark_plugin.session.supported import has_data_sources

_NULL_STRUCTS = "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing"


def is_older(spark: SparkSession) -> bool:
    """Whether this session is one of Spark 3.5."""
    return not has_data_sources(spark.version)


def session_confs(spark: SparkSession) -> dict[str, str]:
    """The confs of the session, those of its application among them."""
    if is_older(spark):
        converters = java_class(spark, "scala.collection.JavaConverters")
        return dict(converters.mapAsJavaMapConverter(spark._jsparkSession.conf().getAll()).asJava())  # type: ignore[attr-defined]
    found = spark.conf.getAll
    values: Mapping[str, str] = found() if callable(found) else found
    return dict(values)


def takes_structs_for_null(spark: SparkSession) -> bool:
    """Whether a struct is null to Spark where a Parquet file has none of the fields that a query names: always before 4.1."""
    return not spark.conf.isModifiable(_NULL_STRUCTS) or spark.conf.get(_NULL_STRUCTS) == "true"


def file_place(rows: DataFrame) -> Column:
    """Where a row of files lies: a struct with `file_name` and `row_index`, even where the frame has a column of that name."""
    jdf: Any = rows._jdf
    return Column(jdf.metadataColumn("_metadata"))


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """A few rows as a frame that Spark keeps in its plan."""
    if not is_older(spark):
        return spark.createDataFrame(rows, schema)
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    context, jvm = spark.sparkContext, spark._jvm  # type: Any, Any
    batches = context._serialize_to_jvm(
        rows.combine_chunks().to_batches(),
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(batches, schema.json(), spark._jsparkSession), spark)


def rebalanced(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """The rows of each value of these columns close together, in partitions of about the same size."""
    spark = frame.sparkSession
    if not is_older(spark):
        return frame.hint("rebalance", *columns)
    jdf, given = frame._jdf, columns  # type: Any, Any
    expressions = java_class(spark, PYTHON_UTILS).toSeq([column._jc.expr() for column in given])
    return DataFrame(jdf.hint("rebalance", expressions), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """An expression of an analysed plan as a Column."""
    if is_older(spark):
        return Column(java_class(spark, "org.apache.spark.sql.Column")(expression))
    return Column(scala_object(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def try_cast(spark: SparkSession, expression: Any, wanted: Any) -> Column:
    """An expression of an analysed plan in another of Spark's types; null where its value has none of that type."""
    if not is_older(spark):
        column: Column = column_of(spark, expression)
        return column.try_cast(wanted.simpleString())
    expressions = "org.apache.spark.sql.catalyst.expressions"
    null_otherwise = scala_object(spark, f"{expressions}.EvalMode").TRY()
    no_zone = java_class(spark, "scala.Option").apply(None)
    return column_of(spark, java_class(spark, f"{expressions}.Cast")(expression, wanted, no_zone, null_otherwise))


def condition_of(error: PySparkException) -> str | None:
    """The name of what is wrong, such as `PATH_NOT_FOUND`."""
    return error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
