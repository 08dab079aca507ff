"""Parquet's footers, read and changed as bytes, and Hudi's bloom filters of record keys, which they carry.

A struct is a mapping from field id to `[type, value]`, so that unknown fields survive a round trip. Format:
`thrift-compact-protocol.md` of Apache Thrift. Reading damaged bytes raises `ValueError`. A redo reads and writes the
footer of each file that it copies, which takes longer than copying the bytes. So the functions here pass positions
around, look at single bytes as numbers, and treat numbers of one byte apart.

A floating-point column chunk that has a NaN gets no bounds. Parquet passes over NaN when it takes bounds, and to Spark
NaN is greater than any number. Its reader would skip a row group whose greatest number is 2 when it looks for `x > 5`,
and the rows with NaN with it. Files of parquet-java have no usable bounds there either. Parquet's writer for Arrow cannot
leave out the bounds of a single chunk, so they are taken out of the footer.

A bloom filter states its own sizes, so Java's BLOOM index reads filters of any size. Ours have one row that is exactly large
enough for the keys of the file. The default false-positive rate is 0.01 where Java's is 1e-9 (30 hashes, 43 bits a key): at
a million keys that is 0.1 against 0.4 s of CPU and 1.6 against 7 MB of footer, which every reader of the file has to load;
Java itself stops honouring its rate at 100,000 keys. That time depends mostly on the number of hashes. Java takes the number
that needs the fewest bits: 7 hashes with 9.6 bits a key. With a tenth more bits, 4 hashes are enough.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError

BOOL_TRUE, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, list[Any]]
"""Field id to `[type, value]`. Lists are `[type of the elements, values]`; a boolean field has its value in its type."""

_DEEPEST = 32
_PAST_THE_END = "thrift: past the end"

Data = bytes | memoryview


class Reader:
    """Reads structs from `data`, beginning at `at`, which moves on."""

    def __init__(self, data: Data, at: int = 0) -> None:
        self._data, self.at = data, at

    def struct(self) -> Struct:
        """The struct that begins here."""
        try:
            found, self.at = _struct(self._data, self.at, _DEEPEST)
        except IndexError as error:
            raise ValueError(_PAST_THE_END) from error
        return found


def _struct(data: Data, at: int, deeper: int) -> tuple[Struct, int]:
    """The struct at a position, and where it ends; it may have structs and lists in it that are so much `deeper`."""
    if not deeper:
        raise ValueError("thrift: structs too deep")
    fields: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        if I16 <= kind <= I64:
            value, at = _zigzag(data, at)
        else:
            value, at = _value(data, at, kind, deeper)
        fields[number] = [kind, value]
    return fields, at + 1


def _value(data: Data, at: int, kind: int, deeper: int) -> tuple[Any, int]:
    if kind == BINARY:
        size, at = _varint(data, at)
        return _bytes(data, at, size)
    if kind == STRUCT:
        return _struct(data, at, deeper - 1)
    if kind in (LIST, SET):
        return _list(data, at, deeper - 1)
    if kind in (BOOL_TRUE, BOOL_FALSE):
        return kind, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return _bytes(data, at, 8)
    raise ValueError(f"thrift: type {kind} does not occur in Parquet's headers")


def _list(data: Data, at: int, deeper: int) -> tuple[list[Any], int]:
    if not deeper:
        raise ValueError("thrift: lists too deep")
    head = data[at]
    at, kind, size = at + 1, head & 15, head >> 4
    if size == 15:
        size, at = _varint(data, at)
    items: list[Any] = []
    for _ in range(size):
        if I16 <= kind <= I64:
            item, at = _zigzag(data, at)
        elif kind in (BOOL_TRUE, BOOL_FALSE):
            item, at = data[at], at + 1
        else:
            item, at = _value(data, at, kind, deeper)
        items.append(item)
    return [kind, items], at


def _bytes(data: Data, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise ValueError(_PAST_THE_END)
    return bytes(data[at:end]), end


def _varint(data: Data, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    result, shift = byte & 127, 7
    while shift <= 63:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
    raise ValueError("thrift: a number of too many bytes")


def _zigzag(data: Data, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 128:
        return number >> 1 ^ -(number & 1), at + 1
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def encoded(struct: Struct) -> bytes:
    """The bytes of a struct; the same as were read, if nothing in it has changed."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def _put_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for number in sorted(struct):
        kind, value = struct[number]
        if 0 < number - last < 16:
            out.append(number - last << 4 | kind)
        else:
            out.append(kind)
            _put_zigzag(out, number)
        last = number
        if I16 <= kind <= I64:
            _put_zigzag(out, value)
        elif kind > BOOL_FALSE:
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, SET):
        _put_list(out, value)
    elif I16 <= kind <= I64:
        _put_zigzag(out, value)
    elif kind in (BOOL_TRUE, BOOL_FALSE, BYTE):
        out.append(value)
    else:  # a double
        out += value


