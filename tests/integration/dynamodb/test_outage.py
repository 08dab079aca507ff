"""The DynamoDB lock when its service goes away, or restarts with and without load."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep

import pytest
from tests.api import EventKind, Events, renewing
from tests.integration.dynamodb.dynamodb_world import (
    LEASE_S,
    World,
    take,
)

from lakelock.errors import LockTimeout, ProviderUnavailable
from lakelock.testing.lock_processes import Worker
from lakelock.testing.service import Service


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
        assert "lock.options.endpoint_url" in refused.value.hint
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


def test_a_restart_under_the_load_of_processes_keeps_the_lock_exclusive(
    world: World, dynamodb: Service, tmp_path: Path
) -> None:
    (tmp_path / "count").write_text("0")
    settings = {"lock.provider": world.uri, **dynamodb.options}
    arena = {"uri": str(tmp_path / "table"), "options": {}, "lease_s": 6.0, "renew_s": 2.0, "folder": str(tmp_path)}
    rounds, workers = 15, [Worker({**arena, "settings": settings}) for _ in range(2)]
    try:
        for worker in workers:
            worker.ask(f"hammer {rounds}")
        until_s = monotonic() + 60
        while not (tmp_path / "tokens").exists() or len((tmp_path / "tokens").read_text().splitlines()) < 4:
            assert monotonic() < until_s
            sleep(0.005)
        dynamodb.stop()
        dynamodb.start()
        assert [worker.answer() for worker in workers] == [{"overlaps": 0}] * 2
    finally:
        for worker in workers:
            worker.end()
    assert (tmp_path / "count").read_text() == str(2 * rounds)
