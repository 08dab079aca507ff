"""Conditions on rows that give the same answer about a row in each evaluation, and the parts of them that rule files out.

A delete, an update or an overwrite evaluates a condition several times: which rows are meant, whether the new rows fit,
whether rows that others added meanwhile match; each attempt does so again. Spark keeps `current_timestamp()` constant within
one query only.

The parts that can rule files out are comparisons of columns with values, and their combinations. Spark's own analysis and a
few rules of its optimizer bring the condition into a plain form first, so that types, casts, LIKE and BETWEEN mean what they
mean to Spark. Every part that is then not recognised is `Anything`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, get_args

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakelock.errors import InputError
from lakelock.spark_plugin.spark_session import PYTHON_UTILS, column_of, java_class, scala_object
from lakelock.table.commit_metadata import Value
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
from lakelock.table.schema import TableSchema

MOST_NODES = 1000
"""A longer condition, such as one with a list of thousands of values, is not examined: each node costs calls into the JVM."""

_PLAIN_FORM_RULES = (
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
        for name in _PLAIN_FORM_RULES:
            # A rule that this version of Spark lacks, or that rejects this plan, only leaves more parts unrecognised.
            with suppress(Py4JError):
                analysed = scala_object(spark, f"org.apache.spark.sql.catalyst.optimizer.{name}").apply(analysed)
        return _Walk(names).predicate(analysed.condition()) if analysed.nodeName() == "Filter" else Anything()
    except Py4JError:
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


SHOWN_CHARACTERS = 200
_CATALYST = "org.apache.spark.sql.catalyst"
_TIME_RULES = ("optimizer.SpecialDatetimeValues", "optimizer.ComputeCurrentTime")
# A literal such as TIMESTAMP 'now' gets its value each time the text is parsed.
_TIME_LITERAL = re.compile(r"'\s*(now|today|tomorrow|yesterday)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition as its user gave it and, if it asks for the time or may use an alias, as Spark's analysed filter.

    `filled` has the time filled in. `predicate` is the part of it that can rule files out. `repeatable`: a row gets the same
    answer in each attempt of a write; not if the condition asks another table.
    """

    given: str | Column
    filled: Any = None
    predicate: Predicate = field(default_factory=Anything)
    repeatable: bool = True

    @classmethod
    def of(cls, spark: SparkSession, schema: StructType, given: str | Column, *, alias: str = "") -> Condition:
        """The condition on rows of `schema`, with the time fixed. `InputError` if its answers may vary, as with `rand()`.

        With an `alias` it may name columns `alias.column`, whatever the frames are called that it is asked about.
        """
        rows = spark.createDataFrame([], schema)
        analysed = (rows.alias(alias) if alias else rows).where(given)._jdf.queryExecution().analyzed()
        if not analysed.deterministic():
            raise InputError(
                f"the condition {condition_text(given)} may give a different answer each time it is evaluated for a row",
                hint="choose the rows first, and delete or merge them by key: "
                "table.delete(table.read().where(...)) evaluates it once. "
                "A UDF that always answers the same must not be declared asNondeterministic()",
            )
        filled, asks_for_time = _filled(spark, analysed, given)
        alone = analysed.subqueries().isEmpty()
        return cls(given, filled if asks_for_time or alias else None, predicate_of(spark, filled, schema.names), alone)

    @classmethod
    def of_filter(cls, spark: SparkSession, rows: DataFrame, given: str | Column) -> Condition | None:
        """The condition of a frame that `where(given)` made of rows of a table; None if it asks for the time."""
        analysed = rows._jdf.queryExecution().analyzed()
        filled, asks_for_time = _filled(spark, analysed, given)
        if asks_for_time:
            return None
        return cls(given, filled, predicate_of(spark, filled, rows.columns), analysed.subqueries().isEmpty())

    def on(self, frame: DataFrame) -> Column:
        """The condition on the rows of `frame`, which has the columns that it needs."""
        if self.filled is None:
            return F.expr(self.given) if isinstance(self.given, str) else self.given
        spark = frame.sparkSession
        own, theirs = (_attributes(plan) for plan in (self.filled, frame._jdf.queryExecution().analyzed()))
        pair = java_class(spark, "scala.Tuple2")
        pairs = [pair(attribute, theirs[name]) for name, attribute in own.items() if name in theirs]
        renamed = scala_object(spark, f"{_CATALYST}.expressions.AttributeMap").apply(
            java_class(spark, PYTHON_UTILS).toSeq(pairs)
        )
        condition = self.filled.rewriteAttrs(renamed).condition()
        return column_of(spark, condition)

    def named(self, schema: TableSchema) -> dict[str, pa.Array]:
        """The values of each column, where the condition is nothing but `column = value` or a list of values, of texts or whole
        numbers, joined by AND, each column once. Empty for every other condition.
        """
        found: dict[str, list[Value]] = {}
        terms = [self.predicate]
        while terms:
            term = terms.pop()
            if isinstance(term, And):
                terms += term.parts
                continue
            parts = term.parts if isinstance(term, Or) else (term,)
            equal = [part for part in parts if isinstance(part, Comparison) and part.op == "="]
            columns = {part.column for part in equal}
            if len(equal) < len(parts) or len(columns) != 1 or columns <= found.keys():
                return {}
            found[columns.pop()] = [part.value for part in equal]
        types = {name: schema.arrow.field(name).type for name in found}
        if not all(pa.types.is_string(each) or pa.types.is_integer(each) for each in types.values()):
            return {}
        return {name: pa.array(values, types[name]) for name, values in found.items()}

    def __str__(self) -> str:
        return condition_text(self.given)


def _filled(spark: SparkSession, analysed: Any, given: str | Column) -> tuple[Any, bool]:
    """An analysed plan with the time filled in, and whether it asks for it."""
    filled = analysed
    for rule in _TIME_RULES:
        filled = scala_object(spark, f"{_CATALYST}.{rule}").apply(filled)
    return filled, not filled.equals(analysed) or _TIME_LITERAL.search(str(given)) is not None


def is_repeatable(step: DataFrame, *given: object) -> bool:
    """Whether what the last step of a frame computes of a row, as it was `given`, is the same in each attempt of a write.

    It is not if a value is drawn or numbered, or if it asks for the time or another table.
    """
    analysed = step._jdf.queryExecution().analyzed()
    expressions = analysed.expressions()
    if not analysed.subqueries().isEmpty() or any(_TIME_LITERAL.search(str(each)) for each in given):
        return False
    if not all(expressions.apply(number).deterministic() for number in range(expressions.size())):
        return False
    filled = _filled(step.sparkSession, analysed, "")[0]
    return bool(filled.expressions().equals(expressions))


def condition_text(condition: str | Column) -> str:
    """A condition for people; Spark shows a Column as `Column<'(a > 1)'>`."""
    text = str(condition)
    if not isinstance(condition, str) and text.startswith("Column<'"):
        text = text.removeprefix("Column<'").removesuffix("'>")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _attributes(plan: Any) -> dict[str, Any]:
    output = plan.output()
    found = [output.apply(number) for number in range(output.size())]
    return {attribute.name(): attribute for attribute in found}
