"""A table that is partitioned by what is computed of its columns: every write finds the partition of a row."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder
from tests.api import ArrowEngine, LocalStorage, SystemRuntime, TableProperties, TableSchema, create_table
from tests.behaviour.tables import writer

from lakelock.errors import SchemaError
from lakelock.table.transforms import partition_columns

ROWS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
FIRST, SECOND = datetime(2026, 1, 31, 23, 30, tzinfo=timezone.utc), datetime(2026, 2, 1, 0, 30, tzinfo=timezone.utc)


def rows(*values: tuple[int, datetime, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=ROWS)


@pytest.fixture
def engine(tmp_path: Path) -> ArrowEngine:
    storage = LocalStorage(tmp_path / "t")
    fields, transforms, columns = partition_columns(ROWS, ["days(at)", "bucket(4, id)"])
    schema = TableSchema.from_arrow(columns).to_avro_json("t", null_first=False)
    properties = TableProperties.new("t", ("id",), fields, create_schema=schema, transforms=transforms)
    create_table(storage, properties, SystemRuntime())
    made = ArrowEngine(writer(storage))
    made.insert(rows((1, FIRST, 1), (2, SECOND, 2)))
    return made


def stored(engine: ArrowEngine) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in engine.read().select(["id", "n", "at_day"]).to_pylist())


def test_rows_are_in_the_partition_that_their_columns_give_for_every_reader(engine: ArrowEngine, tmp_path: Path) -> None:
    assert {path.parent.relative_to(tmp_path / "t").as_posix() for path in tmp_path.rglob("*.parquet")} == {
        "at_day=2026-01-31/id_bucket=3", "at_day=2026-02-01/id_bucket=1",
    }  # fmt: skip
    engine.upsert(rows((1, FIRST, 10), (3, SECOND, 3)))
    assert stored(engine) == [(1, 10, date(2026, 1, 31)), (2, 2, date(2026, 2, 1)), (3, 3, date(2026, 2, 1))]
    found = HudiTableBuilder.from_base_uri(str(tmp_path / "t")).build().read()
    theirs = [row for batch in found for row in pa.record_batch(batch).to_pylist()]
    assert {row["id"]: (row["at"], row["at_day"]) for row in theirs}[1] == (FIRST, date(2026, 1, 31))


def test_keys_are_deleted_with_the_source_or_with_the_partition_itself(engine: ArrowEngine) -> None:
    engine.delete(rows((1, FIRST, 0)).select(["id", "at"]))
    engine.delete(pa.table({"id": [2], "at_day": [date(2026, 2, 1)]}))
    assert stored(engine) == []
    with pytest.raises(SchemaError, match=r"no column 'at', of which their partition is computed: days\(at\)"):
        engine.delete(pa.table({"id": [2]}))
