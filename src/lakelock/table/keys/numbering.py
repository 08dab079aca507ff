"""Texts that count on: the sequence numbers of rows, and the keys of rows that have no key of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def numbered(prefix: str, first: int, count: int) -> pa.StringArray:
    """The numbers from `first` on, `count` of them, each after `prefix`."""
    written = prefix.encode()
    parts = [pa.array([], pa.string())]
    start, end = first, first + count
    while start < end:
        digits = len(str(start))
        stop = min(end, 10**digits)
        parts.append(_of_one_length(written, start, stop, digits))
        start = stop
    return pa.concat_arrays(parts)


def _of_one_length(prefix: bytes, start: int, stop: int, digits: int) -> pa.StringArray:
    """The numbers in [start, stop), all of `digits` digits."""
    count, width = stop - start, len(prefix) + digits
    text = np.empty((count, width), np.uint8)
    text[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    numbers: Any = np.arange(start, stop, dtype=np.uint32 if stop <= 2**32 else np.uint64)
    for column in range(width - 1, len(prefix) - 1, -1):
        quotient = numbers // 10
        text[:, column] = (numbers - quotient * 10).astype(np.uint8) + np.uint8(48)
        numbers = quotient
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
