"""Where Redis is: the URI `lock.provider` and its `lock.options`, and the server that has the lock now.

That server is the one of the URI, the primary that Sentinels know, or the owner of the key in a cluster. It is looked up
for each new connection, because it may have moved. redis-py's own searches have no bound as a whole, and the errors of
some of its versions show passwords. A URI is put together again without its secrets. The options are those of redis-py's
connections, and a few of ours.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, unquote

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused, SettingsError
from lakelock.providers.connections import is_host, read_options, refuse_unused, sendable, tls_context
from lakelock.settings.fields import LOCK_OPTIONS, Section, setting
from lakelock.settings.secrets import masked_uri

Kind = Literal["server", "sentinel", "cluster"]

_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("server", False),
    "rediss": ("server", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_EXAMPLES: dict[Kind, str] = {
    "server": "redis://host:6379/0",
    "sentinel": "redis+sentinel://host1:26379,host2:26379/service/0",
    "cluster": "redis+cluster://host1:6379,host2:6379",
}
_MOST_DIGITS = 9
_PARAMETERS = re.compile(r"\w+=")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True)
class RedisAddress:
    """Servers, database and key. `service` is the name that the Sentinels know; `key` is empty for the table's own."""

    kind: Kind
    tls: bool
    hosts: tuple[tuple[str, int], ...]
    service: str = ""
    db: int = 0
    key: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, uri: str) -> RedisAddress:
        """The address that `uri` names; `SettingsError` shows what is wrong with it, without passwords."""
        scheme, _, rest = sendable(uri).partition(":")
        scheme = scheme.lower().replace("valkey", "redis", 1)
        if scheme not in _SCHEMES:
            raise _bad(uri, "server", "is not the URI of a Redis or Valkey server")
        kind, tls = _SCHEMES[scheme]
        place, _, query = rest.removeprefix("//").partition("?")
        authority, _, path = place.partition("/")
        if "@" in path or ("@" in query and not _PARAMETERS.match(query)):
            raise _unquoted(uri)
        user_info, _, hosts = authority.rpartition("@")
        username, _, password = user_info.partition(":")
        if not rest.startswith("//") or not hosts:
            raise _bad(uri, kind, "names no host")
        if kind == "server" and "," in hosts:
            raise _bad(uri, kind, "names several servers, and a lock is in one: name one, the Sentinels or a cluster")
        names = [unquote(name) for name in path.split("/") if name]
        service = _service(uri, kind, names)
        return cls(
            kind,
            tls,
            tuple(_host(uri, kind, host) for host in hosts.split(",")),
            service,
            _db(uri, kind, names[1:] if service else names),
            _key(uri, kind, query),
            unquote(username),
            unquote(password),
        )

    def identity(self, key: str) -> str:
        """The same lock as a URI in its one spelling, without user and password."""
        scheme = next(name for name, known in _SCHEMES.items() if known == (self.kind, self.tls))
        hosts = ",".join(sorted(f"{host.lower()}:{port}" for host, port in self.hosts))
        path = "/".join([quote(self.service, safe="")] * bool(self.service) + [str(self.db)])
        return f"{scheme}://{hosts}/{path}?key={quote(key, safe='/:')}"

    @property
    def place(self) -> str:
        """The servers, for messages."""
        return ", ".join(f"{host}:{port}" for host, port in self.hosts)


def _host(uri: str, kind: Kind, text: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text.strip())
    port = int(found[2] or _PORTS[kind]) if found else 0
    if found is None or not is_host(found[1]) or not 0 < port < 65536:
        raise _bad(uri, kind, f"has {text!r} where host:port belongs")
    return found[1], port


def _service(uri: str, kind: Kind, names: list[str]) -> str:
    if kind != "sentinel":
        return ""
    if not names:
        raise _bad(uri, kind, "does not name the service that the Sentinels know")
    return names[0]


def _db(uri: str, kind: Kind, names: list[str]) -> int:
    if not names:
        return 0
    if len(names) > 1 or not names[0].isdecimal() or len(names[0]) > _MOST_DIGITS:
        raise _bad(uri, kind, f"has {'/'.join(names)!r} where the number of a database belongs")
    if kind == "cluster" and int(names[0]):
        raise _bad(uri, kind, "names a database, but a cluster has only 0")
    return int(names[0])


def _key(uri: str, kind: Kind, query: str) -> str:
    values = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(values) - {"key"})
    if unknown:
        raise _bad(uri, kind, f"has the parameter {unknown[0]}; only key is known, everything else is a setting redis.*")
    key = values.get("key", "")
    if "{" in key or "}" in key:
        raise _bad(uri, kind, "has a brace in its key, and braces say where a cluster keeps a key")
    return key


def _unquoted(uri: str) -> SettingsError:
    return SettingsError(
        f"{masked_uri(uri)} has a / or ? in its user or password, where the address would end",
        hint="write / ? # @ and : of a password as %2F %3F %23 %40 and %3A, or set lock.options.password",
        key="lock.provider",
    )


def _bad(uri: str, kind: Kind, what: str) -> SettingsError:
    return SettingsError(f"{masked_uri(uri)} {what}", hint=f"write it like {_EXAMPLES[kind]}?key=name", key="lock.provider")


