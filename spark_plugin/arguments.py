"""The arguments of a `LakeTable`'s methods, turned into what the engine takes: settings, times, columns and their new values.

Methods and arguments of Delta's Python API work where they mean the same. Any other of its names is an `AttributeError` that
says what to type instead.

New values for columns are given as in `{"price": "price * 1.1", "checked": True}`. A name means a column in whatever case,
unless the session tells upper case from lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from lakelock.checked_calls import checked
from lakelock.errors import InputError, SchemaError
from lakelock.occ.request import Every
from lakelock.settings import MissingColumns, Settings, WriteSettings
from lakelock.spark_plugin.conditions import is_repeatable
from lakelock.spark_plugin.hadoop import shared, with_metastore
from lakelock.spark_plugin.spark_jobs import in_task_text
from lakelock.spark_plugin.spark_session import arrow_schema, spark_conf, spark_schema
from lakelock.table.instants import as_of_time, time_text
from lakelock.table.properties import TableProperties
from lakelock.table.rows import lacking, spelled
from lakelock.table.schema import TableSchema, check_write, grown_by
from lakelock.texts import column_hint

Duplicates = Literal["error", "any"]


def settings_of(
    spark: SparkSession, path: str | Path, config: str | Path | None, options: Mapping[str, object] | None
) -> Settings:
    """The settings of a call: options, the session's conf, the file; for storage and metastores Hadoop's configuration, too."""
    settings = Settings.resolve(options or {}, spark_conf(spark), config).settings
    return with_metastore(spark, shared(spark, path, settings))


def chosen_rows(what: str | Column | DataFrame | Every) -> str | Column | DataFrame:
    """The rows that a delete is about; `InputError` for None."""
    if what is None:
        raise InputError("delete was given None", hint="table.delete() deletes every row; give a condition or keys otherwise")
    if not isinstance(what, str | Column | Every) and not hasattr(what, "isStreaming"):
        hint = 'give a condition, such as "month = 1", or a data frame of Spark with the keys'
        raise InputError(f"delete was given a {type(what).__name__}", hint=hint)
    return "true" if what is Every.ROW else what


def changed(
    settings: WriteSettings,
    merge_schema: bool | None = None,
    duplicates: Duplicates | None = None,
    missing_columns: MissingColumns | None = None,
) -> WriteSettings:
    """The settings of one write, with the changes that its call asks for."""
    if duplicates not in (None, "error", "any"):
        raise InputError(f"duplicates is {duplicates!r}", hint='use duplicates="error" or duplicates="any"')
    if missing_columns not in (None, "error", "keep", "null"):
        hint = 'use missing_columns="error", missing_columns="keep" or missing_columns="null"'
        raise InputError(f"missing_columns is {missing_columns!r}", hint=hint)
    asked = {"merge_schema": merge_schema, "duplicates": duplicates, "missing_columns": missing_columns}
    changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return replace(settings, **changes) if changes else settings


def instant_of(moment: str | datetime, zone: str) -> str:
    """A point in time as an instant time of a table whose instants are in this zone; a time without a zone is UTC."""
    return as_of_time(time_text(moment), zone)


P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_CREATE = "LakeTable.create(spark, path, schema=..., key=..., partition_by=..., if_not_exists=True)"
_VERSION = "is fixed: this is a Hudi table of version 9, see table.detail()"

INSTEAD: Mapping[str, str] = {
    "isDeltaTable": "LakeTable.exists(spark, path)",
    "createIfNotExists": _CREATE,
    "createOrReplace": f"{_CREATE}, then table.overwrite(df)",
    "replace": f"{_CREATE}, then table.overwrite(df)",
    "columnBuilder": f"columns are those of a data frame or a StructType: {_CREATE}",
    "convertToDelta": "LakeTable.from_parquet(spark, path, folder=..., key=...)",
    "clone": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read())",
    "cloneAtVersion": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read(as_of=...))",
    "cloneAtTimestamp": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read(as_of=...))",
    "restoreToVersion": "table.restore(instant); table.history() lists the instants",
    "restoreToTimestamp": 'table.restore("2026-11-20 12:00"), in UTC',
    "generate": "nothing: engines that read Hudi read this table as it is",
    "count": "table.read().count()",
    "show": "table.read().show()",
    "df": "table.read(), or table.to_df()",
    "where": "table.read(where), or table.read().where(...)",
    "filter": "table.read(where), or table.read().filter(...)",
    "select": "table.read().select(...)",
    "write": "table.insert(df), table.upsert(df) or table.overwrite(df)",
    "append": "table.insert(df)",
    "clean": "table.vacuum()",
    "compact": "table.optimize().execute()",
    **{name: f"table.read().{name}(...)" for name in ("collect", "display", "first", "groupBy", "head", "limit", "take")},
    "toPandas": "table.read().toPandas()",
    "printSchema": "table.read().printSchema()",
    "upgradeTableProtocol": f"the protocol {_VERSION}",
    "addFeatureSupport": f"what readers must know {_VERSION}",
    "dropFeatureSupport": f"what readers must know {_VERSION}",
}
"""Names of Delta's that are none here, and what to type."""

