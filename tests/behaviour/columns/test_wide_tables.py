"""What a write and a read cost grows with the number of columns, and not with its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakelock

NARROW, WIDE = 200, 1_000
PER_COLUMN = 2.5
"""A column of the wide table costs at most so many times what one of the narrow table does; the square would be 5 times."""


def costs(folder: Path, columns: int, table_type: str) -> dict[str, float]:
    """Seconds of CPU time, the least of two runs."""
    names = [f"c{number}" for number in range(columns)]
    schema = pa.schema([("id", pa.int64()), *((name, pa.int64()) for name in names)])
    settings = {"write.append_below": 1.0}
    with lakelock.create(folder / str(columns), schema=schema, key="id", table_type=table_type, settings=settings) as table:

        def rows(*keys: int) -> pa.Table:
            return pa.table([list(keys), *([[key] * len(keys) for key in range(columns)])], schema=schema)

        def seconds(call: Callable[[], object]) -> float:
            began_s = time.process_time()
            call()
            return time.process_time() - began_s

        first = table.insert(rows(1, 2))
        calls: dict[str, Callable[[], object]] = {
            "insert": lambda: table.insert(rows(3)),
            "upsert": lambda: table.upsert(rows(1)),
            "update": lambda: table.update({"c1": "c1 + 1"}, "id = 2"),
            "read": table.read,
            "changes": lambda: table.changes(first.instant),
        }
        return {name: min(seconds(call) for _ in range(2)) for name, call in calls.items()}


@pytest.mark.in_ci
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_cost_of_a_column_does_not_grow_with_their_number(table_type: str, tmp_path: Path) -> None:
    narrow, wide = (costs(tmp_path, columns, table_type) for columns in (NARROW, WIDE))
    slower = {name: (wide[name] / WIDE) / (narrow[name] / NARROW) for name in wide}
    assert {name: times for name, times in slower.items() if times > PER_COLUMN} == {}, (narrow, wide)
