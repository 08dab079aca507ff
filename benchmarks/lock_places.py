"""The lock services that run for a measurement, and writers of one table there, each as a process of its own would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from tests.servers import S3_OPTIONS, SERVICES, Service, containers, s3_server
from tests.servers.locks.hive_metastore import PATIENT_URL, hive_metastore_server

from benchmarks.lock_clients import LEASE_MS
from lakelock.clock import SystemRuntime
from lakelock.identity import WriterIdentity
from lakelock.providers import LockProvider, open_provider
from lakelock.settings import LockSettings, Settings
from lakelock.storage import Storage
from lakelock.storage.location import StorageLocation
from lakelock.testing.proxy import Proxy

OPTIONS = {"hive_metastore": {"hive_metastore.socket_timeout_s": "30"}, "storage": {"lock.poll_s": str(LockSettings().poll_s)}}
"""What differs from the tests: the metastore has its locks in Derby, which is slow; nobody polls faster than usual."""

_names = count()


@dataclass
class Place:
    """One running service, and a table for which locks are taken there."""

    name: str
    service: Service
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)

    def writer(self, table: str, proxy: Proxy | None = None, storage: Storage | None = None) -> LockProvider:
        """A lock provider as a process of its own would have it; with `storage` in place of the table's."""
        runtime = SystemRuntime()
        settings, own = self._of(table, proxy)
        provider = open_provider(settings, storage or own, runtime, WriterIdentity.of_this_process(runtime, "benchmark"))
        self.opened.callback(provider.close)
        return provider

    def table(self) -> str:
        return f"{self.name}{next(_names)}"

    def proxy(self) -> Proxy:
        service = self.service
        return self.opened.enter_context(Proxy(service.port, host=service.host, severs=service.sessions))

    def _of(self, table: str, proxy: Proxy | None) -> tuple[Settings, Storage]:
        """The settings of a writer and the table's storage; what goes to the service goes through the proxy."""
        values = {"lock.provider": self.service.url(table), **self.service.options, **OPTIONS.get(self.name, {})}
        options, lease_s = dict(self.options), LEASE_MS / 1000
        if proxy is not None:
            values = self.service.through(proxy.port, values)
            options = self.service.through(proxy.port, options)
        values |= {"lock.lease_s": str(lease_s), "lock.renew_s": str(lease_s / 3)}
        where = f"s3://lake/{table}" if options else str(self.folder / table)
        return Settings.resolve(values).settings, StorageLocation.of(where, options).open()


@contextmanager
def s3(folder: Path) -> Iterator[Service]:
    """The storage provider on S3, as moto answers."""
    with s3_server() as endpoint:
        yield Service("storage (S3, moto)", lambda name: "storage:", int(endpoint.rpartition(":")[2]))


ROOM = {"hive.txn.timeout": "60s", "datanucleus.connectionPool.maxPoolSize": "64"}
"""On Derby, and only there, more `lock` calls at once than it has connections (10) stop a metastore for half a minute each."""

PLACES: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    **SERVICES,
    "hive_metastore": partial(containers.server, "hive_metastore", PATIENT_URL, partial(hive_metastore_server, extra=ROOM)),
    "s3": s3,
}


@contextmanager
def running(name: str, folder: Path) -> Iterator[Place]:
    with PLACES[name](folder / name) as service:
        options = {**S3_OPTIONS, "endpoint": f"http://127.0.0.1:{service.port}"} if name == "s3" else {}
        place = Place(name, service, folder, options)
        with place.opened:
            yield place
