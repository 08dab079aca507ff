"""What a caller wants a new table to be: checked before anything is written, made, or compared with a table that is there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakelock.clock import Runtime
from lakelock.errors import InputError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.create import check_definition, create_table, current_properties
from lakelock.storage.location import StorageLocation
from lakelock.table.column_types import stored_otherwise
from lakelock.table.eligibility import VERSIONS
from lakelock.table.index import parsed_index
from lakelock.table.properties import COPY_ON_WRITE, MERGE_ON_READ, NEWEST_VERSION, TableProperties
from lakelock.table.schema import TableSchema
from lakelock.table.transforms import partition_columns


@dataclass(frozen=True)
class Definition:
    """The table that a caller wants. `name` is None where the table's folder names it."""

    properties: TableProperties
    columns: TableSchema
    name: str | None

    @classmethod
    def of(
        cls,
        location: StorageLocation,
        given: pa.Schema,
        *,
        key: Sequence[str],
        partition_by: Sequence[str],
        order_by: str | None,
        name: str | None,
        hive_style: bool,
        index: str | None = None,
        table_version: int = NEWEST_VERSION,
        table_type: str = COPY_ON_WRITE,
    ) -> Definition:
        """The definition, checked: `SchemaError` or `InputError` before anything is written."""
        _require_key_for(key, "order_by, which chooses between rows of one key", order_by)
        _require_key_for(key, "index, which finds rows by their key", index)
        if table_version not in VERSIONS:
            raise InputError(
                f"table_version is {table_version!r}; lakelock makes {' and '.join(map(str, VERSIONS))}",
                hint="8 is for readers and writers of Hudi 1.0, as on EMR 7 and Glue 5.1; all newer ones take 9",
            )
        table_type = checked_type(table_type, order_by=order_by, index=index)
        columns = TableSchema.from_arrow(given)
        if told := stored_otherwise(given):
            text = f"{'; '.join(told)}. Hudi's schemas have no smaller integer: the columns come back as int"
            warnings.warn(text, UserWarning, stacklevel=4)
        fields, transforms, arrow = partition_columns(columns.arrow, partition_by)
        columns = TableSchema(arrow)
        columns.require(key, "key")
        columns.require(fields, "partition")
        columns.require([order_by] if order_by else [], "ordering")
        chosen = None if index is None else parsed_index(index).hashing(key)
        table_name = name or location.uri.rpartition("/")[2]
        properties = TableProperties.new(
            table_name,
            key,
            fields,
            order_by,
            hive_style=hive_style,
            create_schema=columns.to_avro_json(table_name, null_first=False),
            transforms=transforms,
            version=table_version,
            table_type=table_type,
        )
        return cls(properties.indexed(chosen), columns, name)

    def make(self, location: StorageLocation, runtime: Runtime, *, if_not_exists: bool) -> bool:
        """Make the empty table; False if it exists and `if_not_exists` is set."""
        return create_table(location.open(), self.properties, runtime, if_not_exists=if_not_exists)

    def check(self, coordinator: Coordinator) -> None:
        """`TableError` that names what differs, unless the open table is as defined here."""
        check_definition(
            coordinator.table.storage.uri,
            self.properties,
            self.columns,
            current_properties(coordinator.table),
            coordinator.schema(),
            name=self.name is not None,
        )


def _require_key_for(key: Sequence[str], what: str, given: str | None) -> None:
    if given and not key:
        raise InputError(f"a table without a key has no {what}", hint='name the columns that identify a row: key=["order_id"]')


_SHORT_TYPES = {"COW": COPY_ON_WRITE, "MOR": MERGE_ON_READ}


def checked_type(given: str, *, order_by: str | None = None, index: str | None = None) -> str:
    """The table's type as Hudi spells it; `InputError` for none, and for what a merge-on-read table cannot have."""
    found = _SHORT_TYPES.get(given.strip().upper(), given.strip().upper())
    if found not in _SHORT_TYPES.values():
        raise InputError(f"table_type is {given!r}", hint=f"use {' or '.join(_SHORT_TYPES.values())}")
    if found == MERGE_ON_READ and (order_by or index == "global"):
        what = "order_by" if order_by else "index=global"
        raise InputError(
            f"lakelock writes no merge-on-read table with {what}", hint=f"leave {what} or table_type={MERGE_ON_READ} out"
        )
    return found
