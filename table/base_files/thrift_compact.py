"""Thrift's compact protocol without a schema, for Parquet's footers and page headers.

A struct is a mapping from field id to `[type, value]`, so that fields which nobody here knows survive a round trip. Format:
`thrift-compact-protocol.md` of Apache Thrift. Reading damaged bytes raises `ValueError`.
"""

from __future__ import annotations

from typing import Any

BOOL_TRUE, BOOL_FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)

Struct = dict[int, list[Any]]
"""Field id to `[type, value]`. Lists are `[type of the elements, values]`; a boolean field has its value in its type."""

_DEEPEST = 32


class Reader:
    """Reads structs from `data`, beginning at `at`, which moves on."""

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self._data, self.at, self._depth = data, at, 0

    def struct(self) -> Struct:
        """The struct that begins here."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("thrift: structs too deep")
        fields: Struct = {}
        number = 0
        while head := self._take(1)[0]:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = [head & 15, self._value(head & 15)]
        self._depth -= 1
        return fields

    def _value(self, kind: int, *, in_list: bool = False) -> Any:
        if kind in (BOOL_TRUE, BOOL_FALSE):
            return self._take(1)[0] if in_list else kind
        if kind == BYTE:
            return self._take(1)[0]
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == DOUBLE:
            return self._take(8)
        if kind == BINARY:
            return self._take(self._varint())
        if kind in (LIST, SET):
            head = self._take(1)[0]
            size = head >> 4 if head >> 4 != 15 else self._varint()
            return [head & 15, [self._value(head & 15, in_list=True) for _ in range(size)]]
        if kind == STRUCT:
            return self.struct()
        raise ValueError(f"thrift: type {kind} does not occur in Parquet's headers")

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._take(1)[0]
            result |= (byte & 127) << shift
            if byte < 128:
                return result
            shift += 7
            if shift > 63:
                raise ValueError("thrift: a number of too many bytes")

    def _zigzag(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._data):
            raise ValueError("thrift: past the end")
        taken = bytes(self._data[self.at : end])
        self.at = end
        return taken


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
        if kind not in (BOOL_TRUE, BOOL_FALSE):
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in (BOOL_TRUE, BOOL_FALSE, BYTE):
        out.append(value)
    elif kind in (I16, I32, I64):
        _put_zigzag(out, value)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind in (LIST, SET):
        element, items = value
        if len(items) < 15:
            out.append(len(items) << 4 | element)
        else:
            out.append(0xF0 | element)
            _put_varint(out, len(items))
        for item in items:
            _put(out, element, item)
    else:
        _put_struct(out, value)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _put_zigzag(out: bytearray, number: int) -> None:
    _put_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
