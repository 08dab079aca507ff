"""Rewrites and the choice of rows: the cases that a model does not show."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableProperties, TableSchema
from tests.golden_tables import golden_table

from lakelock.errors import DuplicateKeyError
from lakelock.settings import WriteSettings
from lakelock.table.record_keys import dedupe
from lakelock.table.rewriting import Counts, rewrite

NEW = "20270101000000000"
PROPERTIES = TableProperties.new("t", ["id"], [])


def keyed(rows: dict[str, object]) -> Keyed:
    return Keyed.of(pa.table(rows), PROPERTIES)


def test_the_newest_row_wins_and_the_order_stays() -> None:
    kept = dedupe(keyed({"id": ["b", "a", "b", "c"], "o": [2, 1, 1, None]}), "o")
    assert kept.rows.to_pylist() == [{"id": "b", "o": 2}, {"id": "a", "o": 1}, {"id": "c", "o": None}]


def test_rows_without_duplicates_are_not_copied() -> None:
    rows = keyed({"id": ["b", "a"]})
    assert dedupe(rows, None) is rows


def test_equal_ordering_values_are_an_error_with_examples() -> None:
    rows = keyed({"id": [f"k{i // 2}" for i in range(16)] + ["x", "x"], "o": [1] * 16 + [1, 2]})
    with pytest.raises(
        DuplicateKeyError, match=r"8 record keys .* equal values of o: k0, k1, k2, k3, k4 and 3 more"
    ) as refused:
        dedupe(rows, "o")
    assert refused.value.details["count"] == 8 and "write.duplicates=any" in refused.value.hint


def test_a_tie_below_the_winner_does_not_matter() -> None:
    kept = dedupe(keyed({"id": ["a", "a", "a"], "o": [1, 1, 2]}), "o")
    assert kept.rows["o"].to_pylist() == [2]


def test_without_an_ordering_column_any_duplicate_is_an_error_unless_told_otherwise() -> None:
    rows = keyed({"id": ["a", "b", "a"], "v": [1, 2, 3]})
    with pytest.raises(DuplicateKeyError, match="1 record key has several rows with the same key: a"):
        dedupe(rows, None)
    assert dedupe(rows, None, take_any=True).rows["v"].to_pylist() == [2, 3]


def test_a_file_of_java_is_rewritten_with_a_column_added_since() -> None:
    base = sorted(golden_table("java12_ops").glob("region=us/262e*_20261121092740578.parquet"))[0]
    old = pq.read_table(base, partitioning=None).to_pylist()
    columns = {"id": pa.string(), "v": pa.int64(), "ts": pa.int64(), "region": pa.string(), "note": pa.string()}
    schema = TableSchema.from_arrow(pa.schema(list(columns.items())))
    change = pa.Table.from_pylist([{**{n: old[0].get(n) for n in columns}, "v": 77, "note": "new"}], schema.arrow)
    output = io.BytesIO()
    with BaseFile(base.open("rb"), base.name) as stored:
        writer = BaseFileWriter(output, schema, Stamp("t", NEW, "region=us", f"f_0-0-0_{NEW}.parquet"), WriteSettings())
        counts = rewrite(stored, writer, schema, upserts=Keyed.of(change, PROPERTIES), ordering_field="ts")
        writer.close()
    assert counts == Counts(len(old), 0, 1, 0)
    rows = pq.read_table(output).to_pylist()
    assert [(row["v"], row["note"], row["_hoodie_commit_time"]) for row in rows] == [
        (77, "new", NEW),
        *((row["v"], None, row["_hoodie_commit_time"]) for row in old[1:]),
    ]


def test_floats_order_nan_above_all_numbers() -> None:
    schema = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("o", pa.float64())]))
    base, output = io.BytesIO(), io.BytesIO()
    stored = keyed({"id": ["a", "b", "c"], "o": [1.0, float("nan"), float("nan")]})
    writer = BaseFileWriter(base, schema, Stamp("t", "20260101000000000", "", "f_0-0-0_1.parquet"), WriteSettings())
    writer.add_new(stored.rows, stored.keys)
    writer.close()
    incoming = keyed({"id": ["a", "b", "c"], "o": [float("nan"), 5.0, float("nan")]})
    with BaseFile(base, "f") as file:
        writer = BaseFileWriter(output, schema, Stamp("t", NEW, "", f"f_0-0-0_{NEW}.parquet"), WriteSettings())
        assert rewrite(file, writer, schema, upserts=incoming, ordering_field="o").updated == 2
        writer.close()
    assert pq.read_table(output)["_hoodie_commit_time"].to_pylist() == [NEW, "20260101000000000", NEW]


def test_a_condition_that_is_null_keeps_the_row() -> None:
    schema = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("v", pa.int64())]))
    base, output = io.BytesIO(), io.BytesIO()
    stored = keyed({"id": ["a", "b", "c"], "v": [1, None, 3]})
    writer = BaseFileWriter(base, schema, Stamp("t", "20260101000000000", "", "f_0-0-0_1.parquet"), WriteSettings())
    writer.add_new(stored.rows, stored.keys)
    writer.close()
    base.seek(0)
    file = BaseFile(base, "f")
    writer = BaseFileWriter(output, schema, Stamp("t", NEW, "", f"f_0-0-0_{NEW}.parquet"), WriteSettings())
    assert rewrite(file, writer, schema, delete_mask=lambda batch: pc.greater(batch["v"], 2)) == Counts(2, 0, 0, 1)
    writer.close()
    assert pq.read_table(output)["id"].to_pylist() == ["a", "b"]
