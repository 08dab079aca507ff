"""The ZooKeeper lock on a real server: what a queue and a session add to the promises of every provider."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakelock.errors import LeaseLost, LockTimeout
from lakelock.events import EventKind, Events
from lakelock.providers import renewing
from lakelock.testing.servers.service import Service
from tests.integration.zookeeper_world import LEASE_S, World, expire, nodes, take
from tests.waiting import eventually


@pytest.fixture
def world(zookeeper: Service) -> Iterator[World]:
    world = World(zookeeper)
    yield world
    world.close()


def test_tokens_are_transaction_numbers_and_grow_across_release_and_lost_sessions(world: World) -> None:
    tokens = []
    for name in ("a", "b", "a"):
        provider = world.writer(name)
        lease = take(provider)
        tokens.append(lease.token)
        assert provider.inspect().token == lease.token
        provider.release(lease)
    crashed = world.writer("crashes")
    tokens.append(take(crashed).token)
    expire(crashed)
    tokens.append(take(world.writer("after"), wait_s=12).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 5


def test_release_may_be_called_twice_and_frees_nobody_elses_lock(world: World) -> None:
    first, second, third = world.writer("first"), world.writer("second"), world.writer("third")
    old = take(first)
    expire(first)
    new = take(second, wait_s=12)
    first.release(old)
    first.release(old)
    with pytest.raises(LockTimeout):
        take(third)
    second.renew(new)
    second.release(new)
    second.release(new)
    with pytest.raises(LeaseLost):
        second.renew(new)
    take(third).ensure_active()


def test_a_session_that_ended_is_a_loss_that_is_told_once_and_the_writer_can_go_on(world: World) -> None:
    holder = world.writer("holder", lease_s=6.0)
    lease = take(holder)
    with renewing(holder, lease, world.runtime, 0.1, Events((world.seen.append,))):
        expire(holder)
        eventually(lambda: lease.lost)
        assert lease.lost is not None and lease.lost.reason == "session-lost"
        with pytest.raises(LeaseLost, match="session"):
            lease.ensure_active()
    holder.release(lease)
    assert [event.kind for event in world.seen].count(EventKind.LEASE_LOST) == 1
    again = take(holder, wait_s=12)
    assert again.token > lease.token and lease.lost.reason == "session-lost"


def test_inspect_shows_the_holder_and_the_queue_in_order(world: World) -> None:
    looking = world.writer("looks")
    assert looking.inspect().holder is None
    lease = take(world.writer("one"))
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for number, name in enumerate(("two", "three"), start=1):
            waiting.append(pool.submit(take, world.writer(name), 10))
            eventually(lambda number=number: len(nodes(looking)) == 1 + number)  # type: ignore[misc]
        state = looking.inspect()
        assert state.holder is not None and state.holder.writer is not None
        assert state.holder.writer.application == "one" and state.holder.lease_s == LEASE_S
        assert state.token == state.holder.token == lease.token
        assert [one.writer and one.writer.application for one in state.queue] == ["two", "three"]
        assert lease.token < state.queue[0].token < state.queue[1].token
        world.opened[1].release(lease)
        eventually(waiting[0].done)
        world.opened[2].release(waiting[0].result())
        world.opened[3].release(waiting[1].result(10))
    state = looking.inspect()
    assert state.holder is None and state.queue == () and state.token >= lease.token


def test_waiters_are_served_in_order_of_arrival_and_a_release_wakes_the_next_at_once(world: World) -> None:
    looking, served, delays = world.writer("looks"), [], []
    released_s = 0.0
    holder = world.writer("holder", lease_s=30.0)
    lease = take(holder)

    def work(number: int) -> None:
        nonlocal released_s
        provider = world.writer(str(number), lease_s=30.0)
        mine = take(provider, 30)
        delays.append(time.monotonic() - released_s)
        served.append(number)
        released_s = time.monotonic()
        provider.release(mine)

    with ThreadPoolExecutor(6) as pool:
        working = []
        for number in range(6):
            working.append(pool.submit(work, number))
            eventually(lambda number=number: len(nodes(looking)) == number + 2)  # type: ignore[misc]
        released_s = time.monotonic()
        holder.release(lease)
        for one in working:
            one.result(20)
    assert served == list(range(6))
    assert sorted(delays)[3] < 0.25, delays


def received(service: Service) -> int:
    """Packets that the server has received so far."""
    with socket.create_connection((service.host, service.port), timeout=5) as talking:
        talking.sendall(b"mntr")
        told = b"".join(iter(lambda: talking.recv(65_536), b"")).decode()
    return int(next(line.split("\t")[1] for line in told.splitlines() if line.startswith("zk_packets_received")))


def test_a_lone_writer_sends_three_requests_for_a_lock_and_its_release(world: World) -> None:
    provider = world.writer("alone", lease_s=30.0)
    provider.release(take(provider, 12))
    before = received(world.service)
    for _ in range(20):
        provider.release(take(provider))
    assert received(world.service) - before <= 3 * 20 + 10


def test_the_requests_of_waiters_grow_linearly_and_not_with_time(world: World) -> None:
    def requests(waiters: int) -> int:
        looking, holder = world.writer("looks", lease_s=30.0), world.writer("holder", lease_s=30.0)
        lease = take(holder, 12)
        providers = [world.writer(f"{waiters}-{number}", lease_s=30.0) for number in range(waiters)]
        for provider in providers:
            provider.probe()
        with ThreadPoolExecutor(waiters) as pool:
            work = [pool.submit(lambda one=provider: one.release(take(one, 60))) for provider in providers]  # type: ignore[misc]
            end_s = time.monotonic() + 20
            while len(nodes(looking)) < waiters + 1:
                assert time.monotonic() < end_s
                time.sleep(0.2)
            between = received(world.service)
            assert work and not any(one.done() for one in work)
            holder.release(lease)
            for one in work:
                one.result(30)
        after = received(world.service)
        for provider in (*providers, looking, holder):
            provider.close()
        return after - between

    few, many = requests(5), requests(25)
    # To be woken and to leave is sync, list and delete, and whatever pings fell into the time. A herd would cost 25 * 25 / 2.
    assert few <= 3 * 5 + 30 and many <= 3 * 25 + 60
