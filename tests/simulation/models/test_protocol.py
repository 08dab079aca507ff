"""The claim of docs/robustness.md: every interleaving keeps the promises, and none of its rules can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.simulation.models.protocol import Model, Rules
from tests.simulation.models.protocol_search import explore

MOST_STATES = 1_500_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "conflicting", [pytest.param(True, id="conflicting"), pytest.param(False, id="disjoint", marks=pytest.mark.long)]
)
def test_every_interleaving_of_the_protocol_keeps_every_promise(conflicting: bool) -> None:
    states, violation = explore(Model(conflicting), most_states=MOST_STATES)
    assert violation is None
    assert states > 500_000


@pytest.mark.long
def test_two_reapers_at_once_keep_every_promise() -> None:
    """Both writers have written their files, and each reply to a decision comes: with all of it there are too many states."""
    states, violation = explore(Model(reapers=2, lossy=False, begun=True), most_states=MOST_STATES)
    assert violation is None
    assert states > 500_000


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(Rules(), **{rule: False})
    found = (explore(Model(conflicting, without), most_states=MOST_STATES)[1] for conflicting in (True, False))
    assert any(violation is not None for violation in found), f"nothing happens without {rule}"
