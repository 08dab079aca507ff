"""Where a record key is: found in base files, or computed as the bucket of the key.

Base files are searched by key ranges first, then by bloom filters where they pay, then by the key columns (`tag`).

The bucket is Java's hash, so that Java writers and lakelock agree on every row. Hudi 1.2 takes a record key apart again
(`KeyGenUtils.extractRecordKeysByFields`), and hashes the list of the hashed columns' texts
(`BucketIdentifier.getBucketId`: Java's `List.hashCode` without its sign, modulo the number of buckets). It takes values
with colons and commas apart in ways of its own, which are followed here to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.storage import Storage
from lakelock.storage.location import TableIO
from lakelock.table.base_files import BaseFile, KeyRange, SortedKeys
from lakelock.table.commit_metadata import FileStatistics
from lakelock.table.index import BucketIndex
from lakelock.table.merged_slices import open_slice
from lakelock.table.record_keys import EMPTY, NULL, Keyed, key_text
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
    """The looked-up keys that one file of `rows` rows holds: their `positions` among all looked-up keys, ascending.

    `at`: the places of their rows in the file, ascending. `nth`: for each of these rows, which of the `positions` is its key's.
    """

    file: DataFile
    positions: Any
    rows: int
    at: npt.NDArray[np.int64]
    nth: npt.NDArray[np.int64]

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """For each position, the place of the only row with its key; `STORED_TWICE` if the file has several, or log files.

        With log files, the order of rows depends on the columns that are read.
        """
        places = np.full(len(self.positions), STORED_TWICE)
        if not self.file.logs:
            once = np.bincount(self.nth, minlength=len(places))[self.nth] == 1
            places[self.nth[once]] = self.at[once]
        return places


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


def tag(keys: pa.Array | pa.ChunkedArray, files: Sequence[DataFile], io: TableIO) -> Tags:
    """Look up `keys` in `files`, which should be those of the keys' partition. Files that hold none are left out.

    Each file is opened once, and as many footers are read at a time as `io` says. Memory is bounded by the keys,
    for each of a few files, and half a million stored ones.
    """
    array = _one(keys)
    if not len(array):
        return Tags(0, ())
    probe, holdings = _Probe(array), []
    for start in range(0, len(files), _FILES_TOGETHER):
        holdings += _search_files(array, probe, files[start : start + _FILES_TOGETHER], io)
    return Tags(len(array), tuple(holding for holding in holdings if len(holding.positions)))


def held(keys: pa.Array | pa.ChunkedArray, base: BaseFile) -> Any:
    """For each key, as a numpy array of booleans, whether an open base file holds it."""
    array = _one(keys)
    probe = _Probe(array)
    if _may_hold(array, base):
        for stored in base.key_batches():
            probe.add(0, stored)
    return probe.taken(0)


def possible_files(
    files: Sequence[DataFile], keys: Mapping[str, pa.Array], statistics: Callable[[DataFile], FileStatistics | None]
) -> list[int]:
    """The numbers of the files that may hold one of the keys of their partition, by the key ranges recorded with them."""
    asked: dict[int, SortedKeys] = {}
    found = []
    for number, file in enumerate(files):
        known, mine = statistics(file), keys[file.partition]
        stated = KeyRange(known.key_min, known.key_max) if known is not None and known.key_min and known.key_max else None
        if stated is not None and id(mine) not in asked:
            asked[id(mine)] = SortedKeys(mine, len(files))  # partitions may share their keys
        if stated is None or file.logs or asked[id(mine)].meets(stated):
            found.append(number)
    return found


@dataclass(frozen=True)
class _SearchedFile:
    """A file whose footer was read: its rows, its keys if they are few, or itself, still open, if they are to be read."""

    rows: int
    stored: tuple[pa.ChunkedArray, ...] = ()
    base: BaseFile | None = None


def _search_files(keys: pa.Array, probe: _Probe, files: Sequence[DataFile], io: TableIO) -> list[Holding]:
    """What each of the files holds."""
    looked = io.gather([partial(_search_file, keys, file, io.storage) for file in files])
    for number, found in enumerate(looked):
        for stored in found.stored:
            probe.add(number, stored)
        if found.base is not None:
            with found.base as base:
                for stored in base.key_batches():
                    probe.add(number, stored)
    return [probe.holding(number, file, looked[number].rows) for number, file in enumerate(files)]


def _search_file(keys: pa.Array, file: DataFile, storage: Storage) -> _SearchedFile:
    """Read the footer of a file, and, unless it rules out all of the keys, the keys of a small file."""
    source = open_slice(file, storage)
    try:
        base = BaseFile(source, file.key)
        if not _may_hold(keys, base):
            found = _SearchedFile(base.rows)
        elif base.rows > SMALL_ROWS:
            return _SearchedFile(base.rows, base=base)
        else:
            found = _SearchedFile(base.rows, tuple(base.key_batches()))
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
        self._found: dict[int, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]] = {}
        self._read: dict[int, int] = {}
        self._pending: list[tuple[int, pa.ChunkedArray]] = []
        self._pending_rows = 0

    def add(self, file: int, stored: pa.ChunkedArray) -> None:
        """The next of the keys that the file with this number holds, in their order there."""
        self._pending.append((file, stored))
        self._pending_rows += len(stored)
        if self._pending_rows >= _PROBED_ROWS:
            self._compare()

    def taken(self, file: int) -> Any:
        """For each looked-up key, whether the file holds it. To be called once: what was found is then forgotten."""
        return self._flags(self._taken(file)[1])[self._codes]

    def holding(self, number: int, file: DataFile, rows: int) -> Holding:
        """What the file with this number holds. To be called once: what was found in the file is then forgotten."""
        at, codes = self._taken(number)
        positions = np.flatnonzero(self._flags(codes)[self._codes])
        place = np.zeros(len(self._distinct), np.int64)
        place[self._codes[positions]] = np.arange(len(positions))
        return Holding(file, positions, rows, at, place[codes])

    def _flags(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        flags = np.zeros(len(self._distinct), np.bool_)
        flags[codes] = True
        return flags

    def _taken(self, file: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        self._compare()
        self._read.pop(file, None)
        found = self._found.pop(file, [])
        none = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return tuple(map(np.concatenate, zip(none, *found, strict=True)))  # type: ignore[return-value]

    def _compare(self) -> None:
        if not self._pending:
            return
        stored = pa.chunked_array([chunk for _, keys in self._pending for chunk in keys.chunks], pa.string())
        hits = pc.fill_null(pc.index_in(stored, value_set=self._distinct), -1).to_numpy()
        start = 0
        for file, keys in self._pending:
            mine, first = hits[start : start + len(keys)], self._read.get(file, 0)
            there = np.flatnonzero(mine >= 0)
            self._found.setdefault(file, []).append((there + first, mine[there]))
            self._read[file] = first + len(keys)
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


_SLICE_ROWS = 65_536
_SIGN = 0x7FFFFFFF

Hashes = npt.NDArray[np.uint32]


def buckets_of(keyed: Keyed, index: BucketIndex, key_fields: Sequence[str]) -> npt.NDArray[np.int32]:
    """The bucket of each row. `key_fields` are the table's, and must be among the columns of the rows."""
    found = [_hashes(part, index.fields, key_fields) for part in keyed.slices(_SLICE_ROWS)]
    hashes = np.concatenate(found) if found else np.zeros(0, np.uint32)
    return ((hashes & np.uint32(_SIGN)) % np.uint32(index.count)).astype(np.int32)


