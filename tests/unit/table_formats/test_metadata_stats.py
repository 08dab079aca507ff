"""Statistics of columns in the metadata table: equal to Java's for each type, and true of all rows whatever the rows are."""

from __future__ import annotations

import datetime as dt
import errno
import io
import json
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFileWriter, LocalStorage, Stamp, TableIO, TableSchema, read_timeline
from tests.golden_tables import golden_table

from lakelock.errors import CorruptTableError
from lakelock.settings import WriteSettings
from lakelock.table.metadata_records import COLUMN_STATS, PARTITION_STATS, Record
from lakelock.table.metadata_stats import (
    ALWAYS_INDEXED,
    ColumnStats,
    FileStats,
    StatsIndex,
    ValueType,
    column_stats_key,
    column_stats_records,
    file_stats,
    null_records,
    partition_stats_key,
    partition_stats_records,
    stats_in,
    value_type,
    xxh64,
)
from lakelock.table.metadata_table import MetadataTable
from lakelock.table.record_keys import record_keys
from lakelock.table.schema import RECORD_KEY

MADE = ("java12_metadata", "java10_metadata")
MERGED = ("java12_mor_metadata", "java10_mor_metadata")
NAME = "11111111-2222-3333-4444-555555555555-0_7-8-9_20260307135800817.parquet"
UTC = dt.timezone.utc
INT, LONG = ValueType(3), ValueType(4)


class Java:
    """A table that Java made with all its defaults."""

    def __init__(self, name: str) -> None:
        self.root = golden_table(name)
        self.index = StatsIndex.parse((self.root / ".hoodie/.index_defs/index.json").read_bytes(), "index.json")
        storage = LocalStorage(str(self.root))
        self.metadata = MetadataTable.look(TableIO(storage), read_timeline(storage))
        self.files = sorted(self.root.glob("region=*/*.parquet"), key=lambda path: path.name.rpartition("_")[2])
        self.logs = sorted(self.root.glob("region=*/.*.log.*"))

    def partition(self, path: Path) -> str:
        return str(path.parent.relative_to(self.root))

    def stats(self, path: Path) -> FileStats:
        schema = pq.read_schema(path if path.suffix == ".parquet" else self.files[0])
        columns = self.index.of(pa.schema([field for field in schema if not field.name.startswith("_hoodie_")]))
        return file_stats(path.open("rb"), f"{self.partition(path)}/{path.name}", columns, schema)


def content(record: Record) -> dict[str, Any]:
    """What a record says; Java's records of version 1 have no type."""
    found = dict(record["ColumnStatsMetadata"][1])
    if found.get("valueType") is None:
        found.pop("valueType", None)
    return found


@pytest.mark.parametrize("name", MADE + MERGED)
def test_the_records_of_each_file_are_those_of_java_in_both_versions_of_the_index(name: str) -> None:
    java = Java(name)
    theirs = java.metadata.records(COLUMN_STATS)
    ours: dict[str, Record] = {}
    for path in (*java.files, *java.logs):
        ours |= column_stats_records(java.partition(path), path.name, java.stats(path), java.index.version)
    assert {key: content(record) for key, record in ours.items()} == {key: content(record) for key, record in theirs.items()}
    kinds = {type(content(record)["minValue"] and content(record)["minValue"][1]["value"]) for record in ours.values()}
    assert {bool, int, float, str, bytes} <= kinds
    for key, record in theirs.items():
        again = stats_in(record)
        assert again is not None and (again.low, again.high) == (stats_in(ours[key]).low, stats_in(ours[key]).high)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", MADE)
def test_the_records_of_a_partition_are_those_of_java_which_also_looks_at_all_its_files(name: str) -> None:
    java = Java(name)
    newest = {java.partition(path): path for path in java.files}
    ours: dict[str, Record] = {}
    for partition, path in newest.items():
        ours |= partition_stats_records(partition, [java.stats(path)], {}, java.index.version)
    theirs = java.metadata.records(PARTITION_STATS)
    assert {key: content(record) for key, record in ours.items()} == {key: content(record) for key, record in theirs.items()}


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0x0D6FDE68D55B45DA), ("a", 0x0451EAA7628BCEB3), ("abcd", 0x43A3FB5CA5DD0561), ("12345678901", 0xC16EFF7A54934C5B),
        ("_hoodie_partition_path", 0xA9E007FF9AB52FC7), ("x" * 31, 0xFEB7C44F77D3D6B2),
        ("region=Zürich/day=2026-11-29/and-more-of-it", 0xB5D7A204A81F18B7), ("é" * 100, 0x12522B1CC55A235),
    ],
)  # fmt: skip
def test_names_are_hashed_as_the_xxhash_library_does(text: str, hashed: int) -> None:
    assert xxh64(text.encode(), 0xFFFF_FFFF_DABA_DABA) == hashed


