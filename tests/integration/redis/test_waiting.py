"""Waiters for the lock in Redis: their order, what wakes them, and what they cost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from tests.integration.redis.redis_world import LEASE_S, World, take, waiting
from tests.waiting import eventually

from lakelock.testing.lock_processes import Worker


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
