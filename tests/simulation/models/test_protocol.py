"""The claim of docs/robustness.md: every interleaving keeps the promises, and none of its rules can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.protocol import Model, Rules
from tests.simulation.models.protocol_search import explore

MOST_STATES = 3_000_000


@pytest.mark.slow
def test_every_interleaving_of_the_protocol_keeps_every_promise() -> None:
    """As long as each reply to a decision comes; the long form, and the rules that are left out below, have lost ones."""
    states, violation = explore(Model(lossy=False), most_states=MOST_STATES)
    assert violation is None
    assert states > 200_000


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(Model(), id="conflicting"),
        pytest.param(Model(conflicting=False), id="disjoint"),
        # Both writers have written their files, and each reply comes: with all of it there are too many states.
        pytest.param(Model(reapers=2, lossy=False, begun=True), id="two reapers at once"),
    ],
)
def test_lost_replies_and_a_second_reaper_break_no_promise(model: Model) -> None:
    states, violation = explore(model, most_states=MOST_STATES)
    assert violation is None
    assert states > 500_000


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(Rules(), **{rule: False})
    found = (explore(Model(conflicting, without), most_states=MOST_STATES)[1] for conflicting in (True, False))
    assert any(violation is not None for violation in found), f"nothing happens without {rule}"