def stats_of(rows: pa.Table, columns: Sequence[str], schema: pa.Schema | None = None, group_rows: int = 2) -> FileStats:
    """Of a file with these rows as lakelock writes it, in row groups of two rows."""
    rows = rows.append_column("id", pa.array([f"k{n}" for n in range(rows.num_rows)], pa.string()))
    output = io.BytesIO()
    settings = WriteSettings(row_group_rows=group_rows, bloom_entries=10)
    writer = BaseFileWriter(output, TableSchema.from_arrow(rows.schema), Stamp("t", NAME[-25:-8], "p=1", NAME), settings)
    if rows.num_rows:
        writer.add_new(rows, record_keys(rows, ["id"]))
    writer.close()
    output.seek(0)
    return file_stats(output, f"p=1/{NAME}", columns, schema or rows.schema)


VALUES: dict[str, tuple[pa.DataType, list[Any], Any, Any]] = {
    "bool": (pa.bool_(), [True, None, False], False, True),
    "int": (pa.int32(), [-(2**31), None, 2**31 - 1], -(2**31), 2**31 - 1),
    "long": (pa.int64(), [-(2**63), 5, 2**63 - 1], -(2**63), 2**63 - 1),
    "float": (pa.float32(), [1.5, None, -math.inf], -math.inf, 1.5),
    "double": (pa.float64(), [-0.1, 1e300, 7.0], -0.1, 1e300),
    "string": (pa.string(), ["b", "ﬀ", "😀", "a"], "a", "😀"),
    "bytes": (pa.binary(), [b"\xff\x00", b"", b"\x7f"], b"", b"\xff\x00"),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)], -719162, 2932896),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(1900, 1, 1, tzinfo=UTC), None], -2208988800000000, -2208988800000000),
    "local": (pa.timestamp("us"), [dt.datetime(2026, 1, 1, 0, 0, 0, 1)], 1767225600000001, 1767225600000001),
    "small": (pa.decimal128(7, 3), [Decimal("-1.005"), Decimal("2")], -1005, 2000),
    "exact": (pa.decimal128(38, 10), [Decimal("-123456789.5"), None, Decimal(1)], -(1234567895 * 10**9), 10**10),
    "null": (pa.int64(), [None, None, None], None, None),
    "none": (pa.string(), [], None, None),
    "long text": (pa.string(), ["a" * 5000, "b" * 5000], "a" * 32, "b" * 31 + "c"),
    "long text of last characters": (pa.string(), ["\U0010ffff" * 2000], "\U0010ffff" * 32, "\U0010ffff" * 2000),
    "long bytes": (pa.binary(), [b"\xff" * 5000 + b"a", b"a" * 5000], b"a" * 32, b"\xff" * 5000 + b"a"),
    "long bytes with an end": (pa.binary(), [b"b\xff" + b"\xff" * 5000], b"b" + b"\xff" * 31, b"c"),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_bounds_hold_all_values_of_a_file_in_whatever_row_group(kind: str) -> None:
    arrow, values, low, high = VALUES[kind]
    found = stats_of(pa.table({"c": pa.array(values, arrow)}), ["c"])["c"]
    assert (found.low, found.high) == (low, high)
    assert (found.values, found.nulls) == (len(values), values.count(None))
    assert found.type == value_type(arrow)
    for version in (1, 2):
        record = partition_stats_records("p=1", [{"c": found}], {}, version)[partition_stats_key("c", "p=1")]
        again = stats_in(record)
        assert again is not None and (again.values, again.nulls) == (found.values, found.nulls)
        if version == 2:
            assert (again.low, again.high, again.type) == (found.low, found.high, found.type)


@pytest.mark.parametrize("values", [[1.0, math.nan, 2.0], [math.nan], [None, math.nan], [1.0, 2.0, math.nan, None]])
@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
def test_a_nan_opens_the_bounds_of_its_column(values: list[float | None], arrow: pa.DataType) -> None:
    found = stats_of(pa.table({"c": pa.array(values, arrow), "d": pa.array([1.0] * len(values), arrow)}), ["c", "d"])
    assert (found["c"].low, found["c"].high) == (-math.inf, math.inf)
    assert (found["d"].low, found["d"].high) == (1.0, 1.0)


