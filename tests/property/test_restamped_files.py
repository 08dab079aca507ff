"""A copy of a base file for another instant reads as the file that would have been written under that instant."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import BaseFile, BaseFileWriter, Keyed, Stamp, TableSchema
from tests.property.test_rewritten_schema import SCHEMAS, as_table, keyed, rows_of

from lakelock.settings import WriteSettings
from lakelock.table import base_files
from lakelock.table.parquet_footers import Reader, encoded
from lakelock.table.restamp import CannotRestamp, restamp
from lakelock.table.rewriting import rewrite
from lakelock.table.schema import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS

OLDEST, OLD, NEW = "20261121092737397", "20261121092737398", "20261121092739001"
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
PLAIN_TEXT = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("v", pa.int64())]))


@pytest.fixture(params=[base_files.APART_ROWS, 1], ids=["whole", "apart"], scope="module", autouse=True)
def row_groups(request: pytest.FixtureRequest) -> Iterator[None]:
    """Row groups are written as a whole, or put together from chunks, as those of many rows are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_files, "APART_ROWS", request.param)
        yield


def stamp(instant: str, task: int = 0) -> Stamp:
    return Stamp("t", instant, "p=1", f"a-0_{task}-0-0_{instant}.parquet")


def written(schema: TableSchema, rows: pa.Table, at: Stamp, settings: WriteSettings) -> io.BytesIO:
    output = io.BytesIO()
    writer = BaseFileWriter(output, schema, at, settings)
    writer.add_new(rows, pa.chunked_array([rows.column("id").combine_chunks()]))
    writer.close()
    return output


def merged(base: io.BytesIO, schema: TableSchema, upserts: pa.Table, at: Stamp, settings: WriteSettings) -> io.BytesIO:
    """The file with the upserts, as a rewrite under the stamp makes it: some rows keep their stamp, others get a new one."""
    output = io.BytesIO()
    with BaseFile(io.BytesIO(base.getvalue()), "base") as opened:
        writer = BaseFileWriter(output, schema, at, settings)
        rewrite(opened, writer, schema, upserts=Keyed(upserts, pa.chunked_array([upserts.column("id").combine_chunks()])))
        writer.close()
    return output


def copied(source: io.BytesIO, old: Stamp, new: Stamp) -> io.BytesIO:
    output = io.BytesIO()
    restamp(io.BytesIO(source.getvalue()), output, old, new)
    return output


def rows_without_seqno_instant(file: io.BytesIO) -> list[dict[str, Any]]:
    """All rows; of the sequence numbers of the new rows only the position, as a copy keeps the first instant and task."""
    found = pq.read_table(io.BytesIO(file.getvalue())).to_pylist()
    for row in found:
        if row[COMMIT_TIME] == NEW:
            row[COMMIT_SEQNO] = row[COMMIT_SEQNO].rpartition("_")[2]
    return found


def column_facts(file: io.BytesIO) -> list[tuple[Any, ...]]:
    """By row group and column: the bounds, the number of values and the encodings."""
    metadata = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata
    found: list[tuple[Any, ...]] = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in (group.column(each) for each in range(group.num_columns)):
            bounds = column.statistics
            known = (bounds.min_raw, bounds.max_raw, bounds.null_count) if bounds and bounds.has_min_max else None
            found.append((group.num_rows, column.path_in_schema, column.num_values, column.encodings, known))
    return found


def check_sizes_and_offsets(file: io.BytesIO) -> None:
    """Chunks lie one after the other, the first column's at the head of its row group, and totals add up."""
    metadata, at = pq.ParquetFile(io.BytesIO(file.getvalue())).metadata, 4
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(each) for each in range(group.num_columns)]
        for column in columns:
            starts = [offset for offset in (column.dictionary_page_offset, column.data_page_offset) if offset]
            assert min(starts) == at
            at += column.total_compressed_size
        assert group.total_byte_size == sum(column.total_uncompressed_size for column in columns)


