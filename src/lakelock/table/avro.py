"""Avro as Hudi keeps it in the timeline: object containers with one record, and the schemas that Hudi 1.2 writes there.

Decoding trusts nothing. Every writer of the table chooses its own writer schema, so a schema is checked before it drives
the decoder: no recursion, and nothing that takes no bytes inside an array or map, because a count could then promise more
items than the file has bytes. The schemas are data: `*.text` is Java's text, character for character.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NoReturn

import fastavro

from lakelock.errors import RESTORE_OR_ROLL_BACK, CorruptTableError

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_DEEPEST = 24
_LARGEST_FIXED = 4_096
_GUARD = b"\0" * 16
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_HINT = f"the file was torn or altered; {RESTORE_OR_ROLL_BACK}"

Record = dict[str, Any]


@dataclass(frozen=True)
class AvroSchema:
    """A record schema: its name without namespace, its text, and what is derived from that once."""

    name: str
    text: str
    parsed: Any = field(compare=False, repr=False)
    header: bytes = field(compare=False, repr=False)

    @classmethod
    def of(cls, definition: Mapping[str, object]) -> AvroSchema:
        text = json.dumps(definition, separators=(",", ":"))
        header = _MAGIC + _long(1) + _bytes(b"avro.schema") + _bytes(text.encode()) + _long(0)
        return cls(str(definition["name"]), text, fastavro.parse_schema(json.loads(text)), header)


def encode(schema: AvroSchema, record: Mapping[str, object], sync: bytes | None = None) -> bytes:
    """The container that holds `record`. Equal records give equal bytes: the sync marker is a digest unless it is given."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema.parsed, record)
    data = body.getvalue()
    marker = sync if sync is not None else hashlib.md5(data, usedforsecurity=False).digest()
    return b"".join((schema.header, marker, _long(1), _long(len(data)), data, marker))


def decode(data: bytes, source: str, *expected: AvroSchema) -> tuple[AvroSchema, Record]:
    """Which of the `expected` schemas the container has, and its record read as that schema.

    Anything but one sound record is a `CorruptTableError` that names `source`.
    """
    if not data:
        _refuse(source, "is empty")
    text, body = _open(data, source)
    written = _writer_schema(text)
    if written.trouble is not None:
        _refuse(source, f"cannot be decoded: {written.trouble}")
    schema = next((known for known in expected if known.name == written.name), None)
    if schema is None:
        _refuse(source, f"holds a {written.name[:80]} where {' or '.join(known.name for known in expected)} belongs")
    # If a length is too large, fastavro takes the bytes that are left, without an error. It then ends inside the guard.
    stream = io.BytesIO(body + _GUARD)
    # fastavro raises whatever the bytes make it stumble over, so this is the one place that catches everything.
    try:
        if text == schema.text:
            record = fastavro.schemaless_reader(stream, schema.parsed, None)
        else:
            record = fastavro.schemaless_reader(stream, fastavro.parse_schema(json.loads(text)), schema.parsed)
    except Exception as error:  # noqa: BLE001
        _refuse(source, f"does not hold what its schema says ({type(error).__name__}: {str(error)[:120]})")
    if stream.tell() != len(body) or not isinstance(record, dict):
        _refuse(source, "holds more or less than its record")
    return schema, record


def _open(data: bytes, source: str) -> tuple[str, bytes]:
    """The writer schema's text and the bytes of the only record."""
    position, entries = _header(data, source)
    sync = data[position : position + _SYNC_BYTES]
    codec = entries.get("avro.codec", b"null")
    if codec != b"null":
        _refuse(source, f"is compressed with {codec[:20]!r}, which Hudi never uses")
    count, position = _read_long(data, position + _SYNC_BYTES, source)
    size, position = _read_long(data, position, source)
    if count != 1 or size < 0 or position + size + _SYNC_BYTES != len(data):
        _refuse(source, f"is cut off or holds other than one record ({len(data)} bytes)")
    if data[position + size :] != sync:
        _refuse(source, "does not end in its sync marker")
    try:
        return entries.get("avro.schema", b"").decode(), data[position : position + size]
    except UnicodeDecodeError:
        _refuse(source, "has a schema that is not UTF-8")


