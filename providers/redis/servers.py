"""Which server has the lock now: that of the URI, the primary that Sentinels know, or the owner of the key in a cluster.

It is looked up for each new connection, because it may have moved. redis-py's own searches have no bound as a whole, and the
errors of some of its versions show passwords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused
from lakelock.providers.redis.address import Kind, RedisAddress
from lakelock.providers.redis.options import RedisOptions

Host = tuple[str, int]

_SHORTEST_S = 0.001
_MOST_SHOWN = 200
_REFUSED = ("NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "ERR ")
_DOWN = {b"s_down", b"o_down"}
_OTHER_KIND: dict[Kind, str] = {"cluster": "cluster support disabled", "sentinel": "unknown command"}
"""What a server of another kind says when it is asked."""


class Servers:
    """Connects to the server that has the lock of one key. Used by one thread at a time."""

    def __init__(
        self, driver: Any, address: RedisAddress, options: RedisOptions, key: str, runtime: Runtime, timeout_s: float
    ) -> None:
        self._driver, self._address, self._options, self._runtime = driver, address, options, runtime
        self._key, self._timeout_s, self._hosts = key, timeout_s, list(address.hosts)
        self._user = {
            "username": address.username or options.driver.get("username") or None,
            "password": address.password or options.driver.get("password") or None,
        }

    def connect(self, within_s: float) -> Any:
        """A connection of redis-py to that server, or the driver's error: a server that is silent takes a share of the time."""
        until_s = self._runtime.monotonic_s() + within_s
        host = self._find(until_s)
        return self._open(host, until_s - self._runtime.monotonic_s(), db=self._address.db, **self._user)

    def _find(self, until_s: float) -> Host:
        if self._address.kind == "server":
            return self._hosts[0]
        search = self._primary if self._address.kind == "sentinel" else self._owner
        errors: list[Exception] = []
        said: list[str] = []
        for position, host in enumerate(tuple(self._hosts)):
            # A silent one leaves time for those after it, and for the server that they name.
            left_s = until_s - self._runtime.monotonic_s()
            if errors and left_s <= 0:
                break
            try:
                found = search(host, left_s / (len(self._hosts) - position + 1))
            except (self._driver.exceptions.RedisError, OSError) as error:
                errors.append(error)
                said.append(f"{_text(host)}: {str(error)[:_MOST_SHOWN] or type(error).__name__}")
                continue
            if found is not None:
                self._hosts.insert(0, self._hosts.pop(position))
                return found
            said.append(f"{_text(host)} knows none")
        if len(errors) == len(self._hosts) and all(is_refusal(self._driver, error) for error in errors):
            raise errors[-1]
        nobody = f"no Sentinel knows a primary of {self._address.service!r} that is up"
        if self._address.kind == "cluster":
            nobody = "no server of the cluster knows who has the key"
        raise self._driver.exceptions.ConnectionError(f"{nobody} ({'; '.join(said)})")

    def _primary(self, host: Host, within_s: float) -> Host | None:
        """The primary that the Sentinel at `host` knows, unless it is down."""
        user = {
            "username": self._options.sentinel_username or None,
            "password": self._options.sentinel_password or None,
        }

        def primary(answer: Any) -> Host | None:
            for row in answer:
                state = dict(zip(row[::2], row[1::2], strict=True))
                flags = set(state[b"flags"].split(b","))
                if state[b"name"].decode() == self._address.service and b"master" in flags and not flags & _DOWN:
                    return state[b"ip"].decode(), int(state[b"port"])
            return None

        return self._ask(host, ("SENTINEL", "MASTERS"), primary, within_s, user)

    def _owner(self, host: Host, within_s: float) -> Host | None:
        """The server with the key, as the one at `host` knows the cluster."""
        slot = self._driver.crc.key_slot(self._key.encode())

        def owner(answer: Any) -> Host | None:
            for first, last, (name, port, *_), *_ in answer:
                if first <= slot <= last:
                    return (name or b"").decode() or host[0], int(port)
            return None

        return self._ask(host, ("CLUSTER", "SLOTS"), owner, within_s, self._user)

    def _ask(
        self, host: Host, command: tuple[str, ...], read: Callable[[Any], Host | None], within_s: float, user: dict[str, Any]
    ) -> Host | None:
        """What `read` finds in the answer of one server, on a connection for this one question. It may be of another kind."""
        connection = self._open(host, within_s, **user)
        try:
            connection.send_command(*command, check_health=False)
            return read(connection.read_response())
        except self._driver.exceptions.ResponseError as error:
            kind = self._address.kind
            if _OTHER_KIND[kind] not in str(error):
                raise
            raise ProviderRefused(
                f"Redis at {_text(host)} is no {kind}: {error}",
                hint=f"name a {kind} in lock.provider, or write redis:// or rediss:// there for a single server",
            ) from error
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._driver.exceptions.InvalidResponse(f"its answer to {' '.join(command)} is not Redis's") from error
        finally:
            connection.disconnect()

    def _open(self, host: Host, within_s: float, **options: Any) -> Any:
        within_s = max(_SHORTEST_S, within_s)
        tls = self._address.tls
        given = {name: value for name, value in self._options.driver.items() if tls or not name.startswith("ssl_")}
        # Connecting includes some requests and answers; this bounds each of them.
        options = (
            given
            | options
            | {
                "host": host[0],
                "port": host[1],
                "socket_timeout": min(self._timeout_s, within_s),
                "socket_connect_timeout": min(self._options.socket_connect_timeout, within_s),
                "socket_keepalive": True,
                "retry": self._driver.retry.Retry(self._driver.backoff.NoBackoff(), 0),
                "client_name": "lakelock",
                "protocol": 2,
            }
        )
        connection = (self._driver.SSLConnection if tls else self._driver.Connection)(**options)
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection


def is_refusal(driver: Any, error: Exception) -> bool:
    """Whether the server will say no again, however often it is asked."""
    errors = driver.exceptions
    if isinstance(error, (errors.AuthenticationError, errors.NoPermissionError)):
        return True
    return type(error) is errors.ResponseError and str(error).startswith(_REFUSED)


def _text(host: Host) -> str:
    return f"{host[0]}:{host[1]}"
