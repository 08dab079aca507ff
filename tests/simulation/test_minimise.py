"""A failure is made small, and drawn."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from tests.simulation.planted.bugs import PLANTED, first_seed
from tests.simulator.minimise import minimise, smallest
from tests.simulator.picture import picture
from tests.simulator.run import run
from tests.simulator.scenarios.swarm import scenario_of


def test_only_what_is_needed_stays() -> None:
    assert smallest(list(range(50)), lambda kept: {7, 31} <= set(kept)) == [7, 31]
    assert smallest(list(range(5)), lambda kept: True) == []


@pytest.mark.in_ci
def test_a_failure_is_made_small_and_drawn() -> None:
    planted = next(each for each in PLANTED if each.name == "no new look under the lock")
    seed = first_seed(planted)
    assert seed is not None
    with planted.planted():
        failed = run(scenario_of(seed))
        small = minimise(failed)
        again = run(small.result.scenario, only=frozenset(fault.place for fault in small.faults))
    assert small.result.violations[0].promise == failed.violations[0].promise
    assert again.digest == small.result.digest
    assert len(small.faults) <= len(failed.faults)
    assert len(small.result.scenario.operations) < len(failed.scenario.operations)
    drawing = picture(small.result)
    root = ElementTree.fromstring(drawing)
    texts = {element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert f"seed {seed}" in " ".join(texts)
    assert {actor.name for actor in small.result.scenario.actors if actor.operations} <= texts
