"""The promises of data locks where the table is on S3."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.api import DataLocks, SystemRuntime, WriterIdentity, open_storage
from tests.behaviour.data_locks.data_lock_suite import DataLockSuite, Writers
from tests.integration.matrix import Services

from lakelock.data_locks import open_data_locks
from lakelock.settings import Settings

RUNTIME = SystemRuntime()
tables = count()


class TestOnS3(DataLockSuite):
    @pytest.fixture
    def writers(self, services: Services) -> Iterator[Writers]:
        service, table = services("storage on S3"), f"data{next(tables)}"

        def open_one(name: str, lease_s: float) -> DataLocks:
            options = {"data_locks.lease_s": lease_s, "data_locks.renew_s": lease_s / 3, "data_locks.sleep_s": 0.05}
            storage = open_storage(f"{service.tables}/{table}", service.table_options)
            writer = WriterIdentity.of_this_process(RUNTIME, name)
            return open_data_locks(Settings.resolve(options).settings, storage, RUNTIME, writer)

        made = Writers(open_one)
        yield made
        for locks in made.opened:
            locks.close()
