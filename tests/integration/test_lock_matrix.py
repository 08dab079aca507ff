"""The suite of lock providers over every provider, each on its real service: one row of the matrix per service."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.api import MemoryStorage
from tests.integration.matrix import IN_PROCESS, SERVICES_OF_ROWS, Services, mark
from tests.servers import Service

from lakelock.testing import ManualRuntime
from lakelock.testing.lock_suite import LockedTable, LockProviderSuite, OneProcessPromises, column_of


@pytest.fixture(autouse=True)
def cell(request: pytest.FixtureRequest) -> None:
    """Says in the reports which cell of the matrix this is."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    name = parameters.get("service", IN_PROCESS)
    mark(request.node, name, column_of(request.function))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(row, marks=[pytest.mark.in_ci, pytest.mark.sampled(one_in=1)]) if row == "storage on S3" else row
        for row in SERVICES_OF_ROWS
    ],
)
def service(request: pytest.FixtureRequest, services: Services) -> Service:
    return services(request.param)


class TestOnItsService(LockProviderSuite):
    @pytest.fixture
    def locked_table(self, service: Service, tmp_path: Path) -> LockedTable:
        return LockedTable.of(service, tmp_path)


class TestInMemory(OneProcessPromises):
    @pytest.fixture
    def locked_table(self, tmp_path: Path) -> LockedTable:
        runtime = ManualRuntime()
        storage = MemoryStorage(runtime.now_ms, name=str(tmp_path))
        return LockedTable({"lock.provider": "memory:"}, runtime=runtime, storage=storage)
