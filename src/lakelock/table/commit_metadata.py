"""What a commit did: the metadata in completed (and inflight) commits and replacecommits, and statistics of its files.

Statistics are a file's number of rows, its key range, and each column's range, known without opening the file. They come from
the row groups of the Parquet file (`column_ranges`), and a writer records them in the extra metadata of its commit, as JSON
under `lakelock.statistics`: `{"<path>": [key_min, key_max, {"<column>": [least, greatest, nulls]}]}`. Dates, timestamps and
decimals are objects with one letter for the kind. A damaged record, or one of a later version, counts as not recorded.

Unknown values, such as those of another engine's commit, are None or left out, and must be taken for "anything".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakelock.errors import CorruptTableError
from lakelock.parsing import JsonObject
from lakelock.table.avro import COMMIT, REPLACE_COMMIT, REQUESTED_REPLACE, Record, decode, encode
from lakelock.table.layout import FileGroupId, checked_file_name, checked_partition, split_path

__all__ = ["CommitMetadata", "FileGroupId", "RuntimeStats", "WriteStat", "requested_replace_bytes"]

NO_PREVIOUS = "null"
"""What Hudi writes as the previous commit of a new file group."""


class RuntimeStats(NamedTuple):
    """How long the making of a file took, in milliseconds."""

    scan_ms: int | None = 0
    create_ms: int | None = 0
    upsert_ms: int | None = 0


@dataclass(frozen=True)
class WriteStat:
    """One file that a commit wrote: Hudi's 31 fields under their own names, in their order, with what Hudi writes for COW.

    `prev_commit` is the instant of the slice that the file replaces, `"null"` for a new file group.
    """

    file_id: str | None
    path: str | None
    prev_commit: str | None = NO_PREVIOUS
    num_writes: int | None = 0
    num_deletes: int | None = 0
    num_update_writes: int | None = 0
    total_write_bytes: int | None = 0
    total_write_errors: int | None = 0
    partition_path: str | None = None
    total_log_records: int | None = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = 0
    num_inserts: int | None = 0
    total_log_blocks: int | None = 0
    total_corrupt_log_block: int | None = 0
    total_rollback_blocks: int | None = 0
    file_size_bytes: int | None = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = field(default=None, hash=False)
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime: RuntimeStats | None = None
    total_log_files_compacted: int | None = 0
    total_log_read_time_ms: int | None = 0
    total_log_size_compacted: int | None = 0
    temp_path: str | None = None
    num_updates: int | None = 0
    recorded: str | None = field(default=None, compare=False)
    """What the task knows of the file's rows, on its way to the commit (`file_index/recorded.py`); not among Hudi's fields."""

    @property
    def group(self) -> FileGroupId:
        return FileGroupId(self.partition_path or "", self.file_id or "")

    @property
    def is_new_group(self) -> bool:
        return self.prev_commit in (None, "", NO_PREVIOUS)


_AVRO_NAMES = (
    "fileId", "path", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors",
    "partitionPath", "totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts", "totalLogBlocks",
    "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes", "logVersion", "logOffset", "baseFile", "logFiles",
    "cdcStats", "prevBaseFile", "minEventTime", "maxEventTime", "runtimeStats", "totalLogFilesCompacted",
    "totalLogReadTimeMs", "totalLogSizeCompacted", "tempPath", "numUpdates",
)  # fmt: skip
_RUNTIME_NAMES = ("totalScanTime", "totalCreateTime", "totalUpsertTime")
_field_values = attrgetter(*(name for name in WriteStat.__dataclass_fields__ if name != "recorded"))


@dataclass(frozen=True)
class CommitMetadata:
    """Which files a commit wrote in which partitions, and which file groups it replaced.

    `replaced` is None for a commit and a mapping, perhaps empty, for a replacecommit. `extra` holds the table's schema
    and what writers add for themselves.
    """

    write_stats: Mapping[str, tuple[WriteStat, ...]]
    operation: str | None
    extra: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, tuple[str, ...]] | None = None
    compacted: bool | None = False

    def to_bytes(self, sync: bytes | None = None) -> bytes:
        """The Avro container as Java writes it; equal metadata gives equal bytes."""
        record: Record = {
            "partitionToWriteStats": {p: [_to_avro(stat) for stat in stats] for p, stats in self.write_stats.items()},
            "compacted": self.compacted,
            "extraMetadata": self.extra,
            "version": None,
            "operationType": self.operation,
        }
        if self.replaced is None:
            return encode(COMMIT, record, sync)
        record["partitionToReplaceFileIds"] = {p: list(ids) for p, ids in self.replaced.items()}
        return encode(REPLACE_COMMIT, record, sync)

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "a commit's metadata") -> CommitMetadata:
        """The metadata in a timeline file; `source` names it in the `CorruptTableError` for torn or hostile content."""
        if len(data) <= _SMALL_BYTES:
            with suppress(CorruptTableError):  # decoded once more below, for an error that names the source
                return _small(data)
        return _decoded(data, source)

    @classmethod
    def from_json(cls, data: bytes, source: str, *, replaces: bool) -> CommitMetadata:
        """The metadata as Hudi before 1.0 wrote it, with the fields that this one knows; errors as for `from_bytes`."""
        try:
            found = json.loads(data)
            stats = {
                str(partition): tuple(_from_avro({name: stat.get(name) for name in _AVRO_NAMES}) for stat in written)
                for partition, written in (found["partitionToWriteStats"] or {}).items()
            }
            extra = {str(key): text for key, text in (found.get("extraMetadata") or {}).items() if isinstance(text, str)}
            gone = {str(p): tuple(map(str, ids)) for p, ids in (found.get("partitionToReplaceFileIds") or {}).items()}
            metadata = cls(stats, found.get("operationType"), extra, gone if replaces else None, found.get("compacted"))
            metadata._check(source)
            return cls.from_bytes(metadata.to_bytes(), source)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            hint = "the file was torn or altered; restore it from a backup"
            raise CorruptTableError(f"{source} is not the metadata of a commit: {error}", hint=hint, file=source) from error

    @property
    def schema_json(self) -> str | None:
        """The table's Avro schema (JSON, without meta columns) as of this commit."""
        return self.extra.get("schema") or None

    @cached_property
    def stats(self) -> tuple[WriteStat, ...]:
        """All write stats, whatever their partition."""
        return tuple(stat for stats in self.write_stats.values() for stat in stats)

    @cached_property
    def added_groups(self) -> frozenset[FileGroupId]:
        """File groups that this commit created."""
        return frozenset(stat.group for stat in self.stats if stat.file_id and stat.is_new_group)

    @cached_property
    def rewritten_groups(self) -> frozenset[FileGroupId]:
        """Existing file groups that got a new slice."""
        return frozenset(stat.group for stat in self.stats if stat.file_id and not stat.is_new_group)

    @cached_property
    def replaced_groups(self) -> frozenset[FileGroupId]:
        """File groups that are not part of the table any more since this commit."""
        return frozenset(FileGroupId(p, file_id) for p, ids in (self.replaced or {}).items() for file_id in ids)

    def _check(self, source: str) -> None:
        """Refuse paths that lead out of the table or contradict their partition."""
        for partition, stats in self.write_stats.items():
            checked_partition(partition, source)
            for stat in stats:
                _check_stat(stat, partition, source)
        for partition, ids in (self.replaced or {}).items():
            checked_partition(partition, source)
            for file_id in ids:
                checked_file_name(file_id, source)


