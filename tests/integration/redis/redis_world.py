"""Writers whose locks are in one Redis, in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.api import (
    DataLocks,
    Event,
    EventKind,
    Events,
    Lease,
    LockProvider,
    MemoryStorage,
    SystemRuntime,
    WriterIdentity,
    open_provider,
)
from tests.servers.locks.redis import RedisServer

from lakelock.data_locks.opening import open_data_locks
from lakelock.settings import Settings

LEASE_S = 1.0
OPTIONS = {
    "lock.options.socket_timeout": "0.3",
    "lock.options.socket_connect_timeout": "0.3",
    "lock.lease_s": LEASE_S,
    "lock.renew_s": 0.2,
}
numbers = count()


@dataclass
class World:
    """One lock and any number of writers."""

    port: int
    server: RedisServer | None = None
    key: str = field(default_factory=lambda: f"lock-{next(numbers)}")
    seen: list[Event] = field(default_factory=list)
    opened: list[LockProvider] = field(default_factory=list)
    uri: str = "redis://127.0.0.1:{port}/0?key={key}"

    def writer(self, name: str = "w", port: int | None = None, **options: Any) -> LockProvider:
        runtime = SystemRuntime()
        settings, storage, identity = self._opening(name, runtime, port or self.port, options)
        self.opened.append(open_provider(settings, storage, runtime, identity, Events((self.seen.append,))))
        return self.opened[-1]

    def _opening(
        self, name: str, runtime: SystemRuntime, port: int, options: dict[str, Any]
    ) -> tuple[Settings, MemoryStorage, WriterIdentity]:
        uri = self.uri.format(port=port, key=self.key)
        values = OPTIONS | {"lock.provider": uri} | {key.replace("__", "."): value for key, value in options.items()}
        return Settings.resolve(values).settings, MemoryStorage(name="table"), WriterIdentity.of_this_process(runtime, name)

    def data_writer(self, **options: Any) -> DataLocks:
        """Data locks of the same table; whoever opens them closes them."""
        runtime = SystemRuntime()
        settings, storage, identity = self._opening("data", runtime, self.port, options)
        return open_data_locks(settings, storage, runtime, identity)

    def look(self):  # type: ignore[no-untyped-def]
        assert self.server is not None
        return self.server.client()

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def waiting(provider: LockProvider, number: int) -> bool:
    return len(provider.inspect().queue) == number
