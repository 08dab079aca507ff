"""Rows of simulated tables, as actors, checks and base files know them."""

from __future__ import annotations

import json
from functools import lru_cache
from io import BytesIO
from typing import NamedTuple

import pyarrow as pa

from lakelock.table.base_files.reader import BaseFile
from lakelock.table.schema import TableSchema

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("trail", pa.string()), ("part", pa.string())])
TABLE_SCHEMA = TableSchema.from_arrow(SCHEMA)


class Row(NamedTuple):
    """One row. `trail` are the operations that wrote it, oldest first: a transfer adds itself, a blind write starts anew."""

    part: str
    key: str
    value: int
    trail: tuple[int, ...]


def partition_of(part: str) -> str:
    return f"part={part}"


@lru_cache(maxsize=1024)  # a file of a run is read many times, by the engine and by the checks, and never changes
def rows_of(key: str, data: bytes) -> tuple[Row, ...]:
    """The rows of a base file: of Parquet, or of a line of JSON."""
    if data[:4] == b"PAR1":
        with BaseFile(BytesIO(data), key) as base:
            found = [row for batch in base.batches(TABLE_SCHEMA) for row in batch.to_pylist()]
        return tuple(Row(row["part"], row["id"], row["v"], tuple(json.loads(row["trail"]))) for row in found)
    part = key.split("/", 1)[0].partition("=")[2]
    return tuple(Row(part, name, value, tuple(trail)) for name, value, trail in json.loads(data))
