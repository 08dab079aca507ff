"""How often a waiter looks at a lock that cannot tell it: less often the longer others pass it on, and again at the end."""

from __future__ import annotations

from itertools import count

import pytest
from tests.api import MemoryStorage, layout
from tests.behaviour.locks.storage_lock_world import World

from lakelock.errors import LockTimeout
from lakelock.providers.storage import LockFile
from lakelock.settings import LockSettings

POLL_S = LockSettings().poll_s
WAIT_S, TURN_S = 60.0, 1.0


def pauses(owners: list[str]) -> list[float]:
    """Those of a waiter that never gets the lock, whose file names the next of `owners` each second, over and over."""
    world = World(MemoryStorage(name="crowd"))
    runtime, turn = world.runtime, count()

    def pass_on() -> None:
        owner = owners[(number := next(turn)) % len(owners)]
        file = LockFile(False, runtime.now_ms() + 15_000, owner, token=number + 1, limit=1000, lease_ms=15_000)
        world.storage.put(layout.LOCK, file.to_bytes())

    pass_on()
    runtime.every(TURN_S, pass_on, name="others")
    with pytest.raises(LockTimeout):
        world.writer("waiter").acquire(wait_s=WAIT_S)
    assert sum(runtime.slept_s) == pytest.approx(WAIT_S)
    return runtime.slept_s


def test_a_lock_that_one_holder_keeps_is_looked_at_at_least_every_poll_s() -> None:
    slept = pauses(["the only one"])
    assert max(slept) <= POLL_S and len(slept) >= WAIT_S / POLL_S


def test_in_a_crowd_a_waiter_stays_away_for_an_eighth_of_its_wait_and_looks_often_at_its_end() -> None:
    alone, slept = pauses(["the only one"]), pauses([f"writer {number}" for number in range(50)])
    assert len(slept) < len(alone) / 2
    waited_s, longest_s = 0.0, 0.0
    for pause_s in slept:
        assert pause_s <= max(POLL_S, min(waited_s, WAIT_S - waited_s) / 8) + 1e-9
        waited_s, longest_s = waited_s + pause_s, max(longest_s, pause_s)
    assert longest_s > 2 * POLL_S
    assert all(pause_s <= POLL_S for pause_s in slept[-5:])


def test_a_newcomer_looks_at_once_and_soon_again_in_a_crowd_too() -> None:
    slept = pauses([f"writer {number}" for number in range(50)])
    assert sum(slept[:5]) < 0.1
