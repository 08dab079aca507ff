"""Storage: one small interface, and the places that keep a table: folders, object stores, HDFS, memory."""

from lakelock.storage.base import (
    Created,
    Listed,
    Storage,
    Stored,
    create,
    probe,
)

__all__ = [
    "Created",
    "Listed",
    "Storage",
    "Stored",
    "create",
    "probe",
]
