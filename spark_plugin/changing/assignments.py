"""New values for columns, as a user gives them: `{"price": "price * 1.1", "checked": True}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
)

from lakelock.errors import InputError, SchemaError
from lakelock.spark_plugin.column_names import ColumnNames
from lakelock.spark_plugin.conditions import is_repeatable
from lakelock.spark_plugin.frames import arrow_schema, spark_schema
from lakelock.table.properties import TableProperties
from lakelock.table.rows import lacking, spelled
from lakelock.table.schema import TableSchema, check_write, grown_by
from lakelock.texts import column_hint

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


def as_the_table_spells(given: Mapping[str, object], names: ColumnNames) -> dict[str, object]:
    """The assignments under the table's names; `InputError` if two of them mean one column."""
    named: dict[str, object] = {}
    for name, value in given.items():
        column = names.spelling(name)
        if column in named:
            raise InputError(f"the column {column} gets two values", hint="leave out one of them")
        named[column] = value
    return named


def require_settable(names: Sequence[str], schema: TableSchema, properties: TableProperties, what: str) -> None:
    """Raise unless stored rows may get new values in these columns: they exist, and do not say where a row is."""
    for name in names:
        require_column(name, schema, what)
    fixed = {transform.source: f"the column of {transform}, a partition" for transform in properties.transforms}
    fixed |= dict.fromkeys(properties.partition_fields, "a partition column")
    fixed |= dict.fromkeys(properties.record_keys, "a record key column")
    for name in names:
        if name in fixed:
            raise SchemaError(
                f"{what}: {name} is {fixed[name]}, whose stored values cannot be changed",
                hint="delete the rows and insert them with the new values, in one transaction: with table.transaction() as tx",
                column=name,
            )


def require_column(name: str, schema: TableSchema, what: str) -> None:
    """`SchemaError` unless the table has this column; a field of a struct is not one."""
    if name in schema.names:
        return
    column, _, path = name.partition(".")
    hint = column_hint(name, schema.names)
    if path and column in schema.names:
        hint = f"set the whole column, for example to F.col({column!r}).withField({path!r}, ...), which keeps its other fields"
    raise SchemaError(f"{what}: the table has no column {name!r}", hint=hint, column=name)


def checked_assignments(
    spark: SparkSession, given: Assignments, schema: TableSchema, properties: TableProperties, what: str,
    *, alias: str = "", merge_schema: bool = False,
) -> Assignments:  # fmt: skip
    """The assignments, if rows of the table can be updated so: checked by Spark's analysis, without any work. They may name the
    old row's columns `alias.column`. With `merge_schema` the columns may grow by them."""
    values = as_the_table_spells(require_mapping(given, what), ColumnNames.of(spark, schema))
    require_settable(list(values), schema, properties, what)
    rows = spark.createDataFrame([], spark_schema(schema.arrow))
    rows = rows.alias(alias) if alias else rows
    fitting_values(rows, values, grown_by_values(rows, values, schema) if merge_schema else schema)
    return values


def grown_by_values(rows: DataFrame, values: Assignments, schema: TableSchema) -> TableSchema:
    """The schema that holds the new values on `rows`: `write.merge_schema` of an update or a merge."""
    given = rows.select(*[as_column(value).alias(name) for name, value in values.items()]).schema
    stored = {field.name: field.dataType for field in spark_schema(schema.arrow)}
    types = {field.name: field.dataType for field in given}
    as_meant = {name: stored[name] for name in types if name in stored and is_float_in_sql(types[name], stored[name])}
    fields = [StructField(name, as_meant.get(name, kind)) for name, kind in types.items()]
    return grown_by(schema, arrow_schema(StructType(fields)))


def values_are_repeatable(spark: SparkSession, values: Assignments, schema: TableSchema, alias: str = "") -> bool:
    """Whether a row gets the same new values in each attempt of a write."""
    rows = spark.createDataFrame([], spark_schema(schema.arrow))
    new = [as_column(value).alias(name) for name, value in values.items()]
    return is_repeatable((rows.alias(alias) if alias else rows).select(*new), *values.values())


def fitting_values(rows: DataFrame, values: Assignments, schema: TableSchema, *, whole: bool = False) -> dict[str, Column]:
    """The new values on `rows`, in the table's types; `SchemaError`, naming every column, if a type does not fit, or if they
    make `whole` rows and lack a column that must not be null; `InputError` if a value depends on more than its row.
    """
    columns = {name: as_column(value) for name, value in values.items()}
    chosen = rows.select("*", *[column.alias(f"_lakelock_new_{name}") for name, column in columns.items()])
    _require_row_by_row(rows, chosen)
    types = dict(zip(columns, list(chosen.schema)[-len(columns) :], strict=True))
    target = spark_schema(schema.arrow)
    for field in target:
        if field.name in types and is_float_in_sql(types[field.name].dataType, field.dataType):
            columns[field.name], types[field.name] = columns[field.name].cast(field.dataType), field
    given = arrow_schema(StructType([StructField(name, field.dataType) for name, field in types.items()]))
    wanted = schema if whole else TableSchema(pa.schema([field for field in schema.arrow if field.name in columns]))
    check_write(wanted, given)
    lacks = [] if whole else list(lacking(wanted.arrow, given))
    if lacks:
        raise SchemaError(
            f"the new value lacks fields of the column: {', '.join(lack.path for lack in lacks)}",
            hint="give every field a value; F.col(...).withField(...) sets one field and keeps the others",
        )
    return {name: _as(column, types[name].dataType, target[name].dataType) for name, column in columns.items()}


def is_float_in_sql(given: DataType, wanted: DataType) -> bool:
    """Whether a decimal is meant for a float or double column: Spark reads the literal 30.0 as a decimal, and so casts it."""
    return isinstance(given, DecimalType) and isinstance(wanted, FloatType | DoubleType)


def _require_row_by_row(rows: DataFrame, chosen: DataFrame) -> None:
    """Aggregates, window functions and generators put something between the rows and what is selected from them."""
    before, after = (frame._jdf.queryExecution().analyzed() for frame in (rows, chosen))
    if after.nodeName() != "Project" or after.child().nodeName() != before.nodeName():
        raise InputError(
            "a new value is not computed from one row alone",
            hint="aggregates, window functions and explode() are not possible here: compute them in a data frame, and merge it",
        )


def _as(column: Column, given: DataType, wanted: DataType) -> Column:
    """The column in a type that holds all its values, structs field by field: Spark's own cast goes by position."""
    if given.simpleString() == wanted.simpleString():
        return column
    if not isinstance(given, ArrayType | MapType | StructType):
        return column.cast(wanted)
    # In an array, so that it is computed once, however many fields are taken out of it.
    return F.transform(F.array(column), lambda value: _by_name(value, given, wanted))[0]


def _by_name(value: Column, given: DataType, wanted: DataType) -> Column:
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        there = [(field, spelled(field.name, given.names)) for field in wanted]
        fields = [
            (F.lit(None) if name is None else _by_name(value[name], given[name].dataType, field.dataType))
            .cast(field.dataType)
            .alias(field.name)
            for field, name in there
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda element: _by_name(element, given.elementType, wanted.elementType))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return F.transform_values(value, lambda _, element: _by_name(element, given.valueType, wanted.valueType))
    return value.cast(wanted)


def as_column(value: object) -> Column:
    """A value as a user gives it: a text is SQL."""
    if isinstance(value, Column):
        return value
    return F.expr(value) if isinstance(value, str) else F.lit(value)