def _put_list(out: bytearray, value: list[Any]) -> None:
    element, items = value
    if len(items) < 15:
        out.append(len(items) << 4 | element)
    else:
        out.append(0xF0 | element)
        _put_varint(out, len(items))
    for item in items:
        _put(out, element, item)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _put_zigzag(out: bytearray, number: int) -> None:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    if number < 128:
        out.append(number)
    else:
        _put_varint(out, number)


BOUNDS = (1, 2, 5, 6)
"""The fields of Parquet's `Statistics` that hold bounds, in their old and new form."""

_EXACTNESS = (7, 8)

_TAIL = struct.Struct("<i4s")


@dataclass(frozen=True)
class Chunk:
    """A column chunk that was encoded separately, and its footer entry, with offsets counted from the chunk's first byte."""

    data: memoryview
    said: Struct

    def placed(self, at: int, name: str) -> Struct:
        """What the footer says of it where it begins at a position, as the chunk of this column."""
        meta = dict(self.said[3][1])
        meta[3] = [LIST, [BINARY, [name.encode()]]]
        for number in (9, 11):
            if number in meta:
                meta[number] = [I64, meta[number][1] + at]
        return {**self.said, 3: [STRUCT, meta]}

    @property
    def bounds(self) -> tuple[bytes, bytes] | None:
        """Its least and its greatest value, if its statistics tell them."""
        statistics = self.said[3][1].get(12, [STRUCT, {}])[1]
        if not {5, 6} <= statistics.keys() or any(statistics.get(number, [0])[0] == BOOL_FALSE for number in _EXACTNESS):
            return None
        return statistics[6][1], statistics[5][1]


def footer_of(file: memoryview) -> Struct:
    """The footer of a Parquet file."""
    file = file.cast("B")
    length, _ = _TAIL.unpack(file[-_TAIL.size :])
    return Reader(file[-_TAIL.size - length : -_TAIL.size]).struct()


def chunks_of(file: memoryview) -> dict[str, Chunk]:
    """The column chunks of a file of one row group without nested columns."""
    found = {}
    for chunk in footer_of(file)[4][1][1][0][1][1][1]:
        start, length = range_of_chunk(chunk)
        meta: Struct = chunk[3][1]
        meta |= {number: [I64, meta[number][1] - start] for number in (9, 11) if number in meta}
        found[meta[3][1][1][0].decode()] = Chunk(file[start : start + length], {**chunk, 2: [I64, 0]})
    return found


def range_of_chunk(chunk: Struct) -> tuple[int, int]:
    """Where a column chunk begins, and its length."""
    meta: Any = chunk[3][1]
    start = meta[9][1]
    if 11 in meta and 0 < meta[11][1] < start:
        start = meta[11][1]
    return start, meta[7][1]


class SplicedOutput:
    """A file-like output for Parquet's writer, into which others can put column chunks that the writer does not have.

    The footer is held back until these chunks, and whatever else the writer cannot know, are in it.
    """

    closed = False

    def __init__(self, output: IO[bytes]) -> None:
        self._output, self._at = output, 0
        self._held: bytearray | None = None
        self._groups: list[tuple[int, dict[bytes, Struct]]] = []

    def write(self, data: bytes) -> int:
        if self._held is None:
            self._at += len(data)
            return self._output.write(data)
        self._held += data
        return len(data)

    def flush(self) -> None:
        """The output's owner flushes it."""

    def put(self, chunks: Mapping[str, Chunk]) -> None:
        """Put column chunks before the row group that is written next; its first column must be the first of them.

        parquet-java assigns a row group to a split by the offset of its first column.
        """
        before, placed = self._groups[-1][0] if self._groups else 0, {}
        start = self._at
        for name, chunk in chunks.items():
            placed[name.encode()] = chunk.placed(self._at, name)
            self._output.write(chunk.data)
            self._at += len(chunk.data)
        self._groups.append((before + self._at - start, placed))

    def hold(self) -> None:
        """From now on nothing is written, until `release`."""
        self._held = bytearray()

    def release(self, schema: pa.Schema, without: Set[tuple[int, str]]) -> memoryview:
        """Write what was held, which is the footer, with the chunks that were put, and return it. `schema`: all columns of the
        file; `without`: chunks, by row group and column, whose bounds are not written.
        """
        held = whole = memoryview(bytes(self._held or b""))
        if self._groups or without:
            footer = footer_of(held)
            if self._groups:
                _splice(footer, schema, self._groups)
                held = whole = _framed(footer, held)
            if without:
                _drop_bounds_of(footer, without)
                held = _framed(footer, held)
        self._output.write(held)
        return whole


