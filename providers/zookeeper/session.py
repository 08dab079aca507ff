"""One session with ZooKeeper: connecting and requests are bounded, interruptions are noticed, and its end is certain."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakelock.clock import Flag, Runtime
from lakelock.errors import LakelockError, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.zookeeper.login import check_certificates, login_hint, sasl_options, understood
from lakelock.providers.zookeeper.options import ZooKeeperOptions
from lakelock.providers.zookeeper.place import Place

NO_CONNECTION = "no connection"
_LIMIT = (
    "; a server hangs up without a word on an address that has maxClientCnxns connections (60 by default): each open table of "
    "each process has one, so close those that are no longer used, or raise it"
)
_LONGEST_RECONNECT_PAUSE_S = 0.5
_LOOK_AGAIN_S = 0.05
_SHORTEST_GREETING_S = 2.0
_PERMISSIONS = {"c": "create", "d": "delete", "r": "read", "w": "write", "a": "admin"}

Request = Callable[[Any], Any]
"""A request: takes kazoo's client, returns one of its asynchronous results."""


@dataclass(frozen=True)
class Sight:
    """What is remembered before a request is sent, so that its answer is not taken for more than it says."""

    epoch: int
    interruptions: int
    began_s: float


class ZooKeeperSession:
    """A session holds the locks. It outlives lost connections, until the service has not heard from it for its time-out.

    `epoch` goes up when it ended (and another one began), `interruptions` whenever the connection was lost. Whoever reads a
    number before asking and finds it unchanged after the answer knows that the answer is from that session or connection.
    """

    def __init__(self, place: Place, options: ZooKeeperOptions, timeout_s: float, runtime: Runtime) -> None:
        self.id, self.epoch, self.interruptions, self.timeout_s = 0, 0, 0, timeout_s
        self._place, self._given, self._runtime = place, options, runtime
        self._up, self._ending, self._ended, self._refused = runtime.flag(), False, False, False
        self._kazoo = _kazoo()
        self.acl = _acl(options.acl, self._kazoo)
        self._client = self._kazoo.client.KazooClient(**self._options(timeout_s))
        self._learn_time_out()
        self._bound_greetings()
        self._client.add_listener(self._changed)
        self._client.start_async()

    @property
    def is_connected(self) -> bool:
        return self._up.is_set() and not self._ended

    @property
    def is_over(self) -> bool:
        """Whether it is of no further use, so a new one is needed."""
        return self._ending

    def sight(self) -> Sight:
        """The present state, to be taken before a request."""
        return Sight(self.epoch, self.interruptions, self._runtime.monotonic_s())

    def wait_connected(self, at_most_s: float) -> bool:
        """Wait until there is a connection; False when there is none by then. `ProviderRefused` when we were turned away."""
        there = self._up.wait(max(0.0, at_most_s))
        if self._refused:
            raise self._turned_away()
        return there and not self._ended

    def ask(self, within_s: float, *requests: Request) -> list[Any]:
        """The answers to all `requests`, sent back to back; None where the answer is that there is no such node.

        Raises `ProviderUnavailable` when one may not have happened, `ProviderRefused` when one is not allowed.
        """
        until_s = self._runtime.monotonic_s() + within_s
        if not self.wait_connected(within_s):
            raise self.unreachable(NO_CONNECTION)
        results = [request(self._client) for request in requests]
        # The last one first: answers come in order, and each wait costs a switch of threads.
        answers = [self._answer(result, until_s) for result in reversed(results)]
        return answers[::-1]

    def end(self, *last: Callable[[], object], wait_s: float = 0.0) -> None:
        """End the session, so that its nodes vanish: at once if the service hears us, after its time-out otherwise.

        `last` is tried first, in the background, repeatedly for as long as the session can live. Never raises.
        """
        if self._ending:
            return
        self._ending, self._ended = True, not last
        self.epoch += 1
        done = self._runtime.flag()
        self._client.handler.spawn(self._wind_up, last, self.epoch, done)
        done.wait(wait_s)

    def pursue(self, action: Callable[[], object]) -> None:
        """Try `action` in the background until it succeeds or the session and its nodes are gone."""
        epoch = self.epoch

        def persist() -> None:
            while self.epoch == epoch and not self._ending and not self._did(action):
                self._runtime.sleep(_LOOK_AGAIN_S)

        self._client.handler.spawn(persist)

    def _wind_up(self, last: tuple[Callable[[], object], ...], epoch: int, done: Flag) -> None:
        try:
            until_s = self._runtime.monotonic_s() + self.timeout_s
            for action in last:
                while not self._did(action) and self.epoch == epoch and self._runtime.monotonic_s() < until_s:
                    self._runtime.sleep(_LOOK_AGAIN_S)
            self._ended = True
            with suppress(Exception):
                self._client.stop()
                self._client.close()
        finally:
            done.set()

    def _did(self, action: Callable[[], object]) -> bool:
        try:
            action()
        except ProviderUnavailable:
            return False
        except LakelockError:
            return True
        return True

    def _answer(self, result: Any, until_s: float) -> Any:
        errors = self._kazoo.exceptions
        try:
            return result.get(timeout=max(0.0, until_s - self._runtime.monotonic_s()))
        except errors.NoNodeError:
            return None
        except errors.NoAuthError as error:
            raise ProviderRefused(
                f"this user may not use the node {self._place.path} in ZooKeeper",
                hint="the lock needs the permissions create, delete and read there, and create above where it is missing: "
                "see lock.options.auth_data, lock.options.sasl_options and lock.options.acl",
            ) from error
        except errors.InvalidACLError as error:
            raise SettingsError(
                "ZooKeeper does not accept lock.options.acl",
                hint="creator needs an authenticated user; other entries are scheme:id:cdrwa",
                key="lock.options.acl",
            ) from error
        except (errors.AuthFailedError, errors.SessionClosedRequireSaslError) as error:
            raise self._turned_away() from error
        except (errors.KazooException, self._client.handler.timeout_exception) as error:
            raise self.unreachable(type(error).__name__) from error

    def _turned_away(self) -> ProviderRefused:
        return ProviderRefused(
            f"ZooKeeper at {','.join(self._place.hosts)} does not accept the credentials of this client",
            hint=login_hint(self._given),
        )

    def unreachable(self, why: str) -> ProviderUnavailable:
        """The error that says so."""
        return ProviderUnavailable(
            f"ZooKeeper at {','.join(self._place.hosts)} gave no answer ({why})",
            hint="check that it runs and can be reached from here, and lock.options.use_ssl if it speaks TLS; "
            f"`echo ruok | nc HOST PORT` asks a server{_LIMIT if why == NO_CONNECTION else ''}",
        )

    def _changed(self, state: str) -> None:
        """kazoo reports each change from its connection's thread, before it reads the next answer."""
        states = self._kazoo.client.KazooState
        if state == states.CONNECTED:
            client_id = self._client.client_id
            self.id = client_id[0] if client_id else 0
            self._up.set()
            return
        self.interruptions += 1
        if self._up.is_set():
            self._up = self._runtime.flag()
        if state == states.LOST:
            self.epoch += 1
            keeper = self._kazoo.client.KeeperState
            self._refused = self._client.client_state == keeper.AUTH_FAILED
            if self._refused or self._client.client_state == keeper.CLOSED:
                # kazoo will not connect again: wake whoever waits, and let the next one start a new session.
                self._ending, self._ended = True, True
                self._up.set()

    def _learn_time_out(self) -> None:
        """The server may grant a different time-out than was asked for; kazoo does not show it, and keeps two thirds of it."""
        connection = self._client._connection
        connect = understood(connection._connect, self._given, self._kazoo.exceptions)

        def connected(*where: object) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*where)
            self.timeout_s = read_timeout_ms * 1.5 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connected

    def _bound_greetings(self) -> None:
        """Give a server a third of the session to answer a new connection; kazoo gives it the whole session.

        A server that is just starting may lose the request. The next one must then still find the session, and its lock, alive.
        """
        connection, longest_s = self._client._connection, max(_SHORTEST_GREETING_S, self.timeout_s / 3)
        greet = connection._invoke
        connection._invoke = lambda timeout, *request, **more: greet(min(timeout, longest_s), *request, **more)

    def _logger(self) -> logging.Logger:
        logger = logging.Logger("lakelock.zookeeper.session")  # noqa: LOG001 - it goes with the session
        logger.parent = logging.getLogger("lakelock.zookeeper")
        logger.addFilter(self._may_be_logged)
        return logger

    def _may_be_logged(self, record: logging.LogRecord) -> bool:
        """kazoo logs whole requests at DEBUG, even with passwords; below it also the session's password, and farewells."""
        arguments = record.args if isinstance(record.args, tuple) else ()
        is_secret = record.levelno < logging.DEBUG or any(type(one).__name__ in ("Auth", "SASL") for one in arguments)
        return not is_secret and not self._ending

    def _options(self, timeout_s: float) -> dict[str, Any]:
        given = self._given
        handler = self._kazoo.handlers.threading.SequentialThreadingHandler()
        connect, longest_s = handler.create_connection, given.connect_timeout_s / len(self._place.hosts)
        # kazoo gives a server that does not answer a whole session time-out before it tries the next one.
        handler.create_connection = lambda *where, timeout, **how: connect(*where, timeout=min(timeout, longest_s), **how)
        options: dict[str, Any] = {
            **given.driver,
            "handler": handler,
            "hosts": ",".join(self._place.hosts),
            "timeout": timeout_s,
            "default_acl": self.acl,
            "connection_retry": {"max_tries": -1, "delay": 0.02, "max_delay": _LONGEST_RECONNECT_PAUSE_S},
            "logger": self._logger(),
        }
        if given.auth_data:
            options["auth_data"] = [tuple(given.auth_data.split(":", 1))]
        if given.sasl:
            options["sasl_options"] = sasl_options(given)
        if given.use_ssl:
            options["use_ssl"] = True
        return options


