"""A remote file as a seekable Python file: ranges are read on demand."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

READ_AHEAD = 1 << 18

Fetch = Callable[[int, int], "ReadableBuffer"]
"""The bytes from a position on, at most so many; raises `StorageError`."""


def reader(size_bytes: int, fetch: Fetch) -> IO[bytes]:
    """A file of this size behind a buffer of `READ_AHEAD` bytes, which larger reads bypass."""
    return io.BufferedReader(_Ranges(size_bytes, fetch), READ_AHEAD)


class _Ranges(io.RawIOBase):
    def __init__(self, size: int, fetch: Fetch) -> None:
        self._size, self._fetch, self._position = size, fetch, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        length = min(len(target), self._size - self._position)
        if length <= 0:
            return 0
        data = memoryview(self._fetch(self._position, length)).cast("B")
        target[: len(data)] = data
        self._position += len(data)
        return len(data)
