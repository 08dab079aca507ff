"""Base files: what readers find in them, and files that others wrote."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.api import BaseFile, BaseFileWriter, Stamp, TableSchema

from lakelock.errors import CorruptTableError, StorageError
from lakelock.settings import WriteSettings
from lakelock.table import base_files
from lakelock.table.base_files import KeyRange, Written, java_order, repeating_columns, sequence_numbers
from lakelock.table.commit_metadata import ranges_in_footer
from lakelock.table.record_keys import record_keys
from lakelock.table.schema import META_COLUMNS

INSTANT = "20260307135800817"
STAMP = Stamp("t", INSTANT, "region=eu", f"11111111-2222-3333-4444-555555555555-0_7-8-9_{INSTANT}.parquet")
SMALL = WriteSettings(row_group_rows=4, bloom_entries=10)


def written(rows: pa.Table, *, settings: WriteSettings = SMALL, batch: int = 3) -> tuple[io.BytesIO, Written, TableSchema]:
    schema = TableSchema.from_arrow(rows.schema)
    output = io.BytesIO()
    writer = BaseFileWriter(output, schema, STAMP, settings)
    for start in range(0, rows.num_rows, batch):
        part = rows.slice(start, batch)
        writer.add_new(part, record_keys(part, ["id"]))
    return output, writer.close(), schema


def test_rows_carry_the_meta_columns_first() -> None:
    output, result, _ = written(pa.table({"id": [f"k{i}" for i in range(11)], "v": range(11)}))
    rows = pq.read_table(output)
    assert rows.column_names == [*META_COLUMNS, "id", "v"]
    assert [rows.schema.field(name).type for name in META_COLUMNS] == [pa.string()] * 5
    assert rows.slice(10).to_pylist() == [
        {
            "_hoodie_commit_time": INSTANT,
            "_hoodie_commit_seqno": f"{INSTANT}_7_10",
            "_hoodie_record_key": "k10",
            "_hoodie_partition_path": "region=eu",
            "_hoodie_file_name": STAMP.file_name,
            "id": "k10",
            "v": 10,
        }
    ]
    assert result == Written(11, KeyRange("k0", "k9"))


def test_batches_are_gathered_into_whole_row_groups() -> None:
    output, _, _ = written(pa.table({"id": [f"k{i}" for i in range(11)]}))
    metadata = pq.read_metadata(output)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [4, 4, 3]


def test_the_footer_has_exactly_javas_keys() -> None:
    output, _, _ = written(pa.table({"id": ["b", "a"], "v": [1, 2]}))
    footer = pq.read_metadata(output).metadata
    assert set(footer) == {
        b"parquet.avro.schema", b"writer.model.name", b"org.apache.hudi.bloomfilter", b"hoodie_bloom_filter_type_code",
        b"hoodie_min_record_key", b"hoodie_max_record_key",
    }  # fmt: skip
    assert footer[b"hoodie_min_record_key"] == b"a" and footer[b"hoodie_max_record_key"] == b"b"
    avro = json.loads(footer[b"parquet.avro.schema"])
    assert avro["name"] == "t_record" and avro["namespace"] == "hoodie.t"
    assert avro["fields"][0] == {"name": "_hoodie_commit_time", "type": ["null", "string"], "default": None, "doc": ""}
    assert avro["fields"][5] == {"name": "id", "type": ["null", "string"], "default": None}


def test_a_file_without_rows_has_no_key_range() -> None:
    output, result, schema = written(pa.table({"id": pa.array([], pa.string()), "v": pa.array([], pa.int64())}))
    assert result == Written(0, None)
    with BaseFile(output, "f") as file:
        assert (file.rows, file.key_range()) == (0, None)
        bloom = file.bloom()
        assert bloom is not None and bloom.keys == 0
        assert list(file.key_batches()) == [] and list(file.batches(schema)) == []
        assert file.arrow.names == [*META_COLUMNS, "id", "v"]


def test_every_type_comes_back_from_other_readers(tmp_path: pytest.TempPathFactory) -> None:
    row = {
        "id": "k",
        "b": True,
        "i": -1,
        "l": 2**40,
        "f": 0.5,
        "d": Decimal("-12345678901234567890.12"),
        "small": Decimal("1.23"),
        "y": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "t": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc),
        "n": dt.datetime(1969, 12, 31, 23, 59, 59, 1),
        "s": {"x": 1, "y": [Decimal("0.10"), None]},
        "m": [("a", {"w": None}), ("b", None)],
    }
    types = {
        "i": pa.int32(),
        "f": pa.float32(),
        "d": pa.decimal128(38, 2),
        "small": pa.decimal128(5, 2),
        "t": pa.timestamp("us", tz="UTC"),
        "n": pa.timestamp("us"),
        "s": pa.struct([("x", pa.int32()), ("y", pa.list_(pa.decimal128(9, 2)))]),
        "m": pa.map_(pa.string(), pa.struct([("w", pa.string())])),
    }
    rows = pa.table({name: pa.array([value], types.get(name)) for name, value in row.items()})
    rows = pa.concat_tables([rows, pa.table({n: ["z"] if n == "id" else pa.nulls(1, rows[n].type) for n in row})])
    output, _, schema = written(rows)
    with BaseFile(output, "f") as file:
        assert pa.concat_tables(file.batches(schema)).to_pylist() == rows.to_pylist()
        columns = pq.ParquetFile(output).schema
        physical = {columns.column(i).name: columns.column(i) for i in range(15)}
        assert all(column.max_definition_level > 0 for column in physical.values())
        assert (physical["small"].physical_type, physical["small"].length) == ("FIXED_LEN_BYTE_ARRAY", 3)
        assert physical["t"].physical_type == "INT64" and "isAdjustedToUTC=true" in str(physical["t"].logical_type)
    path = f"{tmp_path}/f.parquet"
    with open(path, "wb") as copy:
        copy.write(_bytes(rows))
    found = duckdb.sql(f"select id, d, day, epoch_us(t), s['y'][1], m['a'] is null from '{path}' where id = 'k'").fetchall()
    assert found[0][:3] == ("k", row["d"], row["day"]) and found[0][4] == Decimal("0.10")


def _bytes(rows: pa.Table) -> bytes:
    output, _, _ = written(rows)
    return output.getvalue()


def test_keys_and_stamps_are_read_a_row_group_at_a_time() -> None:
    rows = pa.table({"id": [f"k{i}" for i in range(11)], "v": range(11)})
    output, _, schema = written(rows)
    with BaseFile(output, "f") as file:
        assert [keys.to_pylist() for keys in file.key_batches()][1] == ["k4", "k5", "k6", "k7"]
        batches = list(file.stamped_batches(schema, 3))
        assert [batch.num_rows for batch in batches] == [3, 1, 3, 1, 3]
        stamped = pa.concat_tables(batches)
        assert stamped.column("_hoodie_commit_time").to_pylist() == [INSTANT] * 11
        assert stamped.column("v").to_pylist() == list(range(11))


def test_numbers_that_a_codec_cannot_make_smaller_stay_as_they_are() -> None:
    rng = np.random.default_rng(1)
    dense, few = rng.random(5000), np.arange(5000.0)
    rows = pa.table({"id": [f"k{i}" for i in range(5000)], "dense": dense, "few": few, "s": [{"dense": x} for x in dense]})
    output, _, _ = written(rows, settings=WriteSettings(), batch=5000)
    group = pq.read_metadata(output).row_group(0)
    codecs = {group.column(n).path_in_schema: group.column(n).compression for n in range(group.num_columns)}
    assert {name for name, codec in codecs.items() if codec == "UNCOMPRESSED"} == {"dense"}
    assert {codec for name, codec in codecs.items() if name != "dense"} == {"ZSTD"}
    assert pq.read_table(output).select(rows.column_names).equals(rows)


def test_a_rewritten_file_keeps_its_filter_and_adds_the_new_keys() -> None:
    ids = [f"k{i}" for i in range(100)]
    first, _, schema = written(pa.table({"id": ids}))
    second = io.BytesIO()
    with BaseFile(first, "f") as base:
        before = base.bloom()
        writer = BaseFileWriter(second, schema, STAMP, SMALL)
        writer.continues(base)
        for batch in base.stamped_batches(schema):
            writer.add_stored(batch)
        writer.add_new(pa.table({"id": ["new"]}), pa.chunked_array([["new"]]))
        writer.close()
    with BaseFile(second, "f") as base:
        after = base.bloom()
    assert before is not None and after is not None
    assert (after.keys, after.size_bits) == (101, before.size_bits)
    assert after.might_contain(pa.array([*ids, "new"])).all()


def test_a_bloom_filter_fits_its_file() -> None:
    output, _, _ = written(pa.table({"id": [f"k{i}" for i in range(100)]}))
    with BaseFile(output, "f") as file:
        bloom = file.bloom()
        assert bloom is not None and (bloom.capacity, bloom.keys, len(bloom.rows)) == (100, 100, 1)
        assert bloom.might_contain(pa.array(["k0", "k99"])).all()
    output, _, _ = written(
        pa.table({"id": [f"k{i}" for i in range(100)]}), settings=WriteSettings(bloom_max_entries=20, bloom_entries=1)
    )
    with BaseFile(output, "f") as file:
        bloom = file.bloom()
        assert bloom is not None and (bloom.capacity, bloom.keys) == (20, 100)


def test_a_large_batch_of_wide_rows_is_split_into_more_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelock.table.base_files.BUFFER_BYTES", 10_000)
    rows = pa.table({"id": [f"k{i}" for i in range(100)], "v": ["x" * 1000] * 100})
    output, _, _ = written(rows, settings=WriteSettings(), batch=40)
    metadata = pq.read_metadata(output)
    assert metadata.num_rows == 100 and metadata.num_row_groups >= 10


def test_a_row_group_with_nan_has_no_bounds_there_and_the_others_keep_theirs() -> None:
    """Spark's reader trusts bounds, and to Spark NaN is greater than all of them."""
    nan = float("nan")
    columns = {"x": [1.5] * 5 + [nan] + [2.5] * 5 + [None], "y": pa.array([nan] + [0.5] * 11, pa.float32()), "z": [0.25] * 12}
    output, result, _ = written(pa.table({"id": [f"k{i:02}" for i in range(12)], **columns}))
    metadata = pq.read_metadata(output)
    found = {}
    for number in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if (name := metadata.schema.column(number).path) in columns:
            found[name] = [(s.min, s.max, s.null_count) if s.has_min_max else s.null_count for s in chunks]
    assert found == {
        "x": [(1.5, 1.5, 0), 0, (2.5, 2.5, 1)],
        "y": [0, (0.5, 0.5, 0), (0.5, 0.5, 0)],
        "z": [(0.25, 0.25, 0)] * 3,
    }
    rows = pq.read_table(output)
    assert rows.num_rows == result.rows == 12 and rows["id"].to_pylist()[-1] == "k11"
    assert str(rows["x"].to_pylist()) == str(columns["x"])
    assert duckdb.sql("select id from rows where isnan(y)").fetchall() == [("k00",)]
    assert metadata.metadata[b"hoodie_max_record_key"] == b"k11"


