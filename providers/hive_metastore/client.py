"""A connection to one of several metastores, with fail-over, a bounded number of rounds, and repeated calls.

Sent again: every call but `lock` (see `repeat`), after a broken connection and after server errors that may be transient.
Not sent again: calls that got an answer such as "no such lock", and calls that the server does not know.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from lakelock.clock import Runtime
from lakelock.errors import LockError, ProviderRefused, ProviderUnavailable
from lakelock.providers.hive_metastore.messages import ServerError, require_thrift
from lakelock.providers.hive_metastore.sasl import log_in, mechanism
from lakelock.providers.hive_metastore.thrift_calls import Calls
from lakelock.providers.hive_metastore.wire import Address, LoginRefused, Wire, WireError
from lakelock.settings.hive_metastore import HiveMetastoreSettings

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
        self._address, self._opened_s, self._connected_before = self._order[0], 0.0, False
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
        lifetime_s = self._settings.socket_lifetime_s
        if lifetime_s and self._runtime.monotonic_s() - self._opened_s >= lifetime_s:
            self._drop()
        if self._calls is None:
            self._calls = self._connect(until_s)
            self._opened_s, self._connected_before = self._runtime.monotonic_s(), True
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