def test_the_partition_of_a_file_is_known_without_statistics_of_it() -> None:
    found = stats_of(pa.table({"c": [1, 2, 3]}), ALWAYS_INDEXED)
    assert [(found[name].low, found[name].high, found[name].nulls) for name in ALWAYS_INDEXED] == [
        (NAME[-25:-8], NAME[-25:-8], 0), ("p=1", "p=1", 0), ("k0", "k2", 0),
    ]  # fmt: skip


def test_a_column_that_a_file_lacks_is_null_in_all_its_rows() -> None:
    schema = pa.schema([("c", pa.int64()), ("added", pa.decimal128(5, 2))])
    found = stats_of(pa.table({"c": [1, 2, 3]}), ["c", "added"], schema)["added"]
    assert found == ColumnStats(ValueType(10, 5, 2), values=3, nulls=3)


def test_a_damaged_file_is_named() -> None:
    for data in (b"", b"PAR1", b"no Parquet at all"):
        with pytest.raises(CorruptTableError, match="some file"):
            file_stats(io.BytesIO(data), "some file", ["c"], pa.schema([("c", pa.int64())]))


def test_an_error_of_the_machine_is_none_of_the_file() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(errno.EIO, "the disk failed")

    with pytest.raises(OSError, match="the disk failed"):
        file_stats(Failing(b"PAR1" * 9), "some file", ["c"], pa.schema([("c", pa.int64())]))


def joined(*stats: ColumnStats, version: int = 2) -> ColumnStats:
    """What the record of a partition says after commits with a file each."""
    known: dict[str, Record] = {}
    for found in stats:
        known |= partition_stats_records("p=1", [{"c": found}], {key: [each] for key, each in known.items()}, version)
    again = stats_in(known[partition_stats_key("c", "p=1")])
    assert again is not None
    return again


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("old", "new", "low", "high"),
    [
        (ColumnStats(INT, 5, 9, 2), ColumnStats(INT, 1, 6, 2), 1, 9),
        (ColumnStats(INT, -5, 9, 2), ColumnStats(LONG, 1, 2**40, 2), -5, 2**40),
        (ColumnStats(LONG, 1, 2**40, 2), ColumnStats(INT, -5, 9, 2), -5, 2**40),
        (ColumnStats(INT, -5, 9, 2), ColumnStats(ValueType(6), 0.5, 1.5, 2), -5.0, 9.0),
        (ColumnStats(ValueType(5), 0.5, 1.5, 2), ColumnStats(ValueType(6), -1.0, 1.0, 2), -1.0, 1.5),
        (ColumnStats(ValueType(7), "a", "ﬀ", 2), ColumnStats(ValueType(7), "b", "😀", 2), "a", "😀"),
        (ColumnStats(ValueType(8), b"", b"\x80", 2), ColumnStats(ValueType(8), b"a", b"\x7f", 2), b"", b"\x80"),
        (ColumnStats(ValueType(16), 5, 9, 2), ColumnStats(ValueType(16), 1, 6, 2), 1, 9),
        (ColumnStats(INT, 5, 9, 2), ColumnStats(INT, None, None, 2, 2), 5, 9),
        (ColumnStats(INT, None, None, 2, 2), ColumnStats(ValueType(7), "a", "b", 2), "a", "b"),
        (ColumnStats(ValueType(7), "x", "y", 2), ColumnStats(INT, 1, 2, 2), 1, 2),
    ],
)
def test_a_partition_has_the_bounds_of_all_its_files_also_where_a_column_grew(
    old: ColumnStats, new: ColumnStats, low: object, high: object, version: int
) -> None:
    found = joined(old, new, version=version)
    assert (found.low, found.high, found.values, found.nulls) == (low, high, 4, old.nulls + new.nulls)


def test_decimals_of_a_partition_keep_their_values_where_they_got_more_digits() -> None:
    old, new = ColumnStats(ValueType(10, 5, 2), -12345, 500, 2), ColumnStats(ValueType(10, 12, 4), -1, 10_000_000, 2)
    found = joined(old, new)
    assert found == ColumnStats(ValueType(10, 12, 4), -1234500, 10_000_000, 4)
    again = joined(old, new, version=1)
    assert (again.low, again.high) == (-12345 * 10**13, 10_000_000 * 10**11)


