"""No interleaving of calls with reservations lets them wait for each other or for the dead, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.reserving import Plan, Rules, Work, explore
from tests.sizes import but_in_ci

ERASURE = (Work(("ab",)),)
STREAM_A, STREAM_B = (Work(adds="a"),), (Work(adds="b"),)
ONE_BY_ONE, BACKWARDS = (Work(("a", "b")),), (Work(("b", "a")),)
NEEDS_MORE = (Work(("a",)), Work(("a", "b")))

PLANS: dict[str, Plan] = {
    "an erasure beside two streams": (ERASURE, STREAM_A, STREAM_B),
    "two erasures beside a stream": (ERASURE, ERASURE, STREAM_A),
    "claims in opposite orders": (ONE_BY_ONE, BACKWARDS, STREAM_A),
    "a second attempt that needs more": (NEEDS_MORE, (Work(("b",), adds="a"),), STREAM_A),
    "an erasure beside two upserts": (ERASURE, (Work(("b",)),), (Work(("b",)),)),
    "an upsert of known and new rows beside an upsert and a stream": (
        (Work(("a",), adds="b"),),
        (Work(("b",)),),
        STREAM_B,
    ),
    "rewriters that also append": ((Work(("a",), adds="b"),), (Work(("b",), adds="a"),), ERASURE),
}
FOUR: Plan = (ERASURE, ERASURE, STREAM_A, (Work(("b",)),))
"""All of its 631,506 states were visited once (ADR 20)."""

BROKEN_BY = {
    "give_back": (PLANS["a second attempt that needs more"], 0),
    "list_after_queue": (FOUR, 0),
    "look_at_commit": (PLANS["an erasure beside two streams"], 0),
    "take_lock": (PLANS["an erasure beside two streams"], 0),
    "claims_tell_places": (PLANS["an erasure beside two upserts"], 0),
    "claims_tell_additions": (PLANS["an upsert of known and new rows beside an upsert and a stream"], 0),
    "end_with_heartbeat": (PLANS["an erasure beside two streams"], 1),
}


@pytest.mark.parametrize("plan", but_in_ci(PLANS, list(PLANS)[:1]))
def test_nobody_waits_in_a_circle_and_whoever_has_a_reservation_wins_whoever_dies(plan: str) -> None:
    states, violation = explore(PLANS[plan], deaths=1)
    assert violation is None
    assert states > 5_000


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    plan, deaths = BROKEN_BY.get(rule, (PLANS["two erasures beside a stream"], 0))
    assert explore(plan, replace(Rules(), **{rule: False}), deaths=deaths)[1] is not None
