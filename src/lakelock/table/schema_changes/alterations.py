"""Changes of a table's columns that leave its files as they are: columns are added, widened, reordered, or may be null from now
on. Renames and drops are in `table.schema_changes.renaming`.

Fields inside columns are named as in Spark's ALTER TABLE: `address.zip`, `items.element.price`, `prices.value.net`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakelock.errors import SchemaError
from lakelock.near_misses import column_hint
from lakelock.table.columns.canonical import canonical, new_column
from lakelock.table.columns.fields import Fields
from lakelock.table.columns.widening import ALLOWED, keeps_text, widens
from lakelock.table.partitioning.generated import fields_with_generated
from lakelock.table.properties import TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.transforms import Kind

OTHERWISE = (
    "rename_columns and drop_columns write the table again; for other types: "
    "table.overwrite(table.read().select(...), overwrite_schema=True)"
)

_Change = Callable[["pa.Field | None", str], pa.Field]


@dataclass(frozen=True)
class Alteration:
    """What to change: types of new columns by path, wider types by path, the paths of what may be null from now on, and the
    paths of what comes first, in this order.
    """

    add: Mapping[str, pa.DataType] = field(default_factory=dict)
    widen: Mapping[str, pa.DataType] = field(default_factory=dict)
    relax: Sequence[str] = ()
    first: Sequence[str] = ()

    def applied(self, schema: TableSchema, properties: TableProperties) -> TableSchema:
        """The columns after the change; `SchemaError` for whatever files and their readers could not follow."""
        if not (self.add or self.widen or self.relax or self.first):
            raise SchemaError("no column was named", hint='name them with their types: {"note": "string"}')
        fields = list(schema.arrow)
        for path, arrow in self.add.items():
            fields = _edited(fields, path.split("."), path, _adding(arrow))
        for path, arrow in self.widen.items():
            fields = _edited(fields, path.split("."), path, _widening(arrow))
        for path in self.relax:
            if path.lower() in (name.lower() for name in properties.record_keys):
                raise SchemaError(f"{path} is a record key column, which is never null", column=path)
            fields = _edited(fields, path.split("."), path, _relaxed)
        after = TableSchema(pa.schema(_reordered(fields, self.first)))
        require_same_text(schema, after, properties)
        return after


def _reordered(fields: Sequence[pa.Field], first: Sequence[str]) -> list[pa.Field]:
    """The named columns first, and the named fields first inside their columns; then the others in their order."""
    by_parent: dict[str, list[str]] = {}
    for path in first:
        parent, _, name = path.rpartition(".")
        by_parent.setdefault(parent, []).append(name)
    found = list(fields)
    for parent, names in by_parent.items():
        found = _edited(found, parent.split("."), parent, _leading(names)) if parent else _first(found, names, "")
    return found


def _leading(names: Sequence[str]) -> _Change:
    def change(found: pa.Field | None, whole: str) -> pa.Field:
        found = _there(found, whole)
        if not pa.types.is_struct(found.type):
            raise SchemaError(f"{whole} is {found.type}, whose parts have no order", column=whole)
        return found.with_type(pa.struct(_first(list(found.type), names, f"{whole}.")))

    return change


def _first(fields: Sequence[pa.Field], given: Sequence[str], where: str) -> list[pa.Field]:
    """The fields that these names mean, then the others."""
    known, chosen = Fields(fields), []
    for name in given:
        found = known.find(name)
        if found is None:
            raise SchemaError(f"the table has no column {where + name!r}", hint=column_hint(name, known.names), column=name)
        if found in chosen:
            raise SchemaError(f"{where}{found.name} is named twice", column=found.name)
        chosen.append(found)
    return [*chosen, *(field for field in fields if field not in chosen)]


def require_same_text(before: TableSchema, after: TableSchema, properties: TableProperties) -> None:
    """`SchemaError` if stored keys or partitions would not be found under what the new types make of their values."""
    _require_same_partitions(before, after, properties)
    roles = {**dict.fromkeys(properties.partition_fields, "partition"), **dict.fromkeys(properties.record_keys, "record key")}
    for name, role in roles.items():
        old, new = (Fields(schema.arrow).find(name) for schema in (before, after))
        if old is not None and new is not None and not keeps_text(old.type, new.type):
            raise SchemaError(
                f"{name} is a {role} column: as {new.type} its values would be spelled otherwise than the stored ones, "
                f"which are {old.type}, and not be found",
                hint="write the rows into a new table with that type",
                column=name,
            )


def _require_same_partitions(before: TableSchema, after: TableSchema, properties: TableProperties) -> None:
    for transform in properties.transforms:
        old, new = (Fields(schema.arrow).find(transform.source) for schema in (before, after))
        if old is None or new is None or old.type == new.type:
            continue
        if not transform.takes(new.type) or (transform.kind is Kind.BUCKET and not keeps_text(old.type, new.type)):
            raise SchemaError(
                f"the partition {transform} is computed from {new.name}: of {new.type} it would be another one than of "
                f"{old.type}, and stored rows would not be found",
                hint="write the rows into a new table with that type",
                column=new.name,
            )


def replacing_schema(before: TableSchema, rows: pa.Schema, properties: TableProperties) -> TableSchema:
    """The columns of a table whose whole content these rows replace; `SchemaError` if they lack columns that have a role."""
    after = TableSchema.from_arrow(fields_with_generated(rows, properties))
    for name, role in properties.needed_columns:
        after.require([name], role)
    require_same_text(before, after, properties)
    return after


def _edited(fields: Sequence[pa.Field], path: Sequence[str], whole: str, change: _Change) -> list[pa.Field]:
    """The fields with a change at the end of the path."""
    name, *rest = path
    index = Fields(fields).index(name)
    if index < 0:
        if rest:
            raise SchemaError(f"{whole}: there is no {name!r}", hint=column_hint(name, [f.name for f in fields]), column=whole)
        return [*fields, change(None, whole)]
    found = _inside(fields[index], rest, whole, change)
    return [found if number == index else each for number, each in enumerate(fields)]


def _inside(found: pa.Field, path: Sequence[str], whole: str, change: _Change) -> pa.Field:
    if not path:
        return change(found, whole)
    types, arrow = pa.types, found.type
    if types.is_struct(arrow):
        return found.with_type(pa.struct(_edited(list(arrow), path, whole, change)))
    if types.is_list(arrow) and path[0].lower() == "element":
        return found.with_type(pa.list_(_inside(arrow.value_field, path[1:], whole, change)))
    if types.is_map(arrow) and path[0].lower() == "value":
        return found.with_type(pa.map_(arrow.key_type, _inside(arrow.item_field, path[1:], whole, change)))
    inner = "element" if types.is_list(arrow) else "value" if types.is_map(arrow) else ""
    hint = f"a field inside it is named {found.name}.{inner}" if inner else ""
    raise SchemaError(f"{whole}: {found.name} is {arrow}, and has no {path[0]!r}", hint=hint, column=whole)


def _adding(arrow: pa.DataType) -> _Change:
    def change(found: pa.Field | None, whole: str) -> pa.Field:
        if found is not None:
            raise SchemaError(f"{whole} is there already, as {found.type}", hint="widen_columns widens a column", column=whole)
        return new_column(pa.field(whole.rpartition(".")[2], arrow))

    return change


def _widening(arrow: pa.DataType) -> _Change:
    def change(found: pa.Field | None, whole: str) -> pa.Field:
        found, wide = _there(found, whole), canonical(arrow, whole)
        if not widens(found.type, wide):
            same = f"{whole} is {found.type} already"
            other = f"{whole}: {found.type} cannot become {wide} in the files as they are. What can: {ALLOWED}"
            raise SchemaError(same if found.type == wide else other, hint=OTHERWISE, column=whole)
        return found.with_type(wide)

    return change


def _relaxed(found: pa.Field | None, whole: str) -> pa.Field:
    found = _there(found, whole)
    if found.nullable:
        raise SchemaError(f"{whole} may be null already", column=whole)
    return found.with_nullable(True)


def _there(found: pa.Field | None, whole: str) -> pa.Field:
    if found is None:
        raise SchemaError(f"the table has no {whole!r}", column=whole)
    return found
