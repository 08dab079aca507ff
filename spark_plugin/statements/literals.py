"""Python values as literals of Spark's SQL, for the markers of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelock.errors import InputError
from lakelock.spark_plugin.statements.words import shown

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def literals_of(spark: SparkSession, args: object) -> dict[str, str]:
    """Each value as SQL, which Spark reads as exactly the value that `F.lit` makes of it; `InputError` for other values."""
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise InputError(f"args is {shown(repr(args))}", hint='use a mapping of names to values, such as {"price": 5}')
    return {name: _literal(spark, name, value) for name, value in args.items()}


def _literal(spark: SparkSession, name: str, value: object) -> str:
    try:
        wanted = _analysed(spark, F.lit(value))
        text = _text(wanted)
        if text and _analysed(spark, F.expr(text)).equals(wanted):
            return text
    except (PySparkException, Py4JError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise _unusable(name, value) from error
    raise _unusable(name, value)


def _analysed(spark: SparkSession, column: Any) -> Any:
    plan: Any = spark.range(0).select(column.alias("value"))._jdf.queryExecution().analyzed()
    return plan.projectList().head().child()


def _text(literal: Any) -> str:
    if literal.nodeName() != "Literal":
        return ""
    if literal.dataType().simpleString() == "timestamp" and literal.value() is not None:
        # Spark would write the local time, which names two moments where a clock is set back.
        moment = _EPOCH + timedelta(microseconds=literal.value())
        return f"TIMESTAMP_LTZ '{moment.isoformat(' ')}'"
    text = str(literal.sql())
    # `a -:x` must not become a comment.
    return f"({text})" if text.startswith("-") else text


def _unusable(name: str, value: object) -> InputError:
    return InputError(
        f"args: :{name} is {shown(repr(value))}, which no literal in SQL is exactly",
        hint="use a number, text, bytes, bool, date, datetime or None, or write an expression into the statement",
    )
