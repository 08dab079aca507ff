"""What a storage key may look like and which keys a listing shows: one answer for every storage."""

from __future__ import annotations

from lakelock.errors import StorageError

METADATA_FOLDER = ".hoodie"
"""The folder of a table's metadata; `lakelock.table.layout` knows what is in it."""


def checked(key: str) -> str:
    """Return `key`, or raise `StorageError` when it could name something outside the root or differ between storages."""
    segments = key.split("/")
    if "" in segments or "." in segments or ".." in segments or "\0" in key:
        raise StorageError(
            f"{key!r} is not a valid storage key",
            hint="keys are relative, use single slashes and have no '.' or '..' segments; check partition values",
        )
    return key


def checked_prefix(prefix: str) -> str:
    """Return the folder `prefix` ("" is the root), or raise `StorageError`."""
    return checked(prefix) if prefix else prefix


def is_shown(key: str, prefix: str) -> bool:
    """Whether a listing of the folder `prefix` shows `key`, which lies in it.

    Names that start with a dot are somebody's temporary files; the metadata folder shows only when it is asked for.
    """
    if key.rpartition("/")[2].startswith("."):
        return False
    return bool(prefix) or not key.startswith(METADATA_FOLDER + "/")


def is_past(folder: str, start_after: str) -> bool:
    """Whether every key in `folder` (with its trailing slash) is at or before `start_after`."""
    return folder < start_after and not start_after.startswith(folder)