def _decoded(data: bytes, source: str) -> CommitMetadata:
    schema, record = decode(data, source, COMMIT, REPLACE_COMMIT)
    stats = {p: tuple(_from_avro(s) for s in found) for p, found in (record["partitionToWriteStats"] or {}).items()}
    replaced = None
    if schema is REPLACE_COMMIT:
        replaced = {p: tuple(ids) for p, ids in (record["partitionToReplaceFileIds"] or {}).items()}
    metadata = CommitMetadata(stats, record["operationType"], record["extraMetadata"] or {}, replaced, record["compacted"])
    metadata._check(source)
    return metadata


_SMALL_BYTES = 16_384


@lru_cache(maxsize=128)
def _small(data: bytes) -> CommitMetadata:
    """Remembered: several steps of a transaction ask for the same commit (its schema, its window, its application)."""
    return _decoded(data, "")


def _check_stat(stat: WriteStat, partition: str, source: str) -> None:
    if stat.file_id:
        checked_file_name(stat.file_id, source)
    if stat.path is None:
        return
    folder, name = split_path(stat.path)
    checked_file_name(name, source)
    if stat.path.startswith("/") or folder != partition or (stat.partition_path or "") != partition:
        raise CorruptTableError(
            f"{source} has the file {stat.path!r} of the partition {stat.partition_path!r} under {partition!r}", file=source
        )


