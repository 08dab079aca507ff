"""Files of the timeline's history: what is read of a merged one."""

from __future__ import annotations

import io

import pyarrow.parquet as pq

from lakelock.table.upkeep.history import HistoryRow, merged_bytes, rows_bytes


def test_few_instants_of_a_merged_file_are_read_without_the_rest() -> None:
    parts = [
        rows_bytes(HistoryRow(f"{number:017}", f"{number:017}", "commit", b"x" * 10) for number in range(first, first + 800))
        for first in (0, 800, 1600)
    ]
    merged = pq.ParquetFile(io.BytesIO(merged_bytes(pq.read_table(io.BytesIO(part)) for part in parts)))
    assert [merged.metadata.row_group(n).num_rows for n in range(merged.num_row_groups)] == [1000, 1000, 400]
    first_instants = [merged.metadata.row_group(n).column(0).statistics.min for n in range(merged.num_row_groups)]
    assert first_instants == [f"{number:017}" for number in (0, 1000, 2000)]
    assert pq.ParquetFile(io.BytesIO(parts[0])).num_row_groups == 1
