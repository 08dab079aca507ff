"""Every error that lakelock raises.

```
LakelockError                     code, message, hint, retryable, details; picklable; as_dict()
├── InputError (ValueError)       bad input, found before any work; nothing was changed
│   ├── SettingsError             unknown key, value out of bounds, contradicting settings
│   ├── SchemaError               columns that are missing, do not fit, or hold nulls where they must not
│   ├── DuplicateKeyError         one batch holds a key more than once with no way to choose, or a merge would store one again
│   └── TableError                no such table, not a table, or a table that must not be written (says why)
├── CorruptTableError             a timeline, decision, marker or property file that is torn or invalid
├── StorageError                  storage refused: full, read-only, no permission
│   ├── StorageUnavailable        no definite answer; the call may or may not have happened
│   ├── StorageUnsafe             the storage ignores conditional writes
│   └── SnapshotTooOld            files of the snapshot were cleaned while they were listed
├── LockError                     an error of the lock or its service
│   ├── LockTimeout               another writer holds it; carries the holder
│   ├── LeaseLost                 it was held and is no longer; carries the reason
│   ├── ProviderUnavailable       no definite answer; the call may or may not have happened
│   ├── ProviderRefused           a definite no: credentials, permission, set-up, or a driver that is not installed
│   ├── ProviderMismatch          the table is guarded by another provider or key
│   └── SecondWriter              SINGLE_WRITER mode, and another writer is at work; names it
├── TransactionError              the transaction did not end in a known commit
│   ├── ConflictError             rejected; carries `conflict` with both sides
│   │   ├── EarlyConflictError    the same, found before the data was written
│   │   └── Delta's six, in the profile delta; `conflict.early` says whether the data was written:
│   │       ├── ConcurrentAppendException        another transaction added rows that this transaction may have to read
│   │       ├── ConcurrentDeleteReadException    another transaction rewrote files that this transaction read
│   │       ├── ConcurrentDeleteDeleteException  another transaction rewrote file groups that this transaction rewrites
│   │       ├── ConcurrentTransactionException   the application has applied this version already
│   │       ├── MetadataChangedException         another writer changed the table's columns
│   │       └── ProtocolChangedException         another writer changed the table's properties
│   ├── RolledBackError           rejected; another process rolled this transaction back
│   ├── TransactionStateError     used after it ended, or out of order
│   ├── CommitOutcomeUnknown      neither committed nor rejected yet; nothing was cleaned up; carries how to find out
│   ├── CommitUndone              committed, and then another engine's rollback removed its files; names the rollback
│   └── TransactionTorn           committed in some of its tables, and voided in others by another engine; names both
├── CatalogError                  the catalog that names the table did not answer, or refused; commits go on without it
├── WriteFailed                   the work itself failed (a Spark task, a full disk); the transaction was rolled back
├── SparkGone                     Spark's JVM has ended, or its session was stopped; says what became of the transaction
└── UnsupportedSpark (ImportError)  no PySpark, or a version that lakelock does not work with
```

What a handler does: correct the call (`InputError`); run again later (`retryable` is True); look at
`error.conflict` (`ConflictError`); ask `lakelock commits show` (`CommitOutcomeUnknown`).
An exception never contradicts the table: after any error except `CommitOutcomeUnknown`, `CommitUndone` and `TransactionTorn`,
the transaction is not in it.

What is said of damaged files: which table they are of, and what can be done about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar

from lakelock.conflict import Conflict, Explanation, next_step


class ErrorCode(str, Enum):
    """Stable machine-readable names, one per class below. Append only."""

    ERROR = "error"
    INPUT = "input"
    SETTINGS = "settings"
    SCHEMA = "schema"
    DUPLICATE_KEY = "duplicate-key"
    TABLE = "table"
    CORRUPT = "corrupt"
    STORAGE = "storage"
    STORAGE_UNAVAILABLE = "storage-unavailable"
    STORAGE_UNSAFE = "storage-unsafe"
    LOCK = "lock"
    LOCK_TIMEOUT = "lock-timeout"
    LEASE_LOST = "lease-lost"
    PROVIDER_UNAVAILABLE = "provider-unavailable"
    PROVIDER_MISMATCH = "provider-mismatch"
    TRANSACTION = "transaction"
    CONFLICT = "conflict"
    EARLY_CONFLICT = "early-conflict"
    ROLLED_BACK = "rolled-back"
    TRANSACTION_STATE = "transaction-state"
    OUTCOME_UNKNOWN = "outcome-unknown"
    WRITE_FAILED = "write-failed"
    SECOND_WRITER = "second-writer"
    PROVIDER_REFUSED = "provider-refused"
    SPARK_GONE = "spark-gone"
    UNSUPPORTED_SPARK = "unsupported-spark"
    SNAPSHOT_TOO_OLD = "snapshot-too-old"
    CONCURRENT_APPEND = "concurrent-append"
    CONCURRENT_DELETE_READ = "concurrent-delete-read"
    CONCURRENT_DELETE_DELETE = "concurrent-delete-delete"
    CONCURRENT_TRANSACTION = "concurrent-transaction"
    METADATA_CHANGED = "metadata-changed"
    PROTOCOL_CHANGED = "protocol-changed"
    TRANSACTION_TORN = "transaction-torn"
    CATALOG = "catalog"
    COMMIT_UNDONE = "commit-undone"


class LakelockError(Exception):
    """Base of all errors. `hint` is the next step for a person, `details` are facts for a program (plain values)."""

    code: ClassVar[ErrorCode] = ErrorCode.ERROR
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", **details: object) -> None:
        super().__init__(message)
        self.message, self.hint, self.details = message, hint, details

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.details)

    def as_dict(self) -> dict[str, object]:
        """The error as plain values, for logs and `--json`."""
        details = {k: v.as_dict() if isinstance(v, Conflict) else v for k, v in self.details.items()}
        return {"code": self.code.value, "message": self.message, "hint": self.hint, "retryable": self.retryable, **details}


def _rebuild(cls: type[LakelockError], message: str, hint: str, details: dict[str, object]) -> LakelockError:
    error = cls.__new__(cls)
    LakelockError.__init__(error, message, hint=hint, **details)
    return error


class InputError(LakelockError, ValueError):
    code = ErrorCode.INPUT


class SettingsError(InputError):
    code = ErrorCode.SETTINGS


class SchemaError(InputError):
    code = ErrorCode.SCHEMA


class DuplicateKeyError(InputError):
    code = ErrorCode.DUPLICATE_KEY


class TableError(InputError):
    code = ErrorCode.TABLE


class CorruptTableError(LakelockError):
    code = ErrorCode.CORRUPT


class StorageError(LakelockError):
    code = ErrorCode.STORAGE


class StorageUnavailable(StorageError):
    code = ErrorCode.STORAGE_UNAVAILABLE
    retryable = True


class StorageUnsafe(StorageError):
    code = ErrorCode.STORAGE_UNSAFE


class SnapshotTooOld(StorageError):
    code = ErrorCode.SNAPSHOT_TOO_OLD
    retryable = True


class LockError(LakelockError):
    code = ErrorCode.LOCK


class LockTimeout(LockError):
    code = ErrorCode.LOCK_TIMEOUT
    retryable = True


class LeaseLost(LockError):
    code = ErrorCode.LEASE_LOST
    retryable = True


class ProviderUnavailable(LockError):
    code = ErrorCode.PROVIDER_UNAVAILABLE
    retryable = True


class ProviderRefused(LockError):
    """Waiting does not help: a wrong password stays wrong."""

    code = ErrorCode.PROVIDER_REFUSED


class ProviderMismatch(LockError):
    code = ErrorCode.PROVIDER_MISMATCH


class SecondWriter(LockError):
    code = ErrorCode.SECOND_WRITER


class TransactionError(LakelockError):
    code = ErrorCode.TRANSACTION


class ConflictError(TransactionError):
    """Rejected. `retryable` says that a new transaction may succeed, `conflict.retry_helps` whether it can in this case."""

    code = ErrorCode.CONFLICT
    retryable = True

    def __init__(self, conflict: Conflict, *, hint: str = "") -> None:
        super().__init__(str(conflict), hint=hint or next_step(conflict), conflict=conflict)

    @property
    def conflict(self) -> Conflict:
        value = self.details["conflict"]
        assert isinstance(value, Conflict)
        return value

    @property
    def explanation(self) -> Explanation:
        """The rule in words, when it was found, and what helps."""
        return Explanation.of(self.conflict)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "explanation": self.explanation.as_dict()}


class EarlyConflictError(ConflictError):
    code = ErrorCode.EARLY_CONFLICT


class ConcurrentAppendException(ConflictError):
    code = ErrorCode.CONCURRENT_APPEND


class ConcurrentDeleteReadException(ConflictError):
    code = ErrorCode.CONCURRENT_DELETE_READ


class ConcurrentDeleteDeleteException(ConflictError):
    code = ErrorCode.CONCURRENT_DELETE_DELETE


class ConcurrentTransactionException(ConflictError):
    code = ErrorCode.CONCURRENT_TRANSACTION


class MetadataChangedException(ConflictError):
    code = ErrorCode.METADATA_CHANGED


class ProtocolChangedException(ConflictError):
    code = ErrorCode.PROTOCOL_CHANGED


class RolledBackError(TransactionError):
    code = ErrorCode.ROLLED_BACK
    retryable = True


class TransactionStateError(TransactionError):
    code = ErrorCode.TRANSACTION_STATE


class CommitOutcomeUnknown(TransactionError):
    code = ErrorCode.OUTCOME_UNKNOWN


class CommitUndone(TransactionError):
    """Another engine rolled the transaction back while it was committed, without the lock, and removed files of it.

    `details` name the `rollback` and the files that are `gone`. Never raised where only lakelock writes.
    """

    code = ErrorCode.COMMIT_UNDONE


class TransactionTorn(TransactionError):
    """Another engine has rolled back a part of a transaction over several tables after it was committed.

    `details` name the tables where it is visible (`committed`) and those where it is void (`void`). Never raised where only
    lakelock writes.
    """

    code = ErrorCode.TRANSACTION_TORN


class CatalogError(LakelockError):
    """A commit never fails by it: the next commit repeats updates that the catalog missed."""

    code = ErrorCode.CATALOG
    retryable = True


class WriteFailed(LakelockError):
    code = ErrorCode.WRITE_FAILED


class SparkGone(LakelockError):
    """A new session is needed. Storage does not need the JVM, so a transaction of this process was still ended properly."""

    code = ErrorCode.SPARK_GONE


class UnsupportedSpark(LakelockError, ImportError):
    code = ErrorCode.UNSUPPORTED_SPARK


RESTORE_FILE = "restore the file from a backup or an older version of the object"
RESTORE_OR_ROLL_BACK = f"{RESTORE_FILE}; where Java Hudi writes the table, its tools can roll the commit back instead"
DROP_METADATA_TABLE = "lakelock adopt PATH --drop-metadata-table drops the metadata table; Java's next write builds it anew"
LISTED_BY_DOCTOR = "; lakelock doctor lists what is affected"
"""Ends the hints about files whose damage concerns the writers of the table."""


@contextmanager
def damage_of_table(uri: str) -> Iterator[None]:
    """Puts the table before what the block says of one of its files."""
    try:
        yield
    except CorruptTableError as error:
        if error.message.startswith(f"{uri}: "):
            raise
        raise CorruptTableError(f"{uri}: {error.message}", hint=error.hint, **error.details) from error
