"""One session with ZooKeeper: connecting and requests are bounded, interruptions are noticed, and its end is certain.

Logins are by SASL or a certificate, by kazoo and pure-sasl. `lock.options` are those of kazoo's client, and a few of
ours. The lock is `zookeeper://host:2181,host:2181/path/of/the/lock`. The znode of the lock is the path, whatever of it
Java calls chroot, base path and lock key. Instead of the whole path:

* `?implicit=true` is the path that Java's ZookeeperBasedImplicitBasePathLockProvider derives from the table's path, and
  `?implicit=true&base_path=/data/t` the same for the spelling of that path that the Java writers use. A path before it is the
  chroot of their connect string, below which they take everything;
* `/base?key=table` is `/base/<name of the table>`, Java's default where a configuration names no lock key.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote

from lakelock.clock import Flag, Runtime
from lakelock.errors import LakelockError, ProviderRefused, ProviderUnavailable, SettingsError
from lakelock.providers.connections import (
    is_host,
    path_hash,
    read_options,
    refuse_unused,
    sendable,
    table_name,
    tls_context,
)
from lakelock.settings.fields import LOCK_OPTIONS, Section, setting
from lakelock.storage import Storage

INSTALL = "pip install 'lakelock[zookeeper]'"

_TLS = ("ca", "certfile", "keyfile", "keyfile_password")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI", "PLAIN")
_SASL = ("mechanism", "service", "username", "password", "principal")
_OURS = {
    "hosts": "write them into lock.provider",
    "timeout": "set lock.lease_s",
    "default_acl": f"set {LOCK_OPTIONS}acl",
    **dict.fromkeys(("client_id", "handler", "connection_retry", "command_retry", "logger", "read_only"), "leave it out"),
}


@dataclass(frozen=True)
class ZooKeeperOptions(Section):
    """What lakelock reads of them. `driver` is what kazoo gets as it is, `sasl` its `sasl_options`."""

    section: ClassVar[str] = "lock.options"
    connect_timeout_s: float = setting(
        15.0, "Longest wait for a connection, within lock.wait_s", unit="s", at_least=0.1, at_most=600
    )
    request_timeout_s: float = setting(
        10.0, "A request without an answer for this long has failed", unit="s", at_least=0.1, at_most=600
    )
    acl: str = setting(
        "open",
        "Who may use the nodes that are made for the lock: open, creator (this user), or a list of scheme:id:cdrwa",
        in_repr=False,
    )
    auth_data: str = setting("", "User and password, as digest:user:password", secret=True, in_repr=False)
    use_ssl: bool = setting(False, "Use TLS with the server's secure client port")
    driver: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sasl: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, object]) -> ZooKeeperOptions:
        """The options; `SettingsError` for one that is unknown or does nothing, `ProviderRefused` without kazoo."""
        try:
            from kazoo.client import KazooClient
        except ImportError as error:
            raise ProviderRefused("the lock provider zookeeper: needs kazoo, which is not installed", hint=INSTALL) from error
        own, theirs = read_options(cls, given, "ZooKeeper", KazooClient, reserved=_OURS)
        sasl = theirs.pop("sasl_options", {})
        _check_sasl(sasl)
        if own.auth_data and not (own.auth_data.startswith("digest:") and all(own.auth_data.split(":", 2)[1:])):
            raise _wrong("auth_data", "is not of the form digest:user:password", "write all three, with colons")
        if bool(theirs.get("certfile")) != bool(theirs.get("keyfile")):
            missing = "keyfile" if theirs.get("certfile") else "certfile"
            raise _wrong(missing, "is missing: certfile and keyfile belong together", "give both, or neither")
        if not own.use_ssl:
            why = f"{LOCK_OPTIONS}use_ssl is not: the connection would not be encrypted"
            refuse_unused(given, _TLS, why, instead=f"set {LOCK_OPTIONS}use_ssl = true", key=f"{LOCK_OPTIONS}use_ssl")
        if own.acl == "creator" and not (own.auth_data or sasl or theirs.get("certfile")):
            hint = f"set {LOCK_OPTIONS}auth_data, {LOCK_OPTIONS}sasl_options.mechanism or {LOCK_OPTIONS}certfile"
            raise _wrong("acl", "is creator, but this client does not authenticate", hint)
        if own.use_ssl:
            theirs.setdefault("check_hostname", theirs.get("verify_certs", True))
        return replace(own, driver=theirs, sasl={"service": "zookeeper", **sasl} if sasl else {})


def _check_sasl(sasl: object) -> None:
    """`SettingsError` unless these are kazoo's options for SASL, all that the mechanism needs."""
    if not isinstance(sasl, Mapping):
        raise _wrong("sasl_options", "is no table", f"write {LOCK_OPTIONS}sasl_options.mechanism and what it needs")
    if not sasl:
        return
    unknown = next((name for name in sasl if name not in _SASL), None)
    if unknown is not None:
        raise _wrong(f"sasl_options.{unknown}", "is no option", f"the options are {', '.join(_SASL)}")
    if sasl.get("mechanism") not in _MECHANISMS:
        raise _wrong("sasl_options.mechanism", "names no mechanism", f"set it to one of {', '.join(_MECHANISMS)}")
    if sasl["mechanism"] != "GSSAPI" and not (sasl.get("username") and sasl.get("password")):
        raise _wrong("sasl_options.username", f"and password are needed for {sasl['mechanism']}", "set both")


