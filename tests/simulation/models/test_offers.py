"""Inserts on offer are committed once or not at all, in every interleaving, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.offers import Rules, search
from tests.sizes import but_in_ci

MEETINGS = {
    "two with a collector": {"owners": 2, "collections": 1},
    "two whose answers get lost": {"owners": 2, "collections": 1, "lossy": True},
    "three": {"owners": 3},
    "three with a collector": {"owners": 3, "collections": 1},
}


@pytest.mark.parametrize("name", but_in_ci(MEETINGS, set(MEETINGS) - {"three with a collector"}))
def test_an_insert_on_offer_is_committed_once_or_not_at_all(name: str) -> None:
    states, violation = search(Rules(), **MEETINGS[name])
    assert not violation
    assert states > 500


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_of_offers_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(Rules(), **{rule: False})
    assert any(search(without, **meeting)[1] for meeting in MEETINGS.values()), f"nothing happens without {rule}"
