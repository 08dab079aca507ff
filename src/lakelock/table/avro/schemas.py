"""The Avro schemas that Hudi 1.2 writes into its timeline, as data: `*.text` is Java's text, character for character."""

from __future__ import annotations

from lakelock.table.avro.container import AvroSchema

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
