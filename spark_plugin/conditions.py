"""A condition on rows that gives the same answer about a row however often it is asked.

A delete, an update or an overwrite evaluates it several times: which rows are meant, whether the new rows fit, whether rows
that others added meanwhile match; each attempt does so again. Spark keeps `current_timestamp()` constant within one query only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakelock.errors import InputError
from lakelock.spark_plugin.predicates import predicate_of
from lakelock.spark_plugin.session.classes import PYTHON_UTILS, java_class, scala_object
from lakelock.spark_plugin.session.versions import column_of
from lakelock.table.pruning import Anything, Predicate

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
    """The output columns of a plan, by name."""
    output = plan.output()
    found = [output.apply(number) for number in range(output.size())]
    return {attribute.name(): attribute for attribute in found}
