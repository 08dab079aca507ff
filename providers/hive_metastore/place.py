"""Where a lock in a metastore is: which servers, and under which database and table name.

The metastore compares names byte by byte and builds SQL from them, so they are sent exactly as they are configured, and
what could end a string in SQL is refused.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lakelock.errors import SettingsError
from lakelock.providers.hive_metastore.wire import Address
from lakelock.providers.uri_text import sendable
from lakelock.settings.secrets import masked_uri

DEFAULT_PORT = 9083
OWN_DATABASE = "lakelock"
"""Database of the names that are made here, when none are configured. It need not exist."""

LONGEST_NAME = 128
_NAME = re.compile(r"[A-Za-z0-9_.@$#/:+= -]+")
_HOST = re.compile(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\]")
_SCHEMES = ("hive_metastore", "hive")


@dataclass(frozen=True)
class Place:
    """Servers that share one lock table, and the names of the lock in it."""

    addresses: tuple[Address, ...]
    database: str
    table: str

    @property
    def identity(self) -> str:
        """The lock as a URI that is the same for every order and spelling of the servers."""
        hosts = ",".join(sorted({str(address).lower() for address in self.addresses}))
        return f"hive_metastore://{hosts}/{quote(self.database, safe='')}/{quote(self.table, safe='')}"

    @classmethod
    def of(cls, uri: str, uris: str, table_uri: str) -> Place:
        """The place that `lock.provider` and `hive_metastore.uris` name; names they lack are derived from `table_uri`."""
        rest = sendable(uri).partition(":")[2]
        if "?" in rest or "#" in rest:
            raise _bad("has a part after ? or #", "settings of the client go into the section hive_metastore; write %23 for #")
        hosts, _, path = rest.removeprefix("//").partition("/")
        if "@" in hosts:
            raise _bad("holds a user name", "set hive_metastore.auth, user and password instead")
        if hosts and uris:
            raise _bad("and hive_metastore.uris both name metastores", "leave one of them out")
        addresses = listed(uris) if uris else tuple(_address(each, "lock.provider") for each in _split(hosts))
        if not addresses:
            raise _bad("names no metastore", 'write lock.provider = "hive_metastore://host:9083/database/table"')
        return cls(addresses, *_names(path, table_uri))


def _names(path: str, table_uri: str) -> tuple[str, str]:
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    if not parts:
        # Derived names are lower case: all of lakelock's writers arrive at the same bytes.
        return OWN_DATABASE, "table_" + hashlib.sha256(table_uri.encode()).hexdigest()[:32]
    if len(parts) != 2:
        raise _bad("must end with /database/table, or name neither", "write a / within a name as %2F")
    return checked_name(unquote(parts[0])), checked_name(unquote(parts[1]))


def checked_name(name: str) -> str:
    """`name` unchanged, or `SettingsError` when a metastore cannot store it."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or name != name.strip():
        raise SettingsError(
            f"{name[:LONGEST_NAME]!r} cannot be the name of a lock in a metastore",
            hint=f"1 to {LONGEST_NAME} ASCII letters, digits and _ . - @ $ # / : + =, not quoted",
            key="lock.provider",
        )
    return name


def listed(uris: str, key: str = "hive_metastore.uris") -> tuple[Address, ...]:
    """The servers of a list as Hive has it, in which every entry has a scheme; `key` is the setting that holds it."""
    found = []
    for uri in _split(uris):
        scheme, there, rest = uri.partition("://")
        if not there or scheme.lower() != "thrift":
            raise SettingsError(
                f"{key} holds {_shown(uri)!r}, which does not begin with thrift://",
                hint="write thrift://host:9083,thrift://host2:9083",
                key=key,
            )
        found.append(_address(rest.rstrip("/"), key))
    return tuple(found)


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _address(text: str, key: str) -> Address:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingsError(f"{key} holds {_shown(text)!r}, which is not host:port", hint="write host:9083", key=key)
    return Address(host.strip("[]"), int(port))


def _shown(text: str) -> str:
    return masked_uri(text if "@" not in text else "***@" + text.rpartition("@")[2])


def _bad(what: str, hint: str) -> SettingsError:
    schemes = " or ".join(f"{scheme}:" for scheme in _SCHEMES)
    return SettingsError(f"lock.provider ({schemes}) {what}", hint=hint, key="lock.provider")
