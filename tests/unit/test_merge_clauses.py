"""Which sequences of clauses make sense, without Spark."""

from __future__ import annotations

import pytest

from lakelock.errors import InputError
from lakelock.spark_plugin.merge_builder import Clause, Then, When, may_match_often, require_sensible

UPDATE = Clause(When.MATCHED, Then.UPDATE)
DELETE = Clause(When.MATCHED, Then.DELETE)
INSERT = Clause(When.NOT_MATCHED, Then.INSERT)
CLEAR = Clause(When.NOT_MATCHED_BY_SOURCE, Then.DELETE)


def some(clause: Clause) -> Clause:
    return Clause(clause.when, clause.then, clause.values, "source.v > 1")


def test_the_last_clause_of_each_kind_may_take_all_rows() -> None:
    require_sensible([some(UPDATE), INSERT, some(DELETE), CLEAR, UPDATE])


@pytest.mark.parametrize(
    ("clauses", "problem"),
    [
        ([], "no clause"),
        ([UPDATE, DELETE], "when_matched_delete can never apply: when_matched_update_all comes before it"),
        ([INSERT, UPDATE, some(INSERT)], "when_not_matched_insert_all can never apply"),
        ([CLEAR, some(CLEAR)], "when_not_matched_by_source_delete can never apply"),
    ],
)
def test_a_clause_that_can_never_apply_is_refused(clauses: list[Clause], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        require_sensible(clauses)


@pytest.mark.parametrize(
    ("clauses", "may"),
    [([DELETE, INSERT], True), ([some(DELETE)], False), ([UPDATE], False), ([some(UPDATE), DELETE], False), ([INSERT], False)],
)
def test_only_a_merge_that_deletes_whatever_it_matches_may_match_a_row_often(clauses: list[Clause], may: bool) -> None:
    assert may_match_often(clauses) is may
