"""The definition of a table: made from a Spark schema, checked against an existing table, with computed partition columns.

Partition columns that a table computes from other columns are as `lakelock.table.transforms` has them. They do not depend on
the session's time zone.

Processes that plan a read or commit a write through `format("lakelock")` import this module, so it imports nothing of writes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_string,
)

from lakelock.errors import InputError
from lakelock.table.partitions import places
from lakelock.table.properties import TableProperties
from lakelock.table.transforms import DAY_US, HOUR_US, Kind, Transform


def columns_of(schema: object) -> StructType:
    """The columns that a caller gives: a schema, a data frame with them, or the text of a schema, which Spark parses."""
    if isinstance(schema, str):
        # Not `createDataFrame`: for `char` and `varchar` that is an internal error of Spark's.
        schema = _parse_datatype_string(schema)
    found = schema.schema if isinstance(schema, DataFrame) else schema
    if not isinstance(found, StructType):
        raise InputError(
            f"schema is of the type {type(schema).__name__}",
            hint='give a StructType, a data frame with the columns, or a text such as "id bigint, name string"',
        )
    return found


_HASHED = (StringType, ByteType, ShortType, IntegerType, LongType, DateType)
_TYPES = {Kind.YEARS: "int", Kind.DAYS: "date", Kind.BUCKET: "int"}


def with_generated(df: DataFrame, properties: TableProperties) -> DataFrame:
    """The frame with the computed partition columns; `SchemaError` if it lacks one and the column that it comes from."""
    for transform in properties.transforms:
        source, there = places(transform, df.columns)
        if source is not None:
            df = df.withColumn(there or transform.name, computed(transform, F.col(source), df.schema[source].dataType))
    return df


def computed(transform: Transform, source: Column, given: DataType) -> Column:
    """The partition column, of a column of type `given`; null where that type is none that the transform takes."""
    found: Column | None = None
    if transform.kind is Kind.TRUNCATE and isinstance(given, StringType):
        found = F.substring(source, 1, transform.number)
    elif transform.kind is Kind.BUCKET and isinstance(given, _HASHED):
        found = F.pmod(F.crc32(source.cast("string").cast("binary")), F.lit(transform.number))
    elif isinstance(given, DateType | TimestampType | TimestampNTZType):
        found = _of_time(transform.kind, source, given)
    kind = _TYPES.get(transform.kind, "string")
    return F.lit(None).cast(kind) if found is None else found.cast(kind)


def _of_time(kind: Kind, source: Column, given: DataType) -> Column | None:
    day = _utc_day(source) if isinstance(given, TimestampType) else source.cast("date")
    if kind is Kind.DAYS:
        return day
    if kind is Kind.YEARS:
        return F.year(day)
    if kind is Kind.MONTHS:
        return F.substring(day.cast("string"), 1, 7)
    if kind is Kind.HOURS and not isinstance(given, DateType):
        hour = _utc_hour(source) if isinstance(given, TimestampType) else F.hour(source)
        return F.concat(day.cast("string"), F.lit("-"), F.lpad(hour.cast("string"), 2, "0"))
    return None


def _utc_day(instant: Column) -> Column:
    # Spark divides doubles. A whole number of days in microseconds is a multiple of 2**13, and so exact in one.
    midnight = F.unix_micros(instant) - F.pmod(F.unix_micros(instant), F.lit(DAY_US))
    return F.date_from_unix_date((midnight / F.lit(DAY_US)).cast("int"))


def _utc_hour(instant: Column) -> Column:
    return (F.pmod(F.unix_micros(instant), F.lit(DAY_US)) / F.lit(HOUR_US)).cast("int")