def _header(data: bytes, source: str) -> tuple[int, dict[str, bytes]]:
    if data[:4] != _MAGIC:
        _refuse(source, f"is not an Avro container; it starts with {data[:8]!r}")
    entries: dict[str, bytes] = {}
    position = 4
    while True:
        count, position = _read_long(data, position, source)
        if count == 0:
            return position, entries
        if count < 0:
            count = -count
            _, position = _read_long(data, position, source)
        if count > len(data) - position:
            _refuse(source, "has a torn header")
        for _ in range(count):
            key, position = _read_bytes(data, position, source)
            value, position = _read_bytes(data, position, source)
            entries[key.decode("utf-8", "replace")] = value


@lru_cache(maxsize=64)
def checked_schema(text: str, source: str) -> tuple[Record, Any]:
    """A schema of rows, as JSON has it and as fastavro takes it; `CorruptTableError` for one not to decode anything with."""
    written = _writer_schema(text)
    if written.trouble is not None:
        _refuse(source, f"cannot be decoded: {written.trouble}")
    definition = json.loads(text)
    # fastavro raises whatever the schema makes it stumble over.
    try:
        return definition, fastavro.parse_schema(definition, _write_hint=False)
    except Exception as error:  # noqa: BLE001
        _refuse(source, f"cannot be decoded: {type(error).__name__}: {str(error)[:120]}")


@dataclass(frozen=True)
class _Written:
    """What a writer schema says: the record's name without namespace, and why not to decode with it, if there is a reason."""

    name: str
    trouble: str | None


@lru_cache(maxsize=64)
def _writer_schema(text: str) -> _Written:
    try:
        definition = json.loads(text)
        if not isinstance(definition, dict) or definition.get("type") != "record":
            return _Written("", "its schema is no record")
        _smallest_size(definition, {}, 0)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        return _Written("", f"its schema cannot be used: {type(error).__name__}: {str(error)[:120]}")
    return _Written(str(definition.get("name", "")).rpartition(".")[2], None)


