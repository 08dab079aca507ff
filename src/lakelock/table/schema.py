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
from lakelock.settings import MissingColumns
from lakelock.table.column_types import arrow_fields, avro_record, new_column, refuse_twins
from lakelock.table.rows import Fields, grown, narrowed, narrowed_type, refuse_missing, spelled, why_not_fits
from lakelock.texts import column_hint

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
DELETED = "_hoodie_is_deleted"
"""A boolean column that a schema may have: rows with true in it are deletions to Hudi's writers."""


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
        raise SchemaError("the rows do not fit the table:\n  " + "\n  ".join(problems), hint=_advice(merge_schema, may_grow))
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


def columns_of_upserts(after: TableSchema, incoming: pa.Schema, missing: MissingColumns) -> TableSchema:
    """The columns that an upsert handles, for rows that passed `check_write`: those that they have, if missing ones are kept,
    else all that the table has `after` the write."""
    return TableSchema(narrowed(after.arrow, incoming)) if missing == "keep" else after


def require_columns(names: Sequence[str], needed: Iterable[tuple[str, str]]) -> None:
    """Raise `SchemaError` unless rows with the columns `names` have all that a write needs, given by name and role."""
    for name, role in needed:
        if spelled(name, names) is None:
            raise SchemaError(f"the {role} column {name!r} is missing in the rows to write", hint=column_hint(name, names))


def _can_grow(field: pa.Field, given: pa.Field) -> bool:
    problems: list[str] = []
    grown(field, given, field.name, problems, partly=True)
    return not problems


def _advice(merge_schema: bool, may_grow: bool) -> str:
    if may_grow and not merge_schema:
        return "drop the new columns or cast to the table's types; or set write.merge_schema=true to change the table's columns"
    return "cast the columns to the table's types before writing"


def _dump(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)
