"""The structs of a Hive metastore's tables and partitions, by the field numbers of `hive_metastore.thrift`.

The numbers are the same from Hive 1.3 to Hive 4. A struct is a dictionary by field number, as it was read, and what is read
is sent again: a table's owner and the parameters of others are not lost by an update. Fields that only
Hive 3 and later have are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakelock.catalogs.base import Column, Entry, TableName, Values
from lakelock.providers.hive_metastore.messages import BOOL, I32, LIST, MAP, STRING, STRUCT, Fields

Struct = dict[int, Any]


@dataclass(frozen=True)
class _Shape:
    """The fields of a struct: for each number its type; the shape of a struct; or a list of one shape or of texts."""

    fields: Mapping[int, int | _Shape | list[_Shape | int]]


_COLUMN = _Shape({1: STRING, 2: STRING, 3: STRING})
_SERDE = _Shape({1: STRING, 2: STRING, 3: MAP})
_ORDER = _Shape({1: STRING, 2: I32})
_STORAGE = _Shape(
    {1: [_COLUMN], 2: STRING, 3: STRING, 4: STRING, 5: BOOL, 6: I32, 7: _SERDE, 8: [STRING], 9: [_ORDER], 10: MAP, 12: BOOL}
)
_TEXTS_OF_TABLE = dict.fromkeys((1, 2, 3, 10, 11, 12), STRING)
TABLE = _Shape({**_TEXTS_OF_TABLE, 4: I32, 5: I32, 6: I32, 7: _STORAGE, 8: [_COLUMN], 9: MAP})
PARTITION = _Shape({1: [STRING], 2: STRING, 3: STRING, 4: I32, 5: I32, 6: _STORAGE, 7: MAP})

_COLUMNS, _LOCATION, _INPUT, _OUTPUT, _SERDE_INFO = 1, 2, 3, 4, 7
_SERDE_NAME, _SERDE_CLASS, _SERDE_PARAMETERS = 1, 2, 3
_TABLE_NAME, _DATABASE, _OWNER, _CREATED, _SD, _PARTITION_KEYS, _PARAMETERS, _TABLE_TYPE = 1, 2, 3, 4, 7, 8, 9, 12


def sendable(shape: _Shape, struct: Mapping[int, Any]) -> Fields:
    """The struct with the types of its fields."""
    return tuple((number, *_field(kind, struct[number])) for number, kind in shape.fields.items() if number in struct)


def _field(kind: int | _Shape | list[_Shape | int], value: Any) -> tuple[int, Any]:
    if isinstance(kind, _Shape):
        return STRUCT, sendable(kind, value)
    if isinstance(kind, list):
        (element,) = kind
        if isinstance(element, _Shape):
            return LIST, (STRUCT, [sendable(element, each) for each in value])
        return LIST, (element, list(value))
    return kind, value


def entry_of(table: Mapping[int, Any]) -> Entry:
    """A table that was read, as far as we understand it; what is missing is empty."""
    storage = table.get(_SD) or {}
    serde = storage.get(_SERDE_INFO) or {}
    return Entry(
        location=storage.get(_LOCATION, ""),
        columns=_columns_of(storage.get(_COLUMNS, [])),
        partition_columns=_columns_of(table.get(_PARTITION_KEYS, [])),
        parameters=table.get(_PARAMETERS) or {},
        input_format=storage.get(_INPUT, ""),
        output_format=storage.get(_OUTPUT, ""),
        serde=serde.get(_SERDE_CLASS, ""),
        serde_parameters=serde.get(_SERDE_PARAMETERS) or {},
    )


def new_table(name: TableName, entry: Entry, owner: str, now_s: int) -> Struct:
    """A table to create: external, so dropping it in the metastore leaves its files."""
    start = {_TABLE_NAME: name.table, _DATABASE: name.database, _OWNER: owner, _CREATED: now_s, _TABLE_TYPE: "EXTERNAL_TABLE"}
    return changed_table(start, entry)


def changed_table(table: Mapping[int, Any], entry: Entry) -> Struct:
    """The table that was read, saying what the entry says; its other fields and parameters stay."""
    return {
        **table,
        _SD: _storage(table.get(_SD) or {}, entry, entry.location),
        _PARTITION_KEYS: _columns(entry.partition_columns),
        _PARAMETERS: {**(table.get(_PARAMETERS) or {}), **entry.parameters},
    }


def new_partition(name: TableName, entry: Entry, values: Values, location: str) -> Struct:
    """A partition to add: the folder `location`, described as the table is."""
    return {1: list(values), 2: name.database, 3: name.table, 4: 0, 5: 0, 6: _storage({}, entry, location), 7: {}}


def _storage(storage: Mapping[int, Any], entry: Entry, location: str) -> Struct:
    serde = storage.get(_SERDE_INFO) or {}
    parameters = {**(serde.get(_SERDE_PARAMETERS) or {}), **entry.serde_parameters}
    # Lists and maps that are missing make some metastores fail.
    empty = {5: False, 6: 0, 8: [], 9: [], 10: {}}
    return {
        **empty,
        **storage,
        _COLUMNS: _columns(entry.columns),
        _LOCATION: location,
        _INPUT: entry.input_format,
        _OUTPUT: entry.output_format,
        _SERDE_INFO: {**serde, _SERDE_CLASS: entry.serde, _SERDE_PARAMETERS: parameters},
    }


def _columns(columns: Iterable[Column]) -> list[Struct]:
    return [{1: column.name, 2: column.type, 3: ""} for column in columns]


def _columns_of(columns: Iterable[Mapping[int, Any]]) -> tuple[Column, ...]:
    return tuple(Column(str(each.get(1, "")), str(each.get(2, ""))) for each in columns)
