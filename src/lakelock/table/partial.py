"""Rows that lack some of a table's columns: what they lack, and how they change stored rows without touching the rest.

A partial update goes field by field into structs. It cannot go into lists and maps: nothing says which stored element an
incoming one stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.settings import MissingColumns
from lakelock.table.columns.fields import Fields
from lakelock.table.columns.fitting import conformed


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
"""Asks for the schemas that whoever opened a table can know."""


def missing_since(table: pa.Schema, given: pa.Schema, missing: MissingColumns, known: KnownSchemas) -> MissingColumns:
    """`missing`; "keep" instead of "error" where all that the rows lack came after a schema that their writer has `known`.

    Such a writer cannot have the new columns in its rows, and must not write over them either.
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
