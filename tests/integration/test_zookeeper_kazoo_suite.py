"""kazoo's own tests of its Lock, as they come with kazoo, run against the lakelock provider through a thin adapter."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
from kazoo.exceptions import LockTimeout as KazooLockTimeout

from lakelock.errors import LockTimeout
from lakelock.providers import Lease
from lakelock.testing.servers.service import Service
from tests.integration.zookeeper_world import World, expire

# Their harness, which is not used here, imports these to make certificates for clusters of its own.
_UNUSED = [name for name in ("OpenSSL", "jks") if find_spec(name) is None]
sys.modules |= {name: ModuleType(name) for name in _UNUSED}
theirs = pytest.importorskip("kazoo.tests.test_lock", reason="needs a kazoo that ships its tests: pip install 'kazoo>=2.10'")
for _name in _UNUSED:
    del sys.modules[_name]

_FOR_EVER_S = 60.0


class Lock:
    """Looks like kazoo's Lock, is ours. Each has a session of its own."""

    def __init__(self, world: World, path: str, identifier: str) -> None:
        self.provider = world.writer(identifier, lease_s=10.0, uri=f"{world.uri}{path}")
        self._lease: Lease | None = None

    @property
    def is_acquired(self) -> bool:
        return self._lease is not None

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        try:
            self._lease = self.provider.acquire(wait_s=(timeout or _FOR_EVER_S) if blocking else 0)
        except LockTimeout as error:
            if blocking and not self.is_acquired:
                raise KazooLockTimeout(str(error)) from error
            return False
        return True

    def release(self) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        self.provider.release(lease)

    def contenders(self) -> list[str]:
        state = self.provider.inspect()
        found = [one.writer for one in (state.holder, *state.queue) if one]
        return [writer.application for writer in found if writer]

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Client:
    """Looks like a client of kazoo as far as its tests of the lock look at it."""

    handler = type("Handler", (), {"sleep_func": staticmethod(lambda seconds: threading.Event().wait(seconds))})

    def __init__(self, world: World) -> None:
        self._world, self.locks = world, []

    locks: list[Lock]

    def Lock(self, path: str, identifier: str) -> Lock:  # noqa: N802 - the name is kazoo's
        self.locks.append(Lock(self._world, path, identifier))
        return self.locks[-1]

    def start(self) -> None: ...

    def stop(self) -> None:
        for lock in self.locks:
            lock.provider.close()


class TestKazooLock(theirs.KazooLockTests):  # type: ignore[misc]
    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: Service) -> None:
        self.world = World(zookeeper)

    @classmethod
    def tearDownClass(cls) -> None:
        """There is no cluster of theirs to look after."""

    def setUp(self) -> None:
        self.client = Client(self.world)
        self.lockpath = "/" + uuid.uuid4().hex
        self.condition, self.released = self.make_condition(), self.make_event()
        self.active_thread = None
        self.cancelled_threads: list[str] = []

    def tearDown(self) -> None:
        for thread in self.threads_made:
            thread.join(10)
        self.world.close()

    def _get_client(self, **_: Any) -> Client:
        return Client(self.world)

    def expire_session(self, _: Callable[[], object]) -> None:
        for lock in self.client.locks:
            expire(lock.provider)

    @pytest.mark.skip(reason="an acquire is bounded by its wait, not cancelled by another thread")
    def test_lock_cancel(self) -> None: ...

    @pytest.mark.skip(reason="a lock that outlives its session is never taken: nobody could tell a dead holder")
    def test_lock_ephemeral(self) -> None: ...

    @pytest.mark.skip(reason="the commit lock is exclusive")
    def test_read_lock(self) -> None: ...

    @pytest.mark.skip(reason="the commit lock is exclusive")
    def test_write_lock(self) -> None: ...

    @pytest.mark.skip(reason="the commit lock is exclusive")
    def test_rw_lock(self) -> None: ...
