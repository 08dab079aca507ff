"""Blocks of Avro rows (`HoodieAvroDataBlock`, version 3): the number of rows, and each behind its length."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import fastavro

from lakelock.errors import CorruptTableError
from lakelock.table.avro.container import checked_schema
from lakelock.table.log_files.blocks import Block, Header


def schema_of(block: Block) -> tuple[dict[str, Any], Any]:
    """The schema in a block's header, as JSON and parsed; `CorruptTableError` for one that no writer would make."""
    return checked_schema(block.header.get(Header.SCHEMA, ""), block.source)


def records_in(block: Block, parsed: Any) -> Iterator[dict[str, Any]]:
    """The rows, read by the parsed schema; `CorruptTableError` for anything but what it says."""
    content = block.content
    stream = io.BytesIO(content)
    # fastavro raises whatever the bytes make it stumble over.
    try:
        version, count = struct.unpack(">ii", stream.read(8))
        if version not in (1, 2, 3):
            raise ValueError(f"its version is {version}, and 3 is known")
        for _ in range(count):
            (length,) = struct.unpack(">i", stream.read(4))
            end = stream.tell() + length
            record = fastavro.schemaless_reader(stream, parsed, None)
            if stream.tell() != end or not isinstance(record, dict):
                raise ValueError("a row has another length than it says")
            yield record
    except GeneratorExit:
        raise
    except Exception as error:
        raise CorruptTableError(f"{block.source} cannot be decoded: {error}", file=block.source) from error
    if stream.tell() != len(content):
        raise CorruptTableError(f"{block.source} holds more than its rows", file=block.source)