def test_rows_that_lack_an_added_column_count_as_null_in_it() -> None:
    known = partition_stats_records("p", [{"c": ColumnStats(INT, 1, 2, 5)}], {}, 2)
    new = {"c": ColumnStats(INT, 3, 4, 2), "added": ColumnStats(INT, 7, 8, 2)}
    found = stats_in(
        partition_stats_records("p", [new], {key: [each] for key, each in known.items()}, 2)[partition_stats_key("added", "p")]
    )
    assert found == ColumnStats(INT, 7, 8, 7, 5)


def test_a_column_that_was_added_is_null_in_files_and_partitions_from_before() -> None:
    stats = {RECORD_KEY: ColumnStats(ValueType(7), "a", "b", 5), "c": ColumnStats(INT, 1, 2, 5)}
    schema = pa.schema([("c", pa.int32()), ("added", pa.int32())])
    null = ColumnStats(INT, None, None, 5, 5)
    by_partition = partition_stats_records("p", [stats], {}, 2)
    made = null_records(PARTITION_STATS, ["added"], by_partition, schema, 2)
    assert [stats_in(record) for record in made.values()] == [null] and set(made) == {partition_stats_key("added", "p")}
    by_file = column_stats_records("p", NAME, stats, 2)
    made = null_records(COLUMN_STATS, ["added"], by_file, schema, 2)
    assert [stats_in(record) for record in made.values()] == [null] and set(made) == {column_stats_key("added", "p", NAME)}
    assert null_records(COLUMN_STATS, ["added"], by_file | made, schema, 2) == {}


def test_a_partition_whose_record_marks_a_removal_begins_anew() -> None:
    ((key, record),) = partition_stats_records("p", [{"c": ColumnStats(INT, 1, 2, 5)}], {}, 2).items()
    name, stats = record["ColumnStatsMetadata"]
    removed = {key: [{**record, "ColumnStatsMetadata": (name, {**stats, "isDeleted": True})}]}
    again = partition_stats_records("p", [{"c": ColumnStats(INT, 7, 8, 1)}], removed, 2)
    assert stats_in(again[key]) == ColumnStats(INT, 7, 8, 1)


def test_the_record_of_a_partition_replaces_the_one_before_and_that_of_a_file_says_that_it_is_no_tight_bound() -> None:
    stats = {"c": ColumnStats(INT, 1, 2, 5)}
    assert [content(r)["isTightBound"] for r in partition_stats_records("p", [stats], {}, 2).values()] == [True]
    assert [content(r)["isTightBound"] for r in column_stats_records("p", NAME, stats, 2).values()] == [False]


WIDE = pa.schema([(f"c{n}", pa.int64()) for n in range(40)])
MANY = tuple(WIDE.names)


def definition(columns: Sequence[str], version: str = "V2") -> StatsIndex:
    found = {"indexDefinitions": {"column_stats": {"sourceFields": [*ALWAYS_INDEXED, *columns], "version": version}}}
    return StatsIndex.parse(json.dumps(found).encode(), "index.json")


def test_the_first_columns_are_indexed_and_added_ones_unless_a_writer_named_some() -> None:
    assert definition(MANY[:32]).of(WIDE) == (*ALWAYS_INDEXED, *MANY[:32])
    assert definition(MANY[:3]).of(WIDE) == (*ALWAYS_INDEXED, *MANY[:32])
    assert definition(["c7", "c3", "gone"]).of(WIDE) == (*ALWAYS_INDEXED, "c3", "c7")
    assert definition(MANY[:36]).of(WIDE) == (*ALWAYS_INDEXED, *MANY[:36])
    assert definition([]).of(pa.schema([("l", pa.list_(pa.int64())), ("c", pa.int64())])) == (*ALWAYS_INDEXED, "c")


def test_version_1_indexes_no_decimals_with_many_digits_and_some_writers_leave_out_bytes() -> None:
    schema = pa.schema([("b", pa.binary()), ("d", pa.decimal128(38, 10)), ("e", pa.decimal128(30, 15)), ("c", pa.int64())])
    assert definition(["b", "e"], "V1").of(schema) == (*ALWAYS_INDEXED, "b", "e", "c")
    assert definition(["c"], "V1").of(schema) == (*ALWAYS_INDEXED, "b", "e", "c")
    assert definition(["b", "d"]).of(schema) == (*ALWAYS_INDEXED, "b", "d", "e", "c")


def test_columns_inside_others_are_named_as_not_indexed_by_lakelock() -> None:
    assert definition(["c", "s.x"]).nested == ("s.x",)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"indexDefinitions": {"column_stats": {"sourceFields": [], "version": "V3"}}}']
)
def test_a_definition_that_is_not_understood_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptTableError, match="index.json"):
        StatsIndex.parse(text, "index.json")
