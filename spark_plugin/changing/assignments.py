"""New values for columns, as a user gives them: `{"price": "price * 1.1", "checked": True}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema, check_write, did_you_mean

Assignments = Mapping[str, object]
"""Columns of the table and their new values: SQL text, a Column, or a Python value (not a str), which is a literal."""


def require_mapping(given: object, what: str) -> dict[str, object]:
    """The assignments as a dict; `InputError` unless it is a mapping from names to at least one value."""
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise InputError(
            f"{what} is {given!r}, not a mapping from columns to new values",
            hint='use {"column": "an SQL expression"}, such as {"price": "price * 2", "checked": True}; '
            "a text is SQL, so a literal text is F.lit('open') or \"'open'\"",
        )
    return dict(given)


def require_settable(names: Sequence[str], schema: TableSchema, properties: TableProperties, what: str) -> None:
    """Raise unless stored rows may get new values in these columns: they exist, and do not say where a row is."""
    for name in names:
        if name not in schema.names:
            raise SchemaError(f"{what}: the table has no column {name!r}", hint=did_you_mean(name, schema.names), column=name)
    fixed = {**dict.fromkeys(properties.partition_fields, "partition"), **dict.fromkeys(properties.record_keys, "record key")}
    for name in names:
        if name in fixed:
            raise SchemaError(
                f"{what}: {name} is a {fixed[name]} column, whose stored values cannot be changed",
                hint="delete the rows and insert them with the new values, in one transaction: with table.transaction() as tx",
                column=name,
            )


def checked_assignments(
    spark: SparkSession, given: Assignments, schema: TableSchema, properties: TableProperties, what: str,
    *, alias: str = "",
) -> Assignments:  # fmt: skip
    """The assignments, if rows of the table can be updated so: checked by Spark's analysis, without any work. They may name the
    old row's columns `alias.column`."""
    values = require_mapping(given, what)
    require_settable(list(values), schema, properties, what)
    rows = spark.createDataFrame([], spark_schema(schema.arrow))
    fitting_values(rows.alias(alias) if alias else rows, values, schema)
    return values


def fitting_values(rows: DataFrame, values: Assignments, schema: TableSchema, *, whole: bool = False) -> dict[str, Column]:
    """The new values on `rows`, in the table's types; `SchemaError`, naming every column, if a type does not fit, or if they
    make `whole` rows and lack a column that must not be null."""
    columns = {name: _column(value) for name, value in values.items()}
    given = rows.select(*[column.alias(name) for name, column in columns.items()]).schema
    wanted = schema if whole else TableSchema(pa.schema([field for field in schema.arrow if field.name in columns]))
    check_write(wanted, arrow_schema(given))
    target = spark_schema(schema.arrow)
    for field in given:
        # Spark matches nested fields by position, lakelock by name: it casts these later.
        if not isinstance(field.dataType, ArrayType | MapType | StructType):
            columns[field.name] = columns[field.name].cast(target[field.name].dataType)
    return columns


def _column(value: object) -> Column:
    if isinstance(value, Column):
        return value
    return F.expr(value) if isinstance(value, str) else F.lit(value)
