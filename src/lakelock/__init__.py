"""lakelock: many jobs write one lake table at the same time, and no row is lost.

Here are the errors to handle and the settings. With Spark, tables are opened by `lakelock.spark_plugin.LakeTable`. The command
line is `lakelock`.

Every name is imported when it is first used: Spark imports this module in each of its Python workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelock.errors import (
        CatalogError,
        CommitOutcomeUnknown,
        CommitUndone,
        ConcurrentAppendException,
        ConcurrentDeleteDeleteException,
        ConcurrentDeleteReadException,
        ConcurrentTransactionException,
        ConflictError,
        CorruptTableError,
        DuplicateKeyError,
        EarlyConflictError,
        InputError,
        LakelockError,
        LeaseLost,
        LockError,
        LockTimeout,
        MetadataChangedException,
        ProtocolChangedException,
        ProviderMismatch,
        ProviderRefused,
        ProviderUnavailable,
        RolledBackError,
        SchemaError,
        SecondWriter,
        SettingsError,
        SnapshotTooOld,
        SparkGone,
        StorageError,
        StorageUnavailable,
        StorageUnsafe,
        TableError,
        TransactionError,
        TransactionStateError,
        TransactionTorn,
        UnsupportedSpark,
        WriteFailed,
    )
    from lakelock.settings import Settings

    __version__: str

__all__ = [
    "CatalogError",
    "CommitOutcomeUnknown",
    "CommitUndone",
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConflictError",
    "CorruptTableError",
    "DuplicateKeyError",
    "EarlyConflictError",
    "InputError",
    "LakelockError",
    "LeaseLost",
    "LockError",
    "LockTimeout",
    "MetadataChangedException",
    "ProtocolChangedException",
    "ProviderMismatch",
    "ProviderRefused",
    "ProviderUnavailable",
    "RolledBackError",
    "SchemaError",
    "SecondWriter",
    "SettingsError",
    "SnapshotTooOld",
    "SparkGone",
    "StorageError",
    "StorageUnavailable",
    "StorageUnsafe",
    "TableError",
    "TransactionError",
    "TransactionStateError",
    "TransactionTorn",
    "UnsupportedSpark",
    "WriteFailed",
    "Settings",
    "__version__",
]

_HOMES = {"Settings": "settings"}
"""The module of each name that is not an error."""


if not TYPE_CHECKING:  # or a type checker would take any name for one of this module

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "__version__":
            found: object = import_module("lakelock.version").version()
        elif name in __all__:
            found = getattr(import_module(f"lakelock.{_HOMES.get(name, 'errors')}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
