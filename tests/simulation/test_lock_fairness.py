"""By how much the default lock is not fair between processes, as its guarantee says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.faults import Weather
from tests.simulator.scenarios.scenario import Scenario
from tests.simulator.scheduler import Process
from tests.simulator.world import World

from lakelock.settings import LockSettings

WRITERS, HELD_S, THINKS_S, LATENCY_S, LASTS_S, WAIT_S = 8, 0.2, 1.0, 0.02, 600.0, 60.0


def waits() -> tuple[list[float], list[int]]:
    """How long each wait took, and how many who came later were served first; both sorted."""
    world = World(Scenario(7, (), weather=Weather(latency_s=LATENCY_S), lease_s=15.0))
    world.settings = replace(world.settings, lock=LockSettings(wait_s=WAIT_S))
    hub, waited_s, passed = world.hub, [], []
    waiting: dict[int, tuple[float, list[int]]] = {}

    def write(process: Process) -> None:
        table = world.coordinator(process).table
        while hub.now_s < LASTS_S:
            hub.wait(hub.current.random.expovariate(1 / THINKS_S))
            came_s, passed_by = waiting[process.number] = hub.now_s, []
            with table.locked():
                del waiting[process.number]
                waited_s.append(hub.now_s - came_s)
                passed.append(len(passed_by))
                for earlier_s, overtaken in waiting.values():
                    if earlier_s < came_s:
                        overtaken.append(process.number)
                hub.wait(HELD_S)

    for number in range(WRITERS):
        process = world.process(f"writer-{number}")
        hub.spawn(process, lambda process=process: write(process), process.name)
    hub.spawn(world.process("end"), lambda: (hub.wait(LASTS_S + 2 * WAIT_S), hub.stop()), "end")
    hub.run()
    errors = list(hub.errors)
    hub.dispose()
    assert errors == []
    return sorted(waited_s), sorted(passed)


@pytest.mark.in_ci
def test_most_waits_for_the_default_lock_are_short_and_one_in_a_hundred_is_long() -> None:
    waited_s, passed = waits()
    assert len(waited_s) > 2_000, "it is nearly always taken"
    median, one_in_100 = len(waited_s) // 2, len(waited_s) * 99 // 100
    assert waited_s[median] < 0.4 < 5 < waited_s[one_in_100] < 12
    assert passed[median] == 0 and 15 < passed[one_in_100] < 40
    assert waited_s[-1] < WAIT_S
