"""Where a ZooKeeper lock is: `zookeeper://host:2181,host:2181/path/of/the/lock`.

The znode of the lock is the path, whatever of it Java calls chroot, base path and lock key. Instead of the whole path:

* `?implicit=true` is the path that Java's ZookeeperBasedImplicitBasePathLockProvider derives from the table's path, and
  `?implicit=true&base_path=/data/t` the same for the spelling of that path that the Java writers use. A path before it is the
  chroot of their connect string, below which they take everything;
* `/base?key=table` is `/base/<name of the table>`, Java's default where a configuration names no lock key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from lakelock.errors import SettingsError
from lakelock.providers.java_names import path_hash, table_name
from lakelock.providers.uri_text import is_host, sendable
from lakelock.storage import Storage

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