def _smallest_size(definition: Any, sizes: dict[str, int | None], depth: int) -> int:
    """The fewest bytes that a value of this type takes; ValueError for a type that decoding should not be trusted with."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(definition, str):
        return _smallest_named(definition, sizes)
    if isinstance(definition, list):
        return 1 + min(_smallest_size(branch, sizes, depth + 1) for branch in definition)
    kind = definition["type"]
    if kind in ("array", "map"):
        item = _smallest_size(definition["items" if kind == "array" else "values"], sizes, depth + 1)
        if item + (kind == "map") < 1:
            raise ValueError(f"an {kind} of values that take no bytes")
        return 1
    if kind in ("fixed", "enum"):
        name = str(definition["name"])
        size = int(definition["size"]) if kind == "fixed" else 1
        if not 0 < size <= _LARGEST_FIXED:
            raise ValueError(f"a value of {size} bytes, which Hudi does not use")
        sizes[name] = sizes[name.rpartition(".")[2]] = size
        return size
    if kind == "record":
        name = str(definition["name"])
        sizes[name] = sizes[name.rpartition(".")[2]] = None
        total = sum(_smallest_size(entry["type"], sizes, depth + 1) for entry in definition["fields"])
        sizes[name] = sizes[name.rpartition(".")[2]] = total
        return total
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return 0 if kind == "null" else 1
    if isinstance(kind, (dict, list)):
        return _smallest_size(kind, sizes, depth + 1)
    raise ValueError(f"the type {str(kind)[:40]!r}, which Hudi does not use")


def _smallest_named(name: str, sizes: Mapping[str, int | None]) -> int:
    if name in _PRIMITIVES:
        return 0 if name == "null" else 1
    size = sizes[name] if name in sizes else sizes[name.rpartition(".")[2]]
    if size is None:
        raise ValueError(f"{name} contains itself")
    return size


def _refuse(source: str, trouble: str) -> NoReturn:
    raise CorruptTableError(f"{source} {trouble}", hint=_HINT, file=source) from None


def _long(value: int) -> bytes:
    folded = (value << 1) ^ (value >> 63)
    out = bytearray()
    while folded > 0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _read_long(data: bytes, position: int, source: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    _refuse(source, "is cut off")


def _read_bytes(data: bytes, position: int, source: str) -> tuple[bytes, int]:
    size, position = _read_long(data, position, source)
    if size < 0 or position + size > len(data):
        _refuse(source, "is cut off")
    return data[position : position + size], position + size


_Type = dict[str, object] | list[object] | str

_STRING: _Type = {"type": "string", "avro.java.string": "String"}
_NULL_DEFAULT: dict[str, object] = {"default": None}


def _array(items: _Type, **extra: object) -> _Type:
    return {"type": "array", "items": items, **extra}


def _map(values: _Type, **extra: object) -> _Type:
    return {"type": "map", "values": values, "avro.java.string": "String", **extra}


def _record(name: str, *fields: _Type) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _top(name: str, *fields: _Type) -> AvroSchema:
    return AvroSchema.of({"type": "record", "name": name, "namespace": "org.apache.hudi.avro.model", "fields": list(fields)})


def _field(name: str, type_: _Type, **extra: object) -> _Type:
    return {"name": name, "type": type_, **extra}


def _maybe(name: str, type_: _Type = _STRING, **extra: object) -> _Type:
    return {"name": name, "type": ["null", type_], **extra, "default": None}


def _longs(*names: str) -> list[_Type]:
    return [_maybe(name, "long") for name in names]


_VERSION = _field("version", ["int", "null"], default=1)

_RUNTIME_STATS = _record("HoodieRuntimeStats", *_longs("totalScanTime", "totalCreateTime", "totalUpsertTime"))
_WRITE_STAT = _record(
    "HoodieWriteStat",
    _maybe("fileId"),
    _maybe("path"),
    _maybe("prevCommit"),
    *_longs("numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors"),
    _maybe("partitionPath"),
    *_longs("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted", "numInserts", "totalLogBlocks"),
    *_longs("totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes"),
    _maybe("logVersion", "int"),
    _maybe("logOffset", "long"),
    _maybe("baseFile"),
    _maybe("logFiles", _array(_STRING, **_NULL_DEFAULT)),
    _maybe("cdcStats", _map("long", **_NULL_DEFAULT)),
    _maybe("prevBaseFile"),
    *_longs("minEventTime", "maxEventTime"),
    _maybe("runtimeStats", _RUNTIME_STATS),
    *_longs("totalLogFilesCompacted", "totalLogReadTimeMs", "totalLogSizeCompacted"),
    _maybe("tempPath"),
    _maybe("numUpdates", "long"),
)
_WRITE_STATS = _maybe("partitionToWriteStats", _map(_array(_WRITE_STAT)))

COMMIT = _top(
    "HoodieCommitMetadata",
    _WRITE_STATS,
    _maybe("compacted", "boolean"),
    _maybe("extraMetadata", _map(_STRING, **_NULL_DEFAULT)),
    _VERSION,
    _maybe("operationType"),
)

REPLACE_COMMIT = _top(
    "HoodieReplaceCommitMetadata",
    _WRITE_STATS,
    _maybe("compacted", "boolean"),
    _maybe("extraMetadata", _map(_STRING)),
    _VERSION,
    _maybe("operationType"),
    _maybe("partitionToReplaceFileIds", _map(_array(_STRING))),
)

_SLICE = _record(
    "HoodieSliceInfo",
    _maybe("dataFilePath"),
    _maybe("deltaFilePaths", _array(_STRING)),
    _field("fileId", ["null", _STRING]),
    _maybe("partitionPath"),
    _maybe("bootstrapFilePath"),
    _VERSION,
)
_CLUSTERING_GROUP = _record(
    "HoodieClusteringGroup",
    _maybe("slices", _array(_SLICE)),
    _maybe("metrics", _map("double")),
    _field("numOutputFileGroups", ["int", "null"], default=1),
    _maybe("extraMetadata", _map(_STRING)),
    _VERSION,
)
_CLUSTERING_STRATEGY = _record(
    "HoodieClusteringStrategy", _maybe("strategyClassName"), _maybe("strategyParams", _map(_STRING)), _VERSION
)
_CLUSTERING_PLAN = _record(
    "HoodieClusteringPlan",
    _maybe("inputGroups", _array(_CLUSTERING_GROUP)),
    _maybe("strategy", _CLUSTERING_STRATEGY),
    _maybe("extraMetadata", _map(_STRING)),
    _VERSION,
    _maybe("preserveHoodieMetadata", "boolean"),
    _maybe("missingSchedulePartitions", _array(_STRING)),
)

REQUESTED_REPLACE = _top(
    "HoodieRequestedReplaceMetadata",
    _maybe("operationType"),
    _maybe("clusteringPlan", _CLUSTERING_PLAN),
    _maybe("extraMetadata", _map(_STRING)),
    _VERSION,
)

COMPACTION_PLAN = _top(
    "HoodieCompactionPlan",
    _maybe(
        "operations",
        _array(
            _record(
                "HoodieCompactionOperation",
                _field("baseInstantTime", ["null", _STRING]),
                _maybe("deltaFilePaths", _array(_STRING)),
                _maybe("dataFilePath"),
                _field("fileId", ["null", _STRING]),
                _maybe("partitionPath"),
                _maybe("metrics", _map("double")),
                _maybe("bootstrapFilePath"),
            )
        ),
    ),
    _maybe("extraMetadata", _map(_STRING)),
    _VERSION,
)
"""The fields that are read of it."""

_INSTANT_INFO = _record("HoodieInstantInfo", _field("commitTime", _STRING), _field("action", _STRING))
_ROLLBACK_REQUEST = _record(
    "HoodieRollbackRequest",
    _field("partitionPath", _STRING),
    _maybe("fileId"),
    _maybe("latestBaseInstant"),
    _field("filesToBeDeleted", _array(_STRING, default=[]), default=[]),
    _maybe("logBlocksToBeDeleted", _map("long")),
)
_ROLLBACK_PARTITION = _record(
    "HoodieRollbackPartitionMetadata",
    _field("partitionPath", _STRING),
    _field("successDeleteFiles", _array(_STRING)),
    _field("failedDeleteFiles", _array(_STRING)),
    _maybe("rollbackLogFiles", _map("long")),
    _maybe("logFilesFromFailedCommit", _map("long")),
)

_CLEANED_FILE = _record("HoodieCleanFileInfo", _maybe("filePath"), _maybe("isBootstrapBaseFile", "boolean"))
_CLEANED_PARTITION = _record(
    "HoodieCleanPartitionMetadata",
    _field("partitionPath", _STRING),
    _field("policy", _STRING),
    _field("deletePathPatterns", _array(_STRING)),
    _field("successDeleteFiles", _array(_STRING)),
    _field("failedDeleteFiles", _array(_STRING)),
    _maybe("isPartitionDeleted", "boolean"),
)

CLEANER_PLAN = _top(
    "HoodieCleanerPlan",
    _maybe(
        "earliestInstantToRetain",
        _record("HoodieActionInstant", _field("timestamp", _STRING), _field("action", _STRING), _field("state", _STRING)),
    ),
    _field("lastCompletedCommitTimestamp", _STRING, default=""),
    _field("policy", _STRING),
    _maybe("filesToBeDeletedPerPartition", _map(_array(_STRING))),
    _VERSION,
    _maybe(
        "filePathsToBeDeletedPerPartition",
        _map(_array(_CLEANED_FILE)),
        doc="This field replaces the field filesToBeDeletedPerPartition",
    ),
    _maybe("partitionsToBeDeleted", _array(_STRING), doc="partitions to be deleted"),
    _maybe("extraMetadata", _map(_STRING, **_NULL_DEFAULT)),
)

CLEAN = _top(
    "HoodieCleanMetadata",
    _field("startCleanTime", _STRING),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("earliestCommitToRetain", _STRING),
    _field("lastCompletedCommitTimestamp", _STRING, default=""),
    _field("partitionMetadata", _map(_CLEANED_PARTITION)),
    _VERSION,
    _maybe("bootstrapPartitionMetadata", _map("HoodieCleanPartitionMetadata", **_NULL_DEFAULT)),
    _maybe("extraMetadata", _map(_STRING, **_NULL_DEFAULT)),
)

_SAVED_PARTITION = _record(
    "HoodieSavepointPartitionMetadata", _field("partitionPath", _STRING), _field("savepointDataFile", _array(_STRING))
)
SAVEPOINT = _top(
    "HoodieSavepointMetadata",
    _field("savepointedBy", _STRING),
    _field("savepointedAt", "long"),
    _field("comments", _STRING),
    _field("partitionMetadata", _map(_SAVED_PARTITION)),
    _VERSION,
)

ROLLBACK_PLAN = _top(
    "HoodieRollbackPlan",
    _maybe("instantToRollback", _INSTANT_INFO, doc="Hoodie instant that needs to be rolled back"),
    _maybe("RollbackRequests", _array(_ROLLBACK_REQUEST)),
    _VERSION,
)

ROLLBACK = _top(
    "HoodieRollbackMetadata",
    _field("startRollbackTime", _STRING),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("commitsRollback", _array(_STRING)),
    _field("partitionMetadata", _map(_ROLLBACK_PARTITION)),
    _VERSION,
    _field("instantsRollback", _array(_INSTANT_INFO, default=[]), default=[]),
)
