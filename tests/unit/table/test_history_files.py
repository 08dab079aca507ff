"""Files of the timeline's history: merged some rows at a time, and what is read of a merged one."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow.parquet as pq
import pytest
from tests.api import MemoryStorage

from lakelock.errors import CorruptTableError
from lakelock.table.archive import archived_writes
from lakelock.table.history_files import HistoryFile, HistoryRow, merged_bytes, rows_bytes


def row(number: int, action: str = "commit", metadata: bytes = b"x" * 10) -> HistoryRow:
    return HistoryRow(f"{number:017}", f"{number + 1:017}", action, metadata, b"plan" if action == "clean" else None)


def stored(storage: MemoryStorage, *parts: Iterable[HistoryRow]) -> list[HistoryFile]:
    """A file with the rows of each part."""
    files = []
    for part in parts:
        rows = list(part)
        data = rows_bytes(rows)
        file = HistoryFile(min(r.requested for r in rows), max(r.requested for r in rows), 0, len(data))
        storage.put(file.key, data)
        files.append(file)
    return files


def content(data: bytes) -> list[tuple[str, str, bytes, bytes | None]]:
    names = ["instantTime", "action", "metadata", "plan"]
    found = pq.read_table(io.BytesIO(data), columns=names)
    return list(zip(*(found.column(name).to_pylist() for name in names), strict=True))


def test_few_instants_of_a_merged_file_are_read_without_the_rest() -> None:
    storage = MemoryStorage()
    files = stored(storage, *((row(number) for number in range(first, first + 800)) for first in (0, 800, 1600)))
    merged = pq.ParquetFile(io.BytesIO(merged_bytes(storage, files)))
    assert [merged.metadata.row_group(n).num_rows for n in range(merged.num_row_groups)] == [1000, 1000, 400]
    first_instants = [merged.metadata.row_group(n).column(0).statistics.min for n in range(merged.num_row_groups)]
    assert first_instants == [f"{number:017}" for number in (0, 1000, 2000)]


def test_what_several_files_have_is_there_once_and_in_order() -> None:
    storage = MemoryStorage()
    parts = (
        [row(1), row(5), row(9, "clean"), row(9)],
        [row(3), row(5), row(7, "rollback")],
        [row(20), row(21, "clean")],
        [row(9), row(12)],
    )
    found = content(merged_bytes(storage, stored(storage, *parts)))
    assert [(int(instant), action) for instant, action, *_ in found] == [
        (1, "commit"), (3, "commit"), (5, "commit"), (7, "rollback"), (9, "clean"), (9, "commit"), (12, "commit"),
        (20, "commit"), (21, "clean"),
    ]  # fmt: skip
    assert [plan for *_, plan in found if plan is not None] == [b"plan", b"plan"]
    whole = rows_bytes({(r.requested, r.action): r for part in parts for r in part}.values())
    assert content(whole) == found


def test_a_damaged_file_is_not_merged() -> None:
    storage = MemoryStorage()
    files = stored(storage, [row(1)], [row(2)])
    storage.put(files[1].key, b"PAR1")
    with pytest.raises(CorruptTableError, match=files[1].name):
        merged_bytes(storage, files)


def test_of_the_archive_only_what_completed_later_is_read() -> None:
    storage = MemoryStorage()
    stored(storage, (row(number) for number in range(2_500)))
    (found,) = [writes for _, writes in archived_writes(storage, after=f"{2_401:017}")]
    assert [int(write.requested) for write in found] == list(range(2_401, 2_500))
    assert [writes for _, writes in archived_writes(storage, after=f"{9_999:017}")] == [[]]
