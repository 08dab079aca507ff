"""What is said of damaged files: which table they are of, and what can be done about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakelock.errors import CorruptTableError

RESTORE = "restore the file from a backup or an older version of the object"
RESTORE_OR_ROLL_BACK = f"{RESTORE}; where Java Hudi writes the table, its tools can roll the commit back instead"
LISTED = "; lakelock doctor lists what is affected"
"""Ends the hints about files whose damage concerns whoever writes the table."""


@contextmanager
def of_table(uri: str) -> Iterator[None]:
    """Puts the table before what the block says of one of its files."""
    try:
        yield
    except CorruptTableError as error:
        if error.message.startswith(f"{uri}: "):
            raise
        raise CorruptTableError(f"{uri}: {error.message}", hint=error.hint, **error.details) from error
