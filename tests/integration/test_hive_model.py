"""Hive's lock model on the data locks of every lock service: native where the service has them, a document elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.api import DataLocks, SystemRuntime, WriterIdentity, open_storage
from tests.behaviour.data_locks.hive_model_suite import HiveModelSuite, Warehouse
from tests.integration.matrix import Services
from tests.servers import SERVICES, Service
from tests.sizes import but_in_ci

from lakelock.data_locks import open_data_locks
from lakelock.settings import Settings

RUNTIME = SystemRuntime()
warehouses = count()


@pytest.fixture(scope="module", params=but_in_ci(SERVICES, {"storage"}))
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


class TestHiveModel(HiveModelSuite):
    @pytest.fixture
    def warehouse(self, service: Service, tmp_path: Path) -> Iterator[Warehouse]:
        number = next(warehouses)

        def open_one(table: str, name: str) -> DataLocks:
            options = {"lock.provider": service.url(f"hive{number}{table}"), **service.options}
            settings = Settings.resolve({**options, "data_locks.sleep_s": 0.1}).settings
            writer = WriterIdentity.of_this_process(RUNTIME, name)
            return open_data_locks(settings, open_storage(str(tmp_path / table)), RUNTIME, writer)

        made = Warehouse(open_one)
        yield made
        for locks in made.opened:
            locks.close()