def test_a_column_with_the_record_keys_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of many rows are put together from chunks; readers find in them what they find in others."""
    ids = [f"k{i:02}" for i in range(20)]
    rows = pa.table({"v": [0.5] * 3 + [float("nan")] * 17, "s": [{"x": [i]} for i in range(20)], "id": ids, "other": ids})
    rows = rows.cast(rows.schema.set(3, pa.field("other", pa.string(), nullable=False)))
    whole, plain, _ = written(rows)
    monkeypatch.setattr(base_files, "APART_ROWS", 4)
    apart, result, _ = written(rows)
    assert result == plain and str(pq.read_table(apart).to_pylist()) == str(pq.read_table(whole).to_pylist())
    ours, others = pq.read_metadata(apart), pq.read_metadata(whole)
    assert ours.schema.equals(others.schema) and ours.metadata == others.metadata
    assert result.metadata is not None and result.metadata.num_columns == ours.num_columns
    columns = {ours.schema.column(number).path: number for number in range(ours.num_columns)}
    data, end = apart.getvalue(), 0
    for number in range(5):
        group, other = ours.row_group(number), others.row_group(number)
        assert (group.num_rows, group.total_byte_size) == (4, other.total_byte_size)
        assert [group.column(n).statistics for n in columns.values()] == [other.column(n).statistics for n in columns.values()]
        first = group.column(0).dictionary_page_offset
        assert first > end, "the first column is at the head of its row group"
        end = first + sum(group.column(n).total_compressed_size for n in columns.values()) - 1
        key, copy = (group.column(columns[name]) for name in ("_hoodie_record_key", "id"))
        chunks = [data[c.data_page_offset : c.data_page_offset + c.total_compressed_size] for c in (key, copy)]
        assert chunks[0] == chunks[1]


def test_a_column_that_has_other_values_later_is_encoded_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_files, "APART_ROWS", 4)
    rows = pa.table({"id": [f"k{i:02}" for i in range(12)], "v": range(12)})
    schema, output = TableSchema.from_arrow(rows.schema), io.BytesIO()
    writer = BaseFileWriter(output, schema, STAMP, SMALL)
    keys = [*rows["id"].to_pylist()[:4], *(f"x{i}" for i in range(8))]
    writer.add_new(rows, pa.chunked_array([keys]))
    assert writer.close().keys == KeyRange("k00", "x7")
    found = pq.read_table(output)
    assert found.select(rows.column_names).equals(rows) and found["_hoodie_record_key"].to_pylist() == keys


def test_an_error_of_the_storage_stays_what_it_is() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise StorageError("disk full", hint="free some space")

    schema = TableSchema.from_arrow(pa.schema([("id", pa.string())]))
    writer = BaseFileWriter(Full(), schema, STAMP, SMALL)
    rows = pa.table({"id": [f"k{i}" for i in range(10)]})
    with pytest.raises(StorageError, match="disk full"):
        writer.add_new(rows, record_keys(rows, ["id"]))


@pytest.mark.parametrize("first", [0, 7, 95, 998, 9_999_990])
def test_sequence_numbers_count_on(first: int) -> None:
    expected = [f"{INSTANT}_7_{i}" for i in range(first, first + 20)]
    numbers = sequence_numbers(STAMP, first, 20)
    numbers.validate(full=True)
    assert numbers.to_pylist() == expected
    assert sequence_numbers(STAMP, first, 0).to_pylist() == []


def test_dictionaries_are_for_values_that_repeat() -> None:
    rows = pa.table(
        {
            "few": ["a", "b"] * 5000,
            "many": [str(i) for i in range(10_000)],
            "flag": [True] * 10_000,
            "none": pa.nulls(10_000, pa.int64()),
        }
    )
    assert repeating_columns(rows, rows.column_names) == ["few", "none"]
    # Of 10,000 values each is there 20 times, in a sample hardly one twice; of the others one is frequent.
    numbers = np.random.default_rng(1).permutation(200_000)
    rows = pa.table({"many": numbers % 10_000, "wide": pa.array([f"{n % 10_000:0200}" for n in numbers]), "all": numbers})
    skewed = pa.array(np.where(numbers % 4 == 0, 0, numbers))
    assert repeating_columns(rows.append_column("skewed", skewed), [*rows.column_names, "skewed"]) == ["many"]
    assert repeating_columns(rows.slice(0, 0), rows.column_names) == []


class TestKeyRange:
    LOW_IN_UTF16, HIGH_IN_UTF16 = "k\U0001f600", "k\ufffd"

    def test_keys_are_ordered_as_java_orders_strings(self) -> None:
        found = KeyRange.of(pa.chunked_array([[self.HIGH_IN_UTF16, self.LOW_IN_UTF16], ["ka"]]))
        assert found == KeyRange("ka", self.HIGH_IN_UTF16)
        assert java_order(self.LOW_IN_UTF16) < java_order(self.HIGH_IN_UTF16)
        assert self.LOW_IN_UTF16.encode() > self.HIGH_IN_UTF16.encode()

    def test_ranges_join(self) -> None:
        assert KeyRange("b", "c").with_other(KeyRange("a", "bb")) == KeyRange("a", "c")

    @pytest.mark.parametrize("make", [lambda k: pa.array(k), lambda k: pa.chunked_array([k])])
    def test_what_lies_outside_is_not_in_the_file(self, make: Callable[[list[str]], pa.Array]) -> None:
        assert KeyRange("b", "d").may_hold(make(["a", "b", "c", "d", "e"])).tolist() == [False, True, True, True, False]

    def test_where_the_orders_part_nothing_is_ruled_out(self) -> None:
        assert KeyRange("b", "d").may_hold(pa.array(["a", self.HIGH_IN_UTF16])).tolist() == [True, True]
        assert KeyRange("b", self.LOW_IN_UTF16).may_hold(pa.array(["a"])).tolist() == [True]


def test_int96_timestamps_of_spark_are_utc_micros() -> None:
    moment = dt.datetime(2500, 1, 1, 12, 30, 0, 123456)
    output = io.BytesIO()
    columns = {name: pa.array(["x"]) for name in META_COLUMNS}
    pq.write_table(
        pa.table({**columns, "t": pa.array([moment], pa.timestamp("us"))}), output, use_deprecated_int96_timestamps=True
    )
    schema = TableSchema.from_arrow(pa.schema([("t", pa.timestamp("us", tz="UTC"))]))
    with BaseFile(output, "f") as file:
        (batch,) = file.batches(schema)
    assert batch["t"].to_pylist() == [moment.replace(tzinfo=dt.timezone.utc)]


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100])
def test_what_is_not_parquet_is_reported_with_its_name(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"p/f\.parquet cannot be read"):
        BaseFile(io.BytesIO(data), "p/f.parquet")


def test_a_file_without_meta_columns_is_refused() -> None:
    output = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), output)
    with pytest.raises(CorruptTableError, match="lacks Hudi's meta columns"):
        BaseFile(output, "f")


def test_values_that_python_does_not_have_are_stored_without_a_range() -> None:
    """A day after the year 9999, as `9999-12-31 23:59:59` is in UTC west of it, and text that is not UTF-8."""
    late = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    odd = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xffa")])
    written = pa.table({"at": late, "text": odd, "v": [7]})
    made = io.BytesIO()
    pq.write_table(written, made)
    found = ranges_in_footer(pq.read_metadata(made), written.schema, most=8)
    assert (found["at"].least, found["text"].least, found["v"].least) == (None, None, 7)
    assert found["at"].nulls == found["text"].nulls == 0
