"""Record keys: the text that Hudi makes of a row's key columns, byte for byte, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelock.amounts import counted
from lakelock.errors import SchemaError
from lakelock.near_misses import column_hint
from lakelock.table.properties import TableProperties

NULL = "__null__"
EMPTY = "__empty__"


def names_fields(properties: TableProperties) -> bool:
    """Whether this table's keys read `field:value,...` instead of a plain value.

    True for several key fields, and for a single one under the complex key generator, which Hudi infers for tables
    partitioned by several columns. Hudi 1.0, which writes version 8, has a single one plain (tried with 1.0.2).
    """
    complex_keys = properties.key_generator in ("COMPLEX", "COMPLEX_AVRO")
    return len(properties.record_keys) > 1 or (complex_keys and properties.version != 8)


def record_keys(rows: pa.Table | pa.RecordBatch, key_fields: Sequence[str], *, named: bool | None = None) -> pa.ChunkedArray:
    """The record key of each row as strings; a row without a key raises `SchemaError`.

    `named` is `names_fields` of the table; by default keys are named when there are several fields. A value of a named key that
    could be taken for another one raises `SchemaError`, so different values never have one key.
    """
    columns = [_text(rows, name) for name in key_fields]
    if not columns:
        raise SchemaError("the table has no record key", hint="name the key columns when creating the table")
    if not (len(columns) > 1 if named is None else named):
        _refuse_empty(columns[0], key_fields[0])
        return columns[0]
    _refuse_all_empty(columns, key_fields)
    for number, column in enumerate(columns if len(columns) > 1 else ()):
        if has_free_text(rows.schema.field(key_fields[number]).type):
            _refuse_ambiguous(column, number, key_fields)
    parts: list[object] = []
    for name, column in zip(key_fields, columns, strict=True):
        parts += [f"{',' if parts else ''}{name}:", _marked(column)]
    return _chunked(pc.binary_join_element_wise(*parts, ""))


def has_free_text(arrow: pa.DataType) -> bool:
    """Whether the text of such a value may have any character: it is that of a string."""
    types = pa.types
    arrow = arrow.value_type if types.is_dictionary(arrow) else arrow
    return bool(types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow))


def key_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """One key column as Hudi writes its values; timestamps are their stored number, dates ISO."""
    types, arrow = pa.types, column.type
    if types.is_dictionary(arrow):
        return key_text(_chunked(column.cast(arrow.value_type)), name)
    if types.is_string(arrow):
        return column
    if types.is_large_string(arrow) or types.is_string_view(arrow) or types.is_integer(arrow) or types.is_boolean(arrow):
        return _chunked(column.cast(pa.string()))
    if types.is_date(arrow):
        return _chunked(column.cast(pa.date32()).cast(pa.string()))
    if types.is_timestamp(arrow):
        unit = "ms" if arrow.unit in ("s", "ms") else "us"
        return _chunked(column.cast(pa.timestamp(unit, tz=arrow.tz)).cast(pa.int64()).cast(pa.string()))
    if types.is_decimal(arrow):
        return pa.chunked_array([_decimal_text(chunk) for chunk in column.chunks], type=pa.string())
    raise SchemaError(
        f"column {name} of type {arrow} cannot be part of a record key",
        hint="use strings, integers, dates, timestamps, decimals or booleans as keys",
    )


def _text(rows: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray:
    index = rows.schema.get_field_index(name)
    if index < 0:
        raise SchemaError(f"the key column {name!r} is missing", hint=column_hint(name, rows.schema.names))
    return key_text(_chunked(rows.column(index)), name)


def _decimal_text(column: pa.Array) -> pa.Array:
    # Java's BigDecimal.toString, which Python's Decimal shares: 0.0000000001 is 1E-10 in both.
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def _marked(column: pa.ChunkedArray) -> pa.ChunkedArray:
    filled = pc.fill_null(column, NULL) if column.null_count else column
    empty = pc.equal(pc.binary_length(filled), 0)
    return _chunked(pc.if_else(empty, EMPTY, filled)) if pc.any(empty).as_py() else filled


def _refuse_empty(column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        raise SchemaError(
            f"the key column {name} is null in {counted(column.null_count, 'row')}",
            hint="a row needs its key: filter these rows out or fill the column",
            column=name,
        )
    if len(column) and pc.min(pc.binary_length(column)).as_py() == 0:
        raise SchemaError(
            f"the key column {name} holds an empty string", hint="filter these rows out or fill the column", column=name
        )


def _refuse_ambiguous(column: pa.ChunkedArray, number: int, names: Sequence[str]) -> None:
    """Hudi escapes nothing in `a:1,b:2`: `1,b:2` as a value of a, or the text that stands for null, reads as another key.

    No value may hold the name of any key column in that form, the last one neither: what others have stored may. A name begins
    with a comma and holds none, so no two of them overlap, and a text without a second `,b:` can be read in one way only.
    """
    texts = [_bytes_of(chunk) for chunk in column.chunks]
    for mark in (NULL, EMPTY):
        if any(mark.encode() in text for text in texts) and pc.any(found := pc.equal(column, mark)).as_py():
            means = "null" if mark == NULL else "an empty text"
            _refuse(column, found, names[number], f"Hudi writes {means} like that in a key of several columns")
    for name in names[1:] if any(b"," in text for text in texts) else ():
        if pc.any(found := pc.match_substring(column, f",{name}:")).as_py():
            _refuse(column, found, names[number], f"in Hudi's text of the key, after ,{name}: comes the value of {name}")


def _bytes_of(texts: pa.StringArray) -> bytes:
    """All texts, one after the other: a search in these for what hardly ever is there takes next to no time."""
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return b""
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[bounds[0] : bounds[-1]])


def _refuse(column: pa.ChunkedArray, found: pa.ChunkedArray, name: str, why: str) -> None:
    example = column.filter(found)[0].as_py()
    raise SchemaError(
        f"the key column {name} holds {example[:80]!r}, which would be taken for another key: {why}",
        hint="change the value, or filter these rows out; a table with a single key column has no such values",
        column=name,
        value=example,
    )


def _refuse_all_empty(columns: Sequence[pa.ChunkedArray], names: Sequence[str]) -> None:
    missing = None
    for column in columns:
        absent = pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
        missing = absent if missing is None else pc.and_(missing, absent)
        if not pc.any(missing).as_py():
            return
    raise SchemaError(
        f"the key columns {', '.join(names)} are all null or empty in {counted(pc.sum(missing).as_py(), 'row')}",
        hint="a row needs its key: filter these rows out or fill a column",
    )


def _chunked(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
