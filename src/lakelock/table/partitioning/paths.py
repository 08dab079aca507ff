"""Partition paths: the folder that Hudi's key generators give to a row, for one row or for a whole Arrow table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.java_properties import format_java_properties, java_date
from lakelock.table.instants import parse_instant
from lakelock.table.keys.record_keys import key_text
from lakelock.table.layout import checked_partition
from lakelock.table.properties import TableProperties

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What stands for a null, and to Hudi for an empty text, which no row here has."""

_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_CONTROL = re.compile(r"[\x01-\x1f\x7f]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


def partition_path(values: Sequence[str | None], fields: Sequence[str], *, hive_style: bool, url_encode: bool) -> str:
    """The partition path of a row whose partition columns read `values` as text; `""` without partition fields.

    Different values have different paths. One that has that of another, that would lead out of the table, or that storage
    cannot hold as a folder, is a `SchemaError`.
    """
    parts = []
    for value, field in zip(values, fields, strict=True):
        if value in ("", DEFAULT_PARTITION):
            raise SchemaError(
                f"the partition column {field} holds {value!r}, which would be taken for null: both have the same folder",
                hint=f"write null where there is no value, or another text; stored rows are found by a condition on {field}",
                column=field,
                value=value,
            )
        text = DEFAULT_PARTITION if value is None else value
        if url_encode:
            text = escape(text)
        elif "/" in text and field != fields[-1]:
            raise SchemaError(
                f"the partition column {field} holds {value!r}, which reads as the folders of several columns",
                hint="correct the value; slashes are safe where hoodie.datasource.write.partitionpath.urlencode=true",
                column=field,
                value=value,
            )
        elif _CONTROL.search(text):
            raise SchemaError(
                f"the partition column {field} holds {value!r}: object stores take no control character in a folder's name",
                hint="correct the value; they are safe where hoodie.datasource.write.partitionpath.urlencode=true",
                column=field,
                value=value,
            )
        parts.append(f"{field}={text}" if hive_style else text)
    path = "/".join(parts)
    try:
        return checked_partition(path, "a row")
    except CorruptTableError:
        raise SchemaError(
            f"the partition values {values} of {tuple(fields)} give the folder {path!r}, which is not inside the table",
            hint="correct the values; slashes are safe where hoodie.datasource.write.partitionpath.urlencode=true",
        ) from None


def partition_paths(rows: pa.Table | pa.RecordBatch, properties: TableProperties) -> pa.DictionaryArray:
    """The partition path of each row. Only distinct values are turned into text, however many rows there are."""
    fields = properties.partition_fields
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    distinct: list[tuple[str | None, ...]] = [()] if rows.num_rows else []
    for field in fields:
        field_codes, values = _distinct(rows, field)
        # Dense codes after each column: the product of all columns' distinct values need not fit into 64 bits.
        encoded = pa.array(codes * len(values) + field_codes).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        distinct = [(*distinct[c // len(values)], values[c % len(values)]) for c in encoded.dictionary.to_pylist()]
    style = {"hive_style": properties.hive_style, "url_encode": properties.url_encode}
    paths = [partition_path(values, fields, **style) for values in distinct]
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(paths, pa.string()))


def require_partition_type(arrow: pa.DataType, field: str) -> None:
    """`SchemaError` for a type whose values name no folders."""
    if pa.types.is_nested(arrow) or pa.types.is_floating(arrow) or pa.types.is_binary(arrow):
        raise SchemaError(
            f"column {field} of type {arrow} cannot partition a table",
            hint="partition by strings, integers, dates, timestamps, decimals or booleans",
            column=field,
        )


def partition_values(paths: Sequence[str], schema: pa.Schema, properties: TableProperties) -> pa.Table:
    """The values of the partition columns in each of these partitions, in the table's types; null stands for empty, too.

    `SchemaError` for a folder whose name is no such value: not every key generator of other engines can be read backwards.
    """
    fields = properties.partition_fields
    if not fields:
        raise SchemaError("the table has no partitions to choose from", hint="leave the condition out")
    texts = [partition_texts(path, properties) for path in paths]
    columns = []
    for number, name in enumerate(fields):
        kind = schema.field(name).type
        found = pa.array([text[number] for text in texts], pa.string())
        try:
            columns.append(found.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else found.cast(kind))
        except pa.ArrowException as error:
            raise SchemaError(
                f"the folders of the partitions do not tell the values of {name}: {error}",
                hint=f'name partitions by their folders instead, such as partition="{paths[0]}"',
            ) from error
    return pa.table(columns, schema=pa.schema([schema.field(name).with_nullable(True) for name in fields]))


def partition_texts(path: str, properties: TableProperties) -> list[str | None]:
    """The text of each partition column in a partition path, None for what stands for a null."""
    fields = properties.partition_fields
    parts = path.split("/", len(fields) - 1) if properties.url_encode or len(fields) > 1 else [path]
    if len(parts) != len(fields):
        raise SchemaError(f"the folder {path!r} does not name {', '.join(fields)}", hint="name partitions by their folders")
    texts = [
        part.removeprefix(f"{field}=") if properties.hive_style else part for part, field in zip(parts, fields, strict=True)
    ]
    texts = [unescape(text) if properties.url_encode else text for text in texts]
    return [None if text == DEFAULT_PARTITION else text for text in texts]


def partition_metadata(instant: str, partition: str) -> bytes:
    """The content of a partition's `.hoodie_partition_metadata`, without which Java Hudi does not see the partition."""
    depth = partition.count("/") + 1 if partition else 0
    entries = {"commitTime": instant, "partitionDepth": str(depth)}
    return format_java_properties(entries, ("partition metadata", java_date(parse_instant(instant))))


def escape(text: str) -> str:
    """The text with the characters escaped that Hive and Hudi escape in folder names."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def _distinct(rows: pa.Table | pa.RecordBatch, field: str) -> tuple[npt.NDArray[Any], list[str | None]]:
    """For each row a code, and for each code its value as text; the last code is for nulls."""
    index = rows.schema.get_field_index(field)
    if index < 0:
        raise SchemaError(
            f"the partition column {field!r} is missing", hint=f"the columns are {', '.join(rows.schema.names[:20])}"
        )
    column = rows.column(index)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    require_partition_type(column.type, field)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = whole.dictionary_encode()
    texts = key_text(pa.chunked_array([encoded.dictionary]), field).to_pylist()
    codes = encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [*texts, None]
