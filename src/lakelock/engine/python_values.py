"""What a caller gives in Python, as Arrow: the columns of a table, conditions on its rows, rows, and new values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelock.engine.sql_texts import parsed_condition, parsed_schema, parsed_value
from lakelock.errors import InputError, SchemaError
from lakelock.occ.request import Every
from lakelock.table.rows import Fields, spelled
from lakelock.table.schema import TableSchema
from lakelock.texts import column_hint

Rows: TypeAlias = Any
"""Rows to write: a pyarrow Table, RecordBatch or RecordBatchReader, a list of dicts, a pandas data frame, or anything else that
Arrow can import (`__arrow_c_stream__`), such as a data frame of Polars or a result of DuckDB."""
Condition: TypeAlias = str | pc.Expression
"""Which rows: a text in SQL, such as `"month = 1 and v > 3"`, or a pyarrow expression."""
Values: TypeAlias = Mapping[str, object]
"""Columns and their new values: a text is SQL, `"price * 2"`, so a literal text is `"'open'"`; other Python values are literals
(None is null), and a pyarrow expression is computed from the old row."""


def schema_of(given: object) -> pa.Schema:
    """The columns that a caller gives: a schema, rows with them, or a text."""
    if isinstance(given, str):
        return parsed_schema(given)
    found = given if isinstance(given, pa.Schema) else getattr(given, "schema", None)
    if not isinstance(found, pa.Schema):
        raise InputError(
            f"schema is of the type {type(given).__name__}",
            hint='give a pyarrow.Schema, a pyarrow.Table with the columns, or a text such as "id bigint, name string"',
        )
    return found


def condition_of(given: Condition, schema: TableSchema) -> pc.Expression:
    """The condition on rows of these columns."""
    return parsed_condition(given, schema.arrow) if isinstance(given, str) else given


def chosen_rows(what: Condition | Rows | Every, schema: TableSchema) -> pc.Expression | pa.Table:
    """The rows that a delete is about: a condition, or rows with their keys."""
    if what is None:
        raise InputError("delete was given None", hint="table.delete() deletes every row; give a condition or keys otherwise")
    if what is Every.ROW:
        return pc.scalar(True)
    return condition_of(what, schema) if isinstance(what, str | pc.Expression) else rows_of(what, schema)


def values_of(given: object, schema: TableSchema) -> dict[str, pc.Expression]:
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"set is {given!r}, not columns and their new values", hint='use {"price": "price * 2", "checked": True}'
        )
    found: dict[str, pc.Expression] = {}
    for name, value in given.items():
        column = spelled(str(name), schema.names)
        if column is None:
            raise SchemaError(f"the table has no column {name!r}", hint=column_hint(str(name), schema.names))
        if column in found:
            raise InputError(f"the column {column} gets two values", hint="leave out one of them")
        found[column] = _value(value, schema.field(column), schema)
    return found


def _value(value: object, field: pa.Field, schema: TableSchema) -> pc.Expression:
    if isinstance(value, pc.Expression):
        return value
    if isinstance(value, str):
        return parsed_value(value, schema.arrow)
    try:
        return pc.scalar(value if isinstance(value, pa.Scalar) else pa.scalar(value, _type_of([value], field.type)))
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise SchemaError(
            f"{value!r} cannot be the value of {field.name} ({field.type})",
            hint="give a value of this type; a text is SQL: \"'open'\" is a literal",
            column=field.name,
        ) from error


def rows_of(rows: Rows, schema: TableSchema) -> pa.Table:
    """Rows of any kind as a pyarrow table; `InputError` for what are no rows, `SchemaError` for values of another type."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows.read_all()
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _of_dicts(rows, schema)
    if type(rows).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    raise InputError(
        f"rows are given as {type(rows).__name__}",
        hint='give a pyarrow.Table, a list of dicts such as [{"id": 1}], or a data frame of pandas or Polars',
    )


