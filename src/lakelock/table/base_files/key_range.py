"""The least and the greatest record key of a file, in the order of Java's strings."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FIRST_ODD_BYTE = 0xEE
_FIRST_ODD_CHARACTER = 0xD800  # halves of surrogate pairs, which only a damaged footer has, and what follows them


@dataclass(frozen=True)
class KeyRange:
    """Least and greatest key. Java compares UTF-16 units, UTF-8 bytes differ from it above U+E000 only.

    Hudi's row writer compares bytes all the same, so files exist in both orders; `may_hold` is right for either.
    """

    least: str
    greatest: str

    @classmethod
    def of(cls, keys: pa.ChunkedArray) -> KeyRange:
        """The range of at least one key."""
        if any(_has_odd_bytes(chunk) for chunk in keys.chunks):
            ordered = sorted((key for key in keys.to_pylist()), key=java_order)
            return cls(ordered[0], ordered[-1])
        found = pc.min_max(keys).as_py()
        return cls(found["min"], found["max"])

    def with_other(self, other: KeyRange) -> KeyRange:
        """The range that covers both."""
        return KeyRange(min(self.least, other.least, key=java_order), max(self.greatest, other.greatest, key=java_order))

    def may_hold(self, keys: pa.Array | pa.ChunkedArray) -> Any:
        """For each key, as a numpy array of booleans, whether it can be in the file."""
        if self._is_odd or any(_has_odd_bytes(chunk) for chunk in _chunks(keys)):
            return np.ones(len(keys), np.bool_)
        inside = pc.and_(pc.greater_equal(keys, self.least), pc.less_equal(keys, self.greatest))
        return inside.to_numpy(zero_copy_only=False) if isinstance(inside, pa.Array) else inside.to_numpy()

    @property
    def _is_odd(self) -> bool:
        """Whether the two orders may disagree about an end of the range."""
        return any(ord(character) >= _FIRST_ODD_CHARACTER for character in self.least + self.greatest)


class SortedKeys:
    """Keys that many ranges are compared with."""

    def __init__(self, keys: pa.Array) -> None:
        self._odd = _has_odd_bytes(keys)
        self._sorted: list[str] = [] if self._odd else sorted(keys.to_pylist())

    def meets(self, stated: KeyRange) -> bool:
        """Whether a file with this range may hold one of the keys; the same answer as `KeyRange.may_hold` for any of them."""
        if self._odd or stated._is_odd:
            return True
        first = bisect_left(self._sorted, stated.least)
        return first < len(self._sorted) and self._sorted[first] <= stated.greatest


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def _has_odd_bytes(array: pa.Array) -> bool:
    """Whether any character is at U+E000 or above, where the two orders part."""
    if not len(array):
        return False
    _, offsets, data = array.buffers()
    if data is None:
        return False
    at = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(array.type) else np.int32)
    start, end = int(at[array.offset]), int(at[array.offset + len(array)])
    return end > start and int(np.frombuffer(data, np.uint8)[start:end].max()) >= _FIRST_ODD_BYTE


def _chunks(keys: pa.Array | pa.ChunkedArray) -> Iterable[pa.Array]:
    return keys.chunks if isinstance(keys, pa.ChunkedArray) else (keys,)
