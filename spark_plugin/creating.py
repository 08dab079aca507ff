"""The columns of a new table as a caller gives them to Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakelock.errors import InputError


def columns_of(spark: SparkSession, schema: object) -> StructType:
    """The columns that a caller gives: a schema, a data frame with them, or the text of a schema, which Spark parses."""
    if isinstance(schema, str):
        return spark.createDataFrame([], schema).schema
    found = schema.schema if isinstance(schema, DataFrame) else schema
    if not isinstance(found, StructType):
        raise InputError(
            f"schema is of the type {type(schema).__name__}",
            hint='give a StructType, a data frame with the columns, or a text such as "id bigint, name string"',
        )
    return found
