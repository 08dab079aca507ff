"""A base file as the fuzzer reads it: everything that lakelock asks of one, with small bounds instead of whole rows."""

from __future__ import annotations

from io import BytesIO
from itertools import islice

import pyarrow as pa
from tests.api import BaseFile, BaseFileWriter, Stamp, TableSchema

from lakelock.settings import WriteSettings
from lakelock.table.base_files import KeyRange
from lakelock.table.key_search import held
from lakelock.table.schema import RECORD_KEY

AT = "20261121092737397"
SCHEMA = TableSchema.from_arrow(pa.schema([("id", pa.string()), ("v", pa.int64()), ("tags", pa.list_(pa.string()))]))
_MOST_BATCHES = 3
_LOOKED_UP = pa.array(["k1", "x"])


def sample(compression: str) -> bytes:
    """A small file with plain and repeated values, nulls and lists."""
    output, stamp = BytesIO(), Stamp("t", AT, "p=1", f"a-0_0-0-0_{AT}.parquet")
    settings = WriteSettings(bloom_entries=10, compression=compression)
    writer = BaseFileWriter(output, SCHEMA, stamp, settings)
    keys = [f"k{number}" for number in range(6)]
    rows = pa.table([keys, [None, *[7] * 5], [["a", "b"]] * 6], schema=SCHEMA.arrow)
    writer.add_new(rows, pa.chunked_array([keys]))
    writer.close()
    return output.getvalue()


def read(data: bytes) -> None:
    """Read it as a scan, a look-up of keys and a rewrite do."""
    with BaseFile(BytesIO(data), "p=1/a.parquet") as base:
        if base.rows < 1000:
            held(_LOOKED_UP, base)
        base.key_range()
        bloom = base.bloom()
        assert bloom is None or bloom.size_bits <= 8 * len(data)
        assert base.bloom_error_rate() >= 0
        rows = base.batch_rows_within(1 << 20)
        for keys in islice(base.key_batches(), _MOST_BATCHES):
            assert keys.type == pa.string()
        for batch in islice(base.stamped_batches(SCHEMA, rows), _MOST_BATCHES):
            assert KeyRange.of(batch.column(RECORD_KEY)) or not batch.num_rows
        for batch in islice(base.batches(SCHEMA), _MOST_BATCHES):
            assert batch.schema == SCHEMA.arrow