def _of_dicts(rows: Sequence[object], schema: TableSchema) -> pa.Table:
    """A table with the columns of the first row, which all others must have; those of the table in its types."""
    if not all(isinstance(row, Mapping) for row in rows):
        wrong = next(row for row in rows if not isinstance(row, Mapping))
        raise InputError(f"{wrong!r} is not a row", hint='each row is a dict: [{"id": 1, "name": "tea"}]')
    if not rows:
        return schema.arrow.empty_table()
    names, columns, known = list(_keys_of(rows)), list[pa.Array](), Fields(schema.arrow)
    for name in names:
        field = known.find(name)
        values = [row[name] for row in rows]  # type: ignore[index]
        try:
            columns.append(pa.array(values, None if field is None else _type_of(values, field.type)))
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
            kind = "one type" if field is None else str(field.type)
            raise SchemaError(
                f"the rows do not fit the table: {name}: {str(error).splitlines()[0]}",
                hint=f"give values of {kind}, or None",
                column=name,
            ) from error
    return pa.table(columns, names=names)


def _type_of(values: Sequence[Any], kind: pa.DataType, *, alike: bool = True) -> pa.DataType:
    """The type in which these values come to a column: structs have the fields that are given, and those alone.

    `ValueError` for a value that Arrow would cut to fit the column, and for structs that are not `alike` in their fields.
    """
    there, types = [value for value in values if value is not None], pa.types
    if types.is_struct(kind) and there and all(isinstance(value, Mapping) for value in there):
        names = list(dict.fromkeys(name for value in there for name in value))
        differ = next((name for name in names if any(name not in value for value in there)), None)
        if differ is not None and alike:
            raise ValueError(f"some structs have the field {differ!r}, and others have not")
        known, fields = Fields(kind), []
        for name in names:
            inside, field = [value.get(name) for value in there], known.find(name)
            made = pa.array(inside).type if field is None else _type_of(inside, field.type, alike=alike)
            fields.append(pa.field(name, made))
        whole = [(field.name, field.type) for field in fields] == [(field.name, field.type) for field in kind]
        return kind if whole else pa.struct(fields)
    if types.is_list(kind):
        made = _type_of([each for value in there for each in value], kind.value_type, alike=False)
        return kind if made == kind.value_type else pa.list_(made)
    if types.is_map(kind):
        pairs = [pair for value in there for pair in (value.items() if isinstance(value, Mapping) else value)]
        made = _type_of([item for _, item in pairs], kind.item_type, alike=False)
        return kind if made == kind.item_type else pa.map_(kind.key_type, made)
    cut = next((value for value in there if _is_cut(value, kind)), None)
    if cut is not None:
        raise ValueError(f"{cut!r} does not fit {kind}")
    return kind


def _is_cut(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow would take a fraction, a time of day, digits of a time or its zone from the value for a column of a type.

    pandas has times with nanoseconds, and one that is none, of which Arrow makes a day.
    """
    if pa.types.is_integer(kind):
        return isinstance(value, Real | Decimal) and value % 1 != 0  # type: ignore[operator]
    if not isinstance(value, datetime):
        return False
    if pa.types.is_date(kind):
        return bool(value != value or value.timetz() != time.min or getattr(value, "nanosecond", 0))
    if not pa.types.is_timestamp(kind) or value != value:
        return False
    if getattr(value, "nanosecond", 0):
        return bool(kind.unit != "ns")
    coarse = {"s": 1_000_000, "ms": 1000}.get(kind.unit, 1)
    return value.microsecond % coarse != 0 or (kind.tz is None and value.tzinfo is not None)


def _keys_of(rows: Sequence[Any]) -> Iterator[str]:
    first = list(rows[0])
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            different = sorted(set(row) ^ set(first))
            raise InputError(
                f"row {number} has other columns than row 0: {', '.join(map(str, different))}",
                hint="give every row the same columns, None where there is no value",
            )
    yield from map(str, first)
