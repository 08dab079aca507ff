"""Every interleaving of writes and services keeps the promise that no write loses to upkeep, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.yielding import Rules, explore


@pytest.mark.parametrize("names", ["U0 O0", "U0 O0 O1", "U0 U1 O0 O1"])
def test_no_write_loses_to_a_service_what_it_has_written(names: str) -> None:
    states, violation = explore(names)
    assert violation is None
    assert states > 30


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    assert explore("U0 O0 O1", replace(Rules(), **{rule: False}))[1] is not None
