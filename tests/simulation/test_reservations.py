"""An erasure over every partition beside a stream of one commit a second, on simulated time."""

from __future__ import annotations

import pytest
from tests.api import EventKind
from tests.simulator.faults import Weather
from tests.simulator.operations import DeleteBelow, Insert
from tests.simulator.rows import Row
from tests.simulator.run import Result, run
from tests.simulator.scenarios.scenario import ActorPlan, Scenario
from tests.simulator.scenarios.swarm import scenario_of
from tests.simulator.trace import Answer
from tests.sizes import but_in_ci

HOLDER_WAIT_S = 30.0


def erased(seed: int, *, reserve_after: int) -> Result:
    """A request takes 60 ms: an insert takes a second, the erasure many of them."""
    inserts = tuple(Insert(number, tuple(Row(part, f"s{number}", 1, (number,)) for part in "012")) for number in range(40))
    actors = (ActorPlan("stream", inserts, think_s=0.02), ActorPlan("eraser", (DeleteBelow(1000, 50),), think_s=5.0))
    scenario = Scenario(
        seed, actors, weather=Weather(latency_s=0.06), lease_s=30.0, reserve_after=reserve_after, holder_wait_s=HOLDER_WAIT_S,
        keeps_turns=reserve_after > 0,
    )  # fmt: skip
    return run(scenario, keep_events=True)


def attempts(result: Result) -> int:
    return sum(event.kind is EventKind.BEGAN for _, name, event in result.trace.events if name == "eraser")


def answer(result: Result) -> Answer:
    return next(one.answer for one in result.trace.answered if one.actor == "eraser")


@pytest.mark.parametrize("reserve_after", [1, 2])
@pytest.mark.parametrize("seed", but_in_ci(range(5), range(2)))
def test_the_erasure_ends_after_one_more_attempt_than_it_may_lose(seed: int, reserve_after: int) -> None:
    result = erased(seed, reserve_after=reserve_after)
    assert result.ok, result.violations
    assert answer(result) is Answer.COMMITTED
    assert attempts(result) <= reserve_after + 1
    longest_s = max(one.ended_s - one.began_s for one in result.trace.answered if one.actor == "stream")
    assert longest_s < HOLDER_WAIT_S


def test_without_reservations_the_erasure_loses_all_of_its_attempts() -> None:
    results = [erased(seed, reserve_after=0) for seed in range(5)]
    assert [answer(result) for result in results].count(Answer.REJECTED) >= 4


@pytest.mark.in_ci
def test_reservations_are_made_and_waited_for_in_the_histories_that_are_checked() -> None:
    scenarios = [scenario for scenario in map(scenario_of, range(130)) if scenario.keeps_turns]
    results = [run(scenario, keep_events=True) for scenario in scenarios]
    kinds = [event.kind for result in results for _, _, event in result.trace.events]
    assert all(result.ok for result in results)
    assert kinds.count(EventKind.RESERVED) > 10 < kinds.count(EventKind.WAITING_FOR_RESERVATION)
