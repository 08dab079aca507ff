"""The judge of the benchmark `false_conflicts`: which orders it accepts, and that the engine agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sizes import but_in_ci

with pytest.MonkeyPatch.context() as patch:  # benchmarks are programs of the source tree, and not installed
    patch.syspath_prepend(Path(__file__).parents[3])
    from benchmarks.false_conflicts import LEVELS, executed, measured
    from benchmarks.serial_orders import Executed, Kind, Operation, SerialOrder, State

TABLE: State = {"p": {"a": 1, "b": 2, "c": 30}, "q": {}}


def order_of(*operations: Operation) -> SerialOrder:
    """They ran one after the other."""
    order = SerialOrder(TABLE)
    for operation in operations:
        order.commit(executed(operation, order.state))
    return order


def at_first(operation: Operation) -> Executed:
    return executed(operation, TABLE)


UPDATE_A = Operation(1, Kind.UPDATE, "p", low=1, high=2)
UPDATE_B = Operation(2, Kind.UPDATE, "p", low=2, high=10)
UPSERT_A = Operation(3, Kind.UPSERT, "p", (("a", 7),))
NEW_KEY = Operation(4, Kind.UPSERT, "p", (("n", 7),))
REPORT_SMALL = Operation(5, Kind.REPORT, "p", low=0, high=10)
APPEND_SMALL = Operation(6, Kind.INSERT, "p", (("x", 5),))
DELETE_SMALL = Operation(7, Kind.DELETE, "p", low=0, high=10)
OVERWRITE = Operation(8, Kind.OVERWRITE, "p", (("y", 5),))
REPORT_REPORTS = Operation(9, Kind.REPORT, "reports", low=0, high=10)


@pytest.mark.parametrize(
    ("committed", "late", "place"),
    [
        (UPSERT_A, Operation(10, Kind.UPDATE, "p", low=30, high=40), 1),
        (UPDATE_A, UPDATE_A, None),
        (UPDATE_A, UPDATE_B, 0),  # it did not see the 2 that the first made of a
        (NEW_KEY, NEW_KEY, None),
        (UPSERT_A, UPSERT_A, 1),
        (APPEND_SMALL, REPORT_SMALL, 0),
        (APPEND_SMALL, DELETE_SMALL, 0),
        (DELETE_SMALL, APPEND_SMALL, 1),
        (OVERWRITE, APPEND_SMALL, 1),
        (APPEND_SMALL, OVERWRITE, 0),
        (REPORT_SMALL, UPDATE_B, 1),
    ],
)
def test_a_place_is_one_at_which_everybody_observes_the_same(committed: Operation, late: Operation, place: int | None) -> None:
    assert order_of(committed).place(at_first(late), seen_commits=0) == place


def test_what_had_committed_before_the_beginning_stays_before_it() -> None:
    order = order_of(APPEND_SMALL)
    assert order.place(at_first(REPORT_SMALL), seen_commits=0) == 0
    assert order.place(at_first(REPORT_SMALL), seen_commits=1) is None


def test_two_reports_that_miss_each_other_are_explained_by_no_order() -> None:
    """Write skew: each reads what the other writes, and neither sees it."""
    order = SerialOrder(TABLE)
    order.commit(at_first(REPORT_REPORTS))
    crossed = Operation(11, Kind.REPORT, "reports", low=0, high=1)
    assert order.place(at_first(crossed), seen_commits=0) is None


def test_a_transaction_that_counts_as_earlier_leaves_a_table_that_the_order_explains() -> None:
    order, late = order_of(APPEND_SMALL), at_first(DELETE_SMALL)
    order.commit(late, order.place(late, seen_commits=0))
    assert order.state == {"p": {"c": 30, "x": 5}, "q": {}}


@pytest.mark.parametrize(("profile", "level"), but_in_ci(LEVELS, LEVELS[:1]))
def test_the_engine_commits_what_the_judge_can_explain(profile: str, level: str) -> None:
    """`measured` itself fails if the table is not what the order gives, or if a serializable level commits an anomaly."""
    found = measured(profile, level, seed=1, transactions=30, live=5)
    assert found.transactions == 30 and found.false_as_last <= found.false <= found.rejected > 0
