"""Log files and base files by several writers at once: readers see the order of decisions, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations_with_replacement, product

import pytest
from tests.simulation.models.appending import Rules, explore

APPENDS = ("upsert a", "upsert b odd", "delete a", "update even", "update odd")
BASES = ("rewrite even", "put a", "put b odd", "compact", "cluster")
KINDS = (*APPENDS, *BASES)
PAIRS = [
    (f"{one}{slow}", f"{other}{late}")
    for one, other in combinations_with_replacement(KINDS, 2)
    for slow, late in product(("", " slow"), repeat=2)
]
TRIPLES = [
    ("upsert a slow", "upsert a", "update even"),
    ("upsert a", "compact slow", "delete a slow"),
    ("update odd slow", "put b odd", "compact"),
    ("upsert b odd slow", "rewrite even", "compact slow"),
    ("cluster", "upsert a slow", "compact"),
]


ALL_RULES = Rules()


def first_violation(some: list[tuple[str, ...]], rules: Rules = ALL_RULES) -> str | None:
    return next((found for writers in some if (found := explore(*writers, rules=rules)[1]) is not None), None)


def test_two_writers_are_seen_in_the_order_of_their_decisions() -> None:
    assert first_violation(PAIRS) is None


@pytest.mark.parametrize("writers", TRIPLES, ids=" | ".join)
def test_three_writers_are_seen_in_the_order_of_their_decisions(writers: tuple[str, ...]) -> None:
    states, violation = explore(*writers)
    assert violation is None and states > 1_000


@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    assert first_violation([*PAIRS, *TRIPLES], replace(ALL_RULES, **{rule: False})) is not None


@pytest.mark.long
@pytest.mark.parametrize(("first", "other"), combinations_with_replacement(KINDS, 2))
def test_any_three_writers_are_seen_in_the_order_of_their_decisions(first: str, other: str) -> None:
    assert first_violation([(f"{first} slow", other, f"{third} slow") for third in KINDS]) is None
