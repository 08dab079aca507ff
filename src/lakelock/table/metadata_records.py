"""Records of Hudi's metadata table: how they are encoded, which file group a key is in, and how a later record joins one.

A record is Avro without a container, by the schema that its log block or HFile holds (`HoodieMetadataRecord`), so that
records of every release are read and written as they are. Its kind is in `type`: the partitions of the table (1), the files
of a partition (2), the statistics of a column in a file (3) and in a partition (6), and where a record key is (5).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lakelock.errors import DROP_METADATA_TABLE, CorruptTableError
from lakelock.table.avro import checked_schema
from lakelock.table.key_search import string_hashes

Record = dict[str, Any]
Records = Mapping[str, Record | None]
"""Records by their keys; None for a key that is deleted."""

FILES, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX = "files", "column_stats", "partition_stats", "record_index"
"""Partitions of the metadata table."""
KEPT = (FILES, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX)
"""Partitions that lakelock keeps true; the others would hide rows."""
ALL_PARTITIONS = "__all_partitions__"
"""The key in `files` of the record that names the table's partitions."""
NOT_PARTITIONED = "."
"""What stands for the partition path of a table without partitions."""

_FILES_OF_PARTITION, _ALL_PARTITIONS = 2, 1
_DECIMAL = 10
_COUNTS = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
_GUARD = bytes(16)


def unkept(names: Iterable[str]) -> list[str]:
    """Those partitions of a metadata table that lakelock does not keep true."""
    return [name for name in names if name not in KEPT]


@dataclass(frozen=True)
class RecordSchema:
    """The schema of records, which says how they are encoded. `text` is what log blocks and HFiles hold."""

    text: str
    _parsed: Any = field(compare=False, repr=False)

    @classmethod
    def of(cls, text: str, source: str) -> RecordSchema:
        """The schema in a text; `CorruptTableError` that names `source` for one to decode nothing with."""
        try:
            return _schema(text)
        except CorruptTableError:
            checked_schema(text, source)  # raises the same, and names the source
            raise

    def decoded(self, data: bytes, source: str) -> Record:
        """The record in these bytes; records inside it are pairs of their type's name and their fields.

        `CorruptTableError` for anything but one record.
        """
        # If a length is too large, fastavro takes the bytes that are left, without an error. It then ends inside the guard.
        stream = io.BytesIO(data + _GUARD)
        # fastavro raises whatever the bytes make it stumble over.
        try:
            record: Any = fastavro.schemaless_reader(stream, self._parsed, None, return_record_name=True)
            if stream.tell() != len(data) or not isinstance(record, dict):
                raise ValueError("it holds more or less than a record")
            if not isinstance(record["type"], int):
                raise ValueError("it has no type")
        except Exception as error:
            raise CorruptTableError(
                f"a record of {source} cannot be decoded: {error!r:.200}", hint=DROP_METADATA_TABLE, file=source
            ) from error
        return record

    def encoded(self, record: Mapping[str, Any]) -> bytes:
        """The bytes of a record; fields that are left out are null."""
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, record)
        return stream.getvalue()


@lru_cache(maxsize=8)
def _schema(text: str) -> RecordSchema:
    return RecordSchema(text, checked_schema(text, "")[1])


def file_groups_of(keys: Iterable[str], count: int) -> list[int]:
    """Which of so many file groups of a partition has each key: by `String.hashCode`, over UTF-16 units."""
    hashed = string_hashes(pa.array(list(keys), pa.string())).view(np.int32).astype(np.int64)
    groups: list[int] = (np.abs(hashed) % count).tolist()
    return groups


def files_records(added: Mapping[str, Mapping[str, int]], removed: Mapping[str, Iterable[str]]) -> dict[str, Record]:
    """The records of `files` for new files, with their sizes in bytes, and for removed ones; both by partition path."""
    records = {}
    for partition in sorted({*added, *removed}):
        files = {name: _file(size) for name, size in sorted(added.get(partition, {}).items())}
        files |= {name: _file(0, gone=True) for name in sorted(removed.get(partition, ()))}
        records[partition or NOT_PARTITIONED] = _record(_FILES_OF_PARTITION, files)
    records[ALL_PARTITIONS] = _record(_ALL_PARTITIONS, {p or NOT_PARTITIONED: _file(0) for p in sorted(added)})
    return records


def _record(kind: int, files: Mapping[str, Record]) -> Record:
    return {"key": "", "type": kind, "filesystemMetadata": files}


def _file(size_bytes: int, *, gone: bool = False) -> Record:
    return {"size": size_bytes, "isDeleted": gone}


def files_in(record: Record, source: str) -> dict[str, int]:
    """The names in a record of `files` that are there, with their sizes; `CorruptTableError` for a record of another kind."""
    try:
        if record["type"] not in (_ALL_PARTITIONS, _FILES_OF_PARTITION):
            raise ValueError(f"its type is {record['type']}")
        found = record["filesystemMetadata"] or {}
        return {str(name): int(info["size"]) for name, info in found.items() if not info["isDeleted"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptTableError(
            f"{source} has a record that does not list files: {error!r}", hint=DROP_METADATA_TABLE, file=source
        ) from error


def joined(partition: str, earlier: Record | None, later: Record) -> Record:
    """The record that two with the same key make in a partition of the metadata table, by Java's `HoodieMetadataPayload`.

    In `files` names are added and taken out. In `partition_stats` bounds that are not tight widen the earlier ones.
    Elsewhere the later record counts.
    """
    return later if earlier is None else JOINED.get(partition, _later)(earlier, later)


def settles(partition: str, later: Record) -> bool:
    """Whether a record stands alone, so that earlier records of its key do not matter."""
    stats = later["ColumnStatsMetadata"] if partition == PARTITION_STATS else None
    return partition != FILES and (stats is None or bool(stats[1]["isTightBound"] or stats[1]["isDeleted"]))


def _later(_: Record, later: Record) -> Record:
    return later


def _files(earlier: Record, later: Record) -> Record:
    """Two lists of files, joined. To remove a file that is not listed leaves a mark; of two sizes the larger counts."""
    files = dict(earlier["filesystemMetadata"] or {})
    for name, info in (later["filesystemMetadata"] or {}).items():
        known = files.get(name)
        if known is None:
            files[name] = info
        elif info["isDeleted"]:
            del files[name]
        else:
            files[name] = _file(max(info["size"], known["size"]))
    return {**later, "filesystemMetadata": files}


def _partition_stats(earlier: Record, later: Record) -> Record:
    name, new = later["ColumnStatsMetadata"]
    _, known = earlier["ColumnStatsMetadata"]
    if new["isTightBound"] or new["isDeleted"] or known["isDeleted"]:
        return later
    kind = new.get("valueType")
    decimal = kind is not None and kind[1]["typeOrdinal"] == _DECIMAL

    def order(wrapped: Any) -> Any:
        value = wrapped[1]["value"]
        return int.from_bytes(value, "big", signed=True) if decimal else value

    both = dict(new)
    for bound, best in (("minValue", min), ("maxValue", max)):
        values = [found[bound] for found in (known, new) if found[bound] is not None]
        both[bound] = best(values, key=order, default=None)
    both.update({count: (known[count] or 0) + (new[count] or 0) for count in _COUNTS})
    return {**later, "ColumnStatsMetadata": (name, both)}


JOINED: Mapping[str, Callable[[Record, Record], Record]] = {FILES: _files, PARTITION_STATS: _partition_stats}
"""The partitions of the metadata table in which earlier records count next to later ones, and how."""
