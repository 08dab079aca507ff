"""Filters that Spark offers to the data source rule files out as the same condition in SQL does."""

from __future__ import annotations

from datetime import date

import pytest

from lakelock.spark_plugin.data_source.pushed_filters import TakesFilters, predicate_of
from lakelock.table.pruning.predicates import And, Anything, BeginsWith, Comparison, Constant, IsNull, Not, Or, Predicate

datasource = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(datasource, "Filter"):
    pytest.skip("Spark before 4.1 offers no filters", allow_module_level=True)

ONE = Comparison("month", "=", 1)


@pytest.mark.parametrize(
    ("offered", "understood"),
    [
        (datasource.EqualTo(("month",), 1), ONE),
        (datasource.EqualTo(("month",), None), Constant(None)),
        (datasource.EqualNullSafe(("month",), 1), And((Not(IsNull("month")), ONE))),
        (datasource.EqualNullSafe(("month",), None), IsNull("month")),
        (datasource.LessThan(("day",), date(2026, 1, 1)), Comparison("day", "<", date(2026, 1, 1))),
        (datasource.GreaterThanOrEqual(("month",), 1), Comparison("month", ">=", 1)),
        (datasource.In(("month",), (1, None)), Or((ONE, Constant(None)))),
        (datasource.IsNull(("month",)), IsNull("month")),
        (datasource.IsNotNull(("month",)), Not(IsNull("month"))),
        (datasource.Not(datasource.EqualTo(("month",), 1)), Not(ONE)),
        (datasource.StringStartsWith(("name",), "a"), BeginsWith("name", "a")),
        (datasource.StringEndsWith(("name",), "a"), Anything()),
        (datasource.EqualTo(("place", "month"), 1), Anything()),  # a field of a struct, not the column
    ],
)
def test_a_filter_means_what_it_means_in_sql(offered: object, understood: Predicate) -> None:
    assert predicate_of(offered) == understood


def test_all_filters_are_left_to_spark_as_well() -> None:
    taken: list[Predicate] = []
    offered = [datasource.EqualTo(("month",), 1), datasource.StringContains(("name",), "a")]
    assert list(TakesFilters(taken.append)(offered)) == offered
    assert taken == [And((ONE, Anything()))]
