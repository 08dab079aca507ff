"""What the tests of the lock next to the table share: one table, a clock that the test holds, and any number of writers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.api import (
    Event,
    EventKind,
    Events,
    Lease,
    LocalStorage,
    LockProvider,
    MemoryStorage,
    Storage,
    WriterIdentity,
    open_provider,
)
from tests.sizes import in_ci

from lakelock.settings import LockSettings, Settings
from lakelock.testing import ManualRuntime

LEASE_S = 15.0
PLACES = ("in memory", "on local disk", "on S3", *in_ci("on Azure"))


@dataclass
class World:
    """One table, one clock, and any number of writers."""

    storage: Storage
    runtime: ManualRuntime = field(default_factory=ManualRuntime)
    uri: str = "storage:"
    seen: list[Event] = field(default_factory=list)

    def writer(self, name: str, storage: Storage | None = None, runtime: ManualRuntime | None = None) -> LockProvider:
        identity = WriterIdentity(self.runtime.uuid(), name, "host", 1, "user")
        settings = Settings(lock=LockSettings(provider=self.uri, lease_s=LEASE_S))
        return open_provider(settings, storage or self.storage, runtime or self.runtime, identity, Events((self.seen.append,)))

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.seen]


def make_storage(request: pytest.FixtureRequest, place: str, runtime: ManualRuntime) -> Storage:
    """New storage of the test in one of `PLACES`."""
    tmp_path: Path = request.getfixturevalue("tmp_path")
    if place == "on local disk":
        return LocalStorage(tmp_path)
    if place in ("on S3", "on Azure"):
        make: Callable[[], Storage] = request.getfixturevalue(f"{place.removeprefix('on ').lower()}_table")
        return make()
    return MemoryStorage(runtime.now_ms, name=str(tmp_path))


def take(provider: LockProvider, wait_s: float = 0.0) -> Lease:
    return provider.acquire(wait_s=wait_s)


def prepared(world: World) -> World:
    """The lock file is there and free, as in every table but a new one."""
    provider = world.writer("earlier")
    provider.release(take(provider))
    return world
