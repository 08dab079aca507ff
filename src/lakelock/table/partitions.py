"""The partition of a row: its folder, its computed partition columns, and the values that the folder's name tells.

Folders are those that Hudi's key generators give, for one row or for a whole Arrow table.

Where rows have the column that a transform reads, the partition column is computed, whatever they bring in it; where they
lack that column, they must bring the partition column.

A value is taken from a folder only if that value gives exactly this name. So an unusual spelling, of a key generator with
its own formats for instance, is never misread; its values are simply unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakelock.errors import CorruptTableError, SchemaError
from lakelock.parsing import format_java_properties, java_date
from lakelock.table.commit_metadata import Value
from lakelock.table.instants import parse_instant
from lakelock.table.layout import checked_partition
from lakelock.table.properties import KNOWN_KEY_GENERATORS, TableProperties
from lakelock.table.record_keys import key_text
from lakelock.table.rows import spelled
from lakelock.table.transforms import Transform

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


Rows = TypeVar("Rows")


def with_generated(rows: Rows, properties: TableProperties) -> Rows:
    """Arrow rows with the computed partition columns; rows of any kind as they are, if the table has none."""
    if not properties.transforms:
        return rows
    assert isinstance(rows, pa.Table)
    table = rows
    for transform in properties.transforms:
        source, there = places(transform, table.column_names)
        if source is not None:
            table = _replaced(table, there, transform, table.column(source))
    return table  # type: ignore[return-value]


def batches_with_generated(batches: Iterable[pa.RecordBatch], properties: TableProperties) -> Iterator[pa.RecordBatch]:
    """Batches of rows with the computed partition columns."""
    if not properties.transforms:
        yield from batches
        return
    for batch in batches:
        yield from with_generated(pa.Table.from_batches([batch]), properties).to_batches()


def fields_with_generated(columns: pa.Schema, properties: TableProperties) -> pa.Schema:
    """The columns that rows with `columns` have once their partition columns are computed."""
    for transform in properties.transforms:
        source, there = places(transform, columns.names)
        if source is not None:
            field = pa.field(there or transform.name, transform.type)
            columns = columns.append(field) if there is None else columns.set(columns.get_field_index(there), field)
    return columns


def places(transform: Transform, names: Sequence[str]) -> tuple[str | None, str | None]:
    """The columns of rows that the transform reads, and that it computes; `SchemaError` if they have neither."""
    source, there = spelled(transform.source, names), spelled(transform.name, names)
    if source is None and there is None:
        raise SchemaError(
            f"the rows to write have no column {transform.source!r}, of which their partition is computed: {transform}",
            hint=f"add it, or {transform.name} itself",
            column=transform.source,
        )
    return source, there


def _replaced(table: pa.Table, there: str | None, transform: Transform, source: pa.ChunkedArray) -> pa.Table:
    if pa.types.is_dictionary(source.type):
        source = source.cast(source.type.value_type)
    # Whether the column itself fits the table is asked later, and answered with a better error.
    computed = transform.of(source) if transform.takes(source.type) else pa.nulls(len(source), transform.type)
    field = pa.field(there or transform.name, transform.type)
    if there is None:
        return table.append_column(field, computed)
    return table.set_column(table.schema.get_field_index(there), field, computed)


_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,19}").fullmatch
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?(E[+-]?[0-9]+)?").fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = {"s": 1000, "ms": 1000, "us": 1, "ns": 1}
"""Microseconds of one step of the number that stands for a timestamp, by the unit of the column."""

Values = tuple[Value | None, ...]


@dataclass(frozen=True)
class PartitionValues:
    """Reads the values of the partition columns from partition paths.

    `types`: the Arrow type of each partition column, in the order of the path. A column that the table does not have, such as
    a nested one, or of a type that cannot be read back, has None.
    """

    types: Mapping[str, pa.DataType | None]
    hive_style: bool
    url_encode: bool
    spelled: bool = True
    transforms: tuple[Transform, ...] = ()
    """How partition columns are computed from others."""

    @classmethod
    def of(cls, properties: TableProperties, schema: pa.Schema) -> PartitionValues:
        """For a table with these columns."""
        types = {
            name: schema.field(name).type if schema.get_field_index(name) >= 0 else None for name in properties.partition_fields
        }
        spelled = properties.key_generator in KNOWN_KEY_GENERATORS
        return cls(types, properties.hive_style, properties.url_encode, spelled, properties.transforms)

    @cached_property
    def readable(self) -> tuple[str, ...]:
        """The columns whose values the path can tell, in its order."""
        return (
            tuple(name for name, kind in self.types.items() if kind is not None and _is_readable(kind)) if self.spelled else ()
        )

    def possible(self, partition: str) -> Mapping[str, Values]:
        """For each column that this path says something about: every value that its rows may have."""
        texts = self._texts(partition)
        found = {name: _possible(texts[name], self.types[name]) for name in self.readable if name in texts}
        return {name: values for name, values in found.items() if values is not None}

    def exact(self, partition: str) -> Mapping[str, Value | None]:
        """The value of each column that all rows of this partition are certain to have."""
        return {name: values[0] for name, values in self.possible(partition).items() if len(values) == 1}

    def _texts(self, partition: str) -> Mapping[str, str]:
        """The text of each column; empty if the path is not made of one folder per column."""
        folders = partition.split("/")
        if len(folders) != len(self.types):
            return {}
        found = {}
        for name, folder in zip(self.types, folders, strict=True):
            text = folder
            if self.hive_style:
                label, equals, text = folder.partition("=") if "=" not in name else ("", "", "")
                if label != name or not equals:
                    return {}
            plain = unescape(text) if self.url_encode else text
            if self.url_encode and escape(plain) != text:
                return {}
            found[name] = plain
        return found


def _is_readable(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    number = types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_decimal128(kind)
    return bool(text or number or types.is_date(kind) or (types.is_timestamp(kind) and kind.unit in ("ms", "us")))


def _possible(text: str, kind: pa.DataType | None) -> Values | None:
    """Every value with this text; None if there is none."""
    assert kind is not None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Null and the empty text share one folder, whose name is a text like any other.
        return (None, "", DEFAULT_PARTITION) if text == DEFAULT_PARTITION else (text,)
    if text == DEFAULT_PARTITION:
        return (None,)
    try:
        value = _value(text, kind)
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return None if value is None else (value,)


def _value(text: str, kind: pa.DataType) -> Value | None:
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text)
    if pa.types.is_decimal(kind):
        return _decimal(text, kind)
    if pa.types.is_date(kind):
        day = date.fromisoformat(text)
        return day if day.isoformat() == text else None
    if not _WHOLE(text):
        return None
    number = int(text)
    if pa.types.is_timestamp(kind):
        moment = _EPOCH + timedelta(microseconds=number * _UNITS[kind.unit])
        return moment if kind.tz is not None else moment.replace(tzinfo=None)
    return number if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1 else None


def _decimal(text: str, kind: pa.DataType) -> Value | None:
    if not _DECIMAL(text):
        return None
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    return value if -exponent == kind.scale and len(digits) <= kind.precision and str(value) == text else None  # type: ignore[operator]
