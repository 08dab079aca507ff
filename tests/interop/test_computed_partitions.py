"""Partition columns that lakelock computes are ordinary ones to Java Hudi, whose writers bring them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timezone

import pyarrow as pa
import pytest
from tests.api import TableProperties
from tests.interop.shared import Layout, Shared, rows

from lakelock.table.properties import TRANSFORMS, read_properties
from lakelock.table.transforms import parsed_transforms

GIVEN = pa.schema([("id", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WHOLE = GIVEN.append(pa.field("at_day", pa.date32()))
LATE, EARLY = datetime(2026, 1, 31, 23, 30, tzinfo=timezone.utc), datetime(2026, 2, 1, 0, 30, tzinfo=timezone.utc)
JANUARY, FEBRUARY = date(2026, 1, 31), date(2026, 2, 1)
BY_DAY = "days(at)"


@dataclass(frozen=True)
class ByDay(Layout):
    """A table whose partitions are the days of its times."""

    def properties(self, table: str) -> TableProperties:
        plain = super().properties(table)
        return plain.changed({TRANSFORMS: ", ".join(map(str, parsed_transforms(BY_DAY)))})


@pytest.mark.in_ci
def test_java_and_lakelock_write_a_table_that_is_partitioned_by_days(share: Callable[..., Shared]) -> None:
    table = share(ByDay("by_day", partitions=("at_day",), schema=WHOLE))
    table.engine().insert(rows(("a", 1, LATE), ("b", 2, EARLY), schema=GIVEN))
    table.put(("a", 1, LATE, JANUARY), ("b", 2, EARLY, FEBRUARY))
    table.agree()
    table.java_write("upsert", ("a", 10, LATE, JANUARY), ("c", 3, EARLY, FEBRUARY))
    table.put(("a", 10, LATE, JANUARY), ("c", 3, EARLY, FEBRUARY))
    # A metadata table that Java makes and drops again rewrites the table's properties twice.
    table.java_write("upsert", ("d", 4, EARLY, FEBRUARY), hoodie__metadata__enable="true")
    table.java_write("upsert", ("d", 5, EARLY, FEBRUARY))
    table.put(("d", 5, EARLY, FEBRUARY))
    assert read_properties(table.storage).partition_by == (BY_DAY,)
    table.engine().upsert(rows(("a", 11, LATE), ("c", 4, EARLY), schema=GIVEN))
    table.put(("a", 11, LATE, JANUARY), ("c", 4, EARLY, FEBRUARY))
    table.agree()
