"""Keys of which it is known which files hold them: what a look-up into files found, for whoever has the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class HeldKeys:
    """Keys of one partition and, beside each, the number of a file that holds it. A key may be there for several files."""

    keys: pa.Array
    files: npt.NDArray[np.int32]

    @classmethod
    def of(cls, looked_up: pa.Array, found: Iterable[tuple[int, npt.NDArray[np.int64]]]) -> HeldKeys:
        """Of the distinct keys `looked_up`: by file, the positions of those that it holds."""
        parts = [(np.full(len(at), number, np.int32), at) for number, at in found]
        if not parts:
            return cls(looked_up.slice(0, 0), np.zeros(0, np.int32))
        files, positions = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(looked_up.take(pa.array(positions)), files)

    def tagged(self, keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Positions in `keys`, each as often as files hold it, and these files; then the positions that no file holds."""
        codes = self.keys.dictionary_encode()
        indices = np.asarray(codes.indices)
        order, counts = np.argsort(indices, kind="stable"), np.bincount(indices, minlength=len(codes.dictionary))
        code = pc.fill_null(pc.index_in(keys, value_set=codes.dictionary), -1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(code >= 0)
        times = counts[code[hits]]
        starts = (np.cumsum(counts) - counts)[code[hits]]
        # The i-th time that a position is repeated names the i-th file of its key.
        nth = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        return np.repeat(hits, times), self.files[order[np.repeat(starts, times) + nth]], np.flatnonzero(code < 0)


NONE_HELD = HeldKeys(pa.array([], pa.string()), np.zeros(0, np.int32))
"""No file holds any key."""
