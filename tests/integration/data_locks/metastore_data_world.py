"""Writers whose data locks are in one metastore, in this process and in others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.api import DataLocks, Event, Events, MemoryStorage, SystemRuntime, WriterIdentity
from tests.behaviour.data_locks.data_lock_suite import LEASE_S
from tests.tuning import settings_of

from lakelock.data_locks import open_data_locks
from lakelock.providers.hive_metastore.client import Calls, LockRow
from lakelock.providers.hive_metastore.connection import Address, Wire
from lakelock.settings.hive_metastore import HiveMetastoreSettings
from lakelock.testing.lock_processes import Worker
from lakelock.testing.service import Service

TIMEOUT_S = 60
"""hive.txn.timeout of the service in the matrix: above all leases, so that no lock is gone before its lease is over."""

_RUNTIME = SystemRuntime()
_PROGRAM = Path(__file__).parents[2] / "behaviour" / "data_locks" / "data_lock_worker.py"
_numbers = count(1)


@dataclass
class DataWorld:
    """One table, and everybody who wants its data locks."""

    service: Service
    table: str = field(default_factory=lambda: f"data_{os.getpid()}_{next(_numbers)}")
    seen: list[Event] = field(default_factory=list)
    opened: list[DataLocks] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)

    def settings(self, lease_s: float, port: int = 0, **client: object) -> dict[str, object]:
        values: dict[str, object] = {"lock.provider": self.service.url(self.table)}
        if port:
            values = self.service.through(port, values)
        values |= {"data_locks.lease_s": lease_s, "data_locks.renew_s": lease_s / 3}
        values |= {f"hive_metastore.{key}": value for key, value in client.items()}
        return values | {"data_locks.sleep_s": 0.05}

    def writer(self, name: str, lease_s: float = 30.0, port: int = 0, **client: object) -> DataLocks:
        """A writer in this process; `port` is that of a proxy."""
        settings = settings_of(self.settings(lease_s, port, **client))
        storage = MemoryStorage(_RUNTIME.now_ms, name=self.table)
        identity = WriterIdentity.of_this_process(_RUNTIME, name)
        self.opened.append(open_data_locks(settings, storage, _RUNTIME, identity, Events((self.seen.append,))))
        return self.opened[-1]

    def worker(self, lease_s: float = LEASE_S) -> Worker:
        """A writer process, which may be killed and stopped."""
        self.workers.append(Worker({"table": self.table, "settings": self.settings(lease_s)}, _PROGRAM))
        return self.workers[-1]

    def bare(self) -> Calls:
        """A client as another program would be one."""
        until_s = _RUNTIME.monotonic_s() + 60
        return Calls(
            Wire.connect(_RUNTIME, Address(self.service.host, self.service.port), HiveMetastoreSettings(), until_s), "binary"
        )

    @property
    def name(self) -> str:
        """What the table of the locks is called in the metastore."""
        return f"data@lakelock_test@{self.table}"

    def rows(self) -> list[LockRow]:
        calls = self.bare()
        try:
            return calls.show_locks("lakelock", self.name)
        finally:
            calls.wire.close()


@contextmanager
def data_world(service: Service) -> Iterator[DataWorld]:
    """A table whose writers are ended at the end."""
    world = DataWorld(service)
    yield world
    for worker in world.workers:
        worker.end()
    for locks in world.opened:
        locks.close()
