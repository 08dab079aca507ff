"""Rows fitted to a table: columns are found by name, values are cast without loss, columns grow, and rows may lack some.

Columns are found as Spark finds them: exactly as a name is spelled, else in whatever case. No table has two columns whose
names differ in case only, so a name never means two of them.

Written rows must fit exactly (`conform`). Rows read from files that others wrote are cast more leniently (`read_as`):
INT96 and nanosecond timestamps, columns added later, types widened since. A column grows where `write.merge_schema` is on
(`grown`).

A partial update goes field by field into structs. It cannot go into lists and maps: nothing says which stored element an
incoming one stands for.

Tables may hold more text than one Arrow array can, so rows are taken out of them in pieces (`taken`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.settings import MissingColumns
from lakelock.table.column_types import canonical, nested_type, refuse_twins, wider
from lakelock.texts import counted


class Fields:
    """The fields of a schema or a struct, to be asked by name."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        self._fields = list(fields)
        self._exact: dict[str, int] = {}
        self._any: dict[str, int] = {}
        for index, field in enumerate(self._fields):
            self._exact.setdefault(field.name, index)
            self._any.setdefault(field.name.lower(), index)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self._fields]

    def index(self, name: str) -> int:
        """The place of the field that `name` means, -1 if there is none."""
        return self._exact.get(name, self._any.get(name.lower(), -1))

    def find(self, name: str) -> pa.Field | None:
        """The field that `name` means."""
        index = self.index(name)
        return None if index < 0 else self._fields[index]

    def others(self, names: Iterable[str]) -> list[pa.Field]:
        """The fields that none of these names means, in their order."""
        meant = {self.index(name) for name in names}
        return [field for index, field in enumerate(self._fields) if index not in meant]


def spelled(name: str, names: Sequence[str]) -> str | None:
    """The one of `names` that `name` means, None if it means none."""
    index = Fields(pa.field(each, pa.null()) for each in names).index(name)
    return None if index < 0 else names[index]


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


def grown(table: pa.Field, given: pa.Field, where: str, problems: list[str], *, partly: bool) -> pa.Field:
    """The column `table` as it has to be for values of `given`: new fields of structs come last, types widen.

    Adds a sentence to `problems` for whatever cannot grow so. With `partly` a struct may lack any field.
    """
    types, new = pa.types, given.type
    if types.is_dictionary(new):
        new = new.value_type
    if types.is_struct(table.type) and types.is_struct(new):
        return table.with_type(_struct(table.type, new, where, problems, partly=partly))
    if types.is_list(table.type) and (types.is_list(new) or types.is_large_list(new) or types.is_fixed_size_list(new)):
        inner = grown(table.type.value_field, new.value_field, f"{where}[]", problems, partly=False)
        return table.with_type(pa.list_(inner))
    if types.is_map(table.type) and types.is_map(new):
        problems += why_not_fits(new.key_type, table.type.key_type, f"{where} (keys)")
        inner = grown(table.type.item_field, new.item_field, f"{where}{{}}", problems, partly=False)
        return table.with_type(pa.map_(table.type.key_type, inner))
    misfits = why_not_fits(new, table.type, where)
    if not misfits:
        return table
    wide = None if types.is_nested(new) else wider(table.type, canonical(new, where))
    if wide is None:
        problems += misfits
        return table
    return table.with_type(wide)


def _struct(table: pa.StructType, given: pa.StructType, where: str, problems: list[str], *, partly: bool) -> pa.StructType:
    theirs, children = Fields(given), []
    for child in table:
        other, path = theirs.find(child.name), f"{where}.{child.name}"
        if other is not None:
            child = grown(child, other, path, problems, partly=partly)
        elif not child.nullable and not partly:
            problems.append(f"{path}: missing, and it must not be null")
        children.append(child)
    new = [pa.field(child.name, nested_type(child, where)) for child in theirs.others(table.names)]
    if new:
        refuse_twins([f"{where}.{child.name}" for child in (*children, *new)])
    return pa.struct([*children, *new])


@dataclass(frozen=True)
class Lack:
    """A column, or a field inside one, that rows lack. `unmatched` says why its stored value cannot be kept, if it cannot."""

    path: str
    unmatched: str = ""


def lacking(table: Iterable[pa.Field], given: Iterable[pa.Field]) -> Iterator[Lack]:
    """The columns and fields of `table` that rows with the columns `given` lack."""
    return _lacking(table, given, "", "")


def refuse_missing(table: pa.Schema, given: Iterable[pa.Field], missing: MissingColumns) -> None:
    """Raise `SchemaError`, naming the columns, if rows with the columns `given` must not be upserted."""
    lacks = [] if missing == "null" else list(lacking(table, given))
    if missing != "keep" and lacks:
        names = ", ".join(lack.path for lack in lacks)
        raise SchemaError(
            f"the rows lack {_columns(lacks)} of the table: {names}; "
            "an upsert would write null over the stored values of every row that it updates",
            hint="add them to the rows, or set write.missing_columns (missing_columns= of a call): "
            '"keep" leaves the stored values as they are, "null" writes null over them, "error" is this refusal',
            columns=[lack.path for lack in lacks],
        )
    unmatched = [lack for lack in lacks if lack.unmatched]
    if unmatched:
        raise SchemaError(
            'missing_columns="keep" cannot keep the stored values of '
            + ", ".join(f"{lack.path} ({lack.unmatched})" for lack in unmatched),
            hint='write the column with all its fields, leave out the whole column, or set write.missing_columns to "null"',
            columns=[lack.path for lack in unmatched],
        )


