"""Rows in parcels arrive as they were sent, each by its route."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest
from tests.api import TableProperties

from lakelock.spark_plugin import write_stages
from lakelock.spark_plugin.write_stages import KEYS, REST, ROUTE, Parcels

PROPERTIES = TableProperties.new("t", ["id"], ["p"])
COLUMNS = pa.schema(
    [
        ("v", pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.float64()))])),
        pa.field("id", pa.string(), nullable=False),
        ("at", pa.timestamp("us", tz="UTC")),
        ("p", pa.string()),
        ("flag", pa.bool_()),
    ]
)


def table(count: int) -> pa.Table:
    rows = [
        {
            "v": None if i % 7 == 0 else {"a": list(range(i % 4)), "m": [(f"k{i}", i / 2)]},
            "id": f"id{i}",
            "at": datetime(2026, 1, 1, 0, 0, i % 60, tzinfo=timezone.utc),
            "p": None if i % 5 == 0 else f"p{i % 3}",
            "flag": i % 2 == 0 if i % 3 else None,
        }
        for i in range(count)
    ]
    return pa.concat_tables([pa.Table.from_pylist(rows[:3], COLUMNS), pa.Table.from_pylist(rows[3:], COLUMNS)])


@pytest.mark.parametrize("parcel_bytes", [1, 2000, 4 << 20])
def test_each_row_arrives_by_its_route_in_the_order_it_was_sent(monkeypatch: pytest.MonkeyPatch, parcel_bytes: int) -> None:
    monkeypatch.setattr(write_stages, "PARCEL_BYTES", parcel_bytes)
    rows, rng = table(500), np.random.default_rng(1)
    positions = rng.integers(0, 500, 700)
    routes = rng.integers(0, 9, 700).astype(np.int32)
    packing = Parcels.of(COLUMNS, PROPERTIES)
    sent = list(packing.packed(rows, positions, routes))
    assert len(sent) > 1 or parcel_bytes > 100_000
    arrived: dict[int, list[dict[str, object]]] = defaultdict(list)
    for route, part in packing.unpacked(sent):
        arrived[route] += part.select(COLUMNS.names).to_pylist()
    all_rows = rows.to_pylist()
    expected = {route: [all_rows[at] for at in positions[routes == route]] for route in range(9)}
    assert arrived == expected
    keys = pa.concat_tables(packing.unpacked_keys((batch.select([KEYS]) for batch in sent), most_rows=50))
    assert keys.column_names == ["id", "p"]
    assert sorted(keys.column("id").to_pylist()) == sorted(all_rows[at]["id"] for at in positions)


def test_keys_alone_have_nothing_else_to_carry() -> None:
    rows = table(10).select(["p", "id"])
    packing = Parcels.of(rows.schema, PROPERTIES)
    (batch,) = packing.packed(rows, np.arange(10), np.zeros(10, np.int32))
    assert batch[ROUTE].to_pylist() == [0] and batch[REST].to_pylist() == [b""]
    ((route, arrived),) = packing.unpacked([batch])
    assert route == 0 and arrived.select(rows.column_names).equals(rows)


def test_rows_that_were_sent_leave_nothing_in_memory() -> None:
    """A worker of Spark packs rows for as long as its application lives."""
    rows, packing = table(500), Parcels.of(COLUMNS, PROPERTIES)

    def send() -> None:
        for batch in packing.packed(rows, np.arange(500), np.zeros(500, np.int32)):
            assert sum(part.num_rows for _, part in packing.unpacked([batch])) == 500

    send()
    before = pa.total_allocated_bytes()
    for _ in range(3):
        send()
    assert pa.total_allocated_bytes() == before
