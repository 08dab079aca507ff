"""Filters that Spark 4.1 and later offer to `format("lakelock")`: they rule files out, and Spark applies them to the rows.

Spark offers them where `spark.sql.python.filterPushdown.enabled` is true, which it is not by default. It offers no columns:
a Python data source always gives all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader

from lakelock.table.pruning.predicates import (
    And,
    Anything,
    BeginsWith,
    Comparison,
    Constant,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
)

_COMPARISONS: Mapping[str, Operator] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}


class TakesFilters:
    """A reader's `pushFilters` that is there when Spark offers filters and otherwise looks as if there were none.

    Spark refuses every read by a reader that has the method while the setting is off, and a reader cannot ask for the
    setting. What Spark looks at is `__func__`, whether it is the method of its own class.
    """

    def __init__(self, take: Callable[[Predicate], None]) -> None:
        self._take = take

    @property
    def __func__(self) -> object:
        return DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        """Take what the filters, all of which hold for a row that is wanted, say; all of them are left to Spark as well."""
        self._take(And(tuple(predicate_of(each) for each in filters)))
        return filters


def predicate_of(offered: Any) -> Predicate:
    """The predicate of one of `pyspark.sql.datasource`'s filters, as far as it is understood."""
    name = type(offered).__name__
    if name == "Not":
        return Not(predicate_of(offered.child))
    column = offered.attribute[0] if len(getattr(offered, "attribute", ())) == 1 else None
    if column is None:
        return Anything()
    if name in _COMPARISONS:
        return Constant(None) if offered.value is None else Comparison(column, _COMPARISONS[name], offered.value)
    if name == "EqualNullSafe":
        same: Predicate = IsNull(column)
        return same if offered.value is None else And((Not(same), Comparison(column, "=", offered.value)))
    if name == "In":
        return Or(tuple(Constant(None) if value is None else Comparison(column, "=", value) for value in offered.value))
    if name in ("IsNull", "IsNotNull"):
        return IsNull(column) if name == "IsNull" else Not(IsNull(column))
    return BeginsWith(column, offered.value) if name == "StringStartsWith" else Anything()