def check_same(copy: io.BytesIO, fresh: io.BytesIO) -> None:
    assert rows_without_seqno_instant(copy) == rows_without_seqno_instant(fresh)
    assert column_facts(copy) == column_facts(fresh)
    assert pq.ParquetFile(io.BytesIO(copy.getvalue())).metadata.metadata == pq.ParquetFile(fresh).metadata.metadata
    check_sizes_and_offsets(copy)


@settings(max_examples=60)
@given(
    st.data(), SCHEMAS, st.sampled_from(COMPRESSIONS), st.integers(1, 5), st.sampled_from([(0, 0), (7, 3), (9, 10), (123, 4)])
)
def test_a_copied_file_reads_as_one_that_was_written_under_its_instant(
    data: st.DataObject, schema: pa.Schema, compression: str, group_rows: int, tasks: tuple[int, int]
) -> None:
    chosen = WriteSettings(row_group_rows=group_rows, bloom_entries=10, compression=compression)
    table = TableSchema.from_avro_json(TableSchema(schema).to_avro_json("t"))
    stored = as_table(schema, keyed(schema, data.draw(rows_of(schema, 9)), 0)).cast(table.arrow)
    changes = as_table(schema, keyed(schema, data.draw(rows_of(schema, 6)), stored.num_rows - 2)).cast(table.arrow)
    base = written(table, stored, stamp(OLDEST), chosen)
    old, new = stamp(OLD, tasks[0]), stamp(NEW, tasks[1])
    first = merged(base, table, changes, old, chosen)
    fresh = merged(base, table, changes, new, chosen)
    check_same(copied(first, old, new), fresh)


def many_rows(count: int, *, first: int = 0) -> pa.Table:
    keys = [f"k{number:06}" for number in range(first, first + count)]
    return pa.table([keys, list(range(count))], schema=PLAIN_TEXT.arrow)


def test_duckdb_reads_a_copied_file_as_a_fresh_one_also_by_conditions(tmp_path) -> None:
    chosen = WriteSettings(row_group_rows=1000, bloom_entries=10)
    base = written(PLAIN_TEXT, many_rows(5000), stamp(OLDEST), chosen)
    changes = many_rows(2500, first=3500)
    first = merged(base, PLAIN_TEXT, changes, stamp(OLD), chosen)
    (tmp_path / "copy.parquet").write_bytes(copied(first, stamp(OLD), stamp(NEW, 12)).getvalue())
    (tmp_path / "fresh.parquet").write_bytes(merged(base, PLAIN_TEXT, changes, stamp(NEW, 12), chosen).getvalue())
    columns = f"{COMMIT_TIME}, {FILE_NAME}, id, v"
    copy, fresh = (f"(SELECT {columns} FROM '{tmp_path}/{name}.parquet')" for name in ("copy", "fresh"))
    for one, other in ((copy, fresh), (fresh, copy)):
        assert duckdb.sql(f"{one} EXCEPT ALL {other}").fetchall() == []
    for where, count in (
        (f"{COMMIT_TIME} = '{NEW}'", 2500),
        (f"{COMMIT_TIME} > '{OLD}'", 2500),
        (f"{COMMIT_TIME} = '{OLDEST}'", 3500),
        (f"{COMMIT_TIME} = '{OLD}'", 0),
        ("id >= 'k004000'", 2000),
    ):
        assert duckdb.sql(f"SELECT count(*) FROM {copy} WHERE {where}").fetchall() == [(count,)]


def foreign(rows: int = 300, *, instants: int = 1, **options: Any) -> io.BytesIO:
    """A file of these meta columns by another writer, with page options that ours never chooses."""
    times = [OLD if number % 2 else f"2026{number % instants:013}" for number in range(rows)]
    keys = [f"k{number}" for number in range(rows)]
    columns = [times, [f"{OLD}_0_{n}" for n in range(rows)], keys, ["p=1"] * rows, [stamp(OLD).file_name] * rows, keys]
    whole = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), pa.field("id", pa.string())])
    output = io.BytesIO()
    pq.write_table(pa.table(columns, schema=whole), output, store_schema=False, **options)
    return output


