"""From the one line `lock.provider`, or the identity on record, to a provider: built in, or a third party's entry point.

The identity of a lock, which a table has on record, gives the settings that name this lock (`settings_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from lakelock.clock import Runtime
from lakelock.errors import ProviderRefused, SettingsError
from lakelock.events import Events
from lakelock.identity import WriterIdentity
from lakelock.providers.base import LockProvider, Opening, OpenProvider
from lakelock.providers.dynamodb import DynamodbLockProvider
from lakelock.providers.hive_metastore.lock import HiveMetastoreLockProvider
from lakelock.providers.memory import MemoryLockProvider
from lakelock.providers.redis.lock import RedisLockProvider
from lakelock.providers.storage import StorageLockProvider
from lakelock.providers.zookeeper.lock import ZooKeeperLockProvider
from lakelock.storage import Storage

if TYPE_CHECKING:
    from lakelock.settings import Settings


ENTRY_POINTS = "lakelock.lock_providers"

BUILT_IN: dict[str, OpenProvider] = {
    "storage": StorageLockProvider,
    "memory": MemoryLockProvider,
    "dynamodb": DynamodbLockProvider,
    "redis": RedisLockProvider,
    "zookeeper": ZooKeeperLockProvider,
    "hive_metastore": HiveMetastoreLockProvider,
}

_BESIDE_TABLES = ("storage", "memory")
WITHOUT_OPTIONS = (*_BESIDE_TABLES, "hive_metastore")
"""Locks that read no `lock.options`."""

_OTHER_SCHEMES = {"hive": "hive_metastore"} | {
    f"{name}{tls}{kind}": "redis" for name in ("redis", "valkey") for tls in ("", "s") for kind in ("", "+sentinel", "+cluster")
}
"""Schemes that are another name for a provider, or say more than which provider it is."""


def open_provider(
    settings: Settings, storage: Storage, runtime: Runtime, writer: WriterIdentity, events: Events | None = None
) -> LockProvider:
    """The lock of the table in `storage`, by the provider that `lock.provider` names (`storage:`, `memory:`, a URI)."""
    name = provider_name(settings.lock.provider)
    opening = Opening(settings.lock.provider, settings, storage, runtime, writer, events or Events())
    provider = _find(name)(opening)
    if name in _BESIDE_TABLES:
        _ensure_no_place(settings.lock.provider, name, provider.identity)
    return provider


def _ensure_no_place(uri: str, name: str, identity: str) -> None:
    """`SettingsError` for a place of its own; the identity that tables record names none."""
    place = uri.strip().partition(":")[2]
    if place.strip("/") and place != identity.partition(":")[2]:
        where = "next to the table" if name == "storage" else "in this process, one for each table"
        raise SettingsError(
            f"lock.provider has a place after {name}:, but that lock is {where}, and nowhere else",
            hint=f'write lock.provider = "{name}:"',
            key="lock.provider",
        )


def provider_name(uri: str) -> str:
    """The provider that a URI names by its scheme; a bare name is a scheme."""
    scheme = uri.strip().partition(":")[0].lower()
    return _OTHER_SCHEMES.get(scheme, scheme)


def provider_names() -> list[str]:
    """All providers that can be named here, built in first."""
    return [*BUILT_IN, *sorted(entry.name for entry in _installed() if entry.name not in BUILT_IN)]


def _find(name: str) -> OpenProvider:
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in _installed():
        if entry.name == name:
            try:
                factory: OpenProvider = entry.load()
            except ImportError as error:
                raise ProviderRefused(
                    f"the lock provider {name} is installed, but cannot be imported: {error}",
                    hint=f"install what {entry.value} needs",
                ) from error
            return factory
    close = get_close_matches(name, provider_names(), n=1)
    meant = f"did you mean {close[0]}: ? " if close else ""
    raise SettingsError(
        f"there is no lock provider {name!r}",
        hint=f"{meant}available here: {', '.join(f'{known}:' for known in provider_names())}",
        key="lock.provider",
    )


def _installed() -> list[EntryPoint]:
    return list(entry_points(group=ENTRY_POINTS))


def settings_of(identity: str) -> Mapping[str, str]:
    """The settings with which a writer takes the lock that has this identity. What a provider accepts as it is stays so."""
    name = provider_name(identity)
    if name == "dynamodb":
        uri, _, place = identity.partition("?")
        found = dict(parse_qsl(place))
        settings = {"lock.provider": uri} | ({"lock.options.region_name": found["region"]} if "region" in found else {})
        return settings | ({"lock.options.endpoint_url": _url(found["endpoint"])} if "endpoint" in found else {})
    if name == "zookeeper":
        # The path is recorded as it is in ZooKeeper, and unquoted when it is read from a setting.
        return {"lock.provider": identity.replace("%", "%25").replace("?", "%3F")}
    return {"lock.provider": identity}


def as_settings(identity: str) -> str:
    """The same for a hint: `lock.provider to "dynamodb://locks/t", lock.options.region_name to "eu-west-1"`."""
    return ", ".join(f'{key} to "{value}"' for key, value in settings_of(identity).items())


def _url(endpoint: str) -> str:
    """An endpoint that is not AWS's own. The record has no scheme; services with a port of their own rarely speak TLS."""
    port = endpoint.rpartition("]")[2].partition(":")[2]
    return f"{'https' if port in ('', '443') else 'http'}://{endpoint}"