def _framed(footer: Struct, before: memoryview) -> memoryview:
    """The footer as it stands at the end of a file, with the magic number of `before`."""
    data = encoded(footer)
    return memoryview(data + _TAIL.pack(len(data), bytes(before[-4:])))


def _splice(footer: Struct, schema: pa.Schema, groups: Sequence[tuple[int, dict[bytes, Struct]]]) -> None:
    """Give a footer all columns of the schema; `groups`: for each row group how far it was moved, and the chunks it lacks."""
    sink = pa.BufferOutputStream()
    pq.write_metadata(schema, sink)
    whole = footer_of(memoryview(sink.getvalue()))
    for number in (2, 7):  # the schema, and the orders of its columns
        footer[number] = whole[number]
    for group, (moved, put) in zip(footer[4][1][1], groups, strict=True):
        there: dict[bytes, list[Struct]] = {name: [chunk] for name, chunk in put.items()}
        for chunk in group[1][1][1]:
            meta = chunk[3][1]
            for number in (9, 11):
                if number in meta:
                    meta[number][1] += moved
            there.setdefault(meta[3][1][1][0], []).append(chunk)
        group[1][1][1] = [chunk for name in schema.names for chunk in there[name.encode()]]
        for number, of_chunk in ((2, 6), (6, 7)):
            group[number] = [I64, group[number][1] + sum(chunk[3][1][of_chunk][1] for chunk in put.values())]
        group[5] = [I64, range_of_chunk(group[1][1][1][0])[0]]


def _drop_bounds_of(footer: Struct, chunks: Set[tuple[int, str]]) -> None:
    for number, group in enumerate(footer[4][1][1]):
        for chunk in group[1][1][1]:
            meta = chunk[3][1]
            path = b".".join(meta[3][1][1]).decode()
            if (number, path) in chunks and 12 in meta:
                drop_bounds(meta[12][1])


def drop_bounds(statistics: Struct) -> None:
    """Remove all bounds of a column chunk or page, and what is said of them."""
    for field in (*BOUNDS, *_EXACTNESS):
        statistics.pop(field, None)


DYNAMIC, SIMPLE = "DYNAMIC_V0", "SIMPLE"

_HEADER = struct.Struct(">iibi")
_GROWTH = struct.Struct(">iii")
_VERSION, _MURMUR = -1, 1
_CHUNK = 32768
_FEW_LENGTHS = 32
_MAX_BITS = 2**31 - 1

_M = np.uint32(0x5BD1E995)
_R13, _R15, _R24 = np.uint32(13), np.uint32(15), np.uint32(24)
_LITTLE = np.dtype("<u4")


