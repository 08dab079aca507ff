"""The lock in a Hive metastore when replies get lost, and when the metastore is away."""

from __future__ import annotations

import threading

import pytest
from tests.api import renewing
from tests.integration.metastore.metastore_world import World, take
from tests.servers.locks.metastore_proxy import MetastoreProxy
from tests.waiting import Stopwatch, eventually

from lakelock.errors import ProviderUnavailable
from lakelock.testing.service import Service


def test_a_lock_request_that_got_lost_is_sent_again(world: World, proxy: MetastoreProxy, metastore: Service) -> None:
    provider = world.writer("one")
    proxy.lose_request = ["lock"]
    lease = take(provider, wait_s=12)
    assert [row.lock_id for row in world.rows(metastore.port)] == [lease.token] and proxy.calls["lock"] == 2


def test_a_lock_request_that_arrives_late_leaves_no_ghost(world: World, proxy: MetastoreProxy, metastore: Service) -> None:
    provider = world.writer("one")
    proxy.hold_request = ["lock"]
    lease = take(provider, wait_s=12)
    proxy.deliver()
    assert len(world.rows(metastore.port)) == 2
    provider.renew(lease)
    provider.release(lease)
    assert world.rows(metastore.port) == []


@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_lost_heartbeat_check_or_unlock_is_sent_again(
    world: World, proxy: MetastoreProxy, metastore: Service, what: str
) -> None:
    other = world.writer("other", lease_s=4.0)
    lease = take(other)
    setattr(proxy, f"lose_{what}", ["check_lock", "heartbeat", "unlock", "show_locks"])
    waiter, got = world.writer("waiter", lease_s=4.0), []
    waiting = threading.Thread(target=lambda: got.append(take(waiter, wait_s=20)))
    waiting.start()
    eventually(lambda: proxy.calls["check_lock"] > 1)
    other.renew(lease)
    other.release(lease)
    waiting.join(20)
    waiter.renew(got[0])
    waiter.release(got[0])
    assert getattr(proxy, f"lose_{what}") == [] and world.rows(metastore.port) == []


def test_the_wait_is_bounded_when_nobody_answers(world: World, metastore: Service) -> None:
    provider, holder = world.writer("one"), world.writer("holder")
    lease = take(holder)
    metastore.pause()
    try:
        with Stopwatch() as waiting, pytest.raises(ProviderUnavailable, match="no answer in time"):
            take(provider, wait_s=1.0)
        assert waiting.took_s < 4
        with Stopwatch() as losing:
            eventually(lambda: lease.lost is not None)
            holder.release(lease)
        assert waiting.took_s + losing.took_s < 8
    finally:
        metastore.resume()
    take(world.writer("next"), wait_s=20)


def test_a_holder_without_a_metastore_loses_its_lease_at_the_deadline_and_knows_why(
    world: World, proxy: MetastoreProxy
) -> None:
    provider = world.writer("one", lease_s=3.0)
    lease = take(provider)
    proxy.refuse, proxy.lose_request = True, ["heartbeat"]
    with renewing(provider, lease, world.runtime, 0.1):
        eventually(lambda: lease.lost is not None)
    assert lease.lost is not None and lease.lost.reason == "unreachable" and "could not connect" in lease.lost.detail
