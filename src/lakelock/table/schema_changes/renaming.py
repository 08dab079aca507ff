"""Renames and drops of columns, and of fields inside them: what stays of a table's columns, under which names.

Whoever renames or drops writes all rows again: files find their columns by name, and nobody could tell an old column from a
later one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.near_misses import column_hint
from lakelock.table.columns.canonical import is_name, refuse_own_name, refuse_twins
from lakelock.table.columns.fields import Fields
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema

Path = tuple[str, ...]


@dataclass(frozen=True)
class Kept:
    """A column or field that stays: its name before and after, and what stays inside it; nothing in `inside` means all of it.

    The one part inside a list is `element`, and inside a map `value`.
    """

    old: str
    new: str
    inside: tuple[Kept, ...] = ()


def renamed(
    schema: TableSchema, properties: TableProperties, rename: Mapping[str, str], drop: Sequence[str]
) -> tuple[Kept, ...]:
    """What stays of the columns; `SchemaError` for a change that a table cannot have."""
    changes: dict[Path, str | None] = {}
    for given in (*rename, *drop):
        path = _spelled(schema.arrow, given)
        if path in changes:
            raise SchemaError(f"{'.'.join(path)} is named twice", column=given)
        changes[path] = rename.get(given)
        if not is_name(changes[path] or path[-1]):
            raise SchemaError(
                f"{given} cannot be renamed to {changes[path]!r}",
                hint="name the field alone, in letters, digits and _: {'place.zip': 'postcode'}",
                column=given,
            )
        if len(path) == 1:
            refuse_own_name(changes[path] or "")
    if not changes:
        raise SchemaError("no column was named", hint='name it: {"old": "new"} to rename, "old" to drop')
    _refuse_roles(changes, properties)
    _refuse_parts_of_dropped(changes)
    return _kept(schema.arrow, changes, ())


def _spelled(fields: Iterable[pa.Field], given: str) -> Path:
    """The path of a column or field as the table spells it."""
    path: list[str] = []
    parts, inside, holder = given.split("."), list(fields), pa.null()
    for part in parts:
        found = Fields(inside).find(part)
        if found is None:
            where = ".".join(path) or "the table"
            hint = column_hint(part, [field.name for field in inside])
            raise SchemaError(f"{where} has no column {part!r}", hint=hint, column=given)
        path.append(str(found.name))
        if len(path) < len(parts):
            holder, inside = found.type, _inside(found.type)
    if pa.types.is_list(holder) or pa.types.is_map(holder):
        raise SchemaError(f"{given} is what {'.'.join(path[:-1])} holds, and has no name to change", column=given)
    return tuple(path)


def _inside(arrow: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the `element` of a list, the `value` of a map; none of any other type."""
    if pa.types.is_list(arrow):
        return [pa.field("element", arrow.value_type)]
    if pa.types.is_map(arrow):
        return [pa.field("value", arrow.item_type)]
    return list(arrow) if pa.types.is_struct(arrow) else []


def _refuse_roles(changes: Iterable[Path], properties: TableProperties) -> None:
    roles = {transform.source.lower(): f"source of {transform}, a partition" for transform in properties.transforms}
    roles |= {name.lower(): role for name, role in properties.needed_columns}
    for path in changes:
        name = ".".join(path)
        if name.lower() in roles:
            raise SchemaError(
                f"{name} is the table's {roles[name.lower()]} column, and stays",
                hint="write the rows into a new table with other columns for that",
                column=name,
            )


def _refuse_parts_of_dropped(changes: Mapping[Path, str | None]) -> None:
    for path in changes:
        gone = next((path[:end] for end in range(1, len(path)) if changes.get(path[:end], "") is None), None)
        if gone is not None:
            raise SchemaError(f"{'.'.join(path)} is part of {'.'.join(gone)}, which is dropped", column=".".join(path))


def _kept(fields: Iterable[pa.Field], changes: Mapping[Path, str | None], within: Path) -> tuple[Kept, ...]:
    kept = []
    for field in fields:
        path = (*within, str(field.name))
        new = changes.get(path, field.name)
        if new is not None:
            touched = any(len(other) > len(path) and other[: len(path)] == path for other in changes)
            kept.append(Kept(field.name, new, _kept(_inside(field.type), changes, path) if touched else ()))
    if not kept:
        whole = ".".join(within)
        raise SchemaError(f"{whole} would have no fields left", hint=f"drop {whole} itself" if whole else "", column=whole)
    refuse_twins([".".join((*within, each.new)) for each in kept])
    return tuple(kept)