@dataclass(frozen=True)
class BloomFilter:
    """A set of keys that never forgets one: `might_contain` is False only for keys that were not added.

    `rows` are its bit vectors (one byte per bit, 0 or 1); a key is in the set when any of them has all its bits.
    """

    hashes: int
    size_bits: int
    capacity: int
    keys: int
    rows: tuple[np.ndarray[Any, np.dtype[np.uint8]], ...]

    @classmethod
    def of(
        cls, keys: Sequence[pa.Array], *, entries: int, fpp: float, most_entries: int = 2**31 - 1, quick: bool = False
    ) -> BloomFilter:
        """A filter of string arrays with room for `entries` keys or as many as there are, whichever is more.

        Beyond `most_entries` keys it does not grow any more, and errs more often than `fpp`. A `quick` one has fewer hashes and
        slightly more bits than Java's.
        """
        capacity = max(entries, min(sum(map(len, keys)), most_entries), 1)
        hashes, size = quick_dimensions(capacity, fpp) if quick else dimensions(capacity, fpp)
        return cls(hashes, size, capacity, 0, (np.zeros(size, np.uint8),)).with_keys(keys)

    def with_keys(self, keys: Sequence[pa.Array]) -> BloomFilter:
        """With these keys as well; the arrays of this one are used for it. Of filters of one row only."""
        (bits,) = self.rows
        for array in keys:
            for _, positions in bit_positions(array, self.hashes, self.size_bits):
                for row in positions:
                    bits[row] = 1
        return replace(self, keys=self.keys + sum(map(len, keys)))

    def serves(self, more: int, rows: int, *, entries: int, fpp: float, most_entries: int = 2**31 - 1) -> bool:
        """Whether the filter, with so many keys `more`, can be that of a file of so many `rows`, in place of a new `quick` one.

        It can if it is large enough, but for a tenth, and most of its keys are those of the rows.
        """
        wanted = max(entries, min(self.keys + more, most_entries), 1)
        quick = len(self.rows) == 1 and (self.hashes, self.size_bits) == quick_dimensions(self.capacity, fpp)
        return quick and wanted <= 1.1 * self.capacity and (self.keys + more <= max(2 * rows, entries))

    @classmethod
    def parse(cls, text: str | bytes, kind: str = DYNAMIC, source: str = "the footer") -> BloomFilter:
        """A filter as it stands in a footer; one of a kind or hash that is not known raises `CorruptTableError`."""
        try:
            data = base64.b64decode(text, validate=True)
            return _parse_simple(data) if kind == SIMPLE else _parse_dynamic(data)
        except (binascii.Error, struct.error, ValueError) as error:
            raise CorruptTableError(f"{source} holds a damaged bloom filter: {error}", file=source) from error

    def serialize(self) -> bytes:
        """Hudi's bytes of a dynamic filter; footers hold them in base64."""
        header = _HEADER.pack(_VERSION, self.hashes, _MURMUR, self.size_bits)
        growth = _GROWTH.pack(self.capacity, self.keys, len(self.rows))
        return header + growth + b"".join(header + np.packbits(row, bitorder="little").tobytes() for row in self.rows)

    def to_text(self) -> str:
        return base64.b64encode(self.serialize()).decode("ascii")

    def might_contain(self, keys: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each key of a string array whether it may be in the set."""
        found = np.zeros(len(keys), np.bool_)
        for where, positions in bit_positions(keys, self.hashes, self.size_bits):
            hashed = [each.copy() for each in positions]
            for row in self.rows:
                present = np.ones(len(where), np.bool_)
                for position in hashed:
                    present &= row[position].view(np.bool_)
                found[where] |= present
        return found


def dimensions(capacity: int, fpp: float) -> tuple[int, int]:
    """The number of hashes and of bits for `capacity` keys at the false-positive rate `fpp`, as Hudi computes them."""
    size = math.ceil(capacity * -math.log(fpp) / math.log(2) ** 2)
    return max(1, math.ceil(-math.log(fpp) / math.log(2))), min(size, _MAX_BITS)


def quick_dimensions(capacity: int, fpp: float) -> tuple[int, int]:
    """The same with as few hashes as a tenth more bits allow."""
    most, size = dimensions(capacity, fpp)
    for hashes in range(1, most):
        bits = math.ceil(capacity * -hashes / math.log1p(-(fpp ** (1 / hashes))))
        if bits <= 1.1 * size:
            return hashes, min(bits, _MAX_BITS)
    return most, size


def nominal_error_rate(text: str | bytes, kind: str = DYNAMIC, source: str = "the footer") -> float:
    """The false-positive rate that a filter in a footer was made for, from its first bytes alone."""
    try:
        data = base64.b64decode(text[:36])
        hashes, size = _parse_header(data, 0)
        if kind == SIMPLE:
            return float(2.0**-hashes)
        capacity, _, _ = _GROWTH.unpack_from(data, _HEADER.size)
        return float(-math.expm1(-hashes * max(1, capacity) / size)) ** hashes
    except (binascii.Error, struct.error, ValueError) as error:
        raise CorruptTableError(f"{source} holds a damaged bloom filter: {error}", file=source) from error


def _parse_simple(data: bytes) -> BloomFilter:
    hashes, size, rows = _parse_row(data, 0)
    return BloomFilter(hashes, size, 0, 0, (rows,))


def _parse_dynamic(data: bytes) -> BloomFilter:
    hashes, size = _parse_header(data, 0)
    capacity, keys, count = _GROWTH.unpack_from(data, _HEADER.size)
    start, length = _HEADER.size + _GROWTH.size, _HEADER.size + (size + 7) // 8
    if count < 1 or len(data) != start + count * length:
        raise ValueError(f"{len(data)} bytes do not hold {count} rows of {size} bits")
    rows = []
    for index in range(count):
        of_row = _parse_row(data, start + index * length)
        if of_row[:2] != (hashes, size):
            raise ValueError("its rows differ in size")
        rows.append(of_row[2])
    return BloomFilter(hashes, size, capacity, keys, tuple(rows))


def _parse_row(data: bytes, start: int) -> tuple[int, int, np.ndarray[Any, np.dtype[np.uint8]]]:
    hashes, size = _parse_header(data, start)
    start += _HEADER.size
    packed = np.frombuffer(data, np.uint8, (size + 7) // 8, start)
    return hashes, size, np.unpackbits(packed, bitorder="little")[:size]


def _parse_header(data: bytes, start: int) -> tuple[int, int]:
    version, hashes, kind, size = _HEADER.unpack_from(data, start)
    if version != _VERSION or kind != _MURMUR or not 1 <= hashes <= 1000 or size < 1:
        raise ValueError(f"version {version}, hash {kind}, {hashes} hashes and {size} bits are not Hudi's")
    return hashes, size


def bit_positions(keys: pa.Array, hashes: int, size: int) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Chunks of `keys` of equal length: their indexes, and for each hash their bit positions (valid until the next)."""
    if not len(keys):
        return
    offsets, data = _string_buffers(keys)
    lengths = np.diff(offsets)
    for length, alike in _by_length(lengths):
        for at in range(0, len(alike), _CHUNK):
            where = alike[at : at + _CHUNK]
            yield where, _hash_chain(data, offsets[where], length, hashes, size)


def _by_length(lengths: Any) -> Iterator[tuple[int, Any]]:
    """Each length with the indexes that have it, ascending."""
    if int(lengths.max()) < _FEW_LENGTHS:
        # Several times as fast as sorting them, as long as the lengths are few.
        for length in np.flatnonzero(np.bincount(lengths)).tolist():
            yield length, np.flatnonzero(lengths == length)
        return
    order = np.argsort(lengths, kind="stable")
    values, starts = np.unique(lengths[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=True)


def _string_buffers(keys: pa.Array) -> tuple[Any, Any]:
    if keys.null_count:
        raise ValueError("record keys are never null")
    wide = keys.type in (pa.large_string(), pa.large_binary())
    _, offsets, data = keys.buffers()
    numbers = np.frombuffer(offsets, np.int64 if wide else np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return numbers.astype(np.int64), np.frombuffer(data or b"", np.uint8)


def _hash_chain(data: Any, starts: Any, length: int, hashes: int, size: int) -> Iterator[Any]:
    """For each hash in turn the bit positions of the keys of `length` bytes at `starts`: murmur, each seeds the next."""
    blocks = _blocks(data, starts, length)
    tail = _tail(data, starts, length)
    value, scratch, divided = np.zeros(len(starts), np.uint32), *np.empty((2, len(starts)), np.uint32)
    # As the integers by which arrays are indexed: numpy takes twice as long to convert others while it indexes.
    positions, bits = np.empty(len(starts), np.intp), np.uint32(size)
    for _ in range(hashes):
        value ^= np.uint32(length)
        for block in blocks:
            value *= _M
            value ^= block
        if tail is not None:
            value ^= tail
            value *= _M
        value ^= np.right_shift(value, _R13, out=scratch)
        value *= _M
        value ^= np.right_shift(value, _R15, out=scratch)
        # The remainder of a negative number, then its absolute value, is the remainder of the absolute value. numpy divides
        # by a constant in a third of the time that it takes for a remainder.
        np.abs(value.view(np.int32), out=scratch.view(np.int32))
        np.floor_divide(scratch, bits, out=divided)
        divided *= bits
        np.subtract(scratch, divided, out=positions, casting="unsafe")
        yield positions


def _blocks(data: Any, starts: Any, length: int) -> list[Any]:
    """The whole four-byte blocks of the keys, mixed as far as that does not depend on the seed."""
    if length < 4:
        return []
    # A little-endian word at every byte of the data, so that one gather fetches a block of each key.
    words: Any = np.ndarray(len(data) - 3, _LITTLE, data.data, strides=(1,))
    blocks = []
    for start in range(0, length // 4 * 4, 4):
        block = words[starts + start].astype(np.uint32)
        block *= _M
        block ^= block >> _R24
        block *= _M
        blocks.append(block)
    return blocks


def _tail(data: Any, starts: Any, length: int) -> Any | None:
    """The up to three bytes after the last block: Hadoop takes them from the end of the key, as signed numbers."""
    rest = length % 4
    if not rest:
        return None
    signed = data.view(np.int8)
    tail = np.zeros(len(starts), np.uint32)
    for back, shift in ((1, 0), (2, 8), (3, 16))[:rest]:
        tail ^= signed[starts + (length - back)].astype(np.int32).view(np.uint32) << np.uint32(shift)
    return tail
