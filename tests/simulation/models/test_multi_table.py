"""The claim of docs/adr/0021: every interleaving keeps the promises over several tables, and no rule can be left out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.simulation.models.multi_table.case import Case, Rules
from tests.simulation.models.multi_table.model import explore
from tests.simulation.models.multi_table.world import Transaction
from tests.sizes import but_in_ci

MOST_STATES = 6_000_000

BOTH, REVERSED, ALL_THREE = Transaction((0, 1)), Transaction((1, 0)), Transaction((0, 1, 2))
IN_A, IN_B, IN_C = Transaction((0,)), Transaction((1,)), Transaction((2,))
A_TO_B, B_TO_A = Transaction((1,), reads=(0,)), Transaction((0,), reads=(1,))

SMALL = {
    "single writers": Case((BOTH, IN_A, IN_B), "writer0 writer1 writer2", lost="prepare outcome"),
    "ghosts": Case((BOTH, IN_B), "writer0 writer1 reaper0A reaper0B outcomes0", 4, lost="outcome", prepared=(0,)),
    "a reader beside two": Case((BOTH, BOTH), "writer0 writer1 reader", disjoint=True, begun=(0, 1)),
    "a reader beside reapers": Case(
        (BOTH,), "writer0 reaper0A reaper0B outcomes0 reader", lost="outcome", disjoint=True, prepared=(0,)
    ),
    "write skew": Case((A_TO_B, B_TO_A, IN_A), "writer0 writer1 writer2 reaper0B", 4),
    "a strict reader": Case((A_TO_B, IN_A), "writer0 writer1 reader", strict=True),
    "another engine under the lock": Case((BOTH, IN_B), "writer0 writer1 foreign0A! foreign0B!", lost="prepare"),
}
LONG = {
    "a reader": Case((BOTH, IN_A, IN_B), "writer0 writer1 writer2 reader", disjoint=True, begun=(0, 1, 2)),
    "both collectors": Case((BOTH, IN_A), "writer0 writer1 reaper0A decisionsA outcomes0", 4, lost="prepare outcome"),
    "reapers": Case((BOTH, IN_A), "writer0 writer1 reaper0A reaper0B outcomes0", 4, lost="prepare outcome"),
    "decisions collected": Case((BOTH, IN_A, IN_A), "writer0 writer1 writer2 decisionsA", 4, lost="prepare"),
    "another engine without the lock": Case(
        (BOTH, IN_B), "writer0 writer1 reaper0A reaper0B outcomes0 foreign0A foreign0B", 4, lost="outcome", prepared=(0,)
    ),
    "two in one order": Case((BOTH, BOTH), "writer0 writer1 reaper0A reaper0B outcomes0", lost="outcome"),
    "two in opposite orders": Case((BOTH, REVERSED), "writer0 writer1 reaper0A reaper0B outcomes0", lost="outcome"),
    "two and single writers": Case((BOTH, BOTH, IN_A, IN_B), "writer0 writer1 writer2 writer3", 4, begun=(0, 1)),
    "a reader beside a collector": Case(
        (BOTH, IN_A, IN_B), "writer0 writer1 writer2 decisionsA reader", disjoint=True, begun=(0, 1, 2)
    ),
    "everybody": Case((BOTH, IN_A, IN_B), "writer0 writer1 writer2 reaper0A reaper0B outcomes0", lost="outcome", begun=(0,)),
}
"""With `BEYOND`, all that docs/adr/0021 lists."""

BEYOND = {
    "two lost replies": replace(SMALL["single writers"], losses=2),
    "two lost outcomes": replace(SMALL["ghosts"], losses=2, lost="outcome abort"),
    "three tables": Case((ALL_THREE, IN_A, IN_C), "writer0 writer1 writer2", lost="prepare outcome"),
    "three tables and reapers": Case(
        (ALL_THREE,), "writer0 reaper0A reaper0B reaper0C outcomes0", lost="outcome", prepared=(0,)
    ),
    "three tables and a reader": Case((ALL_THREE, IN_B), "writer0 writer1 reader", disjoint=True, begun=(0, 1)),
}
ALL = SMALL | LONG | BEYOND

MISSED = {
    "single writers": "outcome_after_last_prepare publish_after_outcome first_below_prepare timeline_after_outcome "
    "window_by_timeline finish_prepared_head outcome_if_absent outcome_again outcome_deleted_last abort_by_outcome",
    "reapers": "begin_everywhere_first heed_own_rollback reaper_asks_outcome",
    "decisions collected": "boundary_after_prepare",
    "write skew": "reads_after_prepares ask_in_read_tables heed_decided_head_of_read_table",
    "ghosts": "home_after_aborted home_after_committed reaper_timeline_after_outcome outcome_kept_while_pending "
    "outcome_kept_for_other_tables",
    "a reader": "publish_before_next reader_looks_twice reader_asks_before_second_look reader_asks_outcomes",
    "a reader beside reapers": "reader_timeline_after_outcome",
    "a strict reader": "strict_reader_settles",
    "another engine under the lock": "own_instant_pending",
    "another engine without the lock": "others_when_home_is_gone every_table_before_told",
}
"""A search in which each rule is missed."""
WHERE = {rule: name for name, rules in MISSED.items() for rule in rules.split()}


@pytest.mark.slow
@pytest.mark.parametrize("name", but_in_ci(SMALL, list(SMALL)[:1]))
def test_every_interleaving_of_a_transaction_over_two_tables_keeps_every_promise(name: str) -> None:
    states, violation = explore(SMALL[name], most_states=MOST_STATES)
    assert violation is None
    assert states > 1_000


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", LONG | BEYOND)
def test_every_interleaving_of_more_agents_tables_and_lost_replies_does_so_too(name: str) -> None:
    states, violation = explore(ALL[name], most_states=MOST_STATES)
    assert violation is None
    assert states > 1_000


@pytest.mark.in_ci
@pytest.mark.sampled
@pytest.mark.parametrize("rule", [field.name for field in fields(Rules)])
def test_a_rule_for_several_tables_that_is_left_out_breaks_a_promise(rule: str) -> None:
    without = replace(ALL[WHERE[rule]], rules=replace(Rules(), **{rule: False}))
    assert explore(without, most_states=MOST_STATES)[1] is not None, f"nothing happens without {rule}"
