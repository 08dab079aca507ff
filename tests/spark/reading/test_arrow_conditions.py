"""The engine without Spark finds by a condition on floating-point numbers the rows that Spark finds by the same one."""

from __future__ import annotations

import math
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from tests.api import ArrowEngine, Coordinator, StorageLocation

from lakelock.spark_plugin import LakeTable

VALUES = [-math.inf, -1.0, -0.0, 0.0, 0.5, 3.0, math.inf, math.nan, None]
COLUMNS = {"x": pc.field("x"), "y": pc.field("y"), "n": pc.field("n"), "s.z": pc.field("s", "z"), "x + 1": pc.field("x") + 1}
OPERATORS = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def test_every_comparison_of_floating_point_numbers_is_that_of_spark(spark: SparkSession, path: str) -> None:
    table = LakeTable.create(spark, path, schema="id int, x double, y float, n int, s struct<z: double>", key="id")
    coordinator = Coordinator.open(StorageLocation(table.path))
    engine, schema = ArrowEngine(coordinator), coordinator.schema().arrow
    for begin, x in enumerate(VALUES):  # a file for each
        rows = [
            {"id": len(VALUES) * begin + number, "x": x, "y": y, "n": number or None, "s": {"z": y}}
            for number, y in enumerate(VALUES)
        ]
        engine.insert(pa.Table.from_pylist(rows, schema=schema))
    values = [("double('NaN')", math.nan), ("-0.0D", -0.0), ("0.0D", 0.0), ("3.0D", 3.0), ("double('Infinity')", math.inf)]
    sides = [*COLUMNS.items(), *((text, pc.scalar(value)) for text, value in values)]
    conditions = [
        (f"{left} {operator} {right}", compare(one, other))
        for (left, one), (right, other), (operator, compare) in product(COLUMNS.items(), sides, OPERATORS.items())
    ]
    conditions += [(f"not ({text})", ~condition) for text, condition in conditions[::3]]
    conditions += [
        (f"{text} in ({', '.join(sql for sql, _ in chosen)})", column.isin([value for _, value in chosen]))
        for (text, column), chosen in product(COLUMNS.items(), (values[:1], values[1:2], values[2:3], values[:2] + values[3:]))
        if text != "n"
    ]
    names = [text for text, _ in conditions]
    found = table.read().selectExpr("id", *(f"{name} as `{number}`" for number, name in enumerate(names))).collect()
    for number, (text, condition) in enumerate(conditions):
        by_spark = sorted(row["id"] for row in found if row[str(number)])
        assert sorted(engine.read(where=condition).column("id").to_pylist()) == by_spark, text
