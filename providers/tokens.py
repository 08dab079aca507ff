"""Tokens that grow forever, at no cost per grant.

The lock file carries the token of the latest grant, and the next grant adds one. But Java Hudi drops foreign fields when it
writes the file, so the number would start over. Therefore tokens come from blocks: a separate object holds the end of
the latest block, this end is advanced *before* a token of the new block is granted, and the lock file carries the block's end
next to the token. Where the number is missing, or its block is used up, a new block is taken. Every token ever granted is at
most the object's number at that time, and every later block begins above it. A block that two writers race for is lost to
one of them: numbers may be skipped, but are never used twice.
"""

from __future__ import annotations

from lakelock.errors import CorruptTableError, StorageUnavailable
from lakelock.storage import Storage
from lakelock.table import layout

BLOCK = 1_000_000
_ATTEMPTS = 20
_LARGEST = 2**62


def reserve_block(storage: Storage, *, expect_new: bool) -> tuple[int, int]:
    """First and last token of a new block. `expect_new`: try to create the object before reading it."""
    if expect_new and storage.put_if_absent(layout.LOCK_TOKEN, str(BLOCK).encode()) is not None:
        return 1, BLOCK
    for _ in range(_ATTEMPTS):
        found = storage.get(layout.LOCK_TOKEN)
        if found is None:
            if storage.put_if_absent(layout.LOCK_TOKEN, str(BLOCK).encode()) is not None:
                return 1, BLOCK
            continue
        used = _parse(found.data)
        if storage.put_if_match(layout.LOCK_TOKEN, str(used + BLOCK).encode(), found.etag) is not None:
            return used + 1, used + BLOCK
    raise StorageUnavailable(
        f"{layout.LOCK_TOKEN} changed at each of {_ATTEMPTS} attempts to write it", hint="run the operation again"
    )


def _parse(data: bytes) -> int:
    try:
        number = int(data)
        if not 0 <= number <= _LARGEST:
            raise ValueError("no sum of blocks")
        return number
    except ValueError as error:
        raise CorruptTableError(
            f"{layout.LOCK_TOKEN} does not hold a number of tokens",
            hint="put a number into it that is greater than every token seen so far",
            key=layout.LOCK_TOKEN,
        ) from error
