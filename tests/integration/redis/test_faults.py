"""The lock in Redis when answers get lost, and when its server hangs, restarts or forgets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import EventKind, Events, Lease, LockProvider, SystemRuntime, renewing
from tests.integration.redis.redis_world import World, take, waiting
from tests.servers.locks.redis import RedisServer
from tests.waiting import Stopwatch, eventually

from lakelock.errors import LeaseLost, LockTimeout, ProviderUnavailable
from lakelock.testing.proxy import Proxy


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as between:
        yield between


@pytest.mark.parametrize("lost", [1, 2])
def test_a_grant_whose_reply_was_lost_is_adopted(world: World, proxy: Proxy, lost: int) -> None:
    provider = world.writer(port=proxy.port)
    provider.inspect()
    proxy.drop_replies(lost, to=b"EVALSHA")
    lease = take(provider, wait_s=5.0)
    assert proxy.dropped == lost
    with pytest.raises(LockTimeout):
        take(world.writer("two"))
    left_ms = world.look().pttl(f"{{{world.key}}}")
    assert lease.remaining_s() * 1000 <= left_ms
    provider.renew(lease)
    provider.release(lease)
    take(world.writer("two"))


def test_a_server_that_cannot_be_reached_is_named_within_the_wait(world: World, proxy: Proxy) -> None:
    provider = world.writer(port=proxy.port, lock__lease_s=5)
    lease = take(provider)
    proxy.cut()
    with renewing(provider, lease, SystemRuntime(), 0.1, Events((world.seen.append,))):
        eventually(lambda: EventKind.LEASE_LOST in world.kinds())
        assert lease.lost is not None and lease.lost.reason == "unreachable"
    provider.release(lease)
    assert EventKind.ALERT in world.kinds()
    with Stopwatch() as watch, pytest.raises(ProviderUnavailable, match=str(proxy.port)):
        take(provider, wait_s=0.5)
    assert watch.took_s < 0.5 + 1.0
    proxy.heal()
    take(provider, wait_s=10)


def test_a_restart_that_forgets_everything_is_a_lost_lease_and_no_blocked_writer(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        world = World(server.port, server)
        holder, rival = world.writer(lock__lease_s=10, lock__renew_s=1), world.writer(lock__lease_s=10, lock__renew_s=1)
        lease = take(holder)
        server.stop()
        with pytest.raises(ProviderUnavailable):
            holder.renew(lease)
        server.start()
        with pytest.raises(LeaseLost):
            holder.renew(lease)
        assert take(rival).token > lease.token
        holder.release(lease)
        with pytest.raises(LockTimeout):
            take(holder)


def test_a_restart_with_its_data_keeps_the_lock_and_its_waiters(tmp_path: Path) -> None:
    with RedisServer(tmp_path, ("--appendonly", "yes", "--appendfsync", "always")) as server:
        world = World(server.port, server)
        holder, waiter = (world.writer(name, lock__lease_s=10, lock__renew_s=1) for name in ("holder", "waiter"))
        lease = take(holder)
        got: list[Lease] = []
        thread = threading.Thread(target=lambda: got.append(take(waiter, 10)))
        thread.start()
        eventually(lambda: waiting(holder, 1))
        server.stop()
        server.start()
        eventually(lambda: renewed(holder, lease))
        holder.release(lease)
        thread.join(8)
        assert got and got[0].token > lease.token


def renewed(provider: LockProvider, lease: Lease) -> bool:
    try:
        provider.renew(lease)
    except ProviderUnavailable:
        return False
    return True


def test_scripts_that_redis_forgot_are_sent_again(world: World) -> None:
    provider = world.writer()
    lease = take(provider)
    world.look().script_flush()
    provider.renew(lease)
    world.look().script_flush()
    provider.release(lease)
    world.look().script_flush()
    take(provider)
