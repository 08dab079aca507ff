"""Delete blocks: which keys are gone, and since when by event time (`HoodieDeleteBlock`, version 3 of its content)."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import fastavro

from lakelock.errors import CorruptTableError, TableError
from lakelock.table.log_files.blocks import Block

_VERSION = 3
_VALUES = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": "long",
}
"""How an ordering value is wrapped, in the order of Hudi's union (`HoodieDeleteRecordList.avsc`)."""
_WRAPPERS = [{"type": "record", "name": name, "fields": [{"name": "value", "type": value}]} for name, value in _VALUES.items()]
_LIST = fastavro.parse_schema(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "HoodieDeleteRecord",
            "fields": [
                {"name": "recordKey", "type": ["null", "string"]},
                {"name": "partitionPath", "type": ["null", "string"]},
                {"name": "orderingVal", "type": ["null", *_WRAPPERS]},
            ],
        },
    }
)


def deletes_in(block: Block) -> Iterator[tuple[str, Any]]:
    """The record keys that a block deletes, each with its value by event time, None for a delete that always counts.

    `TableError` for the Java objects that Hudi before 0.14 wrote there.
    """
    try:
        version, length = struct.unpack_from(">ii", block.content)
    except struct.error as error:
        raise _damaged(block, error) from error
    if version != _VERSION:
        raise TableError(
            f"{block.source}: its deletes are in the form {version} of an old Hudi release, and lakelock reads form {_VERSION}",
            hint="let a Hudi writer of today compact the table",
        )
    stream = io.BytesIO(block.content[8:])
    # fastavro raises whatever the bytes make it stumble over.
    try:
        found: Any = fastavro.schemaless_reader(stream, _LIST, None, return_record_name=True)
    except Exception as error:
        raise _damaged(block, error) from error
    if stream.tell() != length or length != len(block.content) - 8:
        raise _damaged(block, "it holds more or less than its deletes")
    for record in found:
        if record["recordKey"] is None:
            raise _damaged(block, "a delete has no record key")
        yield record["recordKey"], _order(record["orderingVal"])


def _order(wrapped: Any) -> Any:
    """The value in a wrapper. Hudi's value for none is the number 0 as an `int`."""
    if wrapped is None:
        return None
    name, fields = wrapped
    return None if name.rpartition(".")[2] == "IntWrapper" and fields["value"] == 0 else fields["value"]


def _damaged(block: Block, why: object) -> CorruptTableError:
    return CorruptTableError(f"the deletes of {block.source} cannot be read: {why}", file=block.source)
