"""The handful of metastore calls that a lock needs, in thrift, written by hand on the package `thrift`.

Field numbers are the same from Hive 1.3 to Hive 4. Answers describe themselves on the wire, so one reader serves all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakelock.errors import ProviderRefused
from lakelock.providers.hive_metastore.wire import LONGEST_MESSAGE, Wire, WireError

_BOOL, _BYTE, _DOUBLE, _I16, _I32, _I64, _STRING, _STRUCT, _MAP, _SET, _LIST = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15
_CALL, _REPLY, _EXCEPTION = 1, 2, 3

SHARED_READ, EXCLUSIVE = 1, 3
_TABLE_LEVEL, _PARTITION_LEVEL, _UNSET_OPERATION = 2, 3, 5
ACQUIRED, WAITING, ABORTED, NOT_ACQUIRED = 1, 2, 3, 4

_DEEPEST = 8
_UNSENDABLE = frozenset({1, 3, 8, 9, 10})
"""Errors of a server that does not know the call or the way it was sent: sending it again would not help."""

_THROWS: Mapping[str, Mapping[int, str]] = {
    "set_ugi": {1: "MetaException"},
    "get_config_value": {1: "ConfigValSecurityException"},
    "get_delegation_token": {1: "MetaException"},
    "lock": {1: "NoSuchTxnException", 2: "TxnAbortedException"},
    "check_lock": {1: "NoSuchTxnException", 2: "TxnAbortedException", 3: "NoSuchLockException"},
    "heartbeat": {1: "NoSuchLockException", 2: "NoSuchTxnException", 3: "TxnAbortedException"},
    "unlock": {1: "NoSuchLockException", 2: "TxnOpenException"},
    "show_locks": {},
}

Fields = tuple[tuple[int, int, Any], ...]
"""A struct to send: number, wire type and value of each field; of a list, a pair of element type and elements."""


Part = tuple[int, str | None]
"""The kind of a lock, and the partition that it is for; None: the table itself, which in Hive overlaps all its partitions."""


class ServerError(Exception):
    """The metastore answered with an exception: `name` is its class; `again` tells whether repeating the call may help."""

    def __init__(self, name: str, text: str, *, again: bool = False) -> None:
        super().__init__(f"{name}: {text}" if text else name)
        self.name, self.again = name, again


@dataclass(frozen=True)
class LockAnswer:
    """The id of a lock request, and whether it is granted."""

    lock_id: int
    state: int


@dataclass(frozen=True)
class LockRow:
    """One request in the metastore's lock table. `heartbeat_ms` is by the clock of the metastore's database."""

    lock_id: int
    database: str
    table: str | None
    partition: str | None
    state: int
    kind: int
    heartbeat_ms: int
    acquired_ms: int
    user: str
    host: str
    agent: str


def require_thrift() -> None:
    """`ProviderRefused` that says how to install it, when the package `thrift` is missing."""
    try:
        import thrift.protocol  # noqa: F401
    except ImportError as error:
        raise ProviderRefused(
            "the package thrift, which the lock in a Hive metastore needs, is not installed",
            hint="pip install 'lakelock[hive-metastore]'",
        ) from error


class Calls:
    """The calls over one connection; any error but `ServerError` is a `WireError`, and leaves the connection useless."""

    def __init__(self, wire: Wire, protocol: Literal["binary", "compact"]) -> None:
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.protocol.TCompactProtocol import TCompactProtocol

        self.wire = wire
        limits = {"string_length_limit": LONGEST_MESSAGE, "container_length_limit": LONGEST_MESSAGE}
        kind = TCompactProtocol if protocol == "compact" else TBinaryProtocol
        self._protocol: Any = kind(wire, **limits)
        self._number = 0

    def set_ugi(self, user: str) -> None:
        self.call("set_ugi", ((1, _STRING, user), (2, _LIST, (_STRING, []))))

    def get_config_value(self, name: str, default: str) -> str:
        return str(self.call("get_config_value", ((1, _STRING, name), (2, _STRING, default))))

    def get_delegation_token(self, owner: str, renewer: str) -> str:
        """A token for `hive_metastore.delegation_token`; only over a connection that Kerberos logged in."""
        return str(self.call("get_delegation_token", ((1, _STRING, owner), (2, _STRING, renewer))))

    def lock(
        self, database: str, table: str, *, user: str, host: str, agent: str, parts: Sequence[Part] = ((EXCLUSIVE, None),)
    ) -> LockAnswer:
        """Ask for all these locks in a table; an EXCLUSIVE one on the table itself in Java Hudi's bytes. Twice makes two."""
        components = [_component(database, table, *part) for part in parts]
        request = (1, _LIST, (_STRUCT, components)), (3, _STRING, user), (4, _STRING, host), (5, _STRING, agent)
        return _lock_answer(self.call("lock", ((1, _STRUCT, request),)))

    def check_lock(self, lock_id: int) -> LockAnswer:
        return _lock_answer(self.call("check_lock", ((1, _STRUCT, ((1, _I64, lock_id),)),)))

    def heartbeat(self, lock_id: int) -> None:
        self.call("heartbeat", ((1, _STRUCT, ((1, _I64, lock_id), (2, _I64, 0))),))

    def unlock(self, lock_id: int) -> None:
        self.call("unlock", ((1, _STRUCT, ((1, _I64, lock_id),)),))

    def show_locks(self, database: str, table: str) -> list[LockRow]:
        """All requests for this table, waiting ones too, by id."""
        answer = self.call("show_locks", ((1, _STRUCT, ((1, _STRING, database), (2, _STRING, table))),))
        rows = [_row(each) for each in _get(answer, 1, list, [])]
        return sorted((row for row in rows if (row.database, row.table) == (database, table)), key=lambda row: row.lock_id)

    def call(self, name: str, arguments: Fields) -> object:
        from thrift.Thrift import TException

        try:
            return self._answer(name, self._ask(name, arguments))
        except (TException, AssertionError, EOFError, LookupError, TypeError, ValueError) as error:
            raise WireError(f"the answer to {name} cannot be read ({error or type(error).__name__})") from error

    def _ask(self, name: str, arguments: Fields) -> int:
        self._number += 1
        self._protocol.writeMessageBegin(name, _CALL, self._number)
        self._write_struct(arguments)
        self._protocol.writeMessageEnd()
        self.wire.flush()
        return self._number

    def _answer(self, name: str, number: int) -> object:
        answered, kind, answered_number = self._protocol.readMessageBegin()
        if kind not in (_REPLY, _EXCEPTION) or answered_number != number or (kind == _REPLY and answered != name):
            raise WireError(f"the answer to {name} belongs to another call")
        fields = self._read_struct(0)
        self._protocol.readMessageEnd()
        if kind == _EXCEPTION:
            code = _get(fields, 2, int, 0)
            raise ServerError("TApplicationException", _get(fields, 1, str, ""), again=code not in _UNSENDABLE)
        for field, thrown in _THROWS[name].items():
            if field in fields:
                raise ServerError(thrown, _get(fields[field], 1, str, ""))
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
        if kind == _STRUCT:
            self._write_struct(value)
        elif kind == _LIST:
            element, elements = value
            self._protocol.writeListBegin(element, len(elements))
            for each in elements:
                self._write(element, each)
            self._protocol.writeListEnd()
        elif kind == _STRING:
            self._protocol.writeString(value)
        elif kind == _I32:
            self._protocol.writeI32(value)
        else:
            self._protocol.writeI64(value)

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
        if kind == _STRUCT:
            return self._read_struct(depth + 1)
        if kind == _STRING:
            return self._protocol.readString()
        if kind in (_LIST, _SET):
            element, size = self._protocol.readListBegin()
            elements = [self._read(element, depth + 1) for _ in range(size)]
            self._protocol.readListEnd()
            return elements
        if kind == _MAP:
            key, value, size = self._protocol.readMapBegin()
            pairs = {self._read(key, depth + 1): self._read(value, depth + 1) for _ in range(size)}
            self._protocol.readMapEnd()
            return pairs
        readers = {
            _BOOL: self._protocol.readBool,
            _BYTE: self._protocol.readByte,
            _DOUBLE: self._protocol.readDouble,
            _I16: self._protocol.readI16,
            _I32: self._protocol.readI32,
            _I64: self._protocol.readI64,
        }
        return readers[kind]()


def _get(fields: object, number: int, kind: type, default: Any = None) -> Any:
    """One field of a struct that was read; `WireError` when it is of another type, or missing without a default."""
    value = fields.get(number, default) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise WireError(f"an answer has no field {number} of type {kind.__name__}")
    return value


def _lock_answer(fields: object) -> LockAnswer:
    return LockAnswer(_get(fields, 1, int), _get(fields, 2, int))


def _component(database: str, table: str, kind: int, partition: str | None) -> Fields:
    level = _TABLE_LEVEL if partition is None else _PARTITION_LEVEL
    where = () if partition is None else ((5, _STRING, partition),)
    names = (3, _STRING, database), (4, _STRING, table), *where
    return (1, _I32, kind), (2, _I32, level), *names, (6, _I32, _UNSET_OPERATION)


def _row(fields: object) -> LockRow:
    def text(number: int) -> str:
        found: str = _get(fields, number, str, "")
        return found

    def count(number: int) -> int:
        found: int = _get(fields, number, int, 0)
        return found

    table, partition = text(3) or None, text(4) or None
    return LockRow(
        _get(fields, 1, int), text(2), table, partition, count(5), count(6), count(8), count(9), text(10), text(11), text(13)
    )
