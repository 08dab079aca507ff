"""A client of one of several metastores: the calls that a lock needs, as thrift sends them, with fail-over and repeated calls.

Sent again, in a bounded number of rounds: every call but `lock` (see `repeat`), after a broken connection and after
server errors that may be transient. Not sent again: calls that got an answer such as "no such lock", and calls that the
server does not know.

Messages are written by hand on the package `thrift`. Answers describe themselves on the wire, so one reader serves all
versions of Hive, and field numbers are the same from Hive 1.3 to Hive 4.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lakelock.clock import Runtime
from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable
from lakelock.providers.hive_metastore.connection import (
    LONGEST_MESSAGE,
    Address,
    LoginRefused,
    Wire,
    WireError,
    log_in,
    mechanism,
)
from lakelock.settings.sections import HiveMetastoreSettings

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


EXCLUSIVE = 3
_TABLE_LEVEL, _UNSET_OPERATION = 2, 5
ACQUIRED, WAITING, ABORTED = 1, 2, 3

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


class Calls(Messages):
    """The calls of a lock over one connection."""

    def call(self, name: str, arguments: Fields, throws: Mapping[int, str] | None = None) -> object:
        return super().call(name, arguments, _THROWS.get(name, {}) if throws is None else throws)

    def set_ugi(self, user: str) -> None:
        self.call("set_ugi", ((1, STRING, user), (2, LIST, (STRING, []))))

    def get_config_value(self, name: str, default: str) -> str:
        return str(self.call("get_config_value", ((1, STRING, name), (2, STRING, default))))

    def get_delegation_token(self, owner: str, renewer: str) -> str:
        """A token for `hive_metastore.delegation_token`; only over a connection that Kerberos logged in."""
        return str(self.call("get_delegation_token", ((1, STRING, owner), (2, STRING, renewer))))

    def lock(self, database: str, table: str, *, user: str, host: str, agent: str) -> LockAnswer:
        """Ask for an exclusive lock on the table, in Java Hudi's bytes. Twice makes two."""
        names = (3, STRING, database), (4, STRING, table)
        component = (1, I32, EXCLUSIVE), (2, I32, _TABLE_LEVEL), *names, (6, I32, _UNSET_OPERATION)
        request = (1, LIST, (STRUCT, [component])), (3, STRING, user), (4, STRING, host), (5, STRING, agent)
        return _lock_answer(self.call("lock", ((1, STRUCT, request),)))

    def check_lock(self, lock_id: int) -> LockAnswer:
        return _lock_answer(self.call("check_lock", ((1, STRUCT, ((1, I64, lock_id),)),)))

    def heartbeat(self, lock_id: int) -> None:
        self.call("heartbeat", ((1, STRUCT, ((1, I64, lock_id), (2, I64, 0))),))

    def unlock(self, lock_id: int) -> None:
        self.call("unlock", ((1, STRUCT, ((1, I64, lock_id),)),))

    def show_locks(self, database: str, table: str) -> list[LockRow]:
        """All requests for this table, waiting ones too, by id."""
        answer = self.call("show_locks", ((1, STRUCT, ((1, STRING, database), (2, STRING, table))),))
        rows = [_row(each) for each in get(answer, 1, list, [])]
        return sorted((row for row in rows if (row.database, row.table) == (database, table)), key=lambda row: row.lock_id)


def _lock_answer(fields: object) -> LockAnswer:
    return LockAnswer(get(fields, 1, int), get(fields, 2, int))


def _row(fields: object) -> LockRow:
    def text(number: int) -> str:
        found: str = get(fields, number, str, "")
        return found

    def count(number: int) -> int:
        found: int = get(fields, number, int, 0)
        return found

    table, partition = text(3) or None, text(4) or None
    return LockRow(
        get(fields, 1, int), text(2), table, partition, count(5), count(6), count(8), count(9), text(10), text(11), text(13)
    )


T = TypeVar("T")


