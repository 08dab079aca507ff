"""Writers whose locks are in one metastore, in this process and in others, for the tests of the provider."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from tests.api import Event, Events, Lease, LockProvider, MemoryStorage, SystemRuntime, WriterIdentity, open_provider
from tests.servers.locks.metastore_proxy import MetastoreProxy, metastore_proxy
from tests.tuning import settings_of

from lakelock.providers.hive_metastore.client import Calls, LockRow
from lakelock.providers.hive_metastore.connection import Address, Wire
from lakelock.settings.sections import HiveMetastoreSettings
from lakelock.testing.service import LOOPBACK, Service

LEASE_S = 1.5

_numbers = count(1)


@dataclass
class World:
    """One table with a lock of its own, and any number of writers."""

    uri: str
    database: str = "lakelock_test"
    table: str = ""
    host: str = LOOPBACK
    runtime: SystemRuntime = field(default_factory=SystemRuntime)
    seen: list[Event] = field(default_factory=list)
    opened: list[LockProvider] = field(default_factory=list)

    def writer(self, name: str, lease_s: float = LEASE_S, uri: str = "", **client: object) -> LockProvider:
        options = {"lock.provider": uri or self.uri, "lock.lease_s": lease_s, "lock.renew_s": lease_s / 3}
        options |= {f"hive_metastore.{key}": value for key, value in client.items()}
        identity = WriterIdentity.of_this_process(self.runtime, name)
        storage = MemoryStorage(self.runtime.now_ms, name=self.table)
        settings = settings_of(options)
        provider = open_provider(settings, storage, self.runtime, identity, Events((self.seen.append,)))
        self.opened.append(provider)
        return provider

    def calls(self, port: int) -> Calls:
        """A bare client, as another program would be one."""
        until_s = self.runtime.monotonic_s() + 60
        return Calls(Wire.connect(self.runtime, Address(self.host, port), HiveMetastoreSettings(), until_s), "binary")

    def rows(self, port: int) -> list[LockRow]:
        return self.calls(port).show_locks(self.database, self.table)


@contextmanager
def new_world(metastore: Service) -> Iterator[World]:
    """A table that no other test has, whose writers are closed at the end."""
    table = f"table_{os.getpid()}_{next(_numbers)}"
    world = World(metastore.url(table), table=table, host=metastore.host)
    yield world
    for provider in world.opened:
        provider.close()


@contextmanager
def proxied(metastore: Service, world: World) -> Iterator[MetastoreProxy]:
    """A proxy between the metastore and whoever opens `world.uri` from now on."""
    with metastore_proxy(metastore.port, metastore.host) as proxy:
        world.uri = metastore.through(proxy.port, {"uri": world.uri})["uri"]
        yield proxy


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
