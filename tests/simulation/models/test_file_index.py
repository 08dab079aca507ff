"""The claim of docs/adr/0016-a-file-index.md: every interleaving is right, and none of its rules can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.file_index import Model, Rules, explore

MOST_STATES = 1_500_000

SMALL = {
    "a foreign commit comes late": Model(
        "writer0 writer1 writer2 checkpointer2 reader", 3, begun=frozenset({0}), foreign=frozenset({0})
    ),
    "two make checkpoints": Model("writer1 writer2 checkpointer2 checkpointer1 reader", 3, visible=(0,)),
    "an archive beside": Model("writer1 writer2 checkpointer1 archiver reader", 4, visible=(0,), begun=frozenset({1})),
    "a late one is archived": Model(
        "writer0 writer2 checkpointer2 archiver reader", 3, visible=(1,), begun=frozenset({0}), foreign=frozenset({0})
    ),
    "a slow clock": Model(
        "writer1 checkpointer1 archiver archiver reader", 4, visible=(0, 2, 3), foreign=frozenset({1}), grace=9, keeps=2
    ),
    "damage": Model("writer1 writer2 checkpointer2 damage reader", 3, visible=(0,)),
}
LONG = {
    "two make checkpoints, and a late one is archived": Model(
        "writer0 writer2 checkpointer2 checkpointer1 archiver reader",
        3,
        visible=(1,),
        begun=frozenset({0}),
        foreign=frozenset({0}),
    ),
    "damage beside an archive": Model(
        "writer1 writer2 checkpointer2 archiver damage reader", 4, visible=(0,), begun=frozenset({1})
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_interleaving_shows_readers_what_their_timeline_shows(name: str) -> None:
    states, violation = explore(SMALL[name], most_states=MOST_STATES)
    assert violation is None
    assert states > 100


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_every_interleaving_of_more_of_them_does_so_too(name: str) -> None:
    states, violation = explore(LONG[name], most_states=MOST_STATES)
    assert violation is None
    assert states > 10_000


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_of_the_file_index_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(Rules(), **{rule: False})
    found = (explore(replace(model, rules=without), most_states=MOST_STATES)[1] for model in SMALL.values())
    assert any(violation is not None for violation in found), f"nothing happens without {rule}"