def buckets_of_keys(keys: Sequence[str], index: BucketIndex) -> list[int]:
    """The buckets of record keys as they are stored, one by one."""
    return [(list_hash(hashed_values(key, index.fields)) & _SIGN) % index.count for key in keys]


def by_bucket(keyed: Keyed, index: BucketIndex, key_fields: Sequence[str]) -> dict[int, Keyed]:
    """The rows by bucket, in their order."""
    buckets = buckets_of(keyed, index, key_fields)
    return {int(bucket): keyed.pick(np.flatnonzero(buckets == bucket)) for bucket in np.unique(buckets)}


def _hashes(keyed: Keyed, fields: Sequence[str], key_fields: Sequence[str]) -> Hashes:
    keys = keyed.keys.combine_chunks()
    commas, colons = (pc.match_substring(keys, mark).to_numpy(zero_copy_only=False) for mark in (",", ":"))
    apart = commas & colons
    hashes = np.uint32(31) + string_hashes(keys)
    if not apart.any():
        return hashes
    texts = [key_text(keyed.rows.column(name), name).combine_chunks() for name in key_fields]
    plain = apart & (len(key_fields) > 1)
    for text in texts:
        plain &= ~pc.fill_null(pc.match_substring_regex(text, "[:,]"), False).to_numpy(zero_copy_only=False)
    if any(":" in name for name in key_fields):
        plain[:] = False
    if plain.any():
        combined = np.ones(len(keys), np.uint32)
        for name, text in zip(key_fields, texts, strict=True):
            if name in fields:
                marked = pc.fill_null(pc.is_in(text, value_set=pa.array([NULL, EMPTY])), True)
                values = np.where(marked.to_numpy(zero_copy_only=False), np.uint32(0), string_hashes(text))
                combined = combined * np.uint32(31) + values
        hashes = np.where(plain, combined, hashes)
    rest = np.flatnonzero(apart & ~plain)
    if len(rest):
        hashes[rest] = [list_hash(hashed_values(key, fields)) for key in keys.take(pa.array(rest)).to_pylist()]
    return hashes


def string_hashes(texts: pa.Array) -> Hashes:
    """Java's `String.hashCode` of each text, over its UTF-16 code units; 0 for null."""
    texts = pc.fill_null(texts, "")
    parts = (texts.slice(start, _SLICE_ROWS) for start in range(0, len(texts), _SLICE_ROWS))
    return np.concatenate([np.zeros(0, np.uint32), *(_hashed(*_code_units(part)) for part in parts)])