_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password")
_SENTINEL = ("sentinel_username", "sentinel_password")
_IN_URI = dict.fromkeys(("host", "port", "db"), "write it into lock.provider")
_OURS = dict.fromkeys(
    ("client_name", "decode_responses", "encoding", "protocol", "retry", "retry_on_error", "retry_on_timeout"), "leave it out"
)


@dataclass(frozen=True)
class RedisOptions(Section):
    """What lakelock reads of them. `driver` is what only redis-py reads."""

    section: ClassVar[str] = "lock.options"
    socket_timeout: float = setting(
        2.0, "How long one request may take, at most a third of the lease", unit="s", at_least=0.05, at_most=60
    )
    socket_connect_timeout: float = setting(2.0, "How long connecting may take", unit="s", at_least=0.05, at_most=60)
    wait_replicas: int = setting(
        0, "How many replicas must have a grant or renewal before it counts (WAIT)", at_least=0, at_most=100
    )
    sentinel_username: str = setting("", "ACL user of the Sentinels")
    sentinel_password: str = setting("", "Password of the Sentinels", secret=True, in_repr=False)
    driver: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, given: Mapping[str, object], address: RedisAddress) -> RedisOptions:
        """The options for a lock at `address`; `SettingsError` for one that is unknown, or that does nothing there."""
        driver = redis_driver()
        own, theirs = read_options(cls, given, "Redis", driver.SSLConnection, driver.Connection, reserved={**_IN_URI, **_OURS})
        if not address.tls:
            hint = "write lock.provider with rediss:"
            for_tls = tuple(name for name in given if name.startswith("ssl_"))
            refuse_unused(given, for_tls, "lock.provider does not use TLS", instead=hint, key="lock.provider")
        if address.kind != "sentinel":
            hint = "write lock.provider with redis+sentinel:"
            refuse_unused(given, _SENTINEL, "lock.provider names no Sentinels", instead=hint, key="lock.provider")
        if bool(theirs.get("ssl_certfile")) != bool(theirs.get("ssl_keyfile")):
            raise SettingsError(
                f"{LOCK_OPTIONS}ssl_certfile and {LOCK_OPTIONS}ssl_keyfile go together, and only one of them is set",
                hint="set both, or neither",
                key=f"{LOCK_OPTIONS}ssl_certfile",
            )
        if address.tls:
            _check_certificates(theirs)
        if theirs.get("ssl_min_version"):
            theirs["ssl_min_version"] = _tls_version(theirs["ssl_min_version"])
        return replace(own, driver=theirs)


def redis_driver() -> Any:
    """redis-py, without its types: they cover only part of it."""
    try:
        import redis
    except ImportError as error:
        raise ProviderRefused(
            "the lock in Redis needs the package redis, which is not installed",
            hint="pip install 'lakelock[redis]'",
        ) from error
    return redis


def _check_certificates(options: Mapping[str, Any]) -> None:
    """`SettingsError` when a file for TLS cannot be used."""
    ca, certificate, key, password = (str(options.get(name) or "") for name in _TLS)
    tls_context(
        "Redis",
        ca=ca,
        certificate=certificate,
        key=key,
        password=password,
        hint=f"check {', '.join(LOCK_OPTIONS + name for name in _TLS)}: PEM files that this user may read",
        setting=f"{LOCK_OPTIONS}ssl_certfile",
    )


def _tls_version(given: object) -> ssl.TLSVersion:
    """The version that an option names, by the name or the number of Python's `ssl.TLSVersion`; `SettingsError` for others."""
    try:
        name = str(given).replace(".", "_")
        return ssl.TLSVersion(int(name)) if name.isdecimal() else ssl.TLSVersion[name]
    except (KeyError, ValueError):
        raise SettingsError(
            f"{LOCK_OPTIONS}ssl_min_version is {given!r}, which is no version of TLS",
            hint="write TLSv1_2 or TLSv1_3",
            key=f"{LOCK_OPTIONS}ssl_min_version",
        ) from None


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
        none = f"no Sentinel knows a primary of {self._address.service!r} that is up"
        if self._address.kind == "cluster":
            none = "no server of the cluster knows who has the key"
        raise self._driver.exceptions.ConnectionError(f"{none} ({'; '.join(said)})")

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
        try:
            connection = (self._driver.SSLConnection if tls else self._driver.Connection)(**options)
            try:
                connection.connect()
            except BaseException:
                connection.disconnect()
                raise
        except (TypeError, AttributeError) as error:
            raise ProviderRefused(
                f"redis-py cannot use the options of the lock: {error}",
                hint=f"check {', '.join(LOCK_OPTIONS + name for name in self._options.driver)}",
            ) from error
        return connection


def is_refusal(driver: Any, error: Exception) -> bool:
    """Whether the server will say no again, however often it is asked."""
    errors = driver.exceptions
    if isinstance(error, (errors.AuthenticationError, errors.NoPermissionError)):
        return True
    return type(error) is errors.ResponseError and str(error).startswith(_REFUSED)


def _text(host: Host) -> str:
    return f"{host[0]}:{host[1]}"
