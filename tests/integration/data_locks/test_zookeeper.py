"""The promises of data locks on a real ZooKeeper, where they are queues of nodes and a session holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from tests.api import DataLocks
from tests.behaviour.data_locks.data_lock_suite import LEASE_S, DataLockSuite, Writers
from tests.integration.data_locks.test_data_locks import open_one, tables
from tests.integration.matrix import mark
from tests.waiting import eventually

from lakelock.data_locks import LockRequest
from lakelock.errors import LockError
from lakelock.testing.proxy import Proxy
from lakelock.testing.service import Service

pytestmark = pytest.mark.in_ci


@pytest.mark.sampled
class TestZooKeeper(DataLockSuite):
    """Each writer has a proxy of its own, so that its session can be ended like that of a machine which lost its network."""

    @pytest.fixture
    def writers(self, zookeeper: Service) -> Iterator[Writers]:
        table = f"data{next(tables)}"
        self.cut: dict[int, Callable[[], None]] = {}
        self.pool = ThreadPoolExecutor(2)
        with ExitStack() as proxies:

            def open_behind_a_proxy(name: str, lease_s: float) -> DataLocks:
                proxy = proxies.enter_context(Proxy(zookeeper.port, host=zookeeper.host, severs=True))
                locks = open_one(zookeeper, table, name, lease_s, port=proxy.port)
                self.cut[id(locks)] = proxy.cut
                return locks

            made = Writers(open_behind_a_proxy)
            yield made
            for locks in made.opened:
                locks.close()
            self.pool.shutdown()

    @pytest.fixture(autouse=True)
    def cell(self, request: pytest.FixtureRequest) -> None:
        """Says in the reports which cell of the lock matrix this is."""
        mark(request.node, "zookeeper", "S/X suite")

    def fall_silent(self, locks: DataLocks) -> None:
        self.cut[id(locks)]()

    def die_waiting(self, locks: DataLocks, request: LockRequest) -> None:
        before = len(locks.inspect())

        def wait_for_ever() -> None:
            with suppress(LockError):
                locks.acquire(request, wait_s=4 * LEASE_S)

        self.pool.submit(wait_for_ever)
        eventually(lambda: len(locks.inspect()) > before)
        self.cut[id(locks)]()
