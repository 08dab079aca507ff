"""Spark's own parser has the last word: the pieces of a statement are where it would have cut them."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from lakelock.errors import InputError
from lakelock.spark_plugin.statements.operations import Statement, text_of
from lakelock.spark_plugin.statements.refusals import METHODS
from lakelock.spark_plugin.statements.words import shown

_EXPRESSION_ID = re.compile(r"#\d+L?")


def require_same_reading(spark: SparkSession, text: str, statement: Statement) -> None:
    """Raise unless Spark reads the user's text and the statement put together from its pieces as the same plan.

    Spark's ParseException says what Spark itself does not accept.
    """
    parser: Any = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    given, cut = parser.parsePlan(text), parser.parsePlan(text_of(statement))
    alike = given.getClass().equals(cut.getClass()) and given.productArity() == cut.productArity()
    if alike and all(_same(given.productElement(at), cut.productElement(at)) for at in range(given.productArity())):
        return
    raise InputError(
        f"Spark reads this statement in another way than sql(): {shown(text)}",
        hint=f"put parentheses around each value and condition, and leave comments out; or {METHODS}",
    )


def _same(one: Any, other: Any) -> bool:
    """Aliases in a query get a new number each time that they are parsed."""
    return bool(one == other) or _EXPRESSION_ID.sub("", str(one)) == _EXPRESSION_ID.sub("", str(other))
