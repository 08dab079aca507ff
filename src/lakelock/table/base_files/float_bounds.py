"""Bounds of floating-point columns: a column chunk that has a NaN gets none.

Parquet passes over NaN when it takes bounds, and to Spark NaN is greater than any number. Its reader would skip a row group
whose greatest number is 2 when it looks for `x > 5`, and the rows with NaN with it. Files of parquet-java have no usable bounds
there either. Parquet's writer for Arrow cannot leave out the bounds of a single chunk, so they are taken out of the footer.
"""

from __future__ import annotations

import struct
from collections.abc import Set
from typing import IO

from lakelock.table.base_files.thrift_compact import Reader, Struct, encoded

BOUNDS = (1, 2, 5, 6)
"""The fields of Parquet's `Statistics` that hold bounds, in their old and new form."""

_EXACTNESS = (7, 8)

_TAIL = struct.Struct("<i4s")


class HeldFooter:
    """An output whose last bytes can be held back: a file-like object for Parquet's writer."""

    closed = False

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._held: bytearray | None = None

    def write(self, data: bytes) -> int:
        if self._held is None:
            return self._output.write(data)
        self._held += data
        return len(data)

    def flush(self) -> None:
        """The output's owner flushes it."""

    def hold(self) -> None:
        """From now on nothing is written, until `release`."""
        self._held = bytearray()

    def release(self, without: Set[tuple[int, str]]) -> None:
        """Write what was held, which ends with the footer, without the bounds of these chunks."""
        held, self._held = bytes(self._held or b""), None
        self._output.write(without_bounds(held, without) if without else held)


def without_bounds(tail: bytes, chunks: Set[tuple[int, str]]) -> bytes:
    """The end of a Parquet file, from before its footer on, without the bounds of these chunks: row group and column."""
    length, magic = _TAIL.unpack(tail[-_TAIL.size :])
    start = len(tail) - _TAIL.size - length
    footer = Reader(tail[start : -_TAIL.size]).struct()
    for number, group in enumerate(footer[4][1][1]):
        for chunk in group[1][1][1]:
            meta = chunk[3][1]
            path = b".".join(meta[3][1][1]).decode()
            if (number, path) in chunks and 12 in meta:
                drop_bounds(meta[12][1])
    data = encoded(footer)
    return tail[:start] + data + _TAIL.pack(len(data), magic)


def drop_bounds(statistics: Struct) -> None:
    """Remove all bounds of a column chunk or page, and what is said of them."""
    for field in (*BOUNDS, *_EXACTNESS):
        statistics.pop(field, None)
