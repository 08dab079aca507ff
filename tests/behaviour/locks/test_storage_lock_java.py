"""The lock next to the table together with Java Hudi's writers, and with files that nobody can read."""

from __future__ import annotations

import pytest
from tests.api import MemoryStorage, Storage
from tests.behaviour.locks.storage_lock_world import PLACES, World, make_storage, take

from lakelock.errors import LockTimeout
from lakelock.testing import ManualRuntime


@pytest.fixture(params=PLACES)
def storage_world(request: pytest.FixtureRequest) -> World:
    runtime = ManualRuntime()
    return World(make_storage(request, request.param, runtime), runtime)


def java(storage: Storage, now_ms: int, *, expired: bool, validity_s: int = 300) -> None:
    """What Java Hudi writes: three fields, in this order."""
    body = b'{"expired":%s,"validUntil":%d,"owner":"8e3b11c1-6740-47b8-87fe-14ef3b1015be"}' % (
        b"true" if expired else b"false",
        now_ms + validity_s * 1000,
    )
    storage.put(".hoodie/.locks/table_lock.json", body)


def test_java_finds_its_three_fields_first_and_the_file_is_never_deleted(storage_world: World) -> None:
    provider = storage_world.writer("one")
    lease = take(provider)
    held = storage_world.storage.get(".hoodie/.locks/table_lock.json")
    assert held is not None and held.data.startswith(b'{"expired":false,"validUntil":17')
    assert b',"owner":"%s"' % lease.grant.encode() in held.data
    provider.release(lease)
    free = storage_world.storage.get(".hoodie/.locks/table_lock.json")
    assert free is not None and free.data == held.data.replace(b'"expired":false', b'"expired":true')


def test_tokens_grow_across_java_writers_that_drop_them(storage_world: World) -> None:
    world, tokens = storage_world, []
    for _ in range(3):
        provider = world.writer("one")
        for _ in range(2):
            lease = take(provider)
            tokens.append(lease.token)
            provider.release(lease)
        java(world.storage, world.runtime.now_ms(), expired=True)
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


def test_a_java_holder_is_waited_for_until_its_validity_is_over() -> None:
    runtime = ManualRuntime()
    world = World(MemoryStorage(runtime.now_ms), runtime)
    java(world.storage, runtime.now_ms(), expired=False, validity_s=60)
    provider = world.writer("one")
    with pytest.raises(LockTimeout, match="8e3b11c1"):
        take(provider, wait_s=59)
    take(provider, wait_s=5)


def test_an_unreadable_lock_file_is_never_taken_for_free_and_can_be_broken_by_force(storage_world: World) -> None:
    world = storage_world
    first = world.writer("earlier")
    token = take(first).token
    for junk in (
        b"",
        b"{}",
        b"not json",
        b'{"expired":1,"validUntil":2,"owner":"x"}',
        b"[1]",
        b'{"expired":true,"validUntil":1}',
    ):
        world.storage.put(".hoodie/.locks/table_lock.json", junk)
        with pytest.raises(Exception, match="locks break"):
            take(world.writer("one"), wait_s=1.0)
        with pytest.raises(Exception, match="locks break"):
            world.writer("one").break_lock(0)
    world.writer("operator").break_lock(0, force=True)
    assert take(world.writer("two")).token > token
