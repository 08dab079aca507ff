"""Which keys were looked up, for tasks that meet the rows again: Spark may have computed these anew, and they may be others.

An executor that is lost takes the rows with it that it kept. Spark computes them again from the data frame, and a frame that
gives other rows each time (a `limit` without an order, a query of a live database) may bring keys that nobody has looked for
in the table. They would be taken for new, and be there twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.errors import WriteFailed
from lakelock.table.key_search import string_hashes


def rows_changed(how: str) -> WriteFailed:
    """The error for rows that are not those which the write began with."""
    return WriteFailed(
        f"{how}: the rows changed while they were being written",
        hint="the data frame gives different rows each time it is computed: checkpoint it, or write it to files first",
    )


@dataclass(frozen=True)
class LookedUpKeys:
    """A set of keys by hashes of 32 bits, ascending: of so many other keys as Java has hashes, about one is taken for one of
    them."""

    hashes: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, keys: Iterable[pa.Array]) -> LookedUpKeys:
        return cls(np.sort(np.concatenate([np.zeros(0, np.uint32), *map(string_hashes, keys)])))

    def require(self, keys: pa.Array) -> None:
        """`WriteFailed` if one of these keys was not looked up."""
        hashes = string_hashes(keys)
        first, behind = (np.searchsorted(self.hashes, hashes, side) for side in ("left", "right"))
        others = np.flatnonzero(first == behind)
        if len(others):
            raise rows_changed(f"the key {keys[int(others[0])]} was not among those that were looked up")
