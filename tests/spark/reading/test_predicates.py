"""Which conditions rule files out before any is opened, in SQL and as columns."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from tests.spark.sparks import HAS_DATA_SOURCES

from lakelock.spark_plugin.conditions import Condition
from lakelock.table.pruning import And, Anything, BeginsWith, Comparison, Constant, IsNull, Not, Or, Predicate

SCHEMA = (
    "month int, name string, day date, ts timestamp, local timestamp_ntz, price decimal(10,2), n bigint, x double, ok boolean"
)


def columns() -> StructType:
    return SparkSession.active().createDataFrame([], SCHEMA).schema


ONE, TWO = Comparison("month", "=", 1), Comparison("month", "=", 2)
CASES: dict[str, Predicate] = {
    "month = 1": ONE,
    "1 = month": ONE,
    "1 < month": Comparison("month", ">", 1),
    "month = 1L": ONE,
    "month = 1 + 0": ONE,
    "n >= 2": Comparison("n", ">=", 2),
    "month <> 1": Not(ONE),
    "month in (1, 2)": Or((ONE, TWO)),
    "month in (1, null)": Or((Constant(None), ONE)),
    "month not in (1, 2)": Not(Or((ONE, TWO))),
    "month between 1 and 2": And((Comparison("month", ">=", 1), Comparison("month", "<=", 2))),
    "month = 1 and rtrim(name) = 'a'": And((ONE, Anything())),
    "month = 1 or month = 2": Or((ONE, TWO)),
    "month is null": IsNull("month"),
    "month is not null": Not(IsNull("month")),
    "month <=> 1": And((Not(IsNull("month")), ONE)),
    "month <=> null": IsNull("month"),
    "month = null": Constant(None),
    r"name = 'it\'s'": Comparison("name", "=", "it's"),
    "name like 'ab%'": BeginsWith("name", "ab"),
    "name like 'ab'": Comparison("name", "=", "ab"),
    "startswith(name, 'ab')": BeginsWith("name", "ab"),
    "name like '%ab'": Anything(),
    "day = '2026-01-02'": Comparison("day", "=", date(2026, 1, 2)),
    "day < date'2026-01-02'": Comparison("day", "<", date(2026, 1, 2)),
    "ts >= timestamp'2026-01-02 00:00:00 UTC'": Comparison("ts", ">=", datetime(2026, 1, 2, tzinfo=timezone.utc)),
    "ts >= '2026-01-02'": Comparison("ts", ">=", datetime(2026, 1, 2, 5, tzinfo=timezone.utc)),  # the session is in New York
    "local = timestamp_ntz'2026-01-02 03:04:05'": Comparison("local", "=", datetime(2026, 1, 2, 3, 4, 5)),
    "price = 1.5": Comparison("price", "=", Decimal("1.50")),
    "ok": Comparison("ok", "=", True),
    "not ok": Not(Comparison("ok", "=", True)),
    "name = 1": Anything(),
    "x > 1": Anything(),
    "month = n": Anything(),
    "year(day) = 2026": Anything(),
    "case when ok then true else month = 1 end": Anything(),
    "month in (" + ", ".join(map(str, range(2000))) + ")": Anything(),
    "false": Constant(False),
}


if HAS_DATA_SOURCES:
    CASES["name collate utf8_lcase = 'a'"] = Anything()


@pytest.mark.parametrize("condition", CASES, ids=lambda text: text[:40])
def test_a_condition_is_understood_as_spark_understands_it_or_not_at_all(spark: SparkSession, condition: str) -> None:
    assert Condition.of(spark, columns(), condition).predicate == CASES[condition]


def test_columns_and_the_time_of_the_condition_are_understood_too(spark: SparkSession) -> None:
    assert Condition.of(spark, columns(), (F.col("month") == 1) & F.col("name").startswith("a")).predicate == And(
        (ONE, BeginsWith("name", "a"))
    )
    before = datetime.now(timezone.utc)
    found = Condition.of(spark, columns(), "ts < now()").predicate
    assert isinstance(found, Comparison) and isinstance(found.value, datetime)
    assert before <= found.value <= datetime.now(timezone.utc)
    always = F.udf(lambda name: name == "a", "boolean")
    assert Condition.of(spark, columns(), (F.col("month") == 1) & always("name")).predicate == And((ONE, Anything()))