class MetastoreClient:
    """One connection at a time, used by one thread at a time, opened when it is needed. A forked child opens its own."""

    def __init__(
        self,
        runtime: Runtime,
        settings: HiveMetastoreSettings,
        addresses: Sequence[Address],
        user: str,
        warn: Callable[[str], None],
    ) -> None:
        require_thrift()
        self._runtime, self._settings, self._user, self._warn = runtime, settings, settings.user or user, warn
        self._order = list(addresses)
        if settings.uri_selection == "random":
            self._order.sort(key=lambda _: runtime.random())
        self._calls: Calls | None = None
        self._address, self._connected_before = self._order[0], False
        self._pid, self._mutex = os.getpid(), runtime.mutex()

    def call(self, ask: Callable[[Calls], T], *, within_s: float, repeat: bool = True) -> T:
        """What `ask` returns; connects and repeats as needed, within `within_s` seconds.

        `ServerError` for an answer that says no; `ProviderUnavailable` when there was no answer, or none that means
        anything. The call may have happened then.
        """
        self._notice_fork()
        with self._mutex:
            until_s = self._runtime.monotonic_s() + within_s
            for left in reversed(range(1 + (self._settings.failure_retries if repeat else 0))):
                calls = self._connected(until_s)
                try:
                    # A connection that falls silent must leave time for another one.
                    return self._ask(calls, ask, self._runtime.monotonic_s() + self._left_s(until_s) / (left + 1))
                except ServerError as error:
                    if not error.again:
                        raise
                    failure: Exception = error
                except WireError as error:
                    failure = error
                self._drop()
                if not left or self._left_s(until_s) <= 0:
                    break
                self._runtime.sleep(min(self._settings.failure_delay_s, self._left_s(until_s)))
            raise self._no_answer(failure)

    def close(self) -> None:
        """Let go of the connection; the next call opens another."""
        self._notice_fork()
        with self._mutex:
            self._drop()

    def _ask(self, calls: Calls, ask: Callable[[Calls], T], until_s: float) -> T:
        calls.wire.until_s = min(until_s, self._runtime.monotonic_s() + self._settings.socket_timeout_s)
        try:
            return ask(calls)
        except ServerError:
            raise
        except BaseException:
            # An answer may still arrive, and would be taken for that of the next call.
            self._drop()
            raise

    def _connected(self, until_s: float) -> Calls:
        if self._calls is None:
            self._calls = self._connect(until_s)
            self._connected_before = True
        return self._calls

    def _connect(self, until_s: float) -> Calls:
        """Try every metastore in turn, for the configured number of rounds; the last error is the one reported."""
        self._promote_another()
        failure: Exception | None = None
        for number in range(self._settings.connect_rounds):
            if number:
                self._runtime.sleep(min(self._settings.connect_delay_s, self._left_s(until_s)))
            refused = 0
            for position, address in enumerate(self._order):
                # The first one always gets a chance; a silent one leaves time for those after it.
                if failure is not None and self._left_s(until_s) <= 0:
                    raise self._unreachable(failure)
                share_s = self._left_s(until_s) / (len(self._order) - position)
                try:
                    return self._open(address, self._runtime.monotonic_s() + min(share_s, self._settings.socket_timeout_s))
                except (WireError, LoginRefused) as error:
                    self._address, failure = address, error
                    refused += isinstance(error, LoginRefused)
            if refused == len(self._order):
                break
        assert failure is not None
        raise self._unreachable(failure)

    def _open(self, address: Address, until_s: float) -> Calls:
        wire = Wire.connect(self._runtime, address, self._settings, until_s)
        try:
            way = mechanism(self._settings, self._user, address.host, self._runtime)
            if way is not None:
                log_in(wire, way)
            else:
                wire.framed = self._settings.transport == "framed"
            calls = Calls(wire, self._settings.protocol)
            if way is None and self._settings.set_ugi:
                try:
                    calls.set_ugi(self._user)
                except ServerError as error:
                    self._warn(f"the metastore {address} did not accept the user's name: {error}")
        except BaseException:
            wire.close()
            raise
        self._address = address
        return calls

    def _promote_another(self) -> None:
        """Reconnect to a different metastore than the one that failed, where any will do."""
        if self._connected_before and self._settings.uri_selection == "random" and len(self._order) > 1:
            other = 1 + int(self._runtime.random() * (len(self._order) - 1))
            self._order[0], self._order[other] = self._order[other], self._order[0]

    def _drop(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            with suppress(OSError):
                calls.wire.close()

    def _left_s(self, until_s: float) -> float:
        return max(0.0, until_s - self._runtime.monotonic_s())

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid, self._mutex = os.getpid(), self._runtime.mutex()
            self._drop()

    def _no_answer(self, failure: Exception) -> ProviderUnavailable:
        if isinstance(failure, ServerError):
            return ProviderUnavailable(
                f"the metastore {self._address} failed: {failure}",
                hint="its own log says why; the tables of its lock manager (hive-txn-schema) must be there",
            )
        return ProviderUnavailable(
            f"the metastore {self._address} gave no answer: {failure}",
            hint=f"check that the metastore on {self._address} is healthy",
        )

    def _unreachable(self, failure: Exception) -> LockError:
        if isinstance(failure, LoginRefused):
            return ProviderRefused(
                f"the metastore {self._address} refused the log-in: {failure}",
                hint=failure.hint,
            )
        names = ", ".join(map(str, sorted(self._order, key=str)))
        return ProviderUnavailable(
            f"could not connect to a metastore ({names}); the last error, of {self._address}: {failure}",
            hint="check the hosts and ports, that a metastore runs there, and hive_metastore.transport, protocol, auth and tls",
        )
