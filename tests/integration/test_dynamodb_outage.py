"""The DynamoDB lock when its service goes away, hangs or restarts, and what a commit does then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import (
    LakelockError,
    LockTimeout,
    ProviderMismatch,
    ProviderUnavailable,
)
from lakelock.events import EventKind, Events
from lakelock.occ.coordinator import Coordinator
from lakelock.providers import renewing
from lakelock.settings import Settings
from lakelock.storage_local import LocalStorage
from lakelock.testing.servers.service import Service
from tests.behaviour.tables import insert, new_table, put_file
from tests.behaviour.tables import writer as table_writer
from tests.integration.dynamodb_world import (
    LEASE_S,
    World,
    new_world,
    take,
    troubling,
)


@pytest.fixture
def world(dynamodb: Service) -> World:
    return new_world(dynamodb)


@pytest.fixture
def troubled(world: World) -> Iterator[World]:
    with troubling(world):
        yield world


def test_a_service_that_is_gone_is_unreachable_within_the_wait_and_the_lease_is_lost_at_its_deadline(
    troubled: World, dynamodb: Service
) -> None:
    world = troubled
    provider = world.writer("one")
    lease = take(provider)
    dynamodb.stop()
    try:
        with renewing(provider, lease, world.runtime, 5.0, Events((world.seen.append,))):
            world.runtime.advance(LEASE_S - 0.5)
            assert lease.lost is None
            world.runtime.advance(5)
        assert lease.lost is not None and lease.lost.reason == "unreachable"
        assert world.kinds().count(EventKind.LEASE_LOST) == 1
        with pytest.raises(ProviderUnavailable) as refused:
            take(world.writer("two"), wait_s=2)
        assert "dynamodb.endpoint_url" in refused.value.hint
    finally:
        dynamodb.start()
    assert take(world.writer("two"), wait_s=2 * LEASE_S).token > lease.token


def test_a_restart_in_the_middle_keeps_the_lock_with_its_holder(troubled: World, dynamodb: Service) -> None:
    world = troubled
    provider = world.writer("one")
    lease = take(provider)
    with renewing(provider, lease, world.runtime, 5.0):
        dynamodb.stop()
        world.runtime.advance(6)
        dynamodb.start()
        world.runtime.advance(30)
        lease.ensure_active()
        with pytest.raises(LockTimeout):
            take(world.writer("two"), wait_s=5)
    provider.release(lease)
    assert take(world.writer("two")).token == lease.token + 1


def test_a_service_that_hangs_is_given_up_in_bounded_time(world: World, dynamodb: Service) -> None:
    clock = SystemRuntime()
    provider = world.writer("one", runtime=clock, dynamodb__read_timeout_s=0.3)
    provider.release(take(provider))
    dynamodb.pause()
    try:
        began_s = clock.monotonic_s()
        with pytest.raises(ProviderUnavailable, match="gave no answer"):
            provider.acquire(wait_s=0.5)
        assert clock.monotonic_s() - began_s < 3
    finally:
        dynamodb.resume()
    provider.release(provider.acquire(wait_s=LEASE_S * 2))


def test_a_forked_child_does_not_hold_the_lock_and_connects_anew(world: World) -> None:
    clock = SystemRuntime()
    provider = world.writer("parent", runtime=clock)
    lease = take(provider)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # only plain calls here: a failure must end this process, not run the rest of the suite
        answers = []
        try:
            answers.append("holds" if lease.lost is None else lease.lost.reason)
            provider.release(lease)
            provider.close()
            try:
                provider.acquire(wait_s=0.1)
                answers.append("took it")
            except LakelockError as error:
                answers.append(type(error).__name__)
        finally:
            os.write(writing, ",".join(answers).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told == "session-lost,LockTimeout"
    provider.renew(lease)
    provider.release(lease)


def guarded(world: World, storage: LocalStorage, name: str, **options: object) -> Coordinator:
    given = {"lock.provider": world.uri, "lock.lease_s": 3, "lock.renew_s": 0.5, **world.service.options}
    settings = Settings.resolve({**given, **{key.replace("__", "."): value for key, value in options.items()}}).settings
    return table_writer(storage, settings, name)


def test_a_commit_whose_lock_service_is_gone_changes_nothing_and_the_next_one_goes_through(
    world: World, dynamodb: Service, tmp_path: Path
) -> None:
    storage = LocalStorage(str(tmp_path))
    new_table(storage)
    first = guarded(world, storage, "first", lock__wait_s=1)
    insert(first, storage, "1", "a")
    with pytest.raises(ProviderMismatch):
        insert(guarded(world, storage, "elsewhere", lock__provider=f"{world.uri}-2"), storage, "1", "x")
    with first.begin("INSERT") as tx:
        stat = put_file(tx, storage, "1", "b")
        dynamodb.stop()
        try:
            with pytest.raises(LakelockError):
                tx.commit([stat])
        finally:
            dynamodb.start()
    assert [file.group.file_id for file in first.snapshot().files] == ["a"]
    insert(guarded(world, storage, "second"), storage, "1", "c")
    assert sorted(file.group.file_id for file in first.snapshot().files) == ["a", "c"]
    first.close()
    insert(first, storage, "1", "d")  # closing lets go of connections, and a later write opens new ones
