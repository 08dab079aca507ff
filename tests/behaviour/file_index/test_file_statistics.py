"""What writers record of their files is what the files hold, and snapshots tell it, also after a checkpoint."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api import ArrowEngine, MemoryStorage, TableProperties, TableSchema, WriteStat, create_table
from tests.behaviour.tables import writer

from lakelock.settings import Settings
from lakelock.table import commit_metadata as module
from lakelock.table.commit_metadata import (
    ColumnRange,
    FileStatistics,
    column_ranges_in,
    statistics_by_path,
    statistics_of_commit,
    statistics_text,
)
from lakelock.testing import ManualRuntime

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)), ("ok", pa.bool_()), ("raw", pa.binary()), ("tags", pa.list_(pa.string())),
        ("empty", pa.string()), ("month", pa.string()),
    ]
)  # fmt: skip
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


def rows(*numbers: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{n}", "n": n if n % 3 else None, "f": float("nan") if n == 4 else n / 2, "day": date(2026, 1, n),
                "at": AT.replace(day=n), "price": Decimal(n) / 4, "ok": n > 3, "raw": b"x", "tags": ["t"], "month": "1",
            }
            for n in numbers
        ],
        schema=SCHEMA,
    )  # fmt: skip


@pytest.fixture
def storage() -> MemoryStorage:
    made = MemoryStorage()
    properties = TableProperties.new(
        "t", record_keys=("id",), partition_fields=("month",), create_schema=TableSchema.from_arrow(SCHEMA).to_avro_json("t")
    )
    create_table(made, properties, ManualRuntime())
    return made


def stats(storage, settings: Settings | None = None) -> list[FileStatistics]:
    snapshot = writer(storage, settings or Settings(), runtime=ManualRuntime()).snapshot()
    return [snapshot.stats_of(file) for file in snapshot.files]


def test_inserts_and_rewrites_record_keys_and_columns_and_a_checkpoint_keeps_them(storage) -> None:
    engine = ArrowEngine(writer(storage, Settings(), runtime=ManualRuntime()))
    engine.insert(rows(2, 3, 4))
    (first,) = stats(storage)
    assert (first.rows, first.key_min, first.key_max) == (3, "k2", "k4")
    assert first.columns == {
        "id": ColumnRange("k2", "k4", 0), "n": ColumnRange(2, 4, 1), "f": ColumnRange(1.0, None, 0),
        "day": ColumnRange(date(2026, 1, 2), date(2026, 1, 4), 0), "at": ColumnRange(AT, AT.replace(day=4), 0),
        "price": ColumnRange(Decimal("0.50"), Decimal("1.00"), 0), "ok": ColumnRange(False, True, 0),
        "raw": ColumnRange(nulls=0), "empty": ColumnRange(nulls=3), "month": ColumnRange("1", "1", 0),
    }  # fmt: skip
    engine.upsert(rows(4))
    engine.delete_where(pc.field("id") == "k2")
    (second,) = stats(storage)
    assert (second.rows, second.key_min, second.key_max, second.columns["n"]) == (2, "k3", "k4", ColumnRange(4, 4, 1))
    assert writer(storage, Settings(), runtime=ManualRuntime()).checkpoint() == 1
    assert stats(storage) == [second]


def test_as_many_columns_are_recorded_as_are_asked_for(storage) -> None:
    settings = Settings.resolve({"statistics.columns": 2}).settings
    ArrowEngine(writer(storage, settings, runtime=ManualRuntime())).insert(rows(1))
    assert [*stats(storage)[0].columns] == ["id", "n"]


def test_of_many_files_a_commit_leaves_out_columns_first_and_then_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    one = statistics_text(FileStatistics(1, "a", "b", {"n": ColumnRange(1, 2, 0)}))
    written = [WriteStat("f", f"p/f{number}", recorded=one) for number in range(10)]
    assert column_ranges_in(statistics_by_path(statistics_of_commit(written))["p/f3"][2]) == {"n": ColumnRange(1, 2, 0)}
    monkeypatch.setattr(module, "MOST_CHARACTERS", 250)
    assert statistics_by_path(statistics_of_commit(written))["p/f3"] == ("a", "b", None)
    monkeypatch.setattr(module, "MOST_CHARACTERS", 50)
    assert statistics_of_commit(written) == "" and statistics_of_commit([]) == ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"a": [1, 2, 3]}', '{"a": ["x"]}'])
def test_statistics_that_cannot_be_read_count_as_not_recorded(text: str) -> None:
    assert statistics_by_path(text) == {}


@pytest.mark.parametrize(
    "text", ["{", '{"a": [{"n": "?"}, 1, 0]}', '{"a": [{"d": "no day"}, 1, 0]}', '{"a": [{}, 1, 0]}', '{"a": 1}']
)
def test_ranges_that_cannot_be_read_count_as_unknown(text: str) -> None:
    assert column_ranges_in(text) == {}
