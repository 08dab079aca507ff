"""What tests put into tables, and look at, without a job of Spark: the rows are the same, at a small part of the cost.

That Spark itself reads and writes them is what `tests/spark/reading` and the tests of each operation show.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from tests.api import ArrowEngine, Coordinator, StorageLocation

from lakelock.spark_plugin import LakeTable


def fill(table: LakeTable, *rows: tuple[object, ...]) -> None:
    """Insert rows, given in the order of the table's columns, in one commit."""
    with _engine(table) as engine:
        schema = engine.coordinator.schema().arrow
        engine.insert(pa.table([list(values) for values in zip(*rows, strict=True)], schema=schema))


def content(table: LakeTable, *columns: str) -> list[tuple[object, ...]]:
    """The rows as tuples, all columns or some, sorted; nulls come first."""
    with _engine(table) as engine:
        found = engine.read()
    values = (found.column(name).to_pylist() for name in columns or found.column_names)
    return sorted(zip(*values, strict=True), key=lambda row: [(value is not None, value) for value in row])


@contextmanager
def _engine(table: LakeTable) -> Iterator[ArrowEngine]:
    with Coordinator.open(StorageLocation.of(table.path)) as coordinator:
        yield ArrowEngine(coordinator)
