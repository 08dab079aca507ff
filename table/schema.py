"""The columns of a table: what they are, how they are written down, and what may be written into them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.near_misses import column_hint
from lakelock.settings import MissingColumns
from lakelock.table.avro.types import LOCAL_MICROS, UTC_MICROS, arrow_fields, avro_record, element_field
from lakelock.table.fitting import why_not_fits
from lakelock.table.partial import narrowed, narrowed_type, refuse_missing

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ATOMS = {
    **{
        same: same
        for same in (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
    },
    **dict.fromkeys((pa.int8(), pa.int16(), pa.uint8(), pa.uint16()), pa.int32()),
    **dict.fromkeys((pa.large_string(), pa.string_view()), pa.string()),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_OPAQUE = {b"variant": "a variant", b"geometry": "a geometry", b"geography": "a geography"}


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
        _refuse_twins([field.name for field in fields])
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
                raise SchemaError(f"the {role} column {name!r} is not in the schema", hint=column_hint(name, self.names))

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
    table: TableSchema, incoming: pa.Schema, merge_schema: bool = False, missing: MissingColumns = "null"
) -> TableSchema:
    """The table's schema after a write of `incoming`, or `SchemaError` naming every column that does not fit.

    Columns may come in any order; a type must hold every value of the incoming one without loss; a new column needs
    `merge_schema` and comes last. A missing column is null in new rows, if it may be. For an upsert `missing` says what becomes
    of the stored values, and with "keep" it may lack any column.
    """
    problems: list[str] = []
    columns = [field for field in incoming if field.name not in META_COLUMNS]
    _refuse_twins([field.name for field in columns])
    by_name = {field.name: field for field in columns}
    fields: list[pa.Field] = []
    for field in table.arrow:
        given = by_name.pop(field.name, None)
        if given is None:
            if not field.nullable and missing != "keep":
                problems.append(f"{field.name}: missing, and it must not be null")
            fields.append(field)
            continue
        fields.append(_merged(field, given, merge_schema, field.name, problems, partly=missing == "keep"))
    for name, given in by_name.items():
        if merge_schema:
            fields.append(new_column(given))
        else:
            problems.append(f"{name}: not a column of the table. {column_hint(name, table.names)}".rstrip())
    if problems:
        raise SchemaError("the rows do not fit the table:\n  " + "\n  ".join(problems), hint=_advice(by_name, merge_schema))
    _refuse_twins([field.name for field in fields])
    refuse_missing(pa.schema(fields), columns, missing)
    return TableSchema(pa.schema(fields))


def columns_of_upserts(after: TableSchema, incoming: pa.Schema, missing: MissingColumns) -> TableSchema:
    """The columns that an upsert handles, for rows that passed `check_write`: those that they have, if missing ones are kept,
    else all that the table has `after` the write."""
    return TableSchema(narrowed(after.arrow, incoming)) if missing == "keep" else after


def require_columns(names: Sequence[str], needed: Iterable[tuple[str, str]]) -> None:
    """Raise `SchemaError` unless rows with the columns `names` have all that a write needs, given by name and role."""
    for name, role in needed:
        if name not in names:
            raise SchemaError(f"the {role} column {name!r} is missing in the rows to write", hint=column_hint(name, names))


def new_column(field: pa.Field) -> pa.Field:
    """The table column that holds an incoming column: canonical type, may be null, a name that every reader accepts."""
    if not _NAME.match(field.name):
        raise SchemaError(
            f"{field.name!r} cannot be a column name: Avro, in which Hudi keeps schemas, allows letters, digits and _ only",
            hint="rename the column before writing",
        )
    return pa.field(field.name, _canonical(field, field.name))


def canonical(arrow: pa.DataType, name: str = "value") -> pa.DataType:
    """The type that a table stores for `arrow`, or `SchemaError` where it stores none."""
    return _canonical(pa.field(name, arrow), name)


def _canonical(field: pa.Field, where: str) -> pa.DataType:
    arrow = field.type
    types = pa.types
    if types.is_dictionary(arrow):
        return _canonical(pa.field(field.name, arrow.value_type), where)
    if types.is_struct(arrow):
        return _canonical_struct(arrow, where)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return pa.list_(element_field(_canonical(arrow.value_field, f"{where}[]")))
    if types.is_map(arrow):
        if arrow.key_type not in (pa.string(), pa.large_string()):
            raise _refusal(where, f"a map with {arrow.key_type} keys", "Avro maps have string keys: cast the keys")
        return pa.map_(pa.string(), pa.field("value", _canonical(arrow.item_field, f"{where}{{}}")))
    if types.is_null(arrow):
        raise _refusal(where, "a column without a type (void)", "cast it to the type it will have")
    atom = _ATOMS.get(arrow) or _sized_atom(arrow)
    if atom is None:
        raise _refusal(where, str(arrow), "Hudi tables have no such type: cast it, for example to string or bigint")
    return atom


def _sized_atom(arrow: pa.DataType) -> pa.DataType | None:
    """The stored type of one that has parameters."""
    if pa.types.is_timestamp(arrow):
        return UTC_MICROS if arrow.tz else LOCAL_MICROS
    if pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if pa.types.is_decimal(arrow) and arrow.precision <= 38 and 0 <= arrow.scale <= arrow.precision:
        return pa.decimal128(arrow.precision, arrow.scale)
    return None


def _canonical_struct(arrow: pa.StructType, where: str) -> pa.DataType:
    for child in arrow:
        for mark, what in _OPAQUE.items():
            if mark in (child.metadata or {}):
                raise _refusal(where, what, "cast it to string, for example with to_json")
    if arrow.num_fields == 0:
        raise _refusal(where, "a struct without fields", "Parquet cannot hold it: drop the column")
    _refuse_twins([f"{where}.{child.name}" for child in arrow])
    return pa.struct([pa.field(child.name, _nested(child, where)) for child in arrow])


def _nested(child: pa.Field, where: str) -> pa.DataType:
    if not _NAME.match(child.name):
        raise _refusal(where, f"a struct with the field name {child.name!r}", "rename it: letters, digits and _ only")
    return _canonical(child, f"{where}.{child.name}")


def _merged(table: pa.Field, given: pa.Field, merge_schema: bool, where: str, problems: list[str], *, partly: bool) -> pa.Field:
    """The table's column, with new fields of structs inside when `merge_schema` allows; adds to `problems`.

    With `partly` a struct may lack any field.
    """
    if pa.types.is_struct(table.type) and pa.types.is_struct(given.type) and merge_schema:
        theirs = {child.name: child for child in given.type}
        children = []
        for child in table.type:
            other, path = theirs.pop(child.name, None), f"{where}.{child.name}"
            if other is not None:
                child = _merged(child, other, True, path, problems, partly=partly)
            elif not child.nullable and not partly:
                problems.append(f"{path}: missing, and it must not be null")
            children.append(child)
        children += [pa.field(child.name, _nested(child, where)) for child in theirs.values()]
        return pa.field(table.name, pa.struct(children), table.nullable)
    problems += why_not_fits(given.type, narrowed_type(table.type, given.type) if partly else table.type, where)
    return table


def _refusal(where: str, what: str, hint: str) -> SchemaError:
    return SchemaError(f"column {where}: {what} cannot be stored", hint=hint)


def _refuse_twins(names: list[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise SchemaError(
                f"two columns have names that Spark cannot tell apart: {seen[name.lower()]!r} and {name!r}",
                hint="rename or drop one of them",
            )
        seen[name.lower()] = name


def _advice(new: Iterable[str], merge_schema: bool) -> str:
    if any(new) and not merge_schema:
        return "drop the new columns, or set write.merge_schema=true to add them to the table"
    return "cast the columns to the table's types before writing"


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)
