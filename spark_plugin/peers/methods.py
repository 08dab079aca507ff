"""The methods and arguments of Delta's Python API, and what they are here.

A name is an alias where it means the same. Any other is an `AttributeError` that says what to type instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar, cast

from pyspark.sql import Column

from lakelock.checked_calls import checked
from lakelock.errors import InputError

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_CREATE = "LakeTable.create(spark, path, schema=..., key=..., partition_by=..., if_not_exists=True)"
_VERSION = "is fixed: this is a Hudi table of version 9, see table.detail()"

INSTEAD: Mapping[str, str] = {
    "isDeltaTable": "LakeTable.exists(spark, path)",
    "createIfNotExists": _CREATE,
    "createOrReplace": f"{_CREATE}, then table.overwrite(df)",
    "replace": f"{_CREATE}, then table.overwrite(df)",
    "columnBuilder": f"columns are those of a data frame or a StructType: {_CREATE}",
    "convertToDelta": "LakeTable.from_parquet(spark, path, folder=..., key=...)",
    "clone": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read())",
    "cloneAtVersion": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read(as_of=...))",
    "cloneAtTimestamp": "LakeTable.create(spark, other_path, schema=table.schema, key=...), then insert(table.read(as_of=...))",
    "restoreToVersion": "table.restore(instant); table.history() lists the instants",
    "restoreToTimestamp": 'table.restore("2026-11-20 12:00"), in UTC',
    "generate": "nothing: engines that read Hudi read this table as it is",
    "count": "table.read().count()",
    "show": "table.read().show()",
    "df": "table.read(), or table.to_df()",
    "where": "table.read(where), or table.read().where(...)",
    "filter": "table.read(where), or table.read().filter(...)",
    "select": "table.read().select(...)",
    "write": "table.insert(df), table.upsert(df) or table.overwrite(df)",
    "append": "table.insert(df)",
    "upgradeTableProtocol": f"the protocol {_VERSION}",
    "addFeatureSupport": f"what readers must know {_VERSION}",
    "dropFeatureSupport": f"what readers must know {_VERSION}",
}
"""Names of Delta's that are none here, and what to type."""

ALIASES: Mapping[str, str] = {
    "forPath": "LakeTable.for_path",
    "forName": "LakeTable.for_name",
    "toDF": "table.to_df",
    "executeCompaction": "table.optimize().execute",
    "whenMatchedUpdate": "when_matched_update",
    "whenMatchedUpdateAll": "when_matched_update_all",
    "whenMatchedDelete": "when_matched_delete",
    "whenNotMatchedInsert": "when_not_matched_insert",
    "whenNotMatchedInsertAll": "when_not_matched_insert_all",
    "whenNotMatchedBySourceUpdate": "when_not_matched_by_source_update",
    "whenNotMatchedBySourceDelete": "when_not_matched_by_source_delete",
}
"""Names of Delta's that work, and ours."""


def _unknown(name: str, owner: object, what: str) -> NoReturn:
    instead = INSTEAD.get(name)
    raise AttributeError(f"{what} has no {name!r}" + (f"; next: {instead}" if instead else ""), name=name, obj=owner)


class _Told(type):
    """So that `LakeTable.isDeltaTable` tells what to type, too."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            _unknown(name, cls, cls.__name__)


class DeltaNames(metaclass=_Told):
    """What answers the names of Delta's that a `LakeTable` does not have."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            _unknown(name, self, type(self).__name__)


def delta_arguments(
    **names: str,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """A method that takes some arguments by Delta's names, too: `delta_arguments(condition="where")`."""

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        method = checked(method)

        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> T:
            for deltas, ours in names.items():
                if deltas in kwargs:
                    if ours in kwargs:
                        raise InputError(f"{ours} and {deltas} are the same argument", hint="give one of them")
                    kwargs[ours] = kwargs.pop(deltas)
            return method(self, *args, **kwargs)

        return cast(Callable[Concatenate[S, P], T], call)

    return decorate


def delta_update(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """`update`, also with Delta's order and names of arguments: the condition first, then what to set."""

    method = checked(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> T:
        if args and isinstance(args[0], str | Column):
            if len(args) > 1 and isinstance(args[1], Mapping):
                args = (args[1], args[0], *args[2:])
            elif "set" in kwargs and "where" not in kwargs:
                args, kwargs["where"] = args[1:], args[0]
        return method(self, *args, **kwargs)

    return delta_arguments(condition="where")(cast(Callable[Concatenate[S, P], T], call))
