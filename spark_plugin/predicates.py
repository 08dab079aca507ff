"""The parts of a Spark condition that can rule files out: comparisons of columns with values, and their combinations.

Spark's own analysis and a few rules of its optimizer bring the condition into a plain form first, so that types, casts, LIKE
and BETWEEN mean what they mean to Spark. Every part that is then not recognised is `Anything`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, get_args

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lakelock.spark_plugin.session.classes import scala_object
from lakelock.table.pruning import (
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
from lakelock.table.statistics import Value

MOST_NODES = 1000
"""A longer condition, such as one with a list of thousands of values, is not examined: each node costs calls into the JVM."""

_RULES = (
    "ReplaceExpressions",
    "RewriteWithExpression",  # BETWEEN
    "ConstantFolding",
    "UnwrapCastInBinaryComparison",
    "ConstantFolding",
    "LikeSimplification",
)
_COMPARISONS: dict[str, Operator] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
assert set(_COMPARISONS.values()) == set(get_args(Operator))
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def predicate_of(spark: SparkSession, analysed: Any, names: Iterable[str]) -> Predicate:
    """The predicate of an analysed filter of rows with these columns; times are filled in already."""
    try:
        for name in _RULES:
            # A rule that this version of Spark lacks, or that rejects this plan, only leaves more parts unrecognised.
            with suppress(Py4JError, TypeError):
                analysed = scala_object(spark, f"org.apache.spark.sql.catalyst.optimizer.{name}").apply(analysed)
        return _Walk(names).predicate(analysed.condition()) if analysed.nodeName() == "Filter" else Anything()
    except (Py4JError, TypeError):
        return Anything()


class _TooLong(Exception):
    """The condition has too many nodes."""


class _Walk:
    """One walk through a condition."""

    def __init__(self, names: Iterable[str]) -> None:
        self._nodes = 0
        self._spelled = {name.lower(): name for name in names}

    def predicate(self, condition: Any) -> Predicate:
        try:
            return self._any(condition)
        except _TooLong:
            return Anything()

    def _any(self, node: Any) -> Predicate:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise _TooLong
        name = node.nodeName()
        if name in ("And", "Or"):
            parts = (self._any(node.left()), self._any(node.right()))
            return And(parts) if name == "And" else Or(parts)
        if name == "Not":
            return Not(self._any(node.child()))
        if name == "Literal":
            return Constant(node.value()) if node.dataType().simpleString() == "boolean" else Anything()
        if name == "AttributeReference":
            return Comparison(self._name(node), "=", True)
        return self._about_a_column(name, node) or Anything()

    def _about_a_column(self, name: str, node: Any) -> Predicate | None:
        if name in ("IsNull", "IsNotNull"):
            column = self._column(node.child())
            if column is None:
                return None
            return IsNull(column[0]) if name == "IsNull" else Not(IsNull(column[0]))
        if name in _COMPARISONS or name == "EqualNullSafe":
            return self._comparison(name, node.left(), node.right())
        if name == "In":
            return self._list(node.value(), node.list())
        if name == "StartsWith":
            column, prefix = self._column(node.left()), _literal(node.right())
            if column is None or prefix is None or not column[1] == prefix[1] == "string":
                return None
            return BeginsWith(column[0], prefix[0]) if isinstance(prefix[0], str) else Constant(None)
        return None

    def _comparison(self, name: str, left: Any, right: Any) -> Predicate | None:
        turned = left.nodeName() == "Literal"
        column, literal = (self._column(right), _literal(left)) if turned else (self._column(left), _literal(right))
        if column is None or literal is None or column[1] != literal[1]:
            return None
        value = literal[0]
        if name == "EqualNullSafe":
            if value is None:
                return IsNull(column[0])
            return And((Not(IsNull(column[0])), Comparison(column[0], "=", value)))
        if value is None:
            return Constant(None)
        op = _COMPARISONS[name]
        return Comparison.mirrored(column[0], op, value) if turned else Comparison(column[0], op, value)

    def _list(self, asked: Any, values: Any) -> Predicate | None:
        column = self._column(asked)
        self._nodes += values.size()
        if self._nodes > MOST_NODES:
            raise _TooLong
        if column is None:
            return None
        parts: list[Predicate] = []
        for number in range(values.size()):
            literal = _literal(values.apply(number))
            if literal is None or literal[1] != column[1]:
                return None
            parts.append(Constant(None) if literal[0] is None else Comparison(column[0], "=", literal[0]))
        return Or(tuple(parts))

    def _column(self, node: Any) -> tuple[str, str] | None:
        """Name and type of a column, None for any other expression."""
        return (self._name(node), node.dataType().simpleString()) if node.nodeName() == "AttributeReference" else None

    def _name(self, column: Any) -> str:
        """The column as the table spells it: an analysed condition has it as its user does."""
        name = str(column.name())
        return self._spelled.get(name.lower(), name)


def _literal(node: Any) -> tuple[Value | None, str] | None:
    """Value and type of a literal; None for another expression, or a type whose order is not Python's."""
    if node.nodeName() != "Literal":
        return None
    kind, value = node.dataType().simpleString(), node.value()
    if value is None:
        return None, kind
    if kind == "boolean" or kind in _WHOLE_NUMBERS:
        return value, kind
    if kind == "string":
        return value.toString(), kind
    try:
        if kind == "date":
            return date(1970, 1, 1) + timedelta(days=value), kind
        if kind in ("timestamp", "timestamp_ntz"):
            moment = _EPOCH + timedelta(microseconds=value)
            return moment if kind == "timestamp" else moment.replace(tzinfo=None), kind
    except OverflowError:
        return None
    return (Decimal(value.toString()), kind) if kind.startswith("decimal(") else None