def _code_units(texts: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The UTF-16 code units of all texts, one after the other, and how many each has."""
    if pc.all(pc.string_is_ascii(texts)).as_py() is not False:
        _, offsets, data = texts.buffers()
        bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        units = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
        return units, np.diff(bounds)
    encoded = [text.encode("utf-16-le") for text in texts.to_pylist()]
    return np.frombuffer(b"".join(encoded), "<u2"), np.array([len(text) // 2 for text in encoded], np.int64)


def _hashed(units: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> Hashes:
    ends = np.cumsum(lengths)
    if not len(units):
        return np.zeros(len(lengths), np.uint32)
    powers = np.cumprod(np.concatenate(([1], np.full(int(lengths.max()) - 1, 31))).astype(np.uint32), dtype=np.uint32)
    weights = powers[np.repeat(ends, lengths) - 1 - np.arange(len(units))]
    # What is summed beyond 32 bits is lost, as in Java.
    sums = np.concatenate(([0], np.cumsum(units.astype(np.uint32) * weights, dtype=np.uint32))).astype(np.uint32)
    found: Hashes = sums[ends] - sums[ends - lengths]
    return found


def list_hash(values: Sequence[str | None]) -> int:
    """Java's `List.hashCode` of texts, as a number without a sign."""
    found = 1
    for value in values:
        units = (value or "").encode("utf-16-le")
        hashed = 0
        for at in range(0, len(units), 2):
            hashed = (hashed * 31 + (units[at] | units[at + 1] << 8)) & 0xFFFFFFFF
        found = (found * 31 + hashed) & 0xFFFFFFFF
    return found


def hashed_values(key: str, fields: Sequence[str]) -> list[str | None]:
    """What Hudi 1.2 hashes of a record key: the values of `fields`, or the whole key where it finds none of them.

    A key without a comma or without a colon is one value. In others a comma ends a value only where a colon follows it. Where
    Java would search for ever (the last value is not hashed and has a colon) the key ends here.
    """
    if "," not in key or ":" not in key:
        return [key]
    values: list[str | None] = []
    at = 0
    while at < len(key):
        first = key.find(":", at)
        wanted = key[at:first] in fields
        following = key.find(":", first + 1)
        comma = -1
        while following >= 0:
            comma = key.rfind(",", 0, following + 1)
            if comma >= first:
                break
            following, comma = key.find(":", following + 1), -1
        end = comma if comma > 0 else len(key)
        if wanted:
            value = key[first + 1 : end]
            values.append(None if value == NULL else "" if value == EMPTY else value)
        at = end + 1
    return values or [key]


NOT_STORED, STORED_TWICE = -1, -2
"""In place of the place of a row in a file: it has no row of this key, or several."""


@dataclass(frozen=True)
class LocatedKeys:
    """Keys of one partition and, for each, the number of a file that holds it and the place of its row there.

    A key that several files hold is listed once for each of them.
    """

    keys: pa.Array
    files: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]

    @classmethod
    def of(cls, looked_up: pa.Array, found: Iterable[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> LocatedKeys:
        """Of the distinct keys `looked_up`: by file, the positions of those that it holds, and the places of their rows."""
        parts = [(np.full(len(positions), number, np.int32), positions, places) for number, positions, places in found]
        if not parts:
            return NONE_LOCATED
        files, positions, places = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(looked_up.take(pa.array(positions)), files, places)

    def tagged(self, keys: pa.Array) -> LocatedRows:
        """Where these keys are."""
        codes = self.keys.dictionary_encode()
        indices = np.asarray(codes.indices)
        order, counts = np.argsort(indices, kind="stable"), np.bincount(indices, minlength=len(codes.dictionary))
        code = pc.fill_null(pc.index_in(keys, value_set=codes.dictionary), -1).to_numpy(zero_copy_only=False)
        hits = np.flatnonzero(code >= 0)
        times = counts[code[hits]]
        starts = (np.cumsum(counts) - counts)[code[hits]]
        # The i-th time that a position is repeated names the i-th file of its key.
        nth = np.arange(int(times.sum())) - np.repeat(np.cumsum(times) - times, times)
        found = order[np.repeat(starts, times) + nth]
        return LocatedRows(np.repeat(hits, times), self.files[found], self.places[found], np.flatnonzero(code < 0))


class LocatedRows(NamedTuple):
    """For each file that holds one of the keys: the key's position, the file's number, and the place of the key's row in it.

    `missing`: the positions of the keys that no file holds.
    """

    positions: npt.NDArray[np.int64]
    files: npt.NDArray[np.int32]
    places: npt.NDArray[np.int64]
    missing: npt.NDArray[np.int64]


NONE_LOCATED = LocatedKeys(pa.nulls(0, pa.string()), np.zeros(0, np.int32), np.zeros(0, np.int64))
"""No file holds any key."""