ALIASES: Mapping[str, str] = {
    "forPath": "LakeTable.for_path",
    "forName": "LakeTable.for_name",
    "toDF": "table.to_df",
    "executeCompaction": "table.optimize().execute",
    "whenMatchedUpdate": "when_matched_update",
    "whenMatchedUpdateAll": "when_matched_update_all",
    "whenMatchedDelete": "when_matched_delete",
    "whenNotMatchedInsert": "when_not_matched_insert",
    "whenNotMatchedInsertAll": "when_not_matched_insert_all",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete",
}
"""Names of Delta's that work, and ours."""


def delta_arguments(
    **names: str,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """A method that takes some arguments by Delta's names, too: `delta_arguments(condition="where")`."""

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        method = checked(method)

        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> T:
            for deltas, ours in names.items():
                if deltas in kwargs:
                    if ours in kwargs:
                        raise InputError(f"{ours} and {deltas} are the same argument", hint="give one of them")
                    kwargs[ours] = kwargs.pop(deltas)
            return method(self, *args, **kwargs)

        return cast(Callable[Concatenate[S, P], T], call)

    return decorate


def delta_update(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """`update`, also with Delta's order and names of arguments: the condition first, then what to set."""

    method = checked(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> T:
        if args and isinstance(args[0], str | Column):
            if len(args) > 1 and isinstance(args[1], Mapping):
                args = (args[1], args[0], *args[2:])
            elif "set" in kwargs and "where" not in kwargs:
                args, kwargs["where"] = args[1:], args[0]
        return method(self, *args, **kwargs)

    return delta_arguments(condition="where")(cast(Callable[Concatenate[S, P], T], call))


@dataclass(frozen=True)
class ColumnNames:
    """The names of a table's columns, as assignments, merges and statements of one session mean them.

    The rows of a write mean the table's columns in whatever case in every session: it has no two that differ in case only.
    """

    names: tuple[str, ...]
    exactly: bool

    @classmethod
    def of(cls, spark: SparkSession, schema: TableSchema) -> ColumnNames:
        """Of a table with this schema, distinguished as the session does now (`spark.sql.caseSensitive`)."""
        return cls(tuple(schema.names), str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true")

    def spelling(self, name: str) -> str:
        """A name as the table spells it; itself if the table has no such column."""
        return name if self.exactly else spelled(name, self.names) or name

    def spelled(self, frame: DataFrame) -> DataFrame:
        """A frame with its columns spelt as the table's."""
        return frame if self.exactly else frame.toDF(*map(self.spelling, frame.columns))

    def missing_in(self, columns: Iterable[str]) -> list[str]:
        """The table's columns that none of these means."""
        there = {self.spelling(name) for name in columns}
        return [name for name in self.names if name not in there]

    def refuse_other_case(self, columns: Iterable[str]) -> None:
        """`SchemaError` for a column that is the table's in another case, where the session tells them apart."""
        for name in columns if self.exactly else ():
            if name not in self.names and spelled(name, self.names) is not None:
                raise SchemaError(f"the table has no column {name!r}", hint=column_hint(name, self.names), column=name)


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
    as_meant = {name: stored[name] for name, kind in types.items() if name in stored and never_grows(kind, stored[name])}
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
    drawn = _drawn(chosen, list(columns))
    types = dict(zip(columns, list(chosen.schema)[-len(columns) :], strict=True))
    target = spark_schema(schema.arrow)
    for field in target:
        if field.name not in types:
            continue
        meant = as_assigned(columns[field.name], types[field.name].dataType, field, drawn=field.name in drawn)
        if meant is not None:
            columns[field.name], types[field.name] = meant, field
    given = arrow_schema(StructType([StructField(name, field.dataType) for name, field in types.items()]))
    wanted = schema if whole else TableSchema(pa.schema([field for field in schema.arrow if field.name in columns]))
    check_write(wanted, given, what="the new values do not fit their columns")
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


def never_grows(given: DataType, wanted: DataType) -> bool:
    """Whether no wider type of the column holds the number, so that `write.merge_schema` means nothing for it."""
    return is_float_in_sql(given, wanted) or (isinstance(wanted, DecimalType) and type(given) in _BITS)


_BITS: Mapping[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_DIGITS: Mapping[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}


def as_assigned(column: Column, given: DataType, field: StructField, *, drawn: bool = False) -> Column | None:
    """The number as SQL assigns it to a column: in the column's type, rounded to its digits. None where it is not cast here.
    `drawn`: each time that Spark computes it, it is another.

    Literals and sums have types of their own, such as int for 0, and more digits in each sum of decimals. What is too large is
    a `SchemaError` in the task, whatever `spark.sql.ansi.enabled` says.
    """
    wanted = field.dataType
    if is_float_in_sql(given, wanted):
        return column.cast(wanted)
    bits, of_given = _BITS.get(type(wanted)), _BITS.get(type(given))
    if isinstance(wanted, DecimalType) and (of_given or isinstance(given, DecimalType)):
        like = given if isinstance(given, DecimalType) else DecimalType(_DIGITS[type(given)], 0)
        scale, digits = wanted.scale, wanted.precision - wanted.scale
        if like.precision - like.scale <= digits:  # none is too large
            return column.cast(wanted)

        def is_too_large(number: Column) -> Column:
            return F.abs(F.round(number.cast(like), scale)) >= F.lit(Decimal(10**digits))

    elif bits and of_given and of_given > bits:
        limit = 2 ** (bits - 1)

        def is_too_large(number: Column) -> Column:
            return (number >= F.lit(limit)) | (number < F.lit(-limit))

    else:
        return None
    error = SchemaError(
        f"a new value of {field.name} does not fit {wanted.simpleString()}",
        hint="widen the column first, or choose other rows",
        column=field.name,
    )
    failure = F.raise_error(F.lit(in_task_text(error)))

    def fitting(number: Column) -> Column:
        return F.when(is_too_large(number), failure).otherwise(number).cast(wanted)

    # In an array, so that what is looked at is what is stored.
    return F.transform(F.array(column), fitting)[0] if drawn else fitting(column)


def _drawn(chosen: DataFrame, names: Sequence[str]) -> frozenset[str]:
    """Which of the last columns of a frame, which have these names, are others each time that Spark computes them."""
    expressions = chosen._jdf.queryExecution().analyzed().expressions()
    first = expressions.size() - len(names)
    return frozenset(name for at, name in enumerate(names, first) if not expressions.apply(at).deterministic())


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
