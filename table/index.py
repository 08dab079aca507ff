"""Which base file holds which record key: key ranges first, then bloom filters where they pay, then the key columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.clock import Runtime
from lakelock.storage import Storage
from lakelock.table.base_reader import BaseFile
from lakelock.table.snapshot import DataFile

_ROWS_PER_BLOOM_LOOKUP = 16
_TOLERATED_FALSE_POSITIVES = 2.0
_PARALLEL_FILES = 8


@dataclass(frozen=True)
class Holding:
    """The positions, in ascending order, of the looked-up keys that one file holds."""

    file: DataFile
    positions: Any


@dataclass(frozen=True)
class Tags:
    """The answer of `tag`. A key is in several holdings when blind inserts stored it more than once."""

    count: int
    holdings: tuple[Holding, ...]

    @property
    def missing(self) -> Any:
        """The positions of the keys that no file holds, as a numpy array."""
        found = np.zeros(self.count, np.bool_)
        for holding in self.holdings:
            found[holding.positions] = True
        return np.flatnonzero(~found)


def tag(
    keys: pa.Array | pa.ChunkedArray, files: Sequence[DataFile], storage: Storage, *, runtime: Runtime | None = None
) -> Tags:
    """Look up `keys` in `files`, which should be those of the keys' partition. Files that hold none are left out.

    Memory is bounded by the keys and the record keys of one row group, or of eight with a `runtime`, which looks into
    eight files at a time.
    """
    array = _one(keys)
    if not len(array):
        return Tags(0, ())
    calls = [partial(_positions, array, file, storage) for file in files]
    found = runtime.gather(calls, limit=_PARALLEL_FILES) if runtime else [call() for call in calls]
    return Tags(len(array), tuple(Holding(file, at) for file, at in zip(files, found, strict=True) if len(at)))


def held(keys: pa.Array | pa.ChunkedArray, base: BaseFile) -> Any:
    """For each key, as a numpy array of booleans, whether an open base file holds it."""
    array = _one(keys)
    candidates = np.arange(len(array))
    stated = base.key_range()
    if not base.rows or not len(array):
        return np.zeros(len(array), np.bool_)
    if stated is not None:
        candidates = candidates[stated.may_hold(array)]
    candidates = _passing_bloom(array, candidates, base)
    found = np.zeros(len(array), np.bool_)
    if len(candidates):
        looked_up = array.take(pa.array(candidates))
        for stored in base.key_batches():
            found[candidates] |= _contained(looked_up, stored)
    return found


def _positions(keys: pa.Array, file: DataFile, storage: Storage) -> Any:
    with BaseFile(storage.open_input(file.key), file.key) as base:
        return np.flatnonzero(held(keys, base))


def _passing_bloom(keys: pa.Array, candidates: Any, base: BaseFile) -> Any:
    """The candidates that the file's bloom filter does not rule out; all of them when asking it costs more than it saves."""
    count = len(candidates)
    if not count or count * _ROWS_PER_BLOOM_LOOKUP > max(base.rows, 10_000):
        return candidates
    if count * base.bloom_error_rate() > _TOLERATED_FALSE_POSITIVES:
        return candidates
    bloom = base.bloom()
    return candidates if bloom is None else candidates[bloom.might_contain(keys.take(pa.array(candidates)))]


def _contained(keys: pa.Array, stored: pa.ChunkedArray) -> Any:
    """For each key whether it is among the stored ones; the smaller side is the one that gets hashed."""
    if len(keys) > len(stored):
        return pc.is_in(keys, value_set=stored.combine_chunks()).to_numpy(zero_copy_only=False)
    codes = keys.dictionary_encode()
    hits = pc.unique(pc.index_in(stored, value_set=codes.dictionary)).drop_null()
    known = np.zeros(len(codes.dictionary), np.bool_)
    known[hits.to_numpy(zero_copy_only=False)] = True
    return known[np.asarray(codes.indices)]


def _one(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
