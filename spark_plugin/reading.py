"""Reading exactly the files of a snapshot with Spark's own Parquet reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lakelock.spark_plugin.scans import by_name
from lakelock.spark_plugin.scans.relation import Partitioned, relation_over
from lakelock.spark_plugin.session.classes import java_class
from lakelock.spark_plugin.session.lost_spark import require_running
from lakelock.spark_plugin.session.versions import column_of, takes_structs_for_null
from lakelock.table.partitions import PartitionValues
from lakelock.table.snapshot import DataFile
from lakelock.table.statistics import Value

FILE_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|It is possible the underlying files have been updated")
"""Text in the error of a job that reads a missing file, in Spark 4 and in Spark 3.5; the error's class varies."""


def read_files(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, partitions: PartitionValues | None = None
) -> DataFrame:
    """A frame over these files and no others, with the columns of `schema`; a column that a file lacks is null there.

    `root` is the table's path as Spark knows it. With `partitions` Spark prunes by the partition columns. Storage is not asked:
    a file that has been removed meanwhile fails the job that reads it; rows are never silently missing.

    Where a folder does not determine the value of a column (null and the empty text share one), that column comes
    from the files, in a separate part of the frame; a frame of several parts has no column `_metadata`.

    Nested columns are read as a whole by a Spark that would otherwise take a struct of an old file for null.
    """
    require_running(spark)  # building the frame only asks the JVM, which still answers after the session was stopped
    if not files:
        return spark.createDataFrame([], schema)
    try:
        frame = _frame(spark, root, files, schema, partitions)
    except (Py4JError, TypeError):
        # This Spark has different internal classes: use the way that works on every Spark, slower but correct.
        frame = by_name.read_files(spark, root, files, schema)
    return _with_whole_structs(frame) if takes_structs_for_null(spark) else frame


def _with_whole_structs(frame: DataFrame) -> DataFrame:
    """The frame as it is, from which Spark does not read single fields of structs.

    It reads only those fields that a query names. Where a file lacks all of them, because it is older than they are, Spark
    takes the struct for null. Behind an expression that it cannot see through it reads all fields.
    """
    nested = [_has_struct(field.dataType) for field in frame.schema]
    if not any(nested):
        return frame
    spark = frame.sparkSession
    jdf: Any = frame._jdf
    opaque = java_class(spark, "org.apache.spark.sql.catalyst.expressions.KnownNullable")
    output = jdf.queryExecution().analyzed().output()
    columns = []
    for number, (name, is_nested) in enumerate(zip(frame.columns, nested, strict=True)):
        attribute = output.apply(number)
        columns.append(column_of(spark, opaque(attribute)).alias(name) if is_nested else column_of(spark, attribute))
    return frame.select(*columns)


def _has_struct(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_struct(kind.elementType)
    return isinstance(kind, StructType) or (isinstance(kind, MapType) and _has_struct(kind.valueType))


def _frame(
    spark: SparkSession, root: str, files: Sequence[DataFile], schema: StructType, partitions: PartitionValues | None
) -> DataFrame:
    parts: dict[tuple[str, ...], dict[str, Mapping[str, Value | None]]] = {}
    part_of: dict[str, tuple[str, ...]] = {}
    for path in dict.fromkeys(file.partition for file in files):
        told = partitions.exact(path) if partitions is not None else {}
        part_of[path] = tuple(told)
        parts.setdefault(tuple(told), {})[path] = told
    frames = []
    for names, values in parts.items():
        mine = [file for file in files if part_of[file.partition] == names]
        by = (
            Partitioned(pa.schema([(name, partitions.types[name]) for name in names]), values) if partitions and names else None
        )
        frames.append(relation_over(spark, root, mine, schema, by))
    return reduce(DataFrame.union, frames)
