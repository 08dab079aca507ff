"""The lock in Redis, on a real server: what it adds to the promises of every provider (see `test_lock_matrix`)."""

from __future__ import annotations

import json

import pytest
from tests.api import SystemRuntime
from tests.integration.redis.redis_world import World, take

from lakelock.errors import LockError, LockTimeout


def test_tokens_grow_over_a_lost_counter(world: World) -> None:
    lease = take(world.writer("before"))
    world.look().delete(f"{{{world.key}}}", f"{{{world.key}}}:token")
    assert take(world.writer("after")).token > lease.token


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
    holder = world.writer("looks").inspect().holder
    assert holder is not None and abs((holder.renewed_ms or 0) - SystemRuntime().now_ms()) < 2000
