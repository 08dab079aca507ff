"""Statistics of columns in Hudi's metadata table: `column_stats` of a data file, `partition_stats` of a partition.

Java's readers skip a file or partition by them, so each must be true of all its rows. Four things follow:

- A file has a record of every indexed column, or readers take a column without one for null in all rows. Bounds that the
  Parquet footer lacks, of long texts or because of a NaN, are taken from the values.
- The record of a partition is joined with the one that is there and replaces it (`isTightBound`). Java would join two
  records itself, but fails where the column has grown from int to long between them.
- A column that earlier files of a partition lack is null in all their rows.

- A log file has records of its rows, so one that only deletes has empty ones. Readers take a file slice whole if one of its
  files may have a row, and Java computes a partition's record from the records of its log files, too.

Tables of version 9 have version 2 of this index, in which the type stands next to the bounds (`HoodieValueTypeInfo`). Version
1, of version 8, has other wrappers for dates and decimals. The tests compare with records of Java for each type.
"""

from __future__ import annotations

import hashlib
import io
import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import lru_cache, reduce
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelock.errors import DROP_METADATA_TABLE, CorruptTableError
from lakelock.parsing import JsonObject
from lakelock.table import layout
from lakelock.table.base_files import is_arrows
from lakelock.table.commit_metadata import LONGEST_TEXT, at_least, at_most
from lakelock.table.log_files import LogFile, blocks_of
from lakelock.table.log_rows import whole_rows
from lakelock.table.metadata_records import COLUMN_STATS, NOT_PARTITIONED, PARTITION_STATS, Record
from lakelock.table.schema import COMMIT_TIME, PARTITION_PATH, RECORD_KEY

ALWAYS_INDEXED = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)
MOST_BY_DEFAULT = 32
"""So many of a table's columns are indexed if no Java writer says which."""

_TYPES = {COLUMN_STATS: 3, PARTITION_STATS: 6}
_NAMESPACE = "org.apache.hudi.avro.model."


class ValueType(NamedTuple):
    """The type of a column in the index: the ordinal that Hudi gives it; precision and scale of a decimal."""

    ordinal: int
    precision: int = 0
    scale: int = 0


_NULL = 1
"""What Java gives a column of a log file that only deletes."""
_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _STRING, _BYTES, _FIXED, _DECIMAL = 2, 3, 4, 5, 6, 7, 8, 9, 10
_DATE, _TIME_MILLIS, _TIME_MICROS, _TIMESTAMP = 12, 13, 14, 15
_LOCAL_TIMESTAMP = 18
_UNITS = ("ms", "us", "ns")
_WRAPPERS = {
    _BOOLEAN: "Boolean", _INT: "Int", _DATE: "Int", _TIME_MILLIS: "Int", _FLOAT: "Float", _DOUBLE: "Double",
    _STRING: "String", _BYTES: "Bytes", _FIXED: "Bytes", _DECIMAL: "Bytes",
}  # fmt: skip
"""In version 2 of the index; all others are `Long`."""
_WRAPPERS_1 = {**_WRAPPERS, _DATE: "Date", _DECIMAL: "Decimal"}
_OF_WRAPPER_1 = {"Boolean": _BOOLEAN, "Int": _INT, "Long": _LONG, "Float": _FLOAT, "Double": _DOUBLE, "String": _STRING,
                 "Bytes": _BYTES, "Date": _DATE, "Decimal": _DECIMAL}  # fmt: skip
_SCALE_1, _DIGITS_1 = 15, 30
"""Decimals of version 1 have this scale and precision; columns with more digits on either side are not indexed."""
_EXACT = Context(prec=60)


