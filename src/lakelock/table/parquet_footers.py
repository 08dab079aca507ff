"""Parquet's footers, read and changed as bytes: Thrift's compact protocol, and the bounds that a NaN would falsify.

A struct is a mapping from field id to `[type, value]`, so that unknown fields survive a round trip. Format:
`thrift-compact-protocol.md` of Apache Thrift. Reading damaged bytes raises `ValueError`. A redo reads and writes the
footer of each file that it copies, which takes longer than copying the bytes. So the functions here pass positions
around, look at single bytes as numbers, and treat numbers of one byte apart.

A floating-point column chunk that has a NaN gets no bounds. Parquet passes over NaN when it takes bounds, and to Spark
NaN is greater than any number. Its reader would skip a row group whose greatest number is 2 when it looks for `x > 5`,
and the rows with NaN with it. Files of parquet-java have no usable bounds there either. Parquet's writer for Arrow cannot
leave out the bounds of a single chunk, so they are taken out of the footer.
"""

from __future__ import annotations

import struct
from collections.abc import Set
from typing import IO, Any

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
