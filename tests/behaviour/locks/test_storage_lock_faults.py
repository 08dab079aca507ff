"""What replies that get lost and storage that does not answer can do to the lock next to the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.api import EventKind, Events, Storage, renewing
from tests.behaviour.locks.storage_lock_world import LEASE_S, PLACES, World, make_storage, prepared, take
from tests.faulty_storage import CountingStorage, Fault, FaultyStorage, Rule, Wrapped

from lakelock.errors import LeaseLost, LockTimeout, ProviderUnavailable, StorageUnavailable
from lakelock.testing import ManualRuntime


@pytest.fixture(params=PLACES)
def storage_world(request: pytest.FixtureRequest) -> World:
    runtime = ManualRuntime()
    return World(make_storage(request, request.param, runtime), runtime)


def lose(storage: Storage, op: str, nth: int | None = 1, fault: Fault = Fault.LOST_REPLY) -> FaultyStorage:
    return FaultyStorage(storage, [Rule(op, ".hoodie/.locks/*", nth=nth, fault=fault)])


@pytest.mark.parametrize("make", [lambda world: world, prepared], ids=["new table", "used table"])
def test_a_grant_whose_reply_was_lost_is_adopted(storage_world: World, make: Callable[[World], World]) -> None:
    world = make(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_*"))
    lease = take(provider, wait_s=5.0)
    lease.ensure_active()
    assert lease.deadline_s <= world.runtime.monotonic_s() + LEASE_S
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_an_adopted_grant_keeps_the_deadline_of_its_request(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(
        world.storage,
        [
            Rule("put_if_match", ".hoodie/.locks/*", fault=Fault.LOST_REPLY),
            Rule("get", ".hoodie/.locks/*", nth=2, fault=None, meanwhile=lambda: world.runtime.advance(6)),
        ],
    )
    lease = take(world.writer("one", storage), wait_s=30.0)
    assert lease.remaining_s() < LEASE_S - 5.9


def test_a_grant_request_that_arrives_late_is_found_or_refused_but_never_doubled(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = lose(world.storage, "put_if_match", fault=Fault.LATE)
    provider = world.writer("one", storage)
    lease = take(provider, wait_s=5.0)
    storage.deliver()
    provider.renew(lease)
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    provider.release(lease)
    assert take(world.writer("two")).token > lease.token


def test_giving_up_takes_back_a_grant_that_nobody_heard_of(storage_world: World) -> None:
    world = prepared(storage_world)
    rules = [Rule("put_if_match", ".hoodie/.locks/*", nth=1, fault=Fault.LOST_REPLY)]
    provider = world.writer("one", FaultyStorage(world.storage, rules))
    with pytest.raises(ProviderUnavailable):
        take(provider, wait_s=0.0)
    take(world.writer("two"))


def test_a_grant_that_was_made_as_ctrl_c_came_is_taken_back(storage_world: World) -> None:
    world = prepared(storage_world)

    class Interrupted(Wrapped):
        def put_if_match(self, key: str, data: bytes, etag: str) -> str | None:
            made = super().put_if_match(key, data, etag)
            if b'"expired":false' in data:
                raise KeyboardInterrupt
            return made

    with pytest.raises(KeyboardInterrupt):
        take(world.writer("one", Interrupted(world.storage)), wait_s=5.0)
    take(world.writer("two"))


def test_a_renewal_whose_reply_was_lost_does_not_lose_the_lock(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    lease = take(provider)
    with renewing(provider, lease, world.runtime, 5.0):
        world.runtime.advance(40)
        lease.ensure_active()
    provider.release(lease)
    take(world.writer("two"))


def test_a_release_right_after_a_renewal_whose_reply_was_lost_frees_the_lock(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    lease = take(provider)
    with pytest.raises(StorageUnavailable):
        provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_an_expired_or_released_lease_sends_no_request_for_renewal_or_a_second_release(storage_world: World) -> None:
    world = prepared(storage_world)
    counting = CountingStorage(world.storage)
    provider = world.writer("one", counting)
    lease = take(provider)
    world.runtime.advance(LEASE_S)
    counting.reset()
    with pytest.raises(LeaseLost):
        provider.renew(lease)
    assert counting.total == 0
    provider.release(lease)
    counting.reset()
    provider.release(lease)
    assert counting.total == 0


def test_a_release_whose_reply_was_lost_frees_the_lock_and_raises_nothing(storage_world: World) -> None:
    world = prepared(storage_world)
    provider = world.writer("one", lose(world.storage, "put_if_match", nth=2))
    provider.release(take(provider))
    take(world.writer("two"))


def test_a_release_that_cannot_be_sent_is_told_and_raises_nothing(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(world.storage)
    provider = world.writer("one", storage)
    lease = take(provider)
    storage.plan = [Rule(nth=None)]
    provider.release(lease)
    assert world.kinds() == [EventKind.ALERT]
    storage.plan = ()
    take(world.writer("two"), wait_s=2 * LEASE_S)


def test_storage_that_does_not_answer_is_lost_at_the_deadline_and_called_unreachable(storage_world: World) -> None:
    world = prepared(storage_world)
    storage = FaultyStorage(world.storage)
    provider = world.writer("one", storage)
    lease = take(provider)
    storage.plan = [Rule(nth=None)]
    with renewing(provider, lease, world.runtime, 5.0, Events((world.seen.append,))):
        world.runtime.advance(LEASE_S - 0.1)
        assert lease.lost is None
        world.runtime.advance(5)
        assert lease.lost is not None and lease.lost.reason == "unreachable"
    assert world.kinds().count(EventKind.LEASE_LOST) == 1
    with pytest.raises(ProviderUnavailable):
        take(world.writer("two", storage), wait_s=1.0)
