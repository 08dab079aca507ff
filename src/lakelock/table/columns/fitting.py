"""Casting rows to the types of a table: which types hold which without loss, and the casting itself.

Written rows must fit exactly (`conform`); rows read from files that others wrote are cast more leniently (`read_as`): INT96
and nanosecond timestamps, columns added later, types widened since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.amounts import counted
from lakelock.errors import CorruptTableError, SchemaError
from lakelock.table.columns.fields import Fields

_INT_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def why_not_fits(given: pa.DataType, table: pa.DataType, where: str) -> list[str]:
    """Why values of type `given` cannot be stored as `table`, one sentence per place; empty if they can."""
    types = pa.types
    if given == table or types.is_null(given):
        return []
    if types.is_dictionary(given):
        return why_not_fits(given.value_type, table, where)
    if types.is_struct(table) and types.is_struct(given):
        return list(_struct_misfits(given, table, where))
    if types.is_list(table) and (types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)):
        return why_not_fits(given.value_type, table.value_type, f"{where}[]")
    if types.is_map(table) and types.is_map(given):
        keys = why_not_fits(given.key_type, table.key_type, f"{where} (keys)")
        return keys + why_not_fits(given.item_type, table.item_type, f"{where}{{}}")
    if _atom_fits(given, table):
        return []
    advice = ""
    if types.is_timestamp(given) and types.is_timestamp(table):
        advice = ": one is an instant, the other a wall-clock reading; convert it explicitly"
    return [f"{where}: {given} does not fit {table}{advice}"]


def _struct_misfits(given: pa.StructType, table: pa.StructType, where: str) -> Iterator[str]:
    theirs = Fields(given)
    for child in table:
        other = theirs.find(child.name)
        if other is not None:
            yield from why_not_fits(other.type, child.type, f"{where}.{child.name}")
        elif not child.nullable:
            yield f"{where}.{child.name}: missing, and it must not be null"
    for extra in theirs.others(table.names):
        yield f"{where}.{extra.name}: not a field of the table's column"


def _atom_fits(given: pa.DataType, table: pa.DataType) -> bool:
    types = pa.types
    if types.is_string(table):
        return bool(types.is_large_string(given) or types.is_string_view(given))
    if types.is_binary(table):
        return bool(types.is_large_binary(given) or types.is_binary_view(given) or types.is_fixed_size_binary(given))
    if types.is_integer(table) and types.is_integer(given):
        signed_room = table.bit_width - (0 if types.is_signed_integer(given) else 1)
        return bool(given.bit_width <= signed_room)
    if types.is_floating(table):
        mantissa = 53 if types.is_float64(table) else 24
        if types.is_floating(given):
            return bool(given.bit_width <= table.bit_width)
        return bool(types.is_integer(given) and given.bit_width <= mantissa)
    if types.is_decimal(table):
        whole = table.precision - table.scale
        if types.is_integer(given):
            return bool(whole >= _INT_DIGITS[given.bit_width] + (given == pa.uint64()))
        return bool(types.is_decimal(given) and given.scale <= table.scale and given.precision - given.scale <= whole)
    if types.is_date32(table):
        return bool(types.is_date64(given))
    if types.is_timestamp(table) and types.is_timestamp(given):
        return bool(table.tz) == bool(given.tz)
    return False


def conform(rows: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`; `SchemaError` for a value that does not fit, a null where none may be.

    The columns must have passed `check_write`: what is not in `schema` is dropped, and what the rows lack is null.
    """
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    there = Fields(table.schema)
    columns = [_column(table, there.index(field.name), field, _cast_exactly) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable:
            _refuse(column.null_count, field.name, missing=there.index(field.name) < 0)
    return pa.table(columns, schema=schema)


def conformed(array: pa.Array, field: pa.Field) -> pa.Array:
    """A column that was merged from given and stored values, as a file can hold it.

    `SchemaError` where the column, or a field of a struct in it, is null and must not be: no side gave it a value.
    """
    _refuse_nulls(field, array, field.name)
    return _rebuilt(array, field.type, field.name, _cast_exactly)


def _refuse_nulls(field: pa.Field, array: pa.Array, where: str) -> None:
    if not field.nullable:
        _refuse(array.null_count, where, missing=True)
    if pa.types.is_struct(field.type) and _is_strict(field.type):
        there = array.drop_null() if array.null_count else array
        for child, values in zip(field.type, there.flatten(), strict=True):
            _refuse_nulls(child, values, f"{where}.{child.name}")


def read_as(stored: pa.Table, schema: pa.Schema, source: str) -> pa.Table:
    """Stored rows in the types of `schema`: columns the file lacks are null, ones the table lacks are dropped."""
    there = Fields(stored.schema)
    try:
        return pa.table([_column(stored, there.index(f.name), f, _cast_stored) for f in schema], schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaError) as error:
        raise CorruptTableError(f"{source} holds values that are not of the table's types: {error}", file=source) from error


def _column(
    table: pa.Table, index: int, field: pa.Field, cast: Callable[[pa.Array, pa.DataType, str], pa.Array]
) -> pa.ChunkedArray:
    """The column at `index` as `field`, nulls if that is -1."""
    column = table.column(index) if index >= 0 else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    if column.type == field.type and not _is_strict(field.type):
        return column
    return pa.chunked_array([_rebuilt(chunk, field.type, field.name, cast) for chunk in column.chunks], type=field.type)


def _rebuilt(
    array: pa.Array, target: pa.DataType, where: str, cast: Callable[[pa.Array, pa.DataType, str], pa.Array]
) -> pa.Array:
    """`array` as `target`, nested types field by field in the target's order."""
    types = pa.types
    if array.type == target and not _is_strict(target):
        return array
    if types.is_dictionary(array.type):
        return _rebuilt(array.dictionary_decode(), target, where, cast)
    if types.is_struct(target) and types.is_struct(array.type):
        there = Fields(array.type)
        children = [_child(array, there.index(field.name), field, where, cast) for field in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if types.is_list(target) and hasattr(array, "flatten") and not types.is_map(array.type):
        values = _rebuilt(array.flatten(), target.value_type, f"{where}[]", cast)
        if not target.value_field.nullable:
            _refuse(values.null_count, f"{where}[]")
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        return pa.ListArray.from_arrays(_offsets(lengths), values, type=target, mask=array.is_null())
    if types.is_map(target) and types.is_map(array.type):
        return _rebuilt_map(array, target, where, cast)
    return cast(array, target, where)


def _child(
    array: pa.StructArray, index: int, field: pa.Field, where: str, cast: Callable[[pa.Array, pa.DataType, str], pa.Array]
) -> pa.Array:
    where = f"{where}.{field.name}"
    child = pa.nulls(len(array), field.type) if index < 0 else _rebuilt(array.field(index), field.type, where, cast)
    return child if field.nullable else _required(child, array.is_null(), where, missing=index < 0)


def _required(child: pa.Array, absent: pa.Array, where: str, *, missing: bool) -> pa.Array:
    """A field that must not be null, filled where the struct around it is null: Parquet's writer needs a value there."""
    if not child.null_count:
        return child
    _refuse(pc.sum(pc.and_not(child.is_null(), absent)).as_py(), where, missing=missing)
    at = np.where(np.asarray(child.is_null()), len(child), np.arange(len(child)))
    return pa.concat_arrays([child, pa.array([_any_value(child.type)], child.type)]).take(pa.array(at))


def _any_value(arrow: pa.DataType) -> Any:
    """Some value of a type, for `pyarrow.array`."""
    types = pa.types
    if types.is_struct(arrow):
        return {field.name: _any_value(field.type) for field in arrow}
    if types.is_list(arrow) or types.is_map(arrow):
        return []
    if types.is_string(arrow):
        return ""
    if types.is_binary(arrow) or types.is_fixed_size_binary(arrow):
        return bytes(arrow.byte_width if types.is_fixed_size_binary(arrow) else 0)
    return False if types.is_boolean(arrow) else 0


def _refuse(count: int, where: str, *, missing: bool = False) -> None:
    """Refuse rows in which a column is null that must not be. `missing`: the rows to write lack it."""
    if count:
        raise SchemaError(
            f"column {where} must not be null and is in {counted(count, 'row')}"
            + (", which lack it and have no stored value to keep" if missing else ""),
            hint="add the column to the rows" if missing else "remove these rows or fill the column",
            column=where,
        )


def _is_strict(arrow: pa.DataType) -> bool:
    """Whether anything inside values of this type must not be null."""
    types = pa.types
    if types.is_struct(arrow):
        inner = list(arrow)
    elif types.is_map(arrow):
        inner = [arrow.item_field]
    else:
        inner = [arrow.value_field] if types.is_list(arrow) else []
    return any(not field.nullable or _is_strict(field.type) for field in inner)


def _rebuilt_map(
    array: pa.MapArray, target: pa.MapType, where: str, cast: Callable[[pa.Array, pa.DataType, str], pa.Array]
) -> pa.Array:
    compact = array.take(pa.array(np.arange(len(array))))
    keys = _rebuilt(compact.keys, target.key_type, f"{where} (keys)", cast)
    items = _rebuilt(compact.items, target.item_type, f"{where}{{}}", cast)
    if not target.item_field.nullable:
        _refuse(items.null_count, f"{where}{{}}")
    starts = np.asarray(compact.offsets)
    nulls = np.append(compact.is_null().to_numpy(zero_copy_only=False), False)
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32(), mask=nulls), keys, items).cast(target)


def _offsets(lengths: npt.NDArray[Any]) -> pa.Array:
    return pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))


def _cast_exactly(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    try:
        return array.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        hint = "cast or round the column before writing"
        if pa.types.is_timestamp(target):
            hint = f"round the column to what the table keeps ({target.unit}), for example with date_trunc"
        raise SchemaError(f"column {where}: a value of type {array.type} does not fit {target}: {error}", hint=hint) from error


def _cast_stored(array: pa.Array, target: pa.DataType, where: str) -> pa.Array:
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
        finer = _UNITS[array.type.unit] > _UNITS[target.unit]
        # INT96 has no zone: it always means UTC. Going through the unit first keeps the stored number.
        plain = array.cast(pa.timestamp(array.type.unit)) if array.type.tz else array
        plain = plain.cast(pa.timestamp(target.unit), safe=not finer)
        return pc.assume_timezone(plain, "UTC") if target.tz else plain
    return array.cast(target)