KnownSchemas = Callable[[], Iterable[pa.Schema]]
"""Asks for the schemas that an open table can know."""


def missing_since(table: pa.Schema, given: pa.Schema, missing: MissingColumns, known: KnownSchemas) -> MissingColumns:
    """`missing`, or "keep" instead of "error" if the rows have all columns of an older schema that their writer has `known`.

    Such a writer cannot know the columns that were added later, and must not write over them.
    """
    if missing != "error" or next(lacking(table, given), None) is None:
        return missing
    for schema in known():
        still_there = [field for field in schema if table.get_field_index(field.name) >= 0]
        if next(lacking(still_there, given), None) is None:
            return "keep"
    return missing


def added(after: Iterable[pa.Field], before: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """The columns of `after` that are not in `before`, or not of that type; of structs only those fields."""
    there = Fields(before)
    for field in after:
        other = there.find(field.name)
        if other is None or not (pa.types.is_struct(field.type) and pa.types.is_struct(other.type)):
            if other is None or other.type != field.type:
                yield field
        elif inside := list(added(field.type, other.type)):
            yield field.with_type(pa.struct(inside))


def narrowed(table: pa.Schema, given: pa.Schema) -> pa.Schema:
    """The columns of `table` that rows with the columns `given` have, with only those fields of structs that they have."""
    return pa.schema(_narrowed(table, given))


def narrowed_type(table: pa.DataType, given: pa.DataType) -> pa.DataType:
    """The type of a table's column, without the fields of structs that `given` lacks."""
    given = _decoded(given)
    if not (pa.types.is_struct(table) and pa.types.is_struct(given)):
        return table
    return pa.struct(_narrowed(table, given))


def _narrowed(table: Iterable[pa.Field], given: Iterable[pa.Field]) -> Iterator[pa.Field]:
    there = Fields(given)
    for field in table:
        other = there.find(field.name)
        if other is not None:
            yield field.with_type(narrowed_type(field.type, other.type))


def updated(stored: pa.Array, given: pa.Array, field: pa.Field) -> pa.Array:
    """The values of `stored` after an update by those of `given`, whose structs may lack fields: those keep their values.

    A given null struct makes the stored one null. Where the stored struct was null, the missing fields are null, or a
    `SchemaError` if `field`, the column, does not allow that.
    """
    if given.type == stored.type:
        return given
    return conformed(_updated(stored, given), field)


def _updated(stored: pa.Array, given: pa.Array) -> pa.Array:
    if given.type == stored.type:
        return given
    new = {child.name: values for child, values in zip(given.type, given.flatten(), strict=True)}
    children = [
        _updated(old, new[child.name]) if child.name in new else old
        for child, old in zip(stored.type, stored.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(stored.type), mask=given.is_null())


def _lacking(table: Iterable[pa.Field], given: Iterable[pa.Field], where: str, unmatched: str) -> Iterator[Lack]:
    there = Fields(given)
    for field in table:
        path, other = where + field.name, there.find(field.name)
        if other is not None:
            yield from _inside(field.type, other.type, path, unmatched)
        else:
            yield Lack(path, unmatched)


def _inside(table: pa.DataType, given: pa.DataType, path: str, unmatched: str) -> Iterator[Lack]:
    types, given = pa.types, _decoded(given)
    if types.is_struct(table) and types.is_struct(given):
        there = Fields(table)
        if not any(there.index(child.name) >= 0 for child in given):
            unmatched = unmatched or "the struct has none of the table's fields"
        yield from _lacking(table, given, f"{path}.", unmatched)
    elif types.is_list(table) and (types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)):
        yield from _inside(table.value_type, given.value_type, f"{path}[]", "in a list, whose elements cannot be matched")
    elif types.is_map(table) and types.is_map(given):
        yield from _inside(table.item_type, given.item_type, f"{path}{{}}", "in a map, whose values are replaced as a whole")


def _decoded(given: pa.DataType) -> pa.DataType:
    return given.value_type if pa.types.is_dictionary(given) else given


def _columns(lacks: list[Lack]) -> str:
    return "a column" if len(lacks) == 1 else f"{len(lacks)} columns"


_ARRAY_BYTES = (1 << 31) - 1
"""What an array of texts, whose offsets have 32 bits, holds at most."""

_PIECE_BYTES = 128 << 20


def rows_within(rows: pa.Table, size_bytes: int) -> int:
    """About how many of these rows take so much memory; at least one."""
    return max(1, size_bytes * int(rows.num_rows) // max(1, int(rows.nbytes)))


def take_rows(rows: pa.Table, positions: Any) -> pa.Table:
    """The rows at these positions, in this order.

    Arrow's `take` first puts the chunks of a column together, and fails where they have more than 2 GB of text. Such a table
    is taken in pieces of about 128 MB: of each, the rows are filtered, chunk by chunk, and then put in order.
    """
    if rows.nbytes < _ARRAY_BYTES:
        return rows.take(pa.array(positions))
    most_rows = rows_within(rows, _PIECE_BYTES)
    pieces = [_piece(rows, positions[start : start + most_rows]) for start in range(0, len(positions), most_rows)]
    return pa.concat_tables([rows.slice(0, 0), *pieces])


def _piece(rows: pa.Table, positions: Any) -> pa.Table:
    wanted, order = np.unique(positions, return_inverse=True)
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[wanted] = True
    return rows.filter(pa.array(mask)).take(pa.array(order))
