"""The metadata tables that Java Hudi 1.2 and 1.0.2 made: every byte of their records is understood, and written again."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api import LocalStorage, TableIO, layout, read_timeline
from tests.golden_tables import golden_table

from lakelock.errors import CorruptTableError
from lakelock.table.hfile import find_in_hfile, hfile_bytes, read_hfile
from lakelock.table.log_files import Block, BlockHeader, BlockKind, block_bytes, blocks_of, deletes_bytes, deletes_in
from lakelock.table.metadata_records import (
    ALL_PARTITIONS,
    FILES,
    NOT_PARTITIONED,
    PARTITION_STATS,
    RecordSchema,
    file_groups_of,
    files_in,
    files_records,
    joined,
)
from lakelock.table.metadata_table import MetadataTable

MADE = ("java12_metadata", "java10_metadata")
KINDS = {1: "partitions", 2: "files", 3: "a file's column", 5: "a record key", 6: "a partition's column"}


def root(name: str) -> Path:
    return golden_table(name) / layout.METADATA_TABLE


def logs(name: str) -> Iterator[tuple[Path, bytes, list[Block]]]:
    for path in sorted(root(name).glob("*/.*.log.*")):
        if path.suffix != ".crc":
            data = path.read_bytes()
            yield path, data, list(blocks_of(io.BytesIO(data), len(data), path.name))


def hfiles(name: str) -> Iterator[tuple[str, bytes, str]]:
    """The partition of each HFile, its bytes, and the schema of its records."""
    for path, _, blocks in logs(name):
        for block in blocks:
            if block.kind is BlockKind.HFILE:
                yield path.parent.name, block.content, block.header[BlockHeader.SCHEMA]
    for path in sorted(root(name).glob("*/*.hfile")):
        data = path.read_bytes()
        yield path.parent.name, data, read_hfile(data, path.name).info["schema"].decode()


@pytest.mark.parametrize("name", MADE)
def test_every_record_of_java_is_encoded_to_the_same_bytes(name: str) -> None:
    seen: Counter[str] = Counter()
    for partition, data, text in hfiles(name):
        schema = RecordSchema.of(text, partition)
        for _, value in read_hfile(data, partition).entries:
            record = schema.decoded(value, partition)
            assert schema.encoded(record) == value
            seen[KINDS[record["type"]]] += 1
    assert set(seen) == set(KINDS.values())


@pytest.mark.parametrize("name", MADE)
def test_every_log_file_of_java_is_written_again_byte_by_byte_but_for_what_is_compressed(name: str) -> None:
    deletes = 0
    for path, data, blocks in logs(name):
        assert b"".join(block_bytes(block.kind, block.header, block.content) for block in blocks) == data
        for block in blocks:
            if block.kind is BlockKind.DELETE:
                keys = [key for key, _ in deletes_in(block)]
                assert deletes_bytes(keys, path.parent.name) == block.content
                deletes += len(keys)
    assert deletes


@pytest.mark.parametrize("name", [*MADE, "java12_metadata_blocks"])
def test_an_hfile_of_java_is_written_again_with_the_same_entries_and_info(name: str) -> None:
    blocks = 0
    for partition, data, _ in hfiles(name):
        found = read_hfile(data, partition)
        for gzipped in (False, True):
            again = read_hfile(hfile_bytes(found.entries, {}, created_ms=0, gzipped=gzipped), partition)
            assert again.entries == found.entries
            # HBase, which writes for Hudi 1.0, counts the rest of the entry, too.
            if name != "java10_metadata":
                for figure in ("hfile.AVG_KEY_LEN", "hfile.AVG_VALUE_LEN"):
                    assert again.info[figure] == found.info[figure]
            assert found.info.get("hfile.LASTKEY", b"").startswith(again.info["hfile.LASTKEY"])
        blocks = max(blocks, data.count(b"DATABLK*"))
    assert blocks > 1 if name == "java12_metadata_blocks" else blocks == 1


@pytest.mark.parametrize("name", MADE)
def test_the_metadata_table_lists_the_files_that_are_there(name: str) -> None:
    storage = LocalStorage(str(golden_table(name)))
    table = MetadataTable.look(TableIO(storage), read_timeline(storage))
    there: dict[str, dict[str, int]] = {}
    for listed in storage.list(""):
        partition, _, file = listed.key.rpartition("/")
        if file.endswith(".parquet"):
            there.setdefault(partition, {})[file] = listed.size_bytes
    assert table.files() == there
    assert "region=Zü rich é" in there
    old, new = [f"k{n}" for n in (*range(2, 8), 20, 21)], ["ключ-é2", "ключ-é3"]
    assert set(table.records("record_index")) == {*old, *new}


def test_all_records_of_a_record_index_of_several_blocks_are_found() -> None:
    storage = LocalStorage(str(golden_table("java12_metadata_blocks")))
    table = MetadataTable.look(TableIO(storage), read_timeline(storage))
    assert len(table.records("record_index")) == 30_000


@pytest.mark.parametrize(
    ("key", "count", "group"),
    [("", 7, 0), ("a", 10, 7), ("k10", 10, 4), ("polygenelubricants", 10, 8), ("ß", 10, 3), ("😀", 10, 9)],
)
def test_a_key_is_in_the_file_group_that_its_hash_in_java_names(key: str, count: int, group: int) -> None:
    assert file_groups_of([key, key], count) == [group, group]


@pytest.mark.parametrize("name", MADE)
def test_each_key_of_javas_record_index_is_in_its_file_group(name: str) -> None:
    for path, _, blocks in logs(name):
        if path.parent.name == "record_index":
            number = int(path.name.split("-")[2])
            for block in blocks:
                entries = read_hfile(block.content, path.name).entries if block.kind is BlockKind.HFILE else ()
                assert set(file_groups_of((key.decode() for key, _ in entries), 10)) <= {number}


def test_files_are_added_and_taken_out_and_the_larger_size_counts() -> None:
    first = files_records({"": {"a": 5, "b": 6}}, {})
    assert set(first) == {ALL_PARTITIONS, NOT_PARTITIONED}
    second = files_records({"": {"c": 1, "b": 4}}, {"": ["a", "never there"]})
    record = joined(FILES, first[NOT_PARTITIONED], second[NOT_PARTITIONED])
    assert files_in(record, "x") == {"b": 6, "c": 1}
    assert files_in(joined(FILES, record, first[NOT_PARTITIONED]), "x") == {"a": 5, "b": 6, "c": 1}


def bounds(low: object, high: object, *, tight: bool, count: int = 1) -> dict[str, object]:
    wrapped = [None if value is None else ("IntWrapper", {"value": value}) for value in (low, high)]
    stats = {"minValue": wrapped[0], "maxValue": wrapped[1], "isTightBound": tight, "isDeleted": False, "valueCount": count,
             "nullCount": 0, "totalSize": None, "totalUncompressedSize": 7}  # fmt: skip
    return {"type": 6, "ColumnStatsMetadata": ("HoodieMetadataColumnStats", stats)}


def test_bounds_of_a_partition_widen_unless_they_are_tight() -> None:
    wide = joined(PARTITION_STATS, bounds(3, 9, tight=True), bounds(5, 12, tight=False))["ColumnStatsMetadata"][1]
    assert (wide["minValue"][1]["value"], wide["maxValue"][1]["value"], wide["valueCount"]) == (3, 12, 2)
    one = joined(PARTITION_STATS, bounds(3, 9, tight=False), bounds(None, None, tight=False))["ColumnStatsMetadata"][1]
    assert (one["minValue"][1]["value"], one["maxValue"][1]["value"]) == (3, 9)
    tight = bounds(5, 12, tight=True)
    assert joined(PARTITION_STATS, bounds(3, 9, tight=True), tight) is tight


def test_an_hfile_has_ascending_keys() -> None:
    for keys in ([b"b", b"a"], [b"a", b"a"]):
        with pytest.raises(ValueError, match="ascend"):
            hfile_bytes([(key, b"") for key in keys], {}, created_ms=0)
    with pytest.raises(ValueError, match="longer than 32767"):
        hfile_bytes([(b"k" * 32_768, b"")], {}, created_ms=0)


@pytest.mark.parametrize("count", [0, 1, 2, 500])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 255, 256, 32_767])
def test_keys_of_every_length_and_blocks_of_every_number_come_back(count: int, size: int) -> None:
    entries = [(str(n).zfill(4).encode().ljust(size, b"x")[: max(size, 4)], b"v" * (n % 3)) for n in range(count)]
    data = hfile_bytes(entries, {"schema": b"s"}, created_ms=5, block_bytes=40_000)
    found = read_hfile(data, "x")
    assert list(found.entries) == entries and found.info["schema"] == b"s"
    assert data == hfile_bytes(entries, {"schema": b"s"}, created_ms=5, block_bytes=40_000)


def test_a_torn_or_altered_hfile_is_refused_with_its_name() -> None:
    data = hfile_bytes([(b"a", b"1"), (b"b", b"2")], {}, created_ms=0)
    cuts = [data[:-1], data[1:], b"", data[:-4] + b"\0\0\0\4", data[:100] + data[101:], data.replace(b"DATABLK*", b"DATABLKE")]
    for torn in cuts:
        with pytest.raises(CorruptTableError, match="the file x"):
            read_hfile(torn, "the file x")


@pytest.mark.parametrize("name", [*MADE, "java12_metadata_blocks"])
def test_entries_of_an_hfile_of_java_are_found_without_the_others(name: str) -> None:
    for partition, data, _ in hfiles(name):
        entries = read_hfile(data, partition).entries
        some = entries[:: max(1, len(entries) // 20)]
        asked = [*(key for key, _ in some), b"", b"not there", b"\xff"]
        found = find_in_hfile(io.BytesIO(data), asked, partition)
        assert found.entries == some and found.info == read_hfile(data, partition).info


def test_only_blocks_that_may_have_the_keys_are_read() -> None:
    entries = [(b"%05d" % n, b"v" * 100) for n in range(5_000)]
    data = hfile_bytes(entries, {}, created_ms=0, block_bytes=10_000)
    source = Reads(data)
    assert find_in_hfile(source, [b"02500", b"02500x", b"04999"], "x").entries == (entries[2500], entries[4999])
    assert source.bytes_read < 100_000 < len(data)


class Reads(io.BytesIO):
    """Counts what is read."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.bytes_read += len(found)
        return found