def _wrong(name: str, what: str, hint: str) -> SettingsError:
    return SettingsError(f"{LOCK_OPTIONS}{name} {what}", hint=hint, key=LOCK_OPTIONS + name)


_KERBEROS = "pip install 'lakelock[kerberos]'; it is compiled, with gcc and Debian's libkrb5-dev"
_NO_KDC = -1765328228  # KRB5_KDC_UNREACH


def sasl_options(options: ZooKeeperOptions) -> dict[str, str]:
    """Kazoo's options; `ProviderRefused` that says how to install what is missing."""
    if find_spec("puresasl") is None:
        raise ProviderRefused("lock.options.sasl_options needs pure-sasl, which is not installed", hint=INSTALL)
    if options.sasl.get("mechanism") == "GSSAPI" and find_spec("kerberos") is None:
        raise ProviderRefused("the package kerberos, which GSSAPI with ZooKeeper needs, is not installed", hint=_KERBEROS)
    return {name: str(value) for name, value in options.sasl.items() if value}


def check_certificates(options: ZooKeeperOptions) -> None:
    """`SettingsError` when a file for TLS cannot be used."""
    tls_context(
        "ZooKeeper",
        ca=str(options.driver.get("ca") or ""),
        certificate=str(options.driver.get("certfile") or ""),
        key=str(options.driver.get("keyfile") or ""),
        password=str(options.driver.get("keyfile_password") or ""),
        hint="check lock.options.ca, certfile, keyfile and keyfile_password: PEM files that this user may read",
        setting="lock.options.use_ssl",
    )


def login_hint(options: ZooKeeperOptions) -> str:
    """What to do when the server does not accept the credentials."""
    if options.sasl.get("mechanism") == "GSSAPI":
        return "run `kinit` (`klist` shows the current ticket), and see service and principal in lock.options.sasl_options"
    return "see lock.options.sasl_options and lock.options.auth_data"


def with_kerberos_errors(connect: Callable[..., Any], options: ZooKeeperOptions, errors: Any) -> Callable[..., Any]:
    """`connect` with Kerberos' errors turned into kazoo's `errors`: an unreachable KDC is tried again, all else is final.

    Left alone, an error at the beginning ends kazoo's thread, and any later one counts as a refusal.
    """
    if options.sasl.get("mechanism") != "GSSAPI":
        return connect
    failed: type[Exception] = import_module("kerberos").GSSError

    def connected(*where: object) -> Any:
        try:
            return connect(*where)
        except (failed, errors.AuthFailedError) as error:
            cause = error if isinstance(error, failed) else error.__cause__
            away = str(_NO_KDC) in str(cause)
            raise (errors.ConnectionDropped if away else errors.AuthFailedError)(f"Kerberos: {cause}") from error

    return connected


SCHEME = "zookeeper"
FORM = "zookeeper://host1:2181,host2:2181/path/of/the/lock"

_PORT = 2181
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?").fullmatch
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


@dataclass(frozen=True)
class Place:
    """The servers (`host:port`, sorted) and the znode of one lock."""

    hosts: tuple[str, ...]
    path: str

    @property
    def identity(self) -> str:
        """The same for every spelling of the same servers and path."""
        return f"{SCHEME}://{','.join(self.hosts)}{self.path}"