@dataclass(frozen=True)
class StatsIndex:
    """What `index.json` of a table says of its column statistics: which columns have some, in which version of the index."""

    columns: tuple[str, ...]
    version: int

    @classmethod
    def parse(cls, data: bytes, source: str) -> StatsIndex:
        """`CorruptTableError` that names `source` for anything but definitions of a known version."""
        try:
            found = JsonObject.parse(data).child("indexDefinitions").child(COLUMN_STATS)
            version = {"V1": 1, "V2": 2}[found.text("version", "V1")]
            return cls(tuple(map(str, found.items("sourceFields"))), version)
        except (ValueError, KeyError) as error:
            raise CorruptTableError(
                f"{source} does not say which columns {COLUMN_STATS} has: {error!r}", hint=DROP_METADATA_TABLE, file=source
            ) from error

    def of(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns of a table that are indexed, Hudi's own first.

        Java indexes the first columns unless a writer names some. Without names, Java's next write also indexes a column that
        was added, so it is indexed here. With names, no other columns are.
        """
        able = [field for field in schema if self._is_indexed(field.type)]
        named = [field.name for field in able if field.name in self.columns]
        # Whether Java 1.0 leaves binary columns out depends on a setting of the writer, so the default may be either list.
        without = [field.name for field in able if self.version > 1 or not _is_bytes(field.type)]
        first = [field.name for field in able]
        by_default = named in (first[: len(named)], without[: len(named)])
        return (*ALWAYS_INDEXED, *(first[: max(MOST_BY_DEFAULT, len(named))] if by_default else named))

    def _is_indexed(self, arrow: pa.DataType) -> bool:
        kind = value_type(arrow)
        if kind is None or self.version > 1 or kind.ordinal != _DECIMAL:
            return kind is not None
        return kind.scale <= _SCALE_1 and kind.precision - kind.scale <= _DIGITS_1 - _SCALE_1

    @property
    def nested(self) -> tuple[str, ...]:
        """The columns that it names and that lakelock has no statistics of: those inside others."""
        return tuple(name for name in self.columns if "." in name)


def _is_bytes(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow) or pa.types.is_decimal(arrow))


def value_type(arrow: pa.DataType) -> ValueType | None:
    """The type in the index; None for one that is not indexed."""
    types = pa.types
    if types.is_timestamp(arrow) and arrow.unit in _UNITS:
        return ValueType((_TIMESTAMP if arrow.tz else _LOCAL_TIMESTAMP) + _UNITS.index(arrow.unit))
    if types.is_decimal(arrow):
        return ValueType(_DECIMAL, arrow.precision, arrow.scale)
    if types.is_fixed_size_binary(arrow):
        return ValueType(_FIXED)
    plain = {
        pa.bool_(): _BOOLEAN, pa.int32(): _INT, pa.int64(): _LONG, pa.float32(): _FLOAT, pa.float64(): _DOUBLE,
        pa.string(): _STRING, pa.binary(): _BYTES, pa.date32(): _DATE, pa.time32("ms"): _TIME_MILLIS,
        pa.time64("us"): _TIME_MICROS,
    }.get(arrow)  # fmt: skip
    return None if plain is None else ValueType(plain)


@dataclass(frozen=True)
class ColumnStats:
    """Of one column, in a file or in several: bounds, None where all values are null; numbers of values and nulls; bytes.

    Bounds are numbers as Parquet stores them, a decimal's without its point; texts, bytes or booleans. Texts are compared by
    code points, as Spark does by UTF-8.
    """

    type: ValueType
    low: Any = None
    high: Any = None
    values: int = 0
    nulls: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0

    def joined(self, other: ColumnStats) -> ColumnStats:
        """The statistics of both. If neither type grows into the other, `other` has the bounds: the column was made anew."""
        common = _common(self.type, other.type)
        mine, others = (
            (each._grown(common) for each in (self, other)) if common else (replace(other, low=None, high=None), other)
        )
        lows, highs = ([v for v in ends if v is not None] for ends in ((mine.low, others.low), (mine.high, others.high)))
        return ColumnStats(
            common or other.type, min(lows, key=_order, default=None), max(highs, key=_order, default=None),
            self.values + other.values, self.nulls + other.nulls,
            self.stored_bytes + other.stored_bytes, self.plain_bytes + other.plain_bytes,
        )  # fmt: skip

    def in_column_of(self, now: ValueType, version: int) -> ColumnStats:
        """What still counts of earlier statistics of a column that has the type `now`.

        Bounds of a type that does not grow into it do not: the column was made anew, and all files of before were replaced.
        """
        common = _common(self.type, now)
        decimals = version == 1 and self.type.ordinal == now.ordinal == _DECIMAL
        return self if common == now or decimals else replace(self, type=now, low=None, high=None)

    def covers(self, found: ColumnStats) -> bool:
        """Whether readers that skip files by these statistics miss no row of a file with the statistics `found`."""
        both = self.joined(found)
        return (both.low, both.high) == (self.low, self.high) and (found.nulls == 0 or self.nulls > 0)

    def _grown(self, to: ValueType) -> ColumnStats:
        """With bounds of a wider type."""
        if to.ordinal in (_FLOAT, _DOUBLE):
            return replace(self, low=_mapped(float, self.low), high=_mapped(float, self.high))
        factor = 10 ** (to.scale - self.type.scale)
        if factor == 1:
            return self
        return replace(self, low=_mapped(factor.__mul__, self.low), high=_mapped(factor.__mul__, self.high))


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else change(value)


def _order(value: Any) -> Any:
    """NaN is greater than any number."""
    return (value != value, value) if isinstance(value, float) else value


_ALIKE = ({_INT, _TIME_MILLIS}, {_LONG, _TIME_MICROS, *range(_TIMESTAMP, _LOCAL_TIMESTAMP + len(_UNITS))})
"""Version 1 has one wrapper for these."""
_GROWS = {_INT: (_LONG, _DOUBLE, _FLOAT), _LONG: (_DOUBLE, _FLOAT), _FLOAT: (_DOUBLE,)}
_WHOLE = {_INT, _LONG, _DATE, _TIME_MILLIS, *range(_TIME_MICROS, _LOCAL_TIMESTAMP + len(_UNITS))} - {_DECIMAL}


def _common(one: ValueType, other: ValueType) -> ValueType | None:
    """The type that both grow into; None if there is none. Where they differ in name only it is `other`."""
    if _NULL in (one.ordinal, other.ordinal):
        return one if other.ordinal == _NULL else other
    if one.ordinal == other.ordinal == _DECIMAL:
        scale = max(one.scale, other.scale)
        return ValueType(_DECIMAL, max(one.precision - one.scale, other.precision - other.scale) + scale, scale)
    if one.ordinal == other.ordinal or other.ordinal in _GROWS.get(one.ordinal, ()):
        return other
    if one.ordinal in _GROWS.get(other.ordinal, ()):
        return one
    return other if any({one.ordinal, other.ordinal} <= alike for alike in _ALIKE) else None


FileStats = Mapping[str, ColumnStats]
"""Statistics of one file by column."""


def file_stats(source: IO[bytes], path: str, columns: Iterable[str], schema: pa.Schema) -> FileStats:
    """Statistics of these columns in a base file or log file: from its footer, or from values where that has no bounds.

    `schema` is that of the table; a column that the file lacks is null in all its rows.
    `CorruptTableError` that names the file if it is damaged, `TableError` for log blocks that lakelock does not merge; errors
    of the storage and the machine pass.
    """
    try:
        if LogFile.parse(path) is not None:
            return _log_stats(source, path, columns, schema)
        with pq.ParquetFile(source) as file:
            return _Footer(file, layout.split_path(path)[0]).stats(columns, schema)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        if isinstance(error, OSError) and not is_arrows(error):
            raise
        raise CorruptTableError(f"the file {path} cannot be read: {error}", file=path) from error


def _log_stats(source: IO[bytes], path: str, columns: Iterable[str], schema: pa.Schema) -> FileStats:
    """Of the rows in a log file. Sizes are 0, and where there are no rows the type is `_NULL`, as Java has them."""
    found = dict.fromkeys(columns, ColumnStats(ValueType(_NULL)))
    for block in blocks_of(source, source.seek(0, io.SEEK_END) - source.seek(0), path):
        rows = whole_rows(block, found)
        for column, known in found.items() if rows.num_rows else ():
            there = column in rows.column_names
            kind = _kind((rows.schema if there else schema).field(column).type, column)
            bounds, nulls = (None, None), rows.num_rows
            if there:
                values = rows.column(column)
                bounds, nulls = _bounds_of(values, kind), values.null_count
            found[column] = known.joined(ColumnStats(kind, *bounds, rows.num_rows, nulls))
    return found


def _kind(arrow: pa.DataType, column: str) -> ValueType:
    kind = value_type(arrow)
    if kind is None:
        raise ValueError(f"its column {column} has a type that is not indexed")
    return kind


class _Footer:
    def __init__(self, file: pq.ParquetFile, partition: str) -> None:
        self._file, self._partition, self._metadata = file, partition, file.metadata
        self._arrow = file.schema_arrow
        self._groups = [self._metadata.row_group(number) for number in range(self._metadata.num_row_groups)]
        schema = self._metadata.schema
        self._places = {schema.column(number).path: number for number in range(len(schema))}

    def stats(self, columns: Iterable[str], schema: pa.Schema) -> dict[str, ColumnStats]:
        rows = self._metadata.num_rows
        found = {}
        for column in columns:
            place = self._places.get(column)
            kind = _kind((self._arrow if place is not None else schema).field(column).type, column)
            empty = ColumnStats(kind, values=0 if place is not None else rows, nulls=0 if place is not None else rows)
            chunks = () if place is None else (self._chunk(group, column, place, kind) for group in range(len(self._groups)))
            found[column] = reduce(ColumnStats.joined, chunks, empty)
        return found

    def _chunk(self, group: int, column: str, place: int, kind: ValueType) -> ColumnStats:
        chunk = self._groups[group].column(place)
        sizes = chunk.total_compressed_size, chunk.total_uncompressed_size
        its = chunk.statistics
        if column == PARTITION_PATH:  # lakelock writes no statistics of what is known
            return ColumnStats(kind, self._partition, self._partition, chunk.num_values, 0, *sizes)
        nulls = its.null_count if its is not None and its.has_null_count else None
        if nulls == chunk.num_values:
            return ColumnStats(kind, None, None, chunk.num_values, nulls, *sizes)
        if nulls is None or not its.has_min_max or chunk.physical_type == "INT96":
            values = self._file.read_row_group(group, [column]).column(0)
            return ColumnStats(kind, *_bounds_of(values, kind), chunk.num_values, values.null_count, *sizes)
        return ColumnStats(kind, *_bounds_in_footer(its.min_raw, its.max_raw, kind), chunk.num_values, nulls, *sizes)


def _bounds_in_footer(low: Any, high: Any, kind: ValueType) -> tuple[Any, Any]:
    if kind.ordinal == _STRING:
        return low.decode(), high.decode()
    if kind.ordinal == _DECIMAL and isinstance(low, bytes):
        return int.from_bytes(low, "big", signed=True), int.from_bytes(high, "big", signed=True)
    return low, high


def _bounds_of(values: pa.ChunkedArray, kind: ValueType) -> tuple[Any, Any]:
    """The bounds of values of which at least one may be no null."""
    if kind.ordinal in (_FLOAT, _DOUBLE):
        return _float_bounds(values)
    if kind.ordinal == _DECIMAL:
        found = pc.min_max(values).as_py()
        return tuple(_mapped(lambda v: int(v.scaleb(kind.scale, _EXACT)), found[end]) for end in ("min", "max"))  # type: ignore[return-value]
    if kind.ordinal in _WHOLE:
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) or pa.types.is_time32(values.type) else pa.int64())
    found = pc.min_max(values).as_py()
    low, high = found["min"], found["max"]
    if isinstance(low, str):
        return at_most(low), at_least(high) or high
    if isinstance(low, bytes):
        return low[:LONGEST_TEXT], _not_less(high)
    return low, high


def _not_less(value: bytes) -> bytes:
    """At most `LONGEST_TEXT` bytes that are not less; the value itself if there are none."""
    cut = value[:LONGEST_TEXT].rstrip(b"\xff")
    return value if len(value) <= LONGEST_TEXT or not cut else cut[:-1] + bytes([cut[-1] + 1])


def _float_bounds(values: pa.ChunkedArray) -> tuple[Any, Any]:
    """Parquet passes over NaN when it takes bounds."""
    nan = pc.is_nan(values)
    found = pc.min_max(values.filter(pc.invert(nan))).as_py()
    if pc.any(nan).as_py():
        return NAN_BOUNDS
    return found["min"], found["max"]


NAN_BOUNDS = (-math.inf, math.inf)
"""Of a column with a NaN. If a bound is NaN itself, Java finds no row."""


def column_stats_records(partition: str, name: str, stats: FileStats, version: int) -> dict[str, Record]:
    """The records of one file in `column_stats`, by key."""
    return {
        column_stats_key(column, partition, name): _record(COLUMN_STATS, name, column, found, version)
        for column, found in stats.items()
    }


def with_nulls(stats: FileStats, columns: Iterable[str]) -> FileStats:
    """Also the statistics of indexed columns that the table lacks now: should one be added again, all these rows are null."""
    rows = max((found.values for found in stats.values()), default=0)
    return {**stats, **dict.fromkeys(columns, ColumnStats(ValueType(_NULL), values=rows, nulls=rows))}


_NO_COLUMNS = pa.schema([])


def partition_stats_records(
    partition: str,
    added: Sequence[FileStats],
    known: Mapping[str, Sequence[Record]],
    version: int,
    schema: pa.Schema = _NO_COLUMNS,
) -> dict[str, Record]:
    """The records of a partition with these new files, by key, joined with all those of `known`, which are by key, too.

    `schema`: the table's columns, as far as they may have had other types before.
    """
    before = {}
    for column in {column for stats in added for column in stats}:
        found = [each for each in map(stats_in, known.get(partition_stats_key(column, partition), ())) if each is not None]
        now = value_type(schema.field(column).type) if column in schema.names else None
        if found:
            before[column] = reduce(ColumnStats.joined, (each.in_column_of(now, version) if now else each for each in found))
    earlier_rows = max((found.values for found in before.values()), default=0)
    whole: dict[str, ColumnStats] = {}
    for stats in added:
        for column, new in stats.items():
            old = whole.get(column) or before.get(column)
            if old is None:  # earlier files lack the column
                old = ColumnStats(new.type, values=earlier_rows, nulls=earlier_rows)
            whole[column] = old.joined(new)
    return {
        partition_stats_key(column, partition): _record(PARTITION_STATS, partition, column, found, version)
        for column, found in whole.items()
    }


def _record(kind: str, name: str, column: str, found: ColumnStats, version: int) -> Record:
    stats = {
        "fileName": name, "columnName": column,
        "minValue": _wrapped(found.low, found.type, version), "maxValue": _wrapped(found.high, found.type, version),
        "valueCount": found.values, "nullCount": found.nulls, "totalSize": found.stored_bytes,
        "totalUncompressedSize": found.plain_bytes, "isDeleted": False, "isTightBound": kind == PARTITION_STATS,
        "valueType": None if version == 1 else (f"{_NAMESPACE}HoodieValueTypeInfo", _type_info(found.type)),
    }  # fmt: skip
    return {"key": "", "type": _TYPES[kind], "ColumnStatsMetadata": (f"{_NAMESPACE}HoodieMetadataColumnStats", stats)}


def _type_info(kind: ValueType) -> Record:
    info = f"{kind.precision},{kind.scale}" if kind.ordinal == _DECIMAL else None
    return {"typeOrdinal": kind.ordinal, "additionalInfo": info}


def _wrapped(value: Any, kind: ValueType, version: int) -> tuple[str, Record] | None:
    if value is None:
        return None
    if kind.ordinal == _DECIMAL:
        if version == 1:
            value = Decimal(value * 10 ** (_SCALE_1 - kind.scale)).scaleb(-_SCALE_1, _EXACT)
        else:
            value = value.to_bytes(((value if value >= 0 else ~value).bit_length() + 8) // 8, "big", signed=True)
    wrappers = _WRAPPERS_1 if version == 1 else _WRAPPERS
    return f"{_NAMESPACE}{wrappers.get(kind.ordinal, 'Long')}Wrapper", {"value": value}


def stats_in(record: Record) -> ColumnStats | None:
    """The statistics in a record of either version; None for one that marks a removal. `CorruptTableError` for others."""
    try:
        _, stats = record["ColumnStatsMetadata"]
        if stats["isDeleted"]:
            return None
        info = stats.get("valueType")
        kind = _type_in(info[1]) if info is not None else _type_of_wrapper(stats["minValue"])
        low, high = (_unwrapped(stats[end], kind) for end in ("minValue", "maxValue"))
        counts = (int(stats[name] or 0) for name in ("valueCount", "nullCount", "totalSize", "totalUncompressedSize"))
        return ColumnStats(kind, low, high, *counts)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            f"a record of statistics cannot be read: {error!r}", hint=DROP_METADATA_TABLE, file=COLUMN_STATS
        ) from error


def _type_in(info: Mapping[str, Any]) -> ValueType:
    if info["typeOrdinal"] != _DECIMAL:
        return ValueType(info["typeOrdinal"])
    precision, scale = map(int, info["additionalInfo"].split(","))
    return ValueType(_DECIMAL, precision, scale)


def _type_of_wrapper(wrapped: tuple[str, Record] | None) -> ValueType:
    """The type in version 1; any for a column that is null throughout."""
    if wrapped is None:
        return ValueType(_INT)
    ordinal = _OF_WRAPPER_1[wrapped[0].removeprefix(_NAMESPACE).removesuffix("Wrapper")]
    return ValueType(_DECIMAL, _DIGITS_1, _SCALE_1) if ordinal == _DECIMAL else ValueType(ordinal)


def _unwrapped(wrapped: tuple[str, Record] | None, kind: ValueType) -> Any:
    if wrapped is None:
        return None
    value = wrapped[1]["value"]
    if isinstance(value, Decimal):
        return int(value.scaleb(_SCALE_1, _EXACT))
    return int.from_bytes(value, "big", signed=True) if kind.ordinal == _DECIMAL else value


def with_files_of_nulls(records: Mapping[str, Record], missing: Mapping[str, Record], version: int) -> dict[str, Record]:
    """Those `records` of partitions that leave out files of which a column has nulls only, joined with them, by key.

    `missing`: such records of files, by key. A column may have had another life before, in which each row had a value.
    """
    made: dict[str, Record] = {}
    for key, record in missing.items():
        own = key[: len(partition_stats_key("", ""))]
        known, found = stats_in(made.get(own) or records[own]) if own in records else None, stats_in(record)
        if known and found and found.nulls and not known.nulls:
            stats = records[own]["ColumnStatsMetadata"][1]
            both = known.in_column_of(found.type, version).joined(found)
            made[own] = _record(PARTITION_STATS, stats["fileName"], stats["columnName"], both, version)
    return made


def null_records(
    kind: str, columns: Iterable[str], records: Mapping[str, Record], schema: pa.Schema, version: int
) -> dict[str, Record]:
    """The records of these columns that are missing among all `records` of files or partitions, by key: all rows are null.

    Readers that look for nulls in a column skip a file or partition that has records of other columns only.
    """
    made = {}
    kinds = {column: value_type(schema.field(column).type) for column in columns}
    for key, record in records.items():
        name, known = record["ColumnStatsMetadata"][1], stats_in(record)
        if known is None or name["columnName"] != RECORD_KEY:
            continue
        for column, arrow in kinds.items():
            own = _hashed(column) + key[len(_hashed(RECORD_KEY)) :]
            if own not in records and arrow is not None:
                made[own] = _record(
                    kind, name["fileName"], column, ColumnStats(arrow, values=known.values, nulls=known.values), version
                )
    return made


def missed(
    partition: str, name: str, found: FileStats, by_file: Mapping[str, Record], by_partition: Mapping[str, Record]
) -> str:
    """What readers that skip by these records would miss of a file with the stats `found`; empty if they miss nothing.

    Readers read a file without records; if it has some, they take a column without one for null. `by_partition` is empty where
    there is no `partition_stats`. No reader goes by the bounds of bytes, which Java itself joins wrongly.
    """
    found = {column: stats for column, stats in found.items() if stats.type.ordinal not in (_BYTES, _FIXED)}
    own = {column: by_file.get(column_stats_key(column, partition, name)) for column in found}
    for column, record in own.items() if any(own.values()) else ():
        known = record and stats_in(record)
        if not (known.covers(found[column]) if known else found[column].nulls == found[column].values):
            return f"{COLUMN_STATS} of {column}"
    for column, stats in found.items() if by_partition else ():
        record = by_partition.get(partition_stats_key(column, partition))
        known = record and stats_in(record)
        if not known or not known.covers(stats):
            return f"{PARTITION_STATS} of {column}"
    return ""


def column_stats_key(column: str, partition: str, name: str) -> str:
    """The key of a file's column in `column_stats`."""
    return (
        partition_stats_key(column, partition) + b64encode(hashlib.md5(name.encode(), usedforsecurity=False).digest()).decode()
    )


def partition_stats_key(column: str, partition: str) -> str:
    """The key of a partition's column in `partition_stats`."""
    return _hashed(column) + _hashed(partition or NOT_PARTITIONED)


@lru_cache(maxsize=4096)
def _hashed(text: str) -> str:
    return b64encode(xxh64(text.encode(), _SEED).to_bytes(8, "big")).decode()


_SEED = 0xFFFF_FFFF_DABA_DABA
_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def xxh64(data: bytes, seed: int) -> int:
    """XXH64, by which Hudi's keys name columns and partitions; they are short, and each is hashed once."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at <= size - 32:
            lanes = [_round(lane, _number(data, at + 8 * n, 8)) for n, lane in enumerate(lanes)]
            at += 32
        value = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            value = (value ^ _round(0, lane)) * _P1 + _P4
    else:
        value = seed + _P5
    value += size
    while at <= size - 8:
        value = _rotated(value ^ _round(0, _number(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at <= size - 4:
        value = _rotated(value & _MASK ^ _number(data, at, 4) * _P1, 23) * _P2 + _P3
        at += 4
    for byte in data[at:]:
        value = _rotated(value & _MASK ^ byte * _P5, 11) * _P1
    value &= _MASK
    for shift, prime in ((33, _P2), (29, _P3), (32, 1)):
        value = (value ^ value >> shift) * prime & _MASK
    return value


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _rotated(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> 64 - by) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2, 31) * _P1 & _MASK
