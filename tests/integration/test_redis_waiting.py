"""Waiters for the lock in Redis: their order, what wakes them, and what they cost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LockTimeout
from lakelock.providers import LockProvider, renewing
from lakelock.testing.lock_processes import Worker
from lakelock.testing.servers.redis import RedisServer
from tests.integration.redis_world import LEASE_S, World, take, waiting
from tests.waiting import Stopwatch, eventually


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    made = World(server.port, server)
    yield made
    for provider in made.opened:
        provider.close()


def test_waiters_are_served_in_order_of_arrival_and_woken_at_once(world: World) -> None:
    holder = world.writer("holder", lock__lease_s=30, lock__renew_s=5)
    lease = take(holder)
    served: list[int] = []
    times_s: list[float] = []

    def wait(number: int, provider: LockProvider) -> None:
        mine = take(provider, 20)
        times_s.append(monotonic())
        served.append(number)
        provider.release(mine)

    threads = []
    for number in range(8):
        threads.append(threading.Thread(target=wait, args=(number, world.writer(f"w{number}", lock__lease_s=30))))
        threads[-1].start()
        eventually(lambda number=number: waiting(holder, number + 1))  # type: ignore[misc]
    released_s = monotonic()
    holder.release(lease)
    for thread in threads:
        thread.join(20)
    assert served == list(range(8))
    assert times_s[-1] - released_s < 1.0, "they were not woken but looked again"


def test_the_requests_of_many_waiters_grow_with_their_number_and_not_its_square(world: World) -> None:
    looks = world.look()

    def requests(waiters: int) -> int:
        # A long lease, so that the only reason to ask again is having been woken.
        opened = [world.writer(f"w{n}", lock__lease_s=60, lock__renew_s=5, redis__socket_timeout_s=5) for n in range(waiters)]
        holder = world.writer("holder", lock__lease_s=60)
        lease = take(holder)
        before = looks.info("commandstats")["cmdstat_evalsha"]["calls"]

        def work(provider: LockProvider) -> None:
            provider.release(take(provider, 30))

        threads = [threading.Thread(target=work, args=(provider,)) for provider in opened]
        for thread in threads:
            thread.start()
        eventually(lambda: looks.zcard(f"{{{world.key}}}:queue") == waiters)
        holder.release(lease)
        for thread in threads:
            thread.join(30)
        return int(looks.info("commandstats")["cmdstat_evalsha"]["calls"]) - before

    few, many = requests(5), requests(50)
    assert few <= 5 * 5 and many <= 50 * 5, (few, many)


def test_a_waiter_that_gives_up_leaves_the_queue(world: World) -> None:
    holder, impatient, patient = world.writer("holder"), world.writer("impatient"), world.writer("patient")
    lease = take(holder)
    with renewing(holder, lease, SystemRuntime(), 0.2):
        with pytest.raises(LockTimeout):
            take(impatient, 0.2)
        assert holder.inspect().queue == ()
    holder.release(lease)
    with Stopwatch() as watch:
        take(patient, 12)
    assert watch.took_s < 0.2


def test_a_waiter_that_died_or_froze_does_not_stop_the_others(world: World, workers: Callable[..., Worker]) -> None:
    holder, last = world.writer("holder", lock__lease_s=20), world.writer("last", lock__lease_s=20)
    lease = take(holder)
    dead, frozen = workers(world), workers(world)
    for number, worker in enumerate((dead, frozen), start=1):
        worker.ask("take 20")
        eventually(lambda number=number: waiting(holder, number))  # type: ignore[misc]
    got: list[float] = []
    thread = threading.Thread(target=lambda: (take(last, 10), got.append(monotonic())))
    thread.start()
    eventually(lambda: waiting(holder, 3))
    dead.signal(signal.SIGKILL)
    frozen.signal(signal.SIGSTOP)
    dead.process.wait(5)
    released_s = monotonic()
    holder.release(lease)
    thread.join(10)
    assert got and got[0] - released_s < 2.0 + 0.5 + 0.5
    last.close()
    frozen.signal(signal.SIGCONT)
    assert "token" in frozen.answer()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(world: World, **settings: Any) -> Worker:
        uri = world.uri.format(port=world.port, key=world.key)
        arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": LEASE_S, "renew_s": 0.2, "folder": str(tmp_path)}
        started.append(Worker(arena | {"settings": {"lock.provider": uri} | settings}))
        assert started[-1]("ready")
        return started[-1]

    yield start
    for worker in started:
        worker.end()
