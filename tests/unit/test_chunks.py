"""How many rows a task has in hand at a time."""

from __future__ import annotations

import pyarrow as pa

from lakelock.spark_plugin.lookup_stages import CHUNK_BYTES, chunks


def batches(count: int, rows: int, width: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"doc": pa.array([f"{number:0{width}}"] * rows)}) for number in range(count)]


def test_narrow_rows_are_put_together_by_their_number() -> None:
    assert [rows.num_rows for rows in chunks(iter(batches(7, 10, 4)), 25)] == [30, 30, 10]


def test_wide_rows_are_put_together_by_their_bytes() -> None:
    given = batches(9, 32, 1 << 20)
    found = list(chunks(iter(given), 1_000_000))
    assert [rows.num_rows for rows in found] == [128, 128, 32]
    assert all(rows.nbytes <= CHUNK_BYTES + given[0].nbytes for rows in found)
    assert pa.concat_tables(found).column("doc").to_pylist() == [value for batch in given for value in batch["doc"].to_pylist()]
