"""The model of the metadata table: no interleaving hides a commit, and each rule is needed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.metadata_table import Rules, explore
from tests.sizes import long


@pytest.mark.parametrize(
    "agents", ["W W C C", "W W C E", "W W W C", "W W E E C", "J W W C", "W J W W", "J N W W", "J W W W E", *long("W J C W E W")]
)
def test_nothing_that_is_visible_is_hidden_and_nothing_that_is_gone_is_listed(agents: str) -> None:
    states, found = explore(agents)
    assert found is None and states > 100


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    found = [explore(agents, replace(Rules(), **{rule: False}))[1] for agents in ("W W C E E", "W J W W", "J N W W")]
    assert any(found)
