"""A table's column, grown so that it holds rows that have more fields or wider types than it (`write.merge_schema`)."""

from __future__ import annotations

import pyarrow as pa

from lakelock.table.columns.canonical import canonical, nested_type, refuse_twins
from lakelock.table.columns.fields import Fields
from lakelock.table.columns.fitting import why_not_fits
from lakelock.table.columns.widening import wider


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
