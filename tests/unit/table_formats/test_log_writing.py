"""Log files that lakelock writes: what readers find in them, and what their commit says of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.golden_tables import golden_table
from tests.hand_made import HandMade

from lakelock.markers.data_files import Marker, MarkerKind, parse_marker
from lakelock.storage.local import LocalStorage
from lakelock.table.archive import read_commit
from lakelock.table.layout import FileGroupId
from lakelock.table.log_files import Block, BlockHeader, BlockKind, LogFile, blocks_of, deletes_in, positions_in, positions_text
from lakelock.table.log_rows import add_block
from lakelock.table.log_writing import LogChanges, LogStamp, log_bytes, log_stat, rows_bytes
from lakelock.table.properties import TableProperties
from lakelock.table.row_versions import ByCommitTime, WrittenRows
from lakelock.table.schema import META_COLUMNS, TableSchema
from lakelock.table.timeline import read_timeline

INSTANT, GROUP = "20260601000002000", FileGroupId("region=eu", "11111111-1111-4111-8111-111111111111-0")
STAMP = LogStamp(INSTANT, GROUP, "7-0-0")
COLUMNS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("tags", pa.list_(pa.string()))])
SCHEMA = TableSchema.from_arrow(COLUMNS)
TABLE = HandMade(Path(), TableProperties.new("t", ["id"], []), SCHEMA)


def rows(*keys: str) -> pa.Table:
    return pa.table([list(keys), list(range(len(keys))), [[key] for key in keys]], schema=COLUMNS)


def changes(*keys: str, deleted: tuple[str, ...] = ()) -> LogChanges:
    return LogChanges(TABLE.keyed(rows(*keys)) if keys else None, deleted)


def blocks(data: bytes) -> list[Block]:
    return list(blocks_of(io.BytesIO(data), len(data), "a log file"))


def test_rows_come_back_with_one_instant_everywhere_and_sorted_by_key() -> None:
    data = log_bytes(changes("b", "c", "a", deleted=("z", "y")), SCHEMA, "t", STAMP)
    written, gone = blocks(data)
    assert (written.kind, gone.kind) == (BlockKind.PARQUET, BlockKind.DELETE)
    assert list(deletes_in(gone)) == [("y", None), ("z", None)]
    for block in (written, gone):
        assert block.instant == INSTANT
        assert [each["name"] for each in json.loads(block.header[BlockHeader.SCHEMA])["fields"]][:5] == list(META_COLUMNS)
    found = pq.read_table(io.BytesIO(written.content)).to_pylist()
    assert [(row["_hoodie_record_key"], row["id"], row["v"], row["tags"]) for row in found] == [
        ("a", "a", 2, ["a"]), ("b", "b", 0, ["b"]), ("c", "c", 1, ["c"]),
    ]  # fmt: skip
    assert [row["_hoodie_commit_seqno"] for row in found] == [f"{INSTANT}_7_{number}" for number in range(3)]
    assert {(row["_hoodie_commit_time"], row["_hoodie_partition_path"], row["_hoodie_file_name"]) for row in found} == {
        (INSTANT, *GROUP)
    }


def test_a_file_of_deletes_has_one_block_and_one_of_rows_has_one() -> None:
    assert [block.kind for block in blocks(log_bytes(changes(deleted=("a",)), SCHEMA, "t", STAMP))] == [BlockKind.DELETE]
    assert [block.kind for block in blocks(log_bytes(changes("a"), SCHEMA, "t", STAMP))] == [BlockKind.PARQUET]


def loaded(rows: pa.Table, flags: Any) -> pa.Table:
    return rows if flags is None else rows.filter(pa.array(flags))


def test_a_reader_merges_what_was_written() -> None:
    wanted = pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.int64())])
    stored = pa.table([["a", "c", "d"], [7, 8, 9]], schema=wanted)
    versions = ByCommitTime(wanted, stored.num_rows, [stored.column(0)])
    for block in blocks(log_bytes(changes("a", "b", deleted=("c",)), SCHEMA, "t", STAMP)):
        add_block(block, versions)
    assert versions.merged(stored.num_rows, lambda flags: loaded(stored, flags)).to_pydict() == {
        "_hoodie_record_key": ["d"],
        "v": [9],
    }
    assert pa.concat_tables(versions.rest()).to_pydict() == {"_hoodie_record_key": ["a", "b"], "v": [0, 1]}


def test_of_rows_that_were_all_written_again_only_the_keys_are_read() -> None:
    versions = ByCommitTime(pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.int64())]))
    asked: list[str] = []
    for name, keys in (("first", "ab"), ("second", "abc"), ("third", "x")):
        keyed = pa.table([list(keys), [len(name)] * len(keys)], schema=versions.columns)

        def load(flags: Any, name: str = name, keyed: pa.Table = keyed) -> pa.Table:
            asked.append(name)
            return loaded(keyed, flags)

        versions.add_rows(WrittenRows(keyed.column(0), load))
    versions.add_deletes([("x", None)])
    assert pa.concat_tables(versions.rest()).column("v").to_pylist() == [6, 6, 6] and asked == ["second"]


def test_positions_are_written_byte_by_byte_as_java_writes_them() -> None:
    found = []
    for name in ("java12_mor_events", "java12_mor_deletes", "java12_mor_compaction"):
        for log in golden_table(name).rglob(".*.log.*"):
            if log.suffix != ".crc":
                found += [block for block in blocks(log.read_bytes()) if BlockHeader.RECORD_POSITIONS in block.header]
    assert {block.kind for block in found} == {BlockKind.AVRO, BlockKind.DELETE}
    for block in found:
        positions = positions_in(block, 1000)
        assert positions is not None and positions_text(positions) == block.header[BlockHeader.RECORD_POSITIONS]


@pytest.mark.parametrize(("keys", "deleted"), [((), ()), (("a", "a"), ()), (("a",), ("a",)), ((), ("b", "b"))])
def test_a_file_says_one_thing_of_each_key_and_at_least_one(keys: tuple[str, ...], deleted: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="at least one change, and one for each key"):
        changes(*keys, deleted=deleted)


def test_equal_changes_give_equal_bytes() -> None:
    assert rows_bytes(TABLE.keyed(rows("a", "b")), SCHEMA, STAMP) == rows_bytes(TABLE.keyed(rows("a", "b")), SCHEMA, STAMP)


def test_a_hundred_rows_take_ten_kilobytes_at_most() -> None:
    assert len(log_bytes(changes(*(f"key-{number:06}" for number in range(100))), SCHEMA, "t", STAMP)) < 10_000


def test_the_stat_of_a_log_file_is_the_one_that_java_writes() -> None:
    """But for numbers: of rows, bytes and milliseconds."""
    storage = LocalStorage(str(golden_table("java12_mor_parquet_logs")))
    told = [stat for commit in read_timeline(storage).commits for stat in read_commit(storage, commit).stats]
    (javas, *_) = [stat for stat in told if LogFile.parse(stat.path or "") is not None and stat.num_writes]
    log = LogFile.parse(javas.path or "")
    assert log is not None
    stamp = LogStamp(log.instant, log.group, log.token)
    mine = log_stat(changes(*map(str, range(javas.num_writes or 0))), stamp, javas.file_size_bytes or 0)
    differ = {name for name in vars(mine) if getattr(mine, name) != getattr(javas, name)}
    assert differ == {"runtime"}


def test_a_log_file_is_announced_like_any_file_and_belongs_to_its_group() -> None:
    marker = Marker(GROUP.partition, STAMP.file.name, MarkerKind.CREATE)
    assert parse_marker(str(marker), "here") == marker
    assert (marker.data_key, marker.group) == (STAMP.file.key, GROUP)
