"""The bucket of a record key: Java's hash, so that Java writers and lakelock agree on every row.

Hudi 1.2 takes a record key apart again (`KeyGenUtils.extractRecordKeysByFields`), and hashes the list of the hashed
columns' texts (`BucketIdentifier.getBucketId`: Java's `List.hashCode` without its sign, modulo the number of buckets). Values
with colons and commas are taken apart in ways of its own, which are followed here to the letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.table.buckets import BucketIndex
from lakelock.table.keys.keyed import Keyed
from lakelock.table.keys.record_keys import EMPTY, NULL, key_text

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
