"""Storage: one small interface, and the places that keep a table: folders, object stores, HDFS, memory."""

from lakelock.storage.base import (
    Created,
    Listed,
    Storage,
    Stored,
    changed,
    create,
    has_file,
    is_missing,
    probe,
)

__all__ = [
    "Created",
    "Listed",
    "Storage",
    "Stored",
    "changed",
    "create",
    "has_file",
    "is_missing",
    "probe",
]
