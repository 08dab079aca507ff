"""What a storage key may look like and which keys a listing shows: one answer for every storage."""

from __future__ import annotations

from lakelock.errors import StorageError, TableError

METADATA_FOLDER = ".hoodie"
"""The folder of a table's metadata; `lakelock.table.layout` knows what is in it."""
TABLE_MARKERS = (f"{METADATA_FOLDER}/hoodie.properties", f"{METADATA_FOLDER}/hoodie.properties.backup")
"""Where one of these is, there is a table."""
OLD_ARCHIVE = ".commits_.archive."
"""How the names of files in the archive of old tables begin; `lakelock.table.layout_one` reads them."""


def gone(uri: str) -> TableError:
    """The error of a table that was there when it was opened."""
    return TableError(
        f"the table {uri} is gone: there is no {TABLE_MARKERS[0]} any more, which was there when this opened it",
        hint="if somebody moved it, open it where it is now; if it was deleted on purpose, create it again",
    )


def checked(key: str) -> str:
    """Return `key`, or raise `StorageError` when it could name something outside the root or differ between storages."""
    segments = key.split("/")
    if "" in segments or "." in segments or ".." in segments or "\0" in key or not is_text(key):
        raise StorageError(
            f"{key!r} is not a valid storage key",
            hint="keys are relative, use single slashes and have no '.' or '..' segments; check partition values",
        )
    return key


def is_text(text: str) -> bool:
    """Whether it has an encoding: half of a surrogate pair, as in `"\\ud800"`, is no character."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_prefix(prefix: str) -> str:
    """Return the folder `prefix` ("" is the root), or raise `StorageError`."""
    return checked(prefix) if prefix else prefix


def is_shown(key: str, prefix: str) -> bool:
    """Whether a listing of the folder `prefix` shows `key`, which lies in it.

    Temporary files never show, and the metadata folder only when it is asked for.
    """
    return not is_temporary(key.rpartition("/")[2]) and (bool(prefix) or not key.startswith(METADATA_FOLDER + "/"))


def is_temporary(name: str) -> bool:
    """Whether a file of this name is somebody's temporary file or a checksum: its name starts with a dot.

    An old archive is neither, though its names do, too.
    """
    return name.startswith(".") and not name.startswith(OLD_ARCHIVE)


def is_past(folder: str, start_after: str) -> bool:
    """Whether every key in `folder` (with its trailing slash) is at or before `start_after`."""
    return folder < start_after and not start_after.startswith(folder)
