"""Minimises a failure: leaves out operations and faults as long as the same promise is still broken (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tests.simulator.faults import Fault
from tests.simulator.run import Result, run
from tests.simulator.scenarios.scenario import Scenario

T = TypeVar("T", bound=Hashable)

MOST_RUNS = 150


@dataclass(frozen=True)
class Small:
    """The smallest failing run that was found: `result` belongs to a scenario with fewer operations and only these faults."""

    result: Result
    faults: tuple[Fault, ...]
    runs: int


def minimise(failed: Result) -> Small:
    """A run that breaks the same promise with as few operations and faults as can be found in a bounded number of runs."""
    promise = failed.violations[0].promise
    runs = 0

    def fails(scenario: Scenario, places: Sequence[tuple[str, int]]) -> Result | None:
        nonlocal runs
        runs += 1
        if runs > MOST_RUNS:
            return None
        result = run(scenario, only=frozenset(places))
        return result if any(v.promise == promise for v in result.violations) else None

    scenario = failed.scenario
    places = [fault.place for fault in failed.faults]
    if fails(scenario, places) is None:  # impossible, unless the run depends on more than its seed
        return Small(failed, failed.faults, runs)
    for _ in range(2):
        places = smallest(places, partial(_breaks, fails, scenario))
        scenario = _with(scenario, smallest(list(scenario.operations), partial(_breaks_with, fails, scenario, places)))
    result = run(scenario, only=frozenset(places), keep_events=True)
    return Small(result, result.faults, runs)


def smallest(things: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subset of `things` that still fails, and from which no single thing can be left out (ddmin)."""
    kept = list(things)
    if not kept or fails([]):
        return []
    chunk = max(1, len(kept) // 2)
    while True:
        start, shrunk = 0, False
        while start < len(kept):
            without = kept[:start] + kept[start + chunk :]
            if fails(without):
                kept, shrunk = without, True
            else:
                start += chunk
        if chunk == 1 and not shrunk:
            return kept
        chunk = max(1, chunk // 2)


Fails = Callable[[Scenario, Sequence[tuple[str, int]]], Result | None]


def _breaks(fails: Fails, scenario: Scenario, places: Sequence[tuple[str, int]]) -> bool:
    return fails(scenario, places) is not None


def _breaks_with(fails: Fails, scenario: Scenario, places: Sequence[tuple[str, int]], numbers: Sequence[int]) -> bool:
    return fails(_with(scenario, numbers), places) is not None


def _with(scenario: Scenario, numbers: Sequence[int]) -> Scenario:
    """The scenario with these operations only; actors without any stay, because the others must keep their clocks."""
    wanted = set(numbers)
    actors = tuple(
        replace(actor, operations=tuple(each for each in actor.operations if each.id in wanted)) for actor in scenario.actors
    )
    return replace(scenario, actors=actors)
