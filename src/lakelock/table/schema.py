"""The columns of a table: what they are, how they are written down, what may be written into them, and how they change.

In place, files stay as they are: columns are added, widened, reordered, or may be null from now on. Fields inside columns
are named as in Spark's ALTER TABLE: `address.zip`, `items.element.price`, `prices.value.net`.

A rename or a drop writes all rows again: files find their columns by name, and an old column would look like a
later one of the same name.

Two concurrent changes of one table's columns have a common schema (`merged_schema`), or a reason why there is none.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.settings import MissingColumns
from lakelock.table.column_types import (
    ALLOWED,
    arrow_fields,
    avro_record,
    canonical,
    is_name,
    keeps_text,
    new_column,
    refuse_own_name,
    refuse_twins,
    widens,
    wider,
)
from lakelock.table.partitions import fields_with_generated
from lakelock.table.properties import TableProperties
from lakelock.table.rows import Fields, grown, narrowed, narrowed_type, refuse_missing, spelled, why_not_fits
from lakelock.table.transforms import Kind
from lakelock.texts import column_hint

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table in order, without Hudi's five meta columns, as canonical Arrow types.

    Canonical: what `canonical` gives. All columns of tables made here are nullable; columns of other tables are as declared.
    `as_found` is the text of the commit that it came from: Avro holds more than Arrow (names of nested records, docs,
    defaults), and a schema that does not change is written again as it was.
    """

    arrow: pa.Schema
    as_found: str = dataclasses.field(default="", compare=False, repr=False)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> TableSchema:
        """The schema of a new table that can hold `schema`'s rows; meta columns in it are left out."""
        fields = [new_column(field) for field in schema if field.name not in META_COLUMNS]
        if not fields:
            raise SchemaError("a table needs at least one column", hint="pass the schema of the rows to store")
        refuse_twins([field.name for field in fields])
        return cls(pa.schema(fields))

    @classmethod
    def from_avro_json(cls, text: str, source: str = "the table's schema") -> TableSchema:
        """The schema in a commit, in hoodie.properties or in a file's footer."""
        return _from_avro_json(text, source)

    @classmethod
    def of_commit(cls, text: str) -> TableSchema:
        """The schema in a commit; later commits that do not change it repeat its text."""
        return cls(_from_avro_json(text, "the table's schema").arrow, text)

    def to_avro_json(self, table_name: str, *, null_first: bool = True) -> str:
        """The Avro JSON for commits (`null_first`) or for the property hoodie.table.create.schema (not)."""
        if null_first and self.as_found:
            return self.as_found
        return _dump(self._record(table_name, list(self.arrow), null_first=null_first))

    def footer_json(self, table_name: str) -> str:
        """The Avro JSON for the footers of base files, with the meta columns."""
        record = self._record(table_name, list(self.file_schema), null_first=True)
        for index, field in enumerate(record["fields"][: len(META_COLUMNS)]):
            record["fields"][index] = {"name": field["name"], "type": field["type"], "doc": "", "default": None}
        return _dump(record)

    @property
    def names(self) -> list[str]:
        return list(self.arrow.names)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a base file: the meta columns first."""
        return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *self.arrow])

    def field(self, name: str) -> pa.Field:
        """The column `name`, or `SchemaError` that suggests another."""
        index = self.arrow.get_field_index(name)
        if index < 0:
            raise SchemaError(f"the table has no column {name!r}", hint=column_hint(name, self.names))
        return self.arrow.field(index)

    def require(self, names: Iterable[str], role: str) -> None:
        """Raise `SchemaError` unless every one of `names` is a column; `role` says what it is for."""
        for name in names:
            if name not in self.arrow.names:
                hint = column_hint(name, self.names)
                if all(each.strip() in self.arrow.names for each in name.split(",")):
                    hint = f"give several columns as a list: {[each.strip() for each in name.split(',')]}"
                raise SchemaError(f"the {role} column {name!r} is not in the schema", hint=hint)

    def _record(self, table_name: str, fields: list[pa.Field], *, null_first: bool) -> dict[str, Any]:
        # Hudi replaces what Avro does not allow in names by an underscore.
        name = re.sub(r"[^A-Za-z0-9_]", "_", table_name)
        return avro_record(f"{name}_record", f"hoodie.{name}", fields, null_first=null_first)


@lru_cache(maxsize=16)  # every transaction reads its table's schema, and it hardly ever changes
def _from_avro_json(text: str, source: str) -> TableSchema:
    try:
        record = json.loads(text)
        fields = [field for field in arrow_fields(record, source) if field.name not in META_COLUMNS]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SchemaError):
            raise
        raise CorruptTableError(f"{source} is not an Avro record schema: {type(error).__name__}: {str(error)[:200]}") from error
    return TableSchema(pa.schema(fields))


def check_write(
    table: TableSchema,
    incoming: pa.Schema,
    merge_schema: bool = False,
    missing: MissingColumns = "null",
    what: str = "the rows do not fit the table",
) -> TableSchema:
    """The table's schema after a write of `incoming`, or `SchemaError` naming every column that does not fit.

    Columns may come in any order, and names in any case; a type must hold every value of the incoming one without loss. With
    `merge_schema` new columns and fields come last, and types widen. A missing column is null in new rows, if it may be. For an
    upsert `missing` says what becomes of the stored values, and with "keep" it may lack any column.
    """
    problems: list[str] = []
    columns = [field for field in incoming if field.name not in META_COLUMNS]
    refuse_twins([field.name for field in columns])
    by_name, partly, may_grow = Fields(columns), missing == "keep", True
    fields: list[pa.Field] = []
    for field in table.arrow:
        given = by_name.find(field.name)
        if given is None:
            if not field.nullable and not partly:
                problems.append(f"{field.name}: missing, and it must not be null")
        elif merge_schema:
            field = grown(field, given, field.name, problems, partly=partly)
        else:
            wanted = narrowed_type(field.type, given.type) if partly else field.type
            misfits = why_not_fits(given.type, wanted, field.name)
            if misfits:
                problems += misfits
                may_grow = may_grow and _can_grow(field, given)
        fields.append(field)
    new = by_name.others(table.names)
    for given in new:
        if merge_schema:
            fields.append(new_column(given))
        else:
            problems.append(f"{given.name}: not a column of the table. {column_hint(given.name, table.names)}".rstrip())
    if problems:
        hint = _advice(merge_schema, may_grow, new=bool(new))
        raise SchemaError(f"{what}:\n  " + "\n  ".join(problems), hint=hint)
    refuse_twins([field.name for field in fields])
    refuse_missing(pa.schema(fields), columns, missing)
    return TableSchema(pa.schema(fields))


def grown_by(table: TableSchema, given: pa.Schema) -> TableSchema:
    """The schema in which some columns hold `given` values: new columns and fields come last, types widen.

    `SchemaError` as from `check_write`. Columns that nothing is `given` for stay as they are.
    """
    there = Fields(given)
    own = TableSchema(pa.schema([field for field in table.arrow if there.find(field.name) is not None]))
    after = {field.name: field for field in check_write(own, given, merge_schema=True).arrow}
    return TableSchema(pa.schema([*(after.pop(field.name, field) for field in table.arrow), *after.values()]))


def columns_of_keys(schema: TableSchema, properties: TableProperties) -> TableSchema:
    names = {*properties.record_keys, *properties.partition_fields}
    return TableSchema(pa.schema([field for field in schema.arrow if field.name in names]))


def columns_of_upserts(after: TableSchema, incoming: pa.Schema, missing: MissingColumns) -> TableSchema:
    """The columns that an upsert handles, for rows that passed `check_write`: those that they have, if missing ones are kept,
    else all that the table has `after` the write."""
    return TableSchema(narrowed(after.arrow, incoming)) if missing == "keep" else after


def require_columns(names: Sequence[str], needed: Iterable[tuple[str, str]]) -> None:
    """Raise `SchemaError` unless rows with the columns `names` have all that a write needs, given by name and role."""
    for name, role in needed:
        if spelled(name, names) is None:
            has = ", ".join(list(names)[:20]) or "no columns"
            raise SchemaError(
                f"the {role} column {name!r} is missing in the rows", hint=f"add it to the rows, which have {has}"
            )


def _can_grow(field: pa.Field, given: pa.Field) -> bool:
    problems: list[str] = []
    grown(field, given, field.name, problems, partly=True)
    return not problems


def _advice(merge_schema: bool, may_grow: bool, *, new: bool) -> str:
    if may_grow and not merge_schema:
        first = "drop the new columns, or cast to the table's types" if new else "cast to the table's types"
        return f"{first}; or set write.merge_schema=true to change the table's columns"
    return "cast the columns to the table's types before writing"


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


OTHERWISE = (
    "table.columns.rename and table.columns.drop write the table again; for other types: "
    "table.overwrite(table.read().select(...), overwrite_schema=True)"
)

_Change = Callable[["pa.Field | None", str], pa.Field]


@dataclass(frozen=True)
class Alteration:
    """A change of columns and fields, each named by its path.

    `add`: the types of new ones. `widen`: wider types. `relax`: those that may be null from now on. `first`: those that come
    first, in this order.
    """

    add: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    widen: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
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
                raise SchemaError(f"{path} is a record key column, which is never null", hint="leave it out", column=path)
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
            raise SchemaError(f"{whole} is {found.type}, whose parts have no order", hint="name a struct", column=whole)
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
            raise SchemaError(f"{where}{found.name} is named twice", hint="name it once", column=found.name)
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
                f"{name} is a {role} column: as {new.type} its values would be spelled differently from the stored ones, "
                f"which are {old.type}, and stored rows would not be found",
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
            raise SchemaError(
                f"{whole} is there already, as {found.type}", hint="table.columns.widen makes a column wider", column=whole
            )
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
        raise SchemaError(f"{whole} may be null already", hint="leave it out", column=whole)
    return found.with_nullable(True)


def _there(found: pa.Field | None, whole: str) -> pa.Field:
    if found is None:
        raise SchemaError(
            f"the table has no {whole!r}", hint="table.schema shows the columns; add makes a new one", column=whole
        )
    return found


Path = tuple[str, ...]


@dataclass(frozen=True)
class KeptColumn:
    """A column or field that stays: its name before and after, and what stays inside it; nothing in `inside` means all of it.

    The one part inside a list is `element`, and inside a map `value`.
    """

    old: str
    new: str
    inside: tuple[KeptColumn, ...] = ()


def renamed(
    schema: TableSchema, properties: TableProperties, rename: Mapping[str, str], drop: Sequence[str]
) -> tuple[KeptColumn, ...]:
    """What stays of the columns; `SchemaError` for a change that a table cannot have."""
    changes: dict[Path, str | None] = {}
    for given in (*rename, *drop):
        path = _spelled(schema.arrow, given)
        if path in changes:
            raise SchemaError(f"{'.'.join(path)} is named twice", hint="rename or drop it, once", column=given)
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
    return _kept_columns(schema.arrow, changes, ())


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
            holder, inside = found.type, _fields_inside(found.type)
    if pa.types.is_list(holder) or pa.types.is_map(holder):
        raise SchemaError(
            f"{given} stands for what {'.'.join(path[:-1])} holds, and has no name that could be changed",
            hint="name a field of a struct",
            column=given,
        )
    return tuple(path)


def _fields_inside(arrow: pa.DataType) -> list[pa.Field]:
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
            problem = f"{'.'.join(path)} is part of {'.'.join(gone)}, which is dropped"
            raise SchemaError(problem, hint=f"leave out {'.'.join(path)}", column=".".join(path))


def _kept_columns(fields: Iterable[pa.Field], changes: Mapping[Path, str | None], within: Path) -> tuple[KeptColumn, ...]:
    kept = []
    for field in fields:
        path = (*within, str(field.name))
        new = changes.get(path, field.name)
        if new is not None:
            touched = any(len(other) > len(path) and other[: len(path)] == path for other in changes)
            kept.append(
                KeptColumn(field.name, new, _kept_columns(_fields_inside(field.type), changes, path) if touched else ())
            )
    if not kept:
        whole = ".".join(within)
        raise SchemaError(f"{whole} would have no fields left", hint=f"drop {whole} itself" if whole else "", column=whole)
    refuse_twins([".".join((*within, each.new)) for each in kept])
    return tuple(kept)


def merged_schema(base: TableSchema, theirs: TableSchema, mine: TableSchema) -> tuple[TableSchema, list[str]]:
    """The schema that merges `theirs` and `mine`, both made from `base`; or one sentence per column that does not fit.

    Files that either side wrote must be readable in it. So columns and fields of structs may be added, if they may be null;
    types may widen (`lakelock.table.column_types`); what must not be null may become nullable. Columns, and fields inside
    them, are in the order of `theirs`, mine come last; in that of `mine` if it alone has another order than `base`. If one side
    changed nothing, the other's schema is the result as it is.
    """
    if base == theirs:
        return mine, []
    problems: list[str] = []
    fields = pa.schema(_merged_columns(base.arrow, theirs.arrow, mine.arrow, "", problems))
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


def _merged_columns(
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
        return both.with_type(pa.struct(_merged_columns(before, theirs.type, mine.type, f"{where}.", problems)))
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