def requested_replace_bytes(operation: str = "INSERT_OVERWRITE") -> bytes:
    """The content of a `replacecommit.requested` file that is no clustering plan, as Java writes it for the operation."""
    record: dict[str, Any] = {"operationType": None, "clusteringPlan": None, "extraMetadata": None, "version": None}
    if operation == "DELETE_PARTITION":
        record.update(operationType=operation, extraMetadata={}, version=1)
    return encode(REQUESTED_REPLACE, record)


def _to_avro(stat: WriteStat) -> Record:
    record: Record = dict(zip(_AVRO_NAMES, _field_values(stat), strict=True))
    if stat.runtime is not None:
        record["runtimeStats"] = dict(zip(_RUNTIME_NAMES, stat.runtime, strict=True))
    if stat.log_files is not None:
        record["logFiles"] = list(stat.log_files)
    return record


def _from_avro(record: Record) -> WriteStat:
    runtime, log_files = record["runtimeStats"], record["logFiles"]
    if runtime is not None:
        record["runtimeStats"] = RuntimeStats(*(runtime[name] for name in _RUNTIME_NAMES))
    if log_files is not None:
        record["logFiles"] = tuple(log_files)
    return WriteStat(*(record[name] for name in _AVRO_NAMES))


Value = bool | int | float | str | date | datetime | Decimal
"""A value of a column, as pyarrow's `as_py` gives it. Timestamps with a zone are in UTC, those without have none."""

LONGEST_TEXT = 32
"""Texts are cut to this many characters: the least one down, the greatest one up."""

_LAST_CHARACTER, _BEFORE_SURROGATES, _AFTER_SURROGATES = 0x10FFFF, 0xD7FF, 0xE000


@dataclass(frozen=True)
class ColumnRange:
    """The least and the greatest value of one column of a file, and how many nulls it has; None where it is not known.

    No value lies outside the range, but its ends need not occur: texts are cut. Texts are compared by code points, as
    Python and UTF-8 do. Where `nulls` is the number of rows there is no value, and both ends are None.
    """

    least: Value | None = None
    greatest: Value | None = None
    nulls: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.least, str):
            object.__setattr__(self, "least", at_most(self.least))
        if isinstance(self.greatest, str):
            object.__setattr__(self, "greatest", at_least(self.greatest))


@dataclass(frozen=True)
class FileStatistics:
    """What the writer of one file knew about it. `key_min` and `key_max` are record keys in the order of Java's strings
    (`table/base_files.py`), never cut; empty keys and None mean unknown.
    """

    rows: int | None = None
    key_min: str | None = None
    key_max: str | None = None
    columns: Mapping[str, ColumnRange] = dataclasses.field(default_factory=lambda: MappingProxyType({}))


UNKNOWN = FileStatistics()
"""For a file about which nothing was recorded."""


def at_most(text: str) -> str:
    """A text of at most `LONGEST_TEXT` characters that is not greater."""
    return text[:LONGEST_TEXT]


def at_least(text: str) -> str | None:
    """A text of at most `LONGEST_TEXT` characters that is not less; None if there is none."""
    if len(text) <= LONGEST_TEXT:
        return text
    kept = text[:LONGEST_TEXT]
    while kept:
        code = ord(kept[-1])
        if code < _LAST_CHARACTER:
            return kept[:-1] + chr(_AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1)
        kept = kept[:-1]
    return None


