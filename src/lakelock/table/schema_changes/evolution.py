"""Merging two concurrent changes of one table's columns: the common schema, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakelock.table.columns.widening import widens, wider
from lakelock.table.schema import TableSchema


def merged(base: TableSchema, theirs: TableSchema, mine: TableSchema) -> tuple[TableSchema, list[str]]:
    """The schema that merges `theirs` and `mine`, both made from `base`; or one sentence per column that does not fit.

    Files that either side wrote must be readable in it. So columns and fields of structs may be added, if they may be null;
    types may widen (`lakelock.table.columns.widening`); what must not be null may become nullable. Columns, and fields inside
    them, are in the order of `theirs`, mine come last; in that of `mine` if it alone has another order than `base`. If one side
    changed nothing, the other's schema is the result as it is.
    """
    if base == theirs:
        return mine, []
    problems: list[str] = []
    fields = pa.schema(_together(base.arrow, theirs.arrow, mine.arrow, "", problems))
    return theirs if fields == theirs.arrow else TableSchema(fields), problems


def _in_order(
    base: Iterable[pa.Field], theirs: Iterable[pa.Field], mine: Iterable[pa.Field],
    fields: list[pa.Field], where: str, problems: list[str],
) -> list[pa.Field]:  # fmt: skip
    """The fields, which are in the order of `theirs`, in the order that one side has chosen."""
    names = [[field.name for field in each] for each in (base, theirs, mine)]
    common = set(names[0]).intersection(*names[1:])
    before, there, here = ([name for name in each if name in common] for each in names)
    if here in (before, there):
        return fields
    if there != before:
        problems.append(f"the order of {f'the fields of {where[:-1]}' if where else 'the columns'}: both have changed it")
        return fields
    place = {name: number for number, name in enumerate(names[2])}
    return sorted(fields, key=lambda field: place.get(field.name, len(place)))


def is_readable_as(old: TableSchema, new: TableSchema) -> bool:
    """Whether files with the columns `old` can be read in those of `new`: columns were added, widened or relaxed since."""
    return _grew(pa.struct(list(old.arrow)), pa.struct(list(new.arrow)))


def _grew(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        there = {field.name: field for field in new}
        kept = all(f.name in there and _field_grew(f, there[f.name]) for f in old)
        return kept and all(field.nullable for field in new if old.get_field_index(field.name) < 0)
    if types.is_list(old) and types.is_list(new):
        return _field_grew(old.value_field, new.value_field)
    if types.is_map(old) and types.is_map(new):
        return _field_grew(old.item_field, new.item_field)
    return bool(old == new or widens(old, new))


def _field_grew(old: pa.Field, new: pa.Field) -> bool:
    return (new.nullable or not old.nullable) and _grew(old.type, new.type)


def changed(old: Iterable[pa.Field], new: Iterable[pa.Field], where: str = "") -> list[str]:
    """The columns, and fields of structs, that are in `new` and not, or differently, in `old`."""
    before = {field.name: field for field in old}
    found: list[str] = []
    for field in new:
        path, known = f"{where}{field.name}", before.get(field.name)
        if known is None:
            found.append(path)
        elif known != field:
            inside = pa.types.is_struct(known.type) and pa.types.is_struct(field.type)
            found += (changed(known.type, field.type, f"{path}.") if inside else []) or [path]
    return found


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
        if before is not None:
            problems.append(f"{path}: removed here")
        elif not field.nullable:
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
    return _in_order(base, theirs, mine, found, where, problems)


def _field(base: pa.Field | None, theirs: pa.Field, mine: pa.Field, where: str, problems: list[str]) -> pa.Field:
    """A column that both sides have."""
    if theirs == mine:
        return theirs
    if base is not None and base.nullable and not theirs.nullable:
        problems.append(f"{where}: {_said(theirs)} there, {_said(mine)} here")
        return theirs
    both, types = theirs.with_nullable(theirs.nullable or mine.nullable), pa.types
    if types.is_struct(theirs.type) and types.is_struct(mine.type):
        before = base.type if base is not None and types.is_struct(base.type) else ()
        return both.with_type(pa.struct(_together(before, theirs.type, mine.type, f"{where}.", problems)))
    if types.is_list(theirs.type) and types.is_list(mine.type):
        before = base.type.value_field if base is not None and types.is_list(base.type) else None
        inner = _field(before, theirs.type.value_field, mine.type.value_field, f"{where}[]", problems)
        return both.with_type(pa.list_(inner))
    if types.is_map(theirs.type) and types.is_map(mine.type):
        before = base.type.item_field if base is not None and types.is_map(base.type) else None
        inner = _field(before, theirs.type.item_field, mine.type.item_field, f"{where}{{}}", problems)
        return both.with_type(pa.map_(pa.string(), inner))
    kept = _type(None if base is None else base.type, theirs.type, mine.type)
    if kept is None:
        problems.append(f"{where}: {_said(theirs)} there, {_said(mine)} here")
        return theirs
    return both.with_type(kept)


def _type(base: pa.DataType | None, theirs: pa.DataType, mine: pa.DataType) -> pa.DataType | None:
    """The type that holds what both sides wrote, None if there is none."""
    if mine == base:
        return theirs if theirs == base or widens(mine, theirs) else None
    return mine if theirs == base else wider(theirs, mine)


def _said(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"
