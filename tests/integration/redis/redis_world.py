"""Writers whose locks are in one Redis, in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.api import (
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
        runtime, uri = SystemRuntime(), self.uri.format(port=port or self.port, key=self.key)
        values = OPTIONS | {"lock.provider": uri} | {key.replace("__", "."): value for key, value in options.items()}
        settings, identity = Settings.resolve(values).settings, WriterIdentity.of_this_process(runtime, name)
        self.opened.append(open_provider(settings, MemoryStorage(name="table"), runtime, identity, Events((self.seen.append,))))
        return self.opened[-1]

    def look(self):  # type: ignore[no-untyped-def]
        assert self.server is not None
        return self.server.client()

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def waiting(provider: LockProvider, number: int) -> bool:
    return len(provider.inspect().queue) == number
