"""The fixtures of redis-py's own lock tests, with the lock of lakelock behind them; copied beside them as their conftest.

Their tests ask a client `r` for a lock and look at the key of that lock; both are given here by the names that they use.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import LockError, LockNotOwnedError

from lakelock.clock import SystemRuntime
from lakelock.errors import LeaseLost, LockTimeout
from lakelock.identity import WriterIdentity
from lakelock.providers import Lease, open_provider
from lakelock.providers.redis.lock import RedisLockProvider
from lakelock.settings import Settings
from lakelock.storage.memory import MemoryStorage

_FOR_EVER_S = 60.0
_LEASE_S = 15.0
_SHORTEST_S = 1.0

_NO_END = "a lock without an end is never taken: nobody could tell a dead holder"
_OWN_LOOP = "it counts the pauses of redis-py's polling loop; a waiter here is woken"
SKIPPED = {
    "test_lock": _NO_END,
    "test_lock_token": "the value of the key names the holder, and cannot be chosen",
    "test_lock_token_thread_local_false": "the value of the key names the holder, and cannot be chosen",
    "test_blocking_timeout": _OWN_LOOP,
    "test_context_manager_blocking_timeout": _OWN_LOOP,
    "test_high_sleep_small_blocking_timeout": _OWN_LOOP,
    "test_context_manager_not_raise_on_release_lock_not_owned_error": "the shortest lease is one second, theirs 0.1 s",
    "test_extend_lock": "a renewal sets the lease anew and never adds to it",
    "test_extend_lock_float": "a renewal sets the lease anew and never adds to it",
    "test_extending_lock_with_no_timeout_raises_error": _NO_END,
    "test_reacquiring_lock_with_no_timeout_raises_error": _NO_END,
    "test_context_manager_reacquiring_lock_with_no_timeout_raises_error": _NO_END,
    "test_lock_class_argument": "it is about redis-py's client, not about a lock",
}


class Lock:
    """Looks like redis-py's Lock, is ours."""

    def __init__(self, client: Client, name: str, **options: Any) -> None:
        self.name, self.local, self._client = name, SimpleNamespace(token=None), client
        self._blocking, self._wait_s = options.get("blocking", True), options.get("blocking_timeout")
        self._tells_release = options.get("raise_on_release_error", True)
        runtime = SystemRuntime()
        lease_s = max(_SHORTEST_S, options.get("timeout") or _LEASE_S)
        settings = Settings.resolve(
            {"lock.provider": client.uri(name), "lock.lease_s": lease_s, "lock.renew_s": lease_s / 3}
        ).settings
        opened = open_provider(settings, MemoryStorage(), runtime, WriterIdentity.of_this_process(runtime))
        assert isinstance(opened, RedisLockProvider)
        self._provider: RedisLockProvider = opened
        self._lease: Lease | None = None
        client.opened.append(self._provider)

    def acquire(self, blocking: bool | None = None) -> bool:
        blocking = self._blocking if blocking is None else blocking
        try:
            self._lease = self._provider.acquire(wait_s=(self._wait_s or _FOR_EVER_S) if blocking else 0)
        except LockTimeout:
            return False
        held = self._client.get(self.name)
        assert self._lease.grant.encode() in held, "the value of the key names the holder"
        self.local.token = held
        return True

    def locked(self) -> bool:
        return self._provider.inspect().holder is not None

    def owned(self) -> bool:
        holder = self._provider.inspect().holder
        return self._lease is not None and holder is not None and holder.owner == self._lease.grant

    def release(self) -> None:
        lease = self._mine("release")
        self._lease, self.local.token = None, None
        try:
            self._provider.renew(lease)  # a release of ours does not tell that the lock was somebody else's
        except LeaseLost as error:
            raise LockNotOwnedError(str(error), lock_name=self.name) from error
        finally:
            self._provider.release(lease)

    def extend(self, _: float, replace_ttl: bool = False) -> bool:
        try:
            self._provider.renew(self._mine("extend"))
        except LeaseLost as error:
            raise LockNotOwnedError(str(error), lock_name=self.name) from error
        return True

    def reacquire(self) -> bool:
        return self.extend(0, replace_ttl=True)

    def _mine(self, what: str) -> Lease:
        if self._lease is None:
            raise LockError(f"cannot {what} an unlocked lock", lock_name=self.name)
        return self._lease

    def __enter__(self) -> Lock:
        if not self.acquire():
            raise LockError("the lock was not acquired within its time", lock_name=self.name)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except LockError:
            if self._tells_release:
                raise


class Client:
    """Looks like redis-py's client as far as its tests of the lock look at it; each has locks of its own."""

    def __init__(self) -> None:
        self._port, self._prefix = int(os.environ["LOCK_TESTS_PORT"]), uuid.uuid4().hex
        self._redis = Redis("127.0.0.1", self._port)
        self.opened: list[RedisLockProvider] = []

    def uri(self, name: str) -> str:
        return f"redis://127.0.0.1:{self._port}/0?key={self._prefix}-{name}"

    def lock(self, name: str, *, lock_class: object, **options: Any) -> Lock:
        return Lock(self, name, **options)

    def __getattr__(self, command: str) -> Any:
        """A command of Redis on the key of the lock that is given by its name."""
        return lambda name, *arguments: getattr(self._redis, command)(f"{{{self._prefix}-{name}}}", *arguments)

    def close(self) -> None:
        for provider in self.opened:
            provider.close()
        self._redis.close()


def _get_client(*_: object, request: pytest.FixtureRequest, **__: object) -> Client:
    client = Client()
    request.addfinalizer(client.close)
    return client


@pytest.fixture
def r() -> Iterator[Client]:
    client = Client()
    yield client
    client.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in SKIPPED:
            item.add_marker(pytest.mark.skip(reason=SKIPPED[item.name]))
