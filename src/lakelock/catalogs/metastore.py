"""A Hive metastore as a catalog, by its thrift calls and the structs of its tables and partitions.

Field numbers are those of `hive_metastore.thrift`, the same from Hive 1.3 to Hive 4. A struct is a dictionary by field
number, as it was read, and what is read is sent again: a table's owner and the parameters of others are not lost by an
update. Fields that only Hive 3 and later have are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from lakelock.catalogs.base import Column, Entry, TableName, Values
from lakelock.clock import Runtime
from lakelock.errors import CatalogError, LockError
from lakelock.providers.hive_metastore.client import (
    BOOL,
    I16,
    I32,
    LIST,
    MAP,
    STRING,
    STRUCT,
    Fields,
    Messages,
    MetastoreClient,
    ServerError,
)
from lakelock.providers.hive_metastore.connection import Address
from lakelock.settings import Settings
from lakelock.table.partitions import unescape

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
        _PARTITION_KEYS: _columns(entry.partition_columns, table.get(_PARTITION_KEYS)),
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
        _COLUMNS: _columns(entry.columns, storage.get(_COLUMNS)),
        _LOCATION: location,
        _INPUT: entry.input_format,
        _OUTPUT: entry.output_format,
        _SERDE_INFO: {**serde, _SERDE_CLASS: entry.serde, _SERDE_PARAMETERS: parameters},
    }


def _columns(columns: Iterable[Column], known: Iterable[Mapping[int, Any]] | None) -> list[Struct]:
    """The columns, with the comments of those of them that are `known`."""
    comments = {each.get(1): each.get(3) for each in known or ()}
    return [{1: column.name, 2: column.type, 3: comments.get(column.name) or ""} for column in columns]


def _columns_of(columns: Iterable[Mapping[int, Any]]) -> tuple[Column, ...]:
    return tuple(Column(str(each.get(1, "")), str(each.get(2, ""))) for each in columns)


T = TypeVar("T")

PARTITIONS_AT_ONCE = 500
"""Partitions in one call: a thousand columns each stay below the longest message that a metastore takes."""

_NO_TABLE, _EXISTS = "NoSuchObjectException", "AlreadyExistsException"
_GET_TABLE = {1: "MetaException", 2: _NO_TABLE}
_CREATE = {1: _EXISTS, 2: "InvalidObjectException", 3: "MetaException", 4: _NO_TABLE}
_ALTER = {1: "InvalidOperationException", 2: "MetaException"}
_LIST_PARTITIONS = {1: "MetaException"}
_ADD = {1: "InvalidObjectException", 2: _EXISTS, 3: "MetaException"}
_DROP = {1: _NO_TABLE, 2: "MetaException"}


class MetastoreCatalog:
    """The tables of one metastore. All calls together take `catalog.timeout_s` at most, and then fail."""

    def __init__(self, runtime: Runtime, settings: Settings, addresses: Sequence[Address], user: str) -> None:
        """`CatalogError` if the package thrift is missing. `user` is the owner of tables that are made here."""
        self._runtime, self._owner = runtime, settings.hive_metastore.user or user
        self._until_s = runtime.monotonic_s() + settings.catalog.timeout_s
        try:
            self._client = MetastoreClient(runtime, settings.hive_metastore, addresses, user, lambda _: None)
        except LockError as error:
            raise CatalogError(error.message, hint=error.hint) from error

    def find(self, name: TableName) -> Entry | None:
        found = self._call(lambda calls: _table(calls, name))
        return None if found is None else entry_of(found)

    def create(self, name: TableName, entry: Entry, *, with_database: bool) -> None:
        def make(calls: Messages) -> None:
            if with_database:
                _make_database(calls, name.database)
            table = new_table(name, entry, self._owner, self._runtime.now_ms() // 1000)
            _unless(_EXISTS, lambda: calls.call("create_table", ((1, STRUCT, sendable(TABLE, table)),), _CREATE))

        self._call(make)

    def update(self, name: TableName, entry: Entry) -> None:
        def change(calls: Messages) -> None:
            table = _table(calls, name)
            if table is None:
                raise ServerError(_NO_TABLE, f"{name} was dropped meanwhile")
            # Without the first, the metastore lists the table's files to count them.
            context = {"DO_NOT_UPDATE_STATS": "true"}
            if entry.partition_columns and entry_of(table).columns != entry.columns:
                context["CASCADE"] = "true"
            calls.call(
                "alter_table_with_environment_context",
                (
                    (1, STRING, name.database),
                    (2, STRING, name.table),
                    (3, STRUCT, sendable(TABLE, changed_table(table, entry))),
                    (4, STRUCT, ((1, MAP, context),)),
                ),
                _ALTER,
            )

        self._call(change)

    def partitions(self, name: TableName) -> Mapping[Values, str]:
        arguments = ((1, STRING, name.database), (2, STRING, name.table), (3, I16, -1))
        names: Any = self._call(lambda calls: calls.call("get_partition_names", arguments, _LIST_PARTITIONS))
        return {tuple(unescape(part.partition("=")[2]) for part in str(each).split("/")): "" for each in names or []}

    def add(self, name: TableName, entry: Entry, partitions: Mapping[Values, str]) -> None:
        made = [new_partition(name, entry, values, where) for values, where in sorted(partitions.items())]

        def send(some: Sequence[Struct]) -> Callable[[Messages], object]:
            return lambda calls: calls.call("add_partitions_req", ((1, STRUCT, _addition(name, some)),), _ADD)

        for start in range(0, len(made), PARTITIONS_AT_ONCE):
            self._call(send(made[start : start + PARTITIONS_AT_ONCE]))

    def drop(self, name: TableName, entry: Entry, partitions: Collection[Values]) -> None:
        def send(values: Values) -> Callable[[Messages], object]:
            of_partition = (3, LIST, (STRING, list(values)))
            arguments = ((1, STRING, name.database), (2, STRING, name.table), of_partition, (4, BOOL, False))
            return lambda calls: _unless(_NO_TABLE, lambda: calls.call("drop_partition", arguments, _DROP))

        for values in sorted(partitions):
            self._call(send(values))

    def close(self) -> None:
        self._client.close()

    def _call(self, ask: Callable[[Messages], T]) -> T:
        try:
            return self._client.call(ask, within_s=max(0.0, self._until_s - self._runtime.monotonic_s()))
        except ServerError as error:
            raise CatalogError(
                f"the metastore refused: {error}", hint="correct that in the metastore, or leave catalog.type out"
            ) from error
        except LockError as error:
            raise CatalogError(error.message, hint=error.hint) from error


def _table(calls: Messages, name: TableName) -> Struct | None:
    """The table as it was read, None if there is none. Hive 4 has only the first call, Hive before 2.3 only the second."""
    names: Fields = ((1, STRING, name.database), (2, STRING, name.table))
    try:
        try:
            answer: Any = calls.call("get_table_req", ((1, STRUCT, names),), _GET_TABLE)
            found: Any = answer[1]
        except ServerError as error:
            if not error.unknown:
                raise
            found = calls.call("get_table", names, _GET_TABLE)
    except ServerError as error:
        if error.name == _NO_TABLE:
            return None
        raise
    return dict(found)


def _make_database(calls: Messages, database: str) -> None:
    try:
        calls.call("get_database", ((1, STRING, database),), {1: _NO_TABLE, 2: "MetaException"})
    except ServerError as error:
        if error.name != _NO_TABLE:
            raise
        made = ((1, STRING, database), (2, STRING, "made by lakelock"))
        throws = {1: _EXISTS, 2: "InvalidObjectException", 3: "MetaException"}
        _unless(_EXISTS, lambda: calls.call("create_database", ((1, STRUCT, made),), throws))


def _addition(name: TableName, partitions: Sequence[Struct]) -> Fields:
    parts = [sendable(PARTITION, each) for each in partitions]
    return (1, STRING, name.database), (2, STRING, name.table), (3, LIST, (STRUCT, parts)), (4, BOOL, True), (5, BOOL, False)


def _unless(name: str, call: Callable[[], object]) -> None:
    """Make the call; that it was not needed any more is no error."""
    try:
        call()
    except ServerError as error:
        if error.name != name:
            raise