def check_driver(options: ZooKeeperOptions) -> None:
    """Raise at once the errors that waiting cannot cure: options that cannot be understood."""
    _acl(options.acl, _kazoo())
    if options.sasl:
        sasl_options(options)
    if options.use_ssl:
        check_certificates(options)


def _kazoo() -> Any:
    import kazoo.client
    import kazoo.exceptions
    import kazoo.handlers.threading
    import kazoo.security

    return kazoo


def _acl(text: str, kazoo: Any) -> list[Any]:
    security = kazoo.security
    if text.strip().lower() in ("", "open"):
        return list(security.OPEN_ACL_UNSAFE)
    if text.strip().lower() == "creator":
        return list(security.CREATOR_ALL_ACL)
    entries = []
    for entry in text.split(","):
        scheme, _, rest = entry.strip().partition(":")
        who, colon, permissions = rest.rpartition(":")
        if not (scheme and who and colon and permissions) or not set(permissions) <= set(_PERMISSIONS):
            raise SettingsError(
                "lock.options.acl is not open, creator, or a list of scheme:id:permissions",
                hint="for example: sasl:spark:cdrwa,world:anyone:r",
                key="lock.options.acl",
            )
        entries.append(security.make_acl(scheme, who, **{_PERMISSIONS[letter]: True for letter in permissions}))
    return entries