@pytest.mark.parametrize(
    "options",
    [
        {"write_page_checksum": True},
        {"write_page_index": True},
        {"use_dictionary": False},
        {"instants": 200, "dictionary_pagesize_limit": 64, "data_page_size": 100, "write_batch_size": 16},
        {"write_statistics": [COMMIT_TIME, FILE_NAME]},
        {"compression": "gzip", "data_page_size": 100, "write_batch_size": 16},
        {"compression": "brotli"},
    ],
    ids=str,
)
def test_pages_of_every_kind_that_is_understood_are_copied(options) -> None:
    source = foreign(**options)
    copy = copied(source, stamp(OLD), stamp(NEW))
    before, after = (pq.read_table(io.BytesIO(f.getvalue()), page_checksum_verification=True) for f in (source, copy))
    times = [NEW if time == OLD else time for time in before.column(COMMIT_TIME).to_pylist()]
    assert after.column(COMMIT_TIME).to_pylist() == times
    assert set(after.column(FILE_NAME).to_pylist()) == {stamp(NEW).file_name}
    others = [name for name in before.column_names if name not in (COMMIT_TIME, FILE_NAME)]
    assert after.select(others) == before.select(others)
    check_sizes_and_offsets(copy)


@pytest.mark.parametrize(
    "options",
    [
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {COMMIT_TIME: "DELTA_BYTE_ARRAY"}},
        {"use_dictionary": False, "column_encoding": {FILE_NAME: "DELTA_LENGTH_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_a_file_that_is_not_understood_is_refused(options) -> None:
    with pytest.raises(CannotRestamp):
        copied(foreign(**options), stamp(OLD), stamp(NEW))


def test_names_of_another_length_in_pages_without_a_dictionary_are_refused() -> None:
    with pytest.raises(CannotRestamp, match="another length"):
        copied(foreign(use_dictionary=False), stamp(OLD), stamp(NEW, 100))


@pytest.mark.parametrize("instant", [OLD, OLDEST, NEW[:-3]])
def test_an_instant_that_is_not_later_or_of_another_length_is_refused(instant: str) -> None:
    with pytest.raises(CannotRestamp, match="later"):
        copied(foreign(), stamp(OLD), stamp(instant))


def test_a_copy_of_a_copy_reads_as_a_fresh_file() -> None:
    chosen, between = WriteSettings(row_group_rows=7, bloom_entries=10), stamp("20261121092738999", 10)
    rows = many_rows(20)
    twice = copied(copied(written(PLAIN_TEXT, rows, stamp(OLD), chosen), stamp(OLD), between), between, stamp(NEW))
    check_same(twice, written(PLAIN_TEXT, rows, stamp(NEW), chosen))


def test_a_file_without_rows_is_copied() -> None:
    chosen = WriteSettings(bloom_entries=10)
    empty = written(PLAIN_TEXT, many_rows(0), stamp(OLD), chosen)
    assert pq.read_table(copied(empty, stamp(OLD), stamp(NEW))).num_rows == 0


@given(st.data())
def test_a_damaged_file_is_refused_or_copied_but_nothing_else_happens(data: st.DataObject) -> None:
    whole = bytearray(foreign(20, compression="none").getvalue())
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=4)):
        whole[at] ^= data.draw(st.integers(1, 255))
    cut = whole[: data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2, 3]))]
    with contextlib.suppress(CannotRestamp):
        copied(io.BytesIO(bytes(cut)), stamp(OLD), stamp(NEW))


def test_footers_survive_a_round_trip_byte_for_byte() -> None:
    for source in (foreign(), written(PLAIN_TEXT, many_rows(100), stamp(OLD), WriteSettings(row_group_rows=7))):
        data = source.getvalue()
        length = int.from_bytes(data[-8:-4], "little")
        footer = data[-8 - length : -8]
        assert encoded(Reader(footer).struct()) == footer
