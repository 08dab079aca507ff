"""Calls to a metastore as thrift sends them, and the structs in them: written by hand on the package `thrift`.

Answers describe themselves on the wire, so one reader serves all versions of Hive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from lakelock.errors import ProviderRefused
from lakelock.providers.hive_metastore.wire import LONGEST_MESSAGE, Wire, WireError

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
"""Thrift's numbers of the types of fields."""

_CALL, _REPLY, _EXCEPTION = 1, 2, 3
_DEEPEST = 8
UNKNOWN_CALL = 1
_UNSENDABLE = frozenset({UNKNOWN_CALL, 3, 8, 9, 10})
"""Errors of a server that does not know the call or the way it was sent: sending it again would not help."""

Fields = tuple[tuple[int, int, Any], ...]
"""A struct to send: number, type and value of each field; of a list, a pair of element type and elements; of a map of texts, a
dictionary.
"""


class ServerError(Exception):
    """The metastore answered with an exception: `name` is its class; `again` tells whether repeating the call may help.

    `unknown` tells whether the metastore does not have the call at all.
    """

    def __init__(self, name: str, text: str, *, again: bool = False, unknown: bool = False) -> None:
        super().__init__(f"{name}: {text}" if text else name)
        self.name, self.again, self.unknown = name, again, unknown


def require_thrift() -> None:
    """`ProviderRefused` that says how to install it, when the package `thrift` is missing."""
    try:
        import thrift.protocol  # noqa: F401
    except ImportError as error:
        raise ProviderRefused(
            "the package thrift, which a Hive metastore needs, is not installed",
            hint="pip install 'lakelock[hive-metastore]'",
        ) from error


class Messages:
    """Calls over one connection; any error but `ServerError` is a `WireError`, and leaves the connection useless."""

    def __init__(self, wire: Wire, protocol: Literal["binary", "compact"]) -> None:
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.protocol.TCompactProtocol import TCompactProtocol

        self.wire = wire
        limits = {"string_length_limit": LONGEST_MESSAGE, "container_length_limit": LONGEST_MESSAGE}
        kind = TCompactProtocol if protocol == "compact" else TBinaryProtocol
        self._protocol: Any = kind(wire, **limits)
        self._number = 0

    def call(self, name: str, arguments: Fields, throws: Mapping[int, str] | None = None) -> object:
        """What the metastore answers, None if nothing; `throws`: its declared exceptions by the number of their field."""
        from thrift.Thrift import TException

        try:
            return self._answer(name, self._ask(name, arguments), throws or {})
        except (TException, AssertionError, EOFError, LookupError, TypeError, ValueError) as error:
            raise WireError(f"the answer to {name} cannot be read ({error or type(error).__name__})") from error

    def _ask(self, name: str, arguments: Fields) -> int:
        self._number += 1
        self._protocol.writeMessageBegin(name, _CALL, self._number)
        self._write_struct(arguments)
        self._protocol.writeMessageEnd()
        self.wire.flush()
        return self._number

    def _answer(self, name: str, number: int, throws: Mapping[int, str]) -> object:
        answered, kind, answered_number = self._protocol.readMessageBegin()
        if kind not in (_REPLY, _EXCEPTION) or answered_number != number or (kind == _REPLY and answered != name):
            raise WireError(f"the answer to {name} belongs to another call")
        fields = self._read_struct(0)
        self._protocol.readMessageEnd()
        if kind == _EXCEPTION:
            code = get(fields, 2, int, 0)
            text = get(fields, 1, str, "")
            raise ServerError("TApplicationException", text, again=code not in _UNSENDABLE, unknown=code == UNKNOWN_CALL)
        for field, thrown in throws.items():
            if field in fields:
                raise ServerError(thrown, get(fields[field], 1, str, ""))
        return fields.get(0)

    def _write_struct(self, fields: Fields) -> None:
        self._protocol.writeStructBegin("")
        for number, kind, value in fields:
            self._protocol.writeFieldBegin("", kind, number)
            self._write(kind, value)
            self._protocol.writeFieldEnd()
        self._protocol.writeFieldStop()
        self._protocol.writeStructEnd()

    def _write(self, kind: int, value: Any) -> None:
        if kind == STRUCT:
            self._write_struct(value)
        elif kind == LIST:
            element, elements = value
            self._protocol.writeListBegin(element, len(elements))
            for each in elements:
                self._write(element, each)
            self._protocol.writeListEnd()
        elif kind == STRING:
            self._protocol.writeString(value)
        elif kind == MAP:
            self._protocol.writeMapBegin(STRING, STRING, len(value))
            for key, text in value.items():
                self._protocol.writeString(key)
                self._protocol.writeString(text)
            self._protocol.writeMapEnd()
        else:
            writers = {
                BOOL: self._protocol.writeBool,
                I16: self._protocol.writeI16,
                I32: self._protocol.writeI32,
                I64: self._protocol.writeI64,
            }
            writers[kind](value)

    def _read_struct(self, depth: int) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise WireError("an answer is nested too deeply")
        found: dict[int, Any] = {}
        self._protocol.readStructBegin()
        while True:
            _, kind, number = self._protocol.readFieldBegin()
            if kind == 0:
                break
            found[number] = self._read(kind, depth)
            self._protocol.readFieldEnd()
        self._protocol.readStructEnd()
        return found

    def _read(self, kind: int, depth: int) -> Any:
        if kind == STRUCT:
            return self._read_struct(depth + 1)
        if kind == STRING:
            return self._protocol.readString()
        if kind in (LIST, SET):
            element, size = self._protocol.readListBegin()
            elements = [self._read(element, depth + 1) for _ in range(size)]
            self._protocol.readListEnd()
            return elements
        if kind == MAP:
            key, value, size = self._protocol.readMapBegin()
            pairs = {self._read(key, depth + 1): self._read(value, depth + 1) for _ in range(size)}
            self._protocol.readMapEnd()
            return pairs
        readers = {
            BOOL: self._protocol.readBool,
            BYTE: self._protocol.readByte,
            DOUBLE: self._protocol.readDouble,
            I16: self._protocol.readI16,
            I32: self._protocol.readI32,
            I64: self._protocol.readI64,
        }
        return readers[kind]()


def get(fields: object, number: int, kind: type, default: Any = None) -> Any:
    """One field of a struct that was read; `WireError` when it is of another type, or missing without a default."""
    value = fields.get(number, default) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise WireError(f"an answer has no field {number} of type {kind.__name__}")
    return value
