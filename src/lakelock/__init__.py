"""lakelock: many jobs write one lake table at the same time, and no row is lost.

```python
table = lakelock.create("/lake/goods", schema="id bigint, name string", key="id")
table.upsert([{"id": 1, "name": "tea"}])
table.read("id = 1")
```
Here are tables without Spark, the errors to handle, and the settings. With Spark, tables are opened by `LakeTable`; more is in
`lakelock.spark_plugin`. The command line is `lakelock`.

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
    from lakelock.occ.committed import RunResult, WriteResult
    from lakelock.occ.history import HistoryEntry
    from lakelock.settings import Settings
    from lakelock.spark_plugin import LakeTable as LakeTable
    from lakelock.tables import Table, TablesTransaction, TableTransaction, create, exists, open, transaction  # noqa: A004

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
    "HistoryEntry",
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
    "RunResult",
    "SchemaError",
    "SecondWriter",
    "Settings",
    "SettingsError",
    "SnapshotTooOld",
    "SparkGone",
    "StorageError",
    "StorageUnavailable",
    "StorageUnsafe",
    "Table",
    "TableError",
    "TableTransaction",
    "TablesTransaction",
    "TransactionError",
    "TransactionStateError",
    "TransactionTorn",
    "UnsupportedSpark",
    "WriteFailed",
    "WriteResult",
    "__version__",
    "create",
    "exists",
    "open",
    "transaction",
]

_HOMES = {
    "HistoryEntry": "lakelock.occ.history",
    "LakeTable": "lakelock.spark_plugin",
    "RunResult": "lakelock.occ.committed",
    "Settings": "lakelock.settings",
    "Table": "lakelock.tables",
    "TableTransaction": "lakelock.tables",
    "TablesTransaction": "lakelock.tables",
    "WriteResult": "lakelock.occ.committed",
    "create": "lakelock.tables",
    "exists": "lakelock.tables",
    "open": "lakelock.tables",
    "transaction": "lakelock.tables",
}
"""The module of each name that is not an error. `LakeTable` needs Spark, so `from lakelock import *` leaves it out."""


if not TYPE_CHECKING:  # or a type checker would take any name for one of this module

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "__version__":
            found: object = import_module("lakelock.identity").version()
        elif name in __all__ or name in _HOMES:
            found = getattr(import_module(_HOMES.get(name, "lakelock.errors")), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
