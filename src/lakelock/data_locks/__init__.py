"""Data locks: shared and exclusive locks on a table and its partitions, held for a whole write."""

from lakelock.data_locks.base import (
    TABLE,
    DataLease,
    DataLock,
    LockedData,
    LockRequest,
    Mode,
    Resource,
    lock_request,
)
from lakelock.data_locks.locks import DataLocks, open_data_locks

__all__ = [
    "TABLE",
    "DataLease",
    "DataLock",
    "DataLocks",
    "LockRequest",
    "LockedData",
    "Mode",
    "Resource",
    "lock_request",
    "open_data_locks",
]
