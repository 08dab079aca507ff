"""Every interleaving of cleaners, savepoints, transactions and readers keeps what they need, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.clean import Rules, explore
from tests.sizes import but_in_ci

MEETINGS = ("U0 U1 C0 C1", "U0 D0 C0 C1", "S0 C0 C1", "U0 S0 C0 C1", "S0 S1 C0 C1", "A0 C0 C1", "U0 A0 S0 C0")


@pytest.mark.parametrize("names", but_in_ci(MEETINGS, set(MEETINGS) - {"S0 S1 C0 C1"}))
def test_nobody_misses_a_file(names: str) -> None:
    states, violation = explore(names, head=2)
    assert not violation
    assert states > 100


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_of_cleaning_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(Rules(), **{rule: False})
    assert any(explore(names, 2, without)[1] for names in MEETINGS), f"nothing happens without {rule}"
