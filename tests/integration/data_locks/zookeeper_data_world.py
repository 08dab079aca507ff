"""The nodes of data locks in a real ZooKeeper, and writers that use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.api import DataLocks
from tests.integration.data_locks.test_data_locks import open_one, tables

from lakelock.data_locks.zookeeper import ZooKeeperDataLocks
from lakelock.events import Listener
from lakelock.testing.service import Service


@dataclass
class Queues:
    """The nodes of one table, and its writers."""

    service: Service
    plain: Any
    table: str = field(default_factory=lambda: f"data{next(tables)}")
    opened: list[DataLocks] = field(default_factory=list)

    @property
    def path(self) -> str:
        return "/" + self.service.url(self.table).partition("://")[2].partition("/")[2] + ".data"

    def writer(
        self, name: str, lease_s: float = 30.0, port: int = 0, listener: Listener | None = None, **more: Any
    ) -> ZooKeeperDataLocks:
        locks = open_one(self.service, self.table, name, lease_s, port, listener, **more)
        assert isinstance(locks, ZooKeeperDataLocks)
        self.opened.append(locks)
        return locks

    def nodes(self) -> dict[str, list[str]]:
        """The nodes in each queue."""
        self.plain.sync(self.path)
        return {name: sorted(self.plain.get_children(f"{self.path}/{name}")) for name in self.plain.get_children(self.path)}

    def stats(self) -> list[Any]:
        return [self.plain.exists(f"{self.path}/{queue}/{node}") for queue, nodes in self.nodes().items() for node in nodes]


@contextmanager
def queues_in(zookeeper: Service) -> Iterator[Queues]:
    """The queues of a new table, and a client that looks at them past lakelock."""
    from kazoo.client import KazooClient

    plain = KazooClient(f"{zookeeper.host}:{zookeeper.port}")
    plain.start(10)
    made = Queues(zookeeper, plain)
    yield made
    for locks in made.opened:
        locks.close()
    plain.stop()
    plain.close()
