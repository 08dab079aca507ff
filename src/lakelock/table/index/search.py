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
from lakelock.settings.sections import PARALLEL_REQUESTS
from lakelock.storage import Storage
from lakelock.table.base_files.reader import BaseFile
from lakelock.table.snapshot import DataFile

_ROWS_PER_BLOOM_LOOKUP = 16
_TOLERATED_FALSE_POSITIVES = 2.0
_PROBED_ROWS = 500_000
"""Stored keys that are compared at once: each comparison hashes all looked-up keys anew."""
_FILES_TOGETHER = 64
SMALL_ROWS = 16_384
"""The keys of a file of up to so many rows are read together with its footer, those of a larger one batch by batch."""


@dataclass(frozen=True)
class Holding:
    """The positions, in ascending order, of the looked-up keys that one file of `rows` rows holds."""

    file: DataFile
    positions: Any
    rows: int


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
    keys: pa.Array | pa.ChunkedArray,
    files: Sequence[DataFile],
    storage: Storage,
    runtime: Runtime | None = None,
    *,
    parallel: int = PARALLEL_REQUESTS,
) -> Tags:
    """Look up `keys` in `files`, which should be those of the keys' partition. Files that hold none are left out.

    Each file is opened once; with a `runtime` at most `parallel` footers are read at a time. Memory is bounded by the keys,
    for each of a few files, and half a million stored ones.
    """
    array = _one(keys)
    if not len(array):
        return Tags(0, ())
    probe, holdings = _Probe(array), []
    for start in range(0, len(files), _FILES_TOGETHER):
        holdings += _look_into(array, probe, files[start : start + _FILES_TOGETHER], storage, runtime, parallel)
    return Tags(len(array), tuple(holding for holding in holdings if len(holding.positions)))


def held(keys: pa.Array | pa.ChunkedArray, base: BaseFile) -> Any:
    """For each key, as a numpy array of booleans, whether an open base file holds it."""
    array = _one(keys)
    probe = _Probe(array)
    if _may_hold(array, base):
        for stored in base.key_batches():
            probe.add(0, stored)
    return probe.taken(0)


@dataclass(frozen=True)
class _Looked:
    """A file whose footer was read: its rows, its keys if they are few, or itself, still open, if they are to be read."""

    rows: int
    stored: tuple[pa.ChunkedArray, ...] = ()
    base: BaseFile | None = None


def _look_into(
    keys: pa.Array, probe: _Probe, files: Sequence[DataFile], storage: Storage, runtime: Runtime | None, parallel: int
) -> list[Holding]:
    """What each of the files holds."""
    looks = [partial(_look, keys, file, storage) for file in files]
    looked = runtime.gather(looks, limit=parallel) if runtime else [look() for look in looks]
    for number, found in enumerate(looked):
        for stored in found.stored:
            probe.add(number, stored)
        if found.base is not None:
            with found.base as base:
                for stored in base.key_batches():
                    probe.add(number, stored)
    return [Holding(file, np.flatnonzero(probe.taken(n)), looked[n].rows) for n, file in enumerate(files)]


def _look(keys: pa.Array, file: DataFile, storage: Storage) -> _Looked:
    """Read the footer of a file, and, unless it rules out all of the keys, the keys of a small file."""
    source = storage.open_input(file.key, size_bytes=file.size_bytes)
    try:
        base = BaseFile(source, file.key)
        if not _may_hold(keys, base):
            found = _Looked(base.rows)
        elif base.rows > SMALL_ROWS:
            return _Looked(base.rows, base=base)
        else:
            found = _Looked(base.rows, tuple(base.key_batches()))
    except BaseException:
        source.close()
        raise
    source.close()
    return found


def _may_hold(keys: pa.Array, base: BaseFile) -> bool:
    """False when the footer alone rules out that the file holds any of the keys."""
    if not base.rows or not len(keys):
        return False
    stated = base.key_range()
    candidates = np.arange(len(keys)) if stated is None else np.flatnonzero(stated.may_hold(keys))
    return bool(len(_passing_bloom(keys, candidates, base)))


class _Probe:
    """Finds keys among those stored in several files. These are compared many at a time, whatever file they are of."""

    def __init__(self, keys: pa.Array) -> None:
        codes = keys.dictionary_encode()
        self._distinct, self._codes = codes.dictionary, np.asarray(codes.indices)
        self._known: dict[int, Any] = {}
        self._pending: list[tuple[int, pa.ChunkedArray]] = []
        self._pending_rows = 0

    def add(self, file: int, stored: pa.ChunkedArray) -> None:
        """Some of the keys that the file with this number holds."""
        self._pending.append((file, stored))
        self._pending_rows += len(stored)
        if self._pending_rows >= _PROBED_ROWS:
            self._compare()

    def taken(self, file: int) -> Any:
        """For each looked-up key whether it is among those of the file, which is then forgotten."""
        self._compare()
        known = self._known.pop(file, None)
        return np.zeros(len(self._codes), np.bool_) if known is None else known[self._codes]

    def _compare(self) -> None:
        if not self._pending:
            return
        stored = pa.chunked_array([chunk for _, keys in self._pending for chunk in keys.chunks], pa.string())
        hits = pc.fill_null(pc.index_in(stored, value_set=self._distinct), -1).to_numpy()
        start = 0
        for file, keys in self._pending:
            mine = hits[start : start + len(keys)]
            self._known.setdefault(file, np.zeros(len(self._distinct), np.bool_))[mine[mine >= 0]] = True
            start += len(keys)
        self._pending, self._pending_rows = [], 0


def _passing_bloom(keys: pa.Array, candidates: Any, base: BaseFile) -> Any:
    """The candidates that the file's bloom filter does not rule out; all of them when asking it costs more than it saves."""
    count = len(candidates)
    if not count or count * _ROWS_PER_BLOOM_LOOKUP > max(base.rows, 10_000):
        return candidates
    if count * base.bloom_error_rate() > _TOLERATED_FALSE_POSITIVES:
        return candidates
    bloom = base.bloom()
    return candidates if bloom is None else candidates[bloom.might_contain(keys.take(pa.array(candidates)))]


def _one(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
