"""Where Redis is: the URI `lock.provider` taken apart, and put together again without its secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote

from lakelock.errors import SettingsError
from lakelock.providers.uri_text import is_host, sendable
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