@pytest.mark.parametrize("size", [1, 150, 1 << 20])
def test_keys_that_java_has_put_in_the_order_of_its_strings_are_found(size: int) -> None:
    """Java's record index has them so; by UTF-16 an emoji is before a full-width letter, and by bytes behind it."""
    written = {f"b{n:04d}".encode(): f"\U0001f600{n}".encode() for n in range(5)}
    written |= {f"c{n:04d}".encode(): f"\uff21{n:02d}".encode() for n in range(5)}
    entries = [(b"a0000", b"0"), *((key, b"%d" % number) for number, key in enumerate(written)), (b"z0000", b"9")]
    data = hfile_bytes(sorted(entries), {}, created_ms=0, block_bytes=size)
    for key, name in written.items():
        assert len(key) == len(name)
        data = data.replace(key, name)
    data = data.replace(b"z0000", "\uff3a99".encode())
    found = {key for key, _ in read_hfile(data, "x").entries}
    assert len(found) == 12 and {*written.values(), b"a0000"} <= found
    for key in found:
        assert [entry[0] for entry in find_in_hfile(io.BytesIO(data), [key], "x").entries] == [key]
    assert not find_in_hfile(io.BytesIO(data), ["\uff219".encode(), "\U0001f6009".encode()], "x").entries
    mixed = data.replace("\uff2100".encode(), b"A0000")
    with pytest.raises(CorruptTableError, match="do not ascend"):
        read_hfile(mixed, "x")
