"""Merging two concurrent changes of one table's columns: the common schema, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakelock.table.schema import TableSchema


def merged(base: TableSchema, theirs: TableSchema, mine: TableSchema) -> tuple[TableSchema, list[str]]:
    """The schema that merges `theirs` and `mine`, both made from `base`; or one sentence per column that does not fit.

    Only added columns, and added fields of structs, can be merged; each must be nullable, because the files of the other side
    lack it. Columns are in the order of `theirs`, mine come last. If one side changed nothing, the other's schema is the
    result as it is.
    """
    if base == theirs:
        return mine, []
    problems: list[str] = []
    fields = pa.schema(_together(base.arrow, theirs.arrow, mine.arrow, "", problems))
    return theirs if fields == theirs.arrow else TableSchema(fields), problems


def _together(
    base: Iterable[pa.Field], theirs: Iterable[pa.Field], mine: Iterable[pa.Field], where: str, problems: list[str]
) -> list[pa.Field]:
    """The fields of both sides; adds to `problems`."""
    old, own = ({field.name: field for field in fields} for fields in (base, mine))
    found: list[pa.Field] = []
    for field in theirs:
        path, before, here = f"{where}{field.name}", old.get(field.name), own.pop(field.name, None)
        if here is not None:
            found.append(_field(before, field, here, path, problems))
            continue
        if before is None and not field.nullable:
            problems.append(f"{path}: added by the other as not null")
        found.append(field)
    for field in own.values():
        path = f"{where}{field.name}"
        if field.name in old:
            problems.append(f"{path}: removed by the other")
        elif not field.nullable:
            problems.append(f"{path}: added as not null")
        found.append(field)
    names: dict[str, str] = {}
    problems += [
        f"{where}{field.name}: Spark cannot tell it from {names[field.name.lower()]}"
        for field in found
        if names.setdefault(field.name.lower(), field.name) != field.name
    ]
    return found


def _field(base: pa.Field | None, theirs: pa.Field, mine: pa.Field, where: str, problems: list[str]) -> pa.Field:
    """A column that both sides have."""
    if theirs == mine:
        return theirs
    types = pa.types
    if theirs.nullable == mine.nullable:
        if types.is_struct(theirs.type) and types.is_struct(mine.type):
            before = base.type if base is not None and types.is_struct(base.type) else ()
            return theirs.with_type(pa.struct(_together(before, theirs.type, mine.type, f"{where}.", problems)))
        if types.is_list(theirs.type) and types.is_list(mine.type):
            before = base.type.value_field if base is not None and types.is_list(base.type) else None
            inner = _field(before, theirs.type.value_field, mine.type.value_field, f"{where}[]", problems)
            return theirs.with_type(pa.list_(inner))
        if types.is_map(theirs.type) and types.is_map(mine.type):
            before = base.type.item_field if base is not None and types.is_map(base.type) else None
            inner = _field(before, theirs.type.item_field, mine.type.item_field, f"{where}{{}}", problems)
            return theirs.with_type(pa.map_(pa.string(), inner))
    problems.append(f"{where}: {_said(theirs)} there, {_said(mine)} here")
    return theirs


def _said(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
