"""The lock next to the table: its promises, what it costs, and what wrong clocks can do to it."""

from __future__ import annotations

import pytest
from tests.api import MemoryStorage, renewing
from tests.behaviour.locks.storage_lock_world import LEASE_S, PLACES, World, make_storage, prepared, take
from tests.faulty_storage import CountingStorage

from lakelock.errors import LockError, LockTimeout
from lakelock.testing import ManualRuntime
from lakelock.testing.lock_suite import LockedTable, OneProcessPromises


@pytest.fixture(params=PLACES)
def storage_world(request: pytest.FixtureRequest) -> World:
    runtime = ManualRuntime()
    return World(make_storage(request, request.param, runtime), runtime)


class TestInTheTimeOfTheTest(OneProcessPromises):
    """The suite in no time; `tests/integration/test_lock_matrix.py` runs all of it in real time."""

    @pytest.fixture(params=PLACES)
    def locked_table(self, request: pytest.FixtureRequest) -> LockedTable:
        runtime = ManualRuntime()
        return LockedTable(
            {"lock.provider": "storage:"}, runtime=runtime, storage=make_storage(request, request.param, runtime), lease_s=15
        )


def test_taking_and_giving_back_costs_two_requests_alone_and_three_in_turns(storage_world: World) -> None:
    world = prepared(storage_world)
    counting = CountingStorage(world.storage)
    provider, other = world.writer("one", counting), world.writer("two")

    def cost() -> int:
        counting.reset()
        provider.release(take(provider))
        return counting.total

    assert [cost() for _ in range(4)] == [3, 2, 2, 2]
    costs = []
    for _ in range(3):
        other.release(take(other))
        costs.append(cost())
    assert costs == [4, 3, 3], "the version of one's own release is tried first until that fails"
    assert [cost() for _ in range(3)] == [3, 2, 2]


@pytest.mark.parametrize("skew_s", [3600, -3600])
def test_a_wrong_clock_neither_robs_a_live_holder_nor_waits_longer_for_a_dead_one(storage_world: World, skew_s: int) -> None:
    world = storage_world
    wrong = ManualRuntime(seed=9)
    wrong.skew_ms = skew_s * 1000
    holder = world.writer("holder", runtime=wrong)
    lease = take(holder)
    rival = world.writer("rival")
    beat = world.runtime.every(5.0, lambda: (wrong.advance(5.0), holder.renew(lease)), name="beat")  # type: ignore[arg-type, return-value]
    with pytest.raises(LockTimeout):
        take(rival, wait_s=4 * LEASE_S)
    beat.stop()
    before_s = world.runtime.monotonic_s()
    take(rival, wait_s=4 * LEASE_S)
    assert world.runtime.monotonic_s() - before_s <= LEASE_S + 2


def test_a_holder_that_died_long_ago_is_replaced_after_a_third_of_its_lease() -> None:
    runtime = ManualRuntime()
    world = World(MemoryStorage(runtime.now_ms), runtime)
    take(world.writer("dead"))
    runtime.advance(600)
    before_s = runtime.monotonic_s()
    take(world.writer("next"), wait_s=LEASE_S)
    assert runtime.monotonic_s() - before_s < LEASE_S / 3 + 2


def test_a_storage_clock_that_jumps_ahead_does_not_rob_a_holder_that_renews() -> None:
    runtime = ManualRuntime()
    jump_ms = [0]
    world = World(MemoryStorage(lambda: runtime.now_ms() + jump_ms[0]), runtime)
    holder = world.writer("holder")
    lease = take(holder)
    jump_ms[0] = 3_600_000
    with renewing(holder, lease, runtime, 5.0), pytest.raises(LockTimeout):
        take(world.writer("rival"), wait_s=3 * LEASE_S)
    lease.ensure_active()


@pytest.mark.parametrize("uri", ["memory:", "storage:"])
def test_a_thread_whose_turn_does_not_come_is_told_that_another_thread_of_its_process_has_it(uri: str) -> None:
    runtime = ManualRuntime()
    provider = World(MemoryStorage(runtime.now_ms, name=f"turn-{uri}"), runtime, uri).writer("one")
    lease = take(provider)
    with pytest.raises(LockTimeout, match="by another thread of this process; gave up after 1 s"):
        take(provider, wait_s=1)
    with pytest.raises(LockTimeout, match="by another thread of this process, which has lost it since") as refused:
        take(provider, wait_s=LEASE_S)
    assert "until this process ends" in refused.value.hint
    provider.release(lease)
    take(provider, wait_s=LEASE_S)


@pytest.mark.parametrize("uri", ["memory:", "storage:"])
def test_a_lock_that_is_refused_because_its_lease_runs_never_runs_for_0_s_more(uri: str) -> None:
    runtime = ManualRuntime()
    world = World(MemoryStorage(runtime.now_ms, name=uri), runtime, uri)
    lease = take(world.writer("dead"))
    operator = world.writer("operator")
    runtime.advance(LEASE_S - 4.25)
    for left_s, said in ((4.25, 5), (0.25, 1)):
        holder = operator.inspect().holder
        assert holder is not None and holder.left_s == left_s
        with pytest.raises(LockError, match=f"whose lease runs for up to {said} s more\n"):
            operator.break_lock(lease.token)
        runtime.advance(4)


@pytest.mark.parametrize(
    ("uri", "until"),
    [("memory:", "runs for up to 11 s more unless it is renewed"), ("storage:", "ends 15 s after its last renewal")],
)
def test_a_refusal_says_when_the_lease_of_a_dead_holder_ends_and_how_to_break_it(uri: str, until: str) -> None:
    runtime = ManualRuntime()
    world = World(MemoryStorage(runtime.now_ms, name=f"{uri} refused"), runtime, uri)
    lease = take(world.writer("dead"))
    runtime.advance(4)
    with pytest.raises(LockTimeout, match=f"is held by dead .*, whose lease {until}; gave up after 0 s") as refused:
        take(world.writer("next"))
    assert f"--token {lease.token}`" in refused.value.hint


def test_a_wait_that_is_too_short_to_recognise_a_dead_holder_says_so_and_the_wait_that_it_names_is_long_enough() -> None:
    runtime = ManualRuntime()
    world = World(MemoryStorage(runtime.now_ms), runtime)
    take(world.writer("dead"))
    runtime.advance(600)
    for name in ("one", "another"):
        with pytest.raises(LockTimeout) as refused:
            take(world.writer(name), wait_s=LEASE_S / 3)
        assert "recognised by a wait of 7 s: if it may be dead, give lock.wait_s at least that" in refused.value.hint
    lease = take(world.writer("patient"), wait_s=7)
    with pytest.raises(LockTimeout) as refused:
        take(world.writer("late"), wait_s=7)
    assert "dead" not in refused.value.hint
    lease.ensure_active()
