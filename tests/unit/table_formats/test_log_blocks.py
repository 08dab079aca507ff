"""Blocks of log files, as long as Java makes them (it begins a new one at 256 MB), and the order of Java's values."""

from __future__ import annotations

import io
import json
import math
import struct
from dataclasses import replace

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelock.errors import TableError
from lakelock.table.log_files import Block, BlockHeader, BlockKind
from lakelock.table.log_rows import add_block
from lakelock.table.row_versions import ByCommitTime, Change, comparable, counts

FIELDS = [{"name": "_hoodie_record_key", "type": "string"}, {"name": "v", "type": "long"}]
AVRO = {"type": "record", "name": "row", "fields": FIELDS}
COLUMNS = pa.schema([("_hoodie_record_key", pa.string()), ("v", pa.int64())])


def avro_block(rows: list[dict[str, object]]) -> Block:
    content = io.BytesIO()
    content.write(struct.pack(">ii", 3, len(rows)))
    for row in rows:
        encoded = io.BytesIO()
        fastavro.schemaless_writer(encoded, AVRO, row)
        content.write(struct.pack(">i", encoded.tell()) + encoded.getvalue())
    return Block(
        BlockKind.AVRO, {BlockHeader.INSTANT: "1", BlockHeader.SCHEMA: json.dumps(AVRO)}, content.getvalue(), "a block"
    )


def parquet_block(rows: list[dict[str, object]]) -> Block:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), content)
    return Block(BlockKind.PARQUET, {BlockHeader.INSTANT: "1"}, content.getvalue(), "a block")


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 25_000])
@pytest.mark.parametrize("make", [avro_block, parquet_block])
def test_every_row_of_a_block_is_read_however_many_there_are(make, count: int) -> None:
    versions = ByCommitTime(COLUMNS)
    add_block(make([{"_hoodie_record_key": f"k{n}", "v": n} for n in range(count)]), versions)
    rows = pa.concat_tables([COLUMNS.empty_table(), *versions.rest()])
    assert rows.to_pylist() == [{"_hoodie_record_key": f"k{n}", "v": n} for n in range(count)]


REFUSED = [
    (
        replace(parquet_block([]), header={BlockHeader.INSTANT: "1", BlockHeader.COMPACTED_INSTANTS: "1,2"}),
        "compacted into one",
    ),
    (Block(BlockKind.HFILE, {BlockHeader.INSTANT: "1"}, b"", "a block"), "HFILE"),
    (Block(BlockKind.CDC, {BlockHeader.INSTANT: "1"}, b"", "a block"), "CDC"),
]


@pytest.mark.parametrize(("block", "named"), REFUSED)
def test_blocks_of_other_kinds_are_refused_by_name_and_not_passed_over(block: Block, named: str) -> None:
    with pytest.raises(TableError, match=f"a block: lakelock does not read .*{named}") as caught:
        add_block(block, ByCommitTime(COLUMNS))
    assert 'read(query_type="read_optimized")' in caught.value.hint


RISING = [None, -math.inf, -1.5, -0.0, 0.0, 5e-324, 2.5, math.inf, math.nan]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_floating_points_are_in_the_order_of_java_which_has_nan_last_and_tells_the_zeros_apart(kind: pa.DataType) -> None:
    values = [value for value in RISING if kind == pa.float64() or value != 5e-324]
    orders = comparable(pa.chunked_array([pa.array(values, kind)]))
    for place, order in enumerate(orders):
        for other in range(len(orders)):
            assert counts(Change(0, order), Change(1, orders[other])) == (place >= other)
    negative_nan = struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\0")[0]
    assert comparable(pa.chunked_array([pa.array([negative_nan])])) == orders[-1:]
