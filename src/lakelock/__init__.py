"""lakelock: many Spark jobs write one lake table at the same time, and no row is lost.

What most programs need from here are the errors to handle and the settings. Tables are opened with
`lakelock.spark_plugin.LakeTable`; the command line is `lakelock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelock.errors import (
    CommitOutcomeUnknown,
    ConflictError,
    EarlyConflictError,
    InputError,
    LakelockError,
    LockError,
    SettingsError,
    StorageError,
    TableError,
)
from lakelock.settings import Settings

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "CommitOutcomeUnknown",
    "ConflictError",
    "EarlyConflictError",
    "InputError",
    "LakelockError",
    "LockError",
    "Settings",
    "SettingsError",
    "StorageError",
    "TableError",
    "__version__",
]


def __getattr__(name: str) -> str:
    """Look the version up when it is first asked for: reading package metadata is slow, and executors import this module."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("lakelock")
    except PackageNotFoundError:  # imported from a folder or a zip, which has no metadata
        found = "0+unknown"
    globals()[name] = found
    return found
