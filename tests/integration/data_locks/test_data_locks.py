"""The promises of data locks on the real services that keep them as a document, S3 among them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, ClassVar

import pytest
from tests.api import DataLocks, Events, MemoryStorage, Storage, SystemRuntime, WriterIdentity, open_storage
from tests.behaviour.data_locks.data_lock_suite import DataLockSuite, Writers
from tests.integration.matrix import Services, mark
from tests.servers import Service

from lakelock.data_locks import open_data_locks
from lakelock.events import Listener
from lakelock.settings import Settings

RUNTIME = SystemRuntime()
tables = count()


def options(service: Service, table: str, lease_s: float, port: int = 0) -> dict[str, Any]:
    """The settings of a writer; `port` is that of what stands between it and the service."""
    values: dict[str, Any] = {"lock.provider": service.url(table), **service.options}
    if port:
        values = service.through(port, values)
    return values | {"data_locks.lease_s": lease_s, "data_locks.renew_s": lease_s / 3, "data_locks.sleep_s": 0.05}


def open_one(
    service: Service, table: str, name: str, lease_s: float, port: int = 0, listener: Listener | None = None, **more: Any
) -> DataLocks:
    settings = Settings.resolve({**options(service, table, lease_s, port), **more}).settings
    storage: Storage = MemoryStorage(RUNTIME.now_ms, name=table)
    if service.tables:
        storage = open_storage(f"{service.tables}/{table}", service.table_options)
    events = Events((listener,) if listener else ())
    return open_data_locks(settings, storage, RUNTIME, WriterIdentity.of_this_process(RUNTIME, name), events)


class DocumentOnAService(DataLockSuite):
    service_name: ClassVar[str]

    @pytest.fixture
    def service(self, services: Services) -> Service:
        return services(self.service_name)

    @pytest.fixture
    def writers(self, service: Service) -> Iterator[Writers]:
        table = f"data{next(tables)}"
        made = Writers(lambda name, lease_s: open_one(service, table, name, lease_s))
        yield made
        for locks in made.opened:
            locks.close()

    @pytest.fixture(autouse=True)
    def cell(self, request: pytest.FixtureRequest) -> None:
        """Says in the reports which cell of the lock matrix this is."""
        mark(request.node, self.service_name, "S/X suite")


class TestRedis(DocumentOnAService):
    service_name = "redis"


class TestDynamodb(DocumentOnAService):
    service_name = "dynamodb"


class TestStorageOnS3(DocumentOnAService):
    service_name = "storage on S3"