STATISTICS = "lakelock.statistics"
MOST_CHARACTERS = 262_144
"""The most bytes of statistics in a commit, which is written under the lock. Beyond it columns are left out, then keys."""


def statistics_text(statistics: FileStatistics) -> str:
    """What a task reports to its driver about one file."""
    ranges = {name: [*map(_plain, (r.least, r.greatest)), r.nulls] for name, r in statistics.columns.items()}
    return json.dumps([statistics.key_min, statistics.key_max, ranges], separators=(",", ":"))


def statistics_of_commit(stats: Iterable[WriteStat]) -> str:
    """What a commit records about all its files; empty if it records nothing."""
    files = {stat.path: json.loads(stat.recorded) for stat in stats if stat.path and stat.recorded}
    for kept in (files, {path: [least, greatest, {}] for path, (least, greatest, _) in files.items()}):
        text = json.dumps(kept, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS:
            return text if kept else ""
    return ""


def statistics_by_path(text: str) -> Mapping[str, tuple[str | None, str | None, str | None]]:
    """Key range and the text of the column ranges for each file that a commit describes."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            path: (
                _text(least),
                _text(greatest),
                json.dumps(columns, separators=(",", ":"), sort_keys=True) if columns else None,
            )
            for path, (least, greatest, columns) in found.items()
        }
    except (ValueError, TypeError):
        return {}


def column_ranges_in(text: str | None) -> dict[str, ColumnRange]:
    """The ranges in the text that `by_path` gives."""
    try:
        found = JsonObject.parse(text).fields if text else {}
        return {
            name: ColumnRange(_value(least), _value(greatest), nulls if isinstance(nulls, int) else None)
            for name, (least, greatest, nulls) in found.items()
        }
    except (ValueError, TypeError, InvalidOperation):
        return {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise ValueError("a key is not text")


def _plain(value: Value | None) -> Any:
    if isinstance(value, datetime):
        return {"t": value.isoformat()}
    if isinstance(value, date):
        return {"d": value.isoformat()}
    if isinstance(value, Decimal):
        return {"n": str(value)}
    return value if isinstance(value, bool | int | float | str) else None


def _value(plain: Any) -> Value | None:
    if isinstance(plain, dict):
        ((kind, text),) = plain.items()
        readers: dict[str, Any] = {"t": datetime.fromisoformat, "d": date.fromisoformat, "n": Decimal}
        return readers[kind](text) if kind in readers else None  # type: ignore[no-any-return]
    return plain if isinstance(plain, bool | int | float | str) else None


def ranges_in_footer(metadata: pq.FileMetaData, schema: pa.Schema, *, most: int) -> dict[str, ColumnRange]:
    """The ranges of the first `most` columns that are not nested, by name; those of which nothing is known are left out.

    Of floating-point columns the greatest value is not known: Parquet passes over NaN, which is greater than any other.
    """
    flat = [field for field in schema if not pa.types.is_nested(field.type)][:most]
    if not flat or not metadata.num_row_groups:
        return {}
    first = metadata.row_group(0)
    places = {first.column(number).path_in_schema: number for number in range(first.num_columns)}
    found = {}
    for each in flat:
        number = places.get(each.name)
        if number is None:
            continue
        chunks = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        column = _range_of_chunks(chunks, open_above=pa.types.is_floating(each.type))
        if column is not None:
            found[each.name] = column
    return found


def _range_of_chunks(chunks: Iterable[Any], *, open_above: bool) -> ColumnRange | None:
    least: Any = None
    greatest: Any = None
    nulls = 0
    known = True
    for chunk in chunks:
        if chunk is None or not chunk.has_null_count:
            return None
        nulls += chunk.null_count
        if chunk.has_min_max:
            try:
                low, high = chunk.min, chunk.max
            except (OverflowError, ValueError):  # a day that Python has not, or text that is not UTF-8
                known = False
                continue
            least = low if least is None else min(least, low)
            greatest = high if greatest is None else max(greatest, high)
        elif chunk.num_values:  # values without bounds: too long, or NaN
            known = False
    if not known or isinstance(least, bytes):
        return ColumnRange(nulls=nulls)
    return ColumnRange(least, None if open_above else greatest, nulls)
