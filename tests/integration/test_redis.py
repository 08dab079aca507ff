"""The lock in Redis, on a real server: what it adds to the promises of every provider (see `test_lock_matrix`)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from lakelock.clock import SystemRuntime
from lakelock.errors import LockError, LockTimeout
from lakelock.testing.servers.redis import RedisServer
from tests.integration.redis_world import LEASE_S, World, take, waiting
from tests.waiting import eventually


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


def test_tokens_grow_over_release_crash_and_a_lost_counter(world: World) -> None:
    tokens = []
    for provider in (world.writer("a"), world.writer("b"), world.writer("a")):
        lease = take(provider)
        tokens.append(lease.token)
        provider.release(lease)
    take(world.writer("crashes"))
    tokens.append(world.writer().inspect().token)
    tokens.append(take(world.writer("after"), wait_s=3 * LEASE_S).token)
    world.look().delete(f"{{{world.key}}}", f"{{{world.key}}}:token")
    tokens.append(take(world.writer("after the loss")).token)
    assert tokens == sorted(set(tokens)) and len(tokens) == 6


def test_inspect_shows_the_holder_its_time_left_and_who_waits(world: World) -> None:
    holder, looks = world.writer("holder"), world.writer("looks")
    assert looks.inspect().holder is None and looks.inspect().token == 0
    lease = take(holder)
    waiters = [threading.Thread(target=take, args=(world.writer(f"waiter {n}"), 5)) for n in range(2)]
    for number, thread in enumerate(waiters, start=1):
        thread.start()
        eventually(lambda number=number: waiting(looks, number))  # type: ignore[misc]
    state = looks.inspect()
    assert state.holder is not None and state.holder.writer is not None and state.holder.writer.application == "holder"
    assert state.holder.owner == lease.grant and state.token == state.holder.token == lease.token
    assert state.holder.lease_s == LEASE_S and abs((state.holder.renewed_ms or 0) - SystemRuntime().now_ms()) < 2000
    assert [each.writer.application for each in state.queue if each.writer] == ["waiter 0", "waiter 1"]
    holder.release(lease)
    for thread in waiters:
        thread.join(10)


def test_a_lock_that_something_else_put_there_is_respected_and_can_be_broken(world: World) -> None:
    world.look().set(f"{{{world.key}}}", "made by hand")
    with pytest.raises(LockTimeout, match="made by hand"):
        take(world.writer(), 0.1)
    with pytest.raises(LockError, match="for ever"):
        world.writer().break_lock(0)
    world.writer().break_lock(0, force=True)
    take(world.writer())


def test_the_value_in_redis_names_its_writer(world: World) -> None:
    lease = take(world.writer("stream"))
    kept = json.loads(world.look().get(f"{{{world.key}}}"))
    assert kept["grant"] == lease.grant and kept["writer"] == lease.owner.as_dict()