def parse_place(uri: str, storage: Storage) -> Place:
    """The place that `lock.provider` names for the table in `storage`; `SettingsError` that never shows a credential."""
    rest, _, query = sendable(uri).partition("?")
    scheme, found, rest = rest.partition("://")
    servers, _, path = rest.partition("/")
    if not found or scheme.lower() != SCHEME or not servers:
        raise _bad("names no servers")
    if "@" in servers:
        hint = "put digest:user:password into lock.options.auth_data"
        raise _bad("holds credentials, which would be recorded in the table", hint)
    hosts = tuple(sorted({_host(server) for server in servers.split(",")}))
    options = dict(parse_qsl(query, keep_blank_values=True))
    path = _checked(unquote(path))
    if options.get("implicit", "").lower() == "true" and set(options) <= {"implicit", "base_path"}:
        return Place(hosts, path + _implicit(options.get("base_path") or _base_path(storage)))
    if options == {"key": "table"}:
        return Place(hosts, f"{path}/{_table_name(storage)}")
    if options:
        raise _bad(
            f"has options that are not known: {', '.join(sorted(options))}", "known: implicit=true, base_path, key=table"
        )
    if not path:
        raise _bad("has no path for the lock")
    return Place(hosts, path)


def _host(server: str) -> str:
    found = _HOST(server.strip())
    if found is None or not is_host(found[1]) or not 0 < int(found[2] or _PORT) < 65_536:
        raise _bad(f"has a server that is not host:port: {server.strip()!r}")
    return f"{found[1].lower()}:{found[2] or _PORT}"


def _checked(path: str) -> str:
    path = path.strip("/")
    if not path:
        return ""
    if _CONTROL.search(path) or any(part in ("", ".", "..") for part in path.split("/")) or path.split("/")[0] == SCHEME:
        raise _bad(f"has a path that ZooKeeper does not allow: {path!r}")
    return f"/{path}"


def _base_path(storage: Storage) -> str:
    if storage.uri.startswith("file:"):
        raise _bad(
            "has implicit=true for a local table, whose path Java writers spell in several ways that give several locks",
            "add the spelling of your Java writers: ?implicit=true&base_path=/data/tbl",
        )
    return storage.uri


def _implicit(base_path: str) -> str:
    if base_path.endswith("/"):
        raise _bad(
            "has a base_path that ends with a slash, for which Java Hudi 1.2.0 and 1.2.1 take different locks",
            "leave the slash out, in the configuration of the Java writers too",
        )
    if base_path.startswith("s3a:"):
        base_path = "s3:" + base_path[len("s3a:") :]
    return f"/tmp/{path_hash(base_path)}/lock_key"


def _table_name(storage: Storage) -> str:
    name = table_name(storage)
    if not name:
        raise _bad("has key=table, but the table has no name that could be read", "write the lock key as the end of the path")
    return name


def _bad(what: str, hint: str = "") -> SettingsError:
    return SettingsError(f"lock.provider {what}", hint=hint or f"write it as {FORM}", key="lock.provider")


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

    `epoch` goes up when it ended (and another one began), `interruptions` whenever the connection was lost. A caller that reads
    a number before asking and finds it unchanged after the answer knows that the answer is from that session or connection.
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
        self._client.handler.spawn(self._finish, last, self.epoch, done)
        done.wait(wait_s)

    def keep_trying(self, action: Callable[[], object]) -> None:
        """Try `action` in the background until it succeeds or the session and its nodes are gone."""
        epoch = self.epoch

        def persist() -> None:
            while self.epoch == epoch and not self._ending and not self._did(action):
                self._runtime.sleep(_LOOK_AGAIN_S)

        self._client.handler.spawn(persist)

    def _finish(self, last: tuple[Callable[[], object], ...], epoch: int, done: Flag) -> None:
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
                # kazoo will not connect again: wake the waiters, and let the next one start a new session.
                self._ending, self._ended = True, True
                self._up.set()

    def _learn_time_out(self) -> None:
        """The server may grant a different time-out than was asked for; kazoo does not show it, and keeps two thirds of it."""
        connection = self._client._connection
        connect = with_kerberos_errors(connection._connect, self._given, self._kazoo.exceptions)

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
        """kazoo logs whole requests at DEBUG, even with passwords; below it also the session's password, and its end."""
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
