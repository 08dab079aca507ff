"""Hive's lock model on data locks that need no server: next to the table, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import DataLocks, LocalStorage, SystemRuntime, WriterIdentity
from tests.behaviour.data_locks.hive_model_suite import HiveModelSuite, Warehouse

from lakelock.data_locks import open_data_locks
from lakelock.settings import Settings

RUNTIME = SystemRuntime()


@pytest.mark.parametrize("provider", ["storage:", "memory:"])
class TestHiveModel(HiveModelSuite):
    @pytest.fixture
    def warehouse(self, provider: str, tmp_path: Path) -> Iterator[Warehouse]:
        settings = Settings.resolve({"lock.provider": provider, "data_locks.sleep_s": 0.05}).settings

        def open_one(table: str, name: str) -> DataLocks:
            writer = WriterIdentity.of_this_process(RUNTIME, name)
            return open_data_locks(settings, LocalStorage(tmp_path / table), RUNTIME, writer)

        made = Warehouse(open_one)
        yield made
        for locks in made.opened:
            locks.close()
