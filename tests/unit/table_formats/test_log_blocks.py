"""Blocks of log files, as long as Java makes them: it begins a new one at 256 MB."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelock.table.log_files.blocks import Block, BlockKind, Header
from lakelock.table.log_files.changes import Changes

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
    return Block(BlockKind.AVRO, {Header.INSTANT: "1", Header.SCHEMA: json.dumps(AVRO)}, content.getvalue(), "a block")


def parquet_block(rows: list[dict[str, object]]) -> Block:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), content)
    return Block(BlockKind.PARQUET, {Header.INSTANT: "1"}, content.getvalue(), "a block")


@pytest.mark.parametrize("count", [0, 1, 9_999, 10_000, 10_001, 25_000])
@pytest.mark.parametrize("make", [avro_block, parquet_block])
def test_every_row_of_a_block_is_read_however_many_there_are(make, count: int) -> None:
    changes = Changes(COLUMNS, None)
    changes.add(make([{"_hoodie_record_key": f"k{n}", "v": n} for n in range(count)]))
    assert changes.rows.column("v").to_pylist() == list(range(count))
    assert {key: change.row for key, change in changes.last.items()} == {f"k{n}": n for n in range(count)}
