"""kazoo's own tests of its locks, with our commit lock behind them: run by `test_zookeeper_kazoo_suite`."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import kazoo
import pytest
from kazoo.exceptions import LockTimeout as KazooLockTimeout
from tests.integration.zookeeper.zookeeper_world import World, expire

from lakelock.errors import LockTimeout
from lakelock.providers import Lease
from lakelock.testing.service import Service

# Before the installed kazoo, which has everything but its tests: those of its sources.
kazoo.__path__.insert(0, os.environ["KAZOO_SOURCES"])
# Their harness, which is not used here, imports these to make certificates for clusters of its own.
_UNUSED = [name for name in ("OpenSSL", "jks") if find_spec(name) is None]
sys.modules |= {name: ModuleType(name) for name in _UNUSED}
theirs = import_module("kazoo.tests.test_lock")
for _name in _UNUSED:
    del sys.modules[_name]


class StaysOpen:
    """In the place of kazoo's barrier, which closes again: theirs counts who is inside now, so a thread that gets no processor
    between the arrival of the last one and the departure of the first waits for ever."""

    def __init__(self, wait_for: int, _: Callable[[float], object]) -> None:
        self._barrier = threading.Barrier(wait_for)

    def __enter__(self) -> StaysOpen:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        self._barrier.wait(_FOR_EVER_S)


theirs.SleepBarrier = StaysOpen

_FOR_EVER_S = 60.0
_LEASE_S = 10.0
_SEEN_WITHIN_S = 10.0


class Lock:
    """Looks like kazoo's Lock, is our commit lock. Each has a session of its own."""

    provider: Any
    leaving: Callable[[], object] = staticmethod(lambda: None)
    """Called before the end of a `with` gives the lock back."""
    _lease: Lease | None = None

    def __init__(self, service: Service, path: str, identifier: str) -> None:
        self.provider = World(service, path.strip("/")).writer(identifier, lease_s=_LEASE_S)

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
        self.leaving()
        self.release()


class Client:
    """Looks like a client of kazoo as far as its tests of the lock look at it."""

    handler = type("Handler", (), {"sleep_func": staticmethod(lambda seconds: threading.Event().wait(seconds))})

    def __init__(self, service: Service) -> None:
        self._service, self.locks = service, []

    locks: list[Lock]
    leaving: Callable[[], object] = staticmethod(lambda: None)

    def _made(self, lock: Lock) -> Lock:
        lock.leaving = self.leaving
        self.locks.append(lock)
        return lock

    def Lock(self, path: str, identifier: str) -> Lock:  # noqa: N802 - the name is kazoo's
        return self._made(Lock(self._service, path, identifier))

    def start(self) -> None: ...

    def stop(self) -> None:
        for lock in self.locks:
            lock.provider.close()


class OnOurServer:
    """What kazoo's cases find instead of their own harness."""

    @pytest.fixture(autouse=True)
    def _server(self, zookeeper: Service) -> None:
        self.service = zookeeper

    @classmethod
    def tearDownClass(cls) -> None:
        """There is no cluster of theirs to look after."""

    def setUp(self: Any) -> None:
        self.clients: list[Client] = []
        self.client = self._get_client()
        self.lockpath = "/" + uuid.uuid4().hex
        self.condition, self.released = self.make_condition(), self.make_event()
        self._active, self._joining, self._seen_free = None, False, threading.Event()
        self._seen_free.set()
        self.cancelled_threads: list[str] = []

    def tearDown(self: Any) -> None:
        for thread in self.threads_made:
            thread.join(10)
        for client in self.clients:
            client.stop()

    @property
    def active_thread(self: Any) -> str | None:
        """Who has the lock. kazoo's tests wait until nobody has it, and so miss a moment that is too short for them.

        Whoever leaves waits until the test has seen it: the next one may have the lock before the test gets the processor.
        """
        if self._active is None and threading.current_thread() is threading.main_thread():
            self._seen_free.set()
        found: str | None = self._active
        return found

    @active_thread.setter
    def active_thread(self: Any, name: str | None) -> None:
        self._active = name
        if not self._joining:
            self._seen_free.clear()

    def make_thread(self: Any, *args: Any, **options: Any) -> threading.Thread:
        """A test that joins a thread does not look any more, so the thread need not wait for that."""
        thread: threading.Thread = super().make_thread(*args, **options)  # type: ignore[misc]
        join = thread.join

        def joined(timeout: float | None = None) -> None:
            self._joining = True
            self._seen_free.set()
            join(timeout)
            self._joining = False

        thread.join = joined  # type: ignore[method-assign]
        return thread

    def _until_seen(self: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._seen_free.wait(_SEEN_WITHIN_S)

    def new_client(self) -> Client:
        return Client(self.service)

    def _get_client(self: Any, **_: Any) -> Client:
        client: Client = self.new_client()
        client.leaving = self._until_seen
        self.clients.append(client)
        return client

    def expire_session(self: Any, _: Callable[[], object]) -> None:
        for lock in self.client.locks:
            expire(lock.provider)

    @pytest.mark.skip(reason="an acquire is bounded by its wait, not cancelled by another thread")
    def test_lock_cancel(self) -> None: ...

    @pytest.mark.skip(reason="a lock that outlives its session is never taken: nobody could tell a dead holder")
    def test_lock_ephemeral(self) -> None: ...


class TestKazooLock(OnOurServer, theirs.KazooLockTests):  # type: ignore[misc]
    @pytest.mark.skip(reason="the commit lock has no shared mode")
    def test_read_lock(self) -> None: ...

    @pytest.mark.skip(reason="the commit lock has no shared mode")
    def test_write_lock(self) -> None: ...

    @pytest.mark.skip(reason="the commit lock has no shared mode")
    def test_rw_lock(self) -> None: ...


def test_a_thread_that_looks_late_at_the_barrier_passes_it_all_the_same() -> None:
    entered, look_again, gone = threading.Event(), threading.Event(), threading.Event()
    barrier = theirs.SleepBarrier(2, lambda _: look_again.wait(10))

    def slowly() -> None:
        with barrier:
            entered.set()
            barrier.wait()
        gone.set()

    threading.Thread(target=slowly, daemon=True).start()
    entered.wait(10)
    with barrier:
        barrier.wait()
    look_again.set()
    assert gone.wait(10)
