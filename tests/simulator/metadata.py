"""Hudi's metadata table in a run: made before it begins, written and compacted by another engine, too, and read as by readers.

The other engine compacts as Java Hudi does: under the lock, and only what nobody may take back any more. Of the bounds of a
partition it says once what it sees itself, whatever others have said under later instants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO
from unittest.mock import patch

from lakelock.occ import metadata_table as kept
from lakelock.occ.metadata_table import KeptMetadata
from lakelock.occ.metadata_upkeep import keep_metadata
from lakelock.occ.retention import Budget
from lakelock.table import record_index
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.hfile import SCHEMA_INFO, hfile_bytes
from lakelock.table.instants import later_than
from lakelock.table.log_files import BlockHeader, BlockKind, LogFile, block_bytes, deletes_bytes
from lakelock.table.metadata_records import (
    ALL_PARTITIONS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    Record,
    Records,
    RecordSchema,
    file_groups_of,
)
from lakelock.table.metadata_stats import (
    ColumnStats,
    StatsIndex,
    ValueType,
    column_stats_key,
    partition_stats_records,
    stats_in,
)
from lakelock.table.metadata_table import BOOTSTRAP, MetadataTable, group_logs, is_pending, schemas_of
from lakelock.table.properties import METADATA_PARTITIONS
from tests.api import (
    Action,
    CommitMetadata,
    Committed,
    Instant,
    TableIO,
    TableProperties,
    Timeline,
    format_instant,
    layout,
    read_timeline,
)
from tests.api import State as Progress
from tests.simulator.engine import Engine
from tests.simulator.light_rows import changes_in, keys_of
from tests.simulator.operations import Operation, Reap
from tests.simulator.rows import changes_of, rows_of
from tests.simulator.runtime import START_MS
from tests.simulator.scheduler import Process
from tests.simulator.storage import ObserversStorage, SimServer, SimStorage

_FILE = {
    "type": "record",
    "name": "File",
    "fields": [{"name": "size", "type": "long"}, {"name": "isDeleted", "type": "boolean"}],
}
_PLACE = {
    "partitionName": "string", "fileIdHighBits": "long", "fileIdLowBits": "long", "fileIndex": "int", "fileId": "string",
    "instantTime": "long", "fileIdEncoding": "int", "position": ["null", "long"],
}  # fmt: skip
_INFO = {
    "type": "record",
    "name": "org.apache.hudi.avro.model.HoodieRecordIndexInfo",
    "fields": [{"name": name, "type": kind} for name, kind in _PLACE.items()],
}
_COUNTS = ("valueCount", "nullCount", "totalSize", "totalUncompressedSize")
_MARKS = ("isDeleted", "isTightBound")
_WRAPPER = {"type": "record", "name": "LongWrapper", "fields": [{"name": "value", "type": "long"}]}
_STATS = {
    "type": "record",
    "name": "HoodieMetadataColumnStats",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        *({"name": name, "type": "string"} for name in ("fileName", "columnName")),
        {"name": "minValue", "type": ["null", _WRAPPER]},
        {"name": "maxValue", "type": ["null", "LongWrapper"]},
        *({"name": name, "type": "long"} for name in _COUNTS),
        *({"name": name, "type": "boolean"} for name in _MARKS),
    ],
}
_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "type", "type": "int"},
            {"name": "filesystemMetadata", "type": ["null", {"type": "map", "values": _FILE}], "default": None},
            {"name": "recordIndexMetadata", "type": ["null", _INFO], "default": None},
            {"name": "ColumnStatsMetadata", "type": ["null", _STATS], "default": None},
        ],
    }
)
_GROUPS = {
    FILES: ("files-0000-0",), RECORD_INDEX: ("record-index-0000-0", "record-index-0001-0"),
    COLUMN_STATS: ("col-stats-0000-0",), PARTITION_STATS: ("partition-stats-0000-0",),
}  # fmt: skip
_COLUMN, _LONG, _VERSION = "v", ValueType(4), 1
_DEFINITIONS = {"indexDefinitions": {COLUMN_STATS: {"sourceFields": [_COLUMN], "version": f"V{_VERSION}"}}}
_PROPERTIES = f"{layout.METADATA_TABLE}/{layout.PROPERTIES}"


def has_metadata_table(storage: SimServer | SimStorage) -> bool:
    """Whether the run has one: common knowledge, not a request."""
    return storage.has_had(_PROPERTIES)


def has(partition: str, storage: SimServer | SimStorage) -> bool:
    """Whether it has this partition, likewise."""
    return storage.has_had(_first_log(_GROUPS[partition][0], partition))


def _first_log(group: str, partition: str) -> str:
    return f"{layout.METADATA_TABLE}/{partition}/.{group}_{BOOTSTRAP}000.log.1_0-0-0"


def make_metadata_table(
    server: SimServer, properties: TableProperties, process: Process, *, record_index: bool, statistics: bool
) -> TableProperties:  # fmt: skip
    """Make an empty metadata table; the properties of its table."""
    partitions = [FILES, *([RECORD_INDEX] if record_index else []), *([COLUMN_STATS, PARTITION_STATS] if statistics else [])]
    if statistics:
        server.write(layout.INDEX_DEFINITIONS, json.dumps(_DEFINITIONS).encode(), process)
    server.write(_PROPERTIES, properties.serialize(0), process)
    made_ms = START_MS - 3_600_000
    nothing = {ALL_PARTITIONS: {"key": "", "type": 1, "filesystemMetadata": {}}}
    log, first = group_logs(format_instant(made_ms), {FILES: nothing}, _GROUPS, _SCHEMA)[0], BOOTSTRAP + "000"
    empty = block_bytes(BlockKind.DELETE, {BlockHeader.INSTANT: first, BlockHeader.SCHEMA: _SCHEMA}, deletes_bytes([], ""))
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for partition in partitions:
        for group in _GROUPS[partition]:
            key = _first_log(group, partition)
            name = key.rpartition("/")[2]
            server.write(key, log.data if partition == FILES else empty, process)
            stat = WriteStat(group, f"{partition}/{name}", prev_commit=first, partition_path=partition, log_files=(name,))
            stats[partition] = (*stats.get(partition, ()), stat)
    done = Instant(first, Action.DELTA_COMMIT.value, Progress.COMPLETED, format_instant(made_ms))
    commit = CommitMetadata(stats, "UPSERT_PREPPED", {"schema": _SCHEMA})
    server.write(f"{layout.METADATA_TABLE}/{layout.timeline(done.file_name)}", commit.to_bytes(), process)
    return properties.changed({METADATA_PARTITIONS: ",".join(stats)})


@contextmanager
def contents_in_lines() -> Iterator[None]:
    """While the block runs, record index and statistics are made of base files and log files that are lines of JSON."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(record_index, "stamped_keys", keys_of))
        stack.enter_context(patch.object(record_index, "changes_in", changes_in))
        stack.enter_context(patch.object(kept, "file_stats", _stats_in))
        stack.enter_context(patch.object(StatsIndex, "of", lambda *_: (_COLUMN,)))
        yield


def _stats_in(source: IO[bytes], path: str, *_: object) -> dict[str, ColumnStats]:
    return stats_of(path, source.read())


def stats_of(path: str, data: bytes) -> dict[str, ColumnStats]:
    """The statistics of a file: of a number that grows with each operation, so that most commits widen the bounds."""
    rows = rows_of(path, data) if LogFile.parse(path) is None else changes_of(path, data)[0]
    numbers = [row.trail[-1] * 1000 + row.value for row in rows]
    return {_COLUMN: ColumnStats(_LONG, min(numbers, default=None), max(numbers, default=None), len(numbers))}


@dataclass(frozen=True)
class AsJava(KeptMetadata):
    """The metadata table as Java keeps it: bounds of a partition are those of the files that it `shows`, written but once."""

    shows: tuple[str, ...] = ()

    def append_anew(self, metadata: CommitMetadata) -> AsJava:
        """Java does not look at later instants."""
        return self

    def statistics(self, metadata: CommitMetadata, *, counting: bool = True) -> dict[str, Records]:
        """The records of new files, and those of their partitions by the records of all files there."""
        found = dict(super().statistics(metadata))
        if PARTITION_STATS not in found:
            return found
        placed = [layout.split_path(path) for path in self.shows]
        keys = {each: column_stats_key(_COLUMN, *each) for each in placed if each[0] in metadata.write_stats}
        known = MetadataTable(self.table.io, self.timeline, Timeline.of([]))
        records = {**known.newest(COLUMN_STATS, keys.values(), self.listed[COLUMN_STATS]), **found[COLUMN_STATS]}
        bounds = dict[str, Record]()
        for partition in metadata.write_stats:
            theirs = [records.get(key) for (where, _), key in keys.items() if where == partition]
            stats = [{_COLUMN: each} for record in theirs if record and (each := stats_in(record))]
            bounds |= partition_stats_records(partition, stats, {}, _VERSION)
        return {**found, PARTITION_STATS: bounds}


@dataclass(frozen=True)
class CompactMetadata(Operation):
    """Compact all of it."""

    @property
    def writes(self) -> bool:
        return False

    @property
    def tells(self) -> bool:
        return False

    def run(self, engine: Engine) -> Committed | None:
        table = engine.coordinator.table
        with table.locked():
            data = read_timeline(table.storage)
            found = MetadataTable.look(table.io, data)
            done = [i for i in found.timeline.commits if i.action == Action.DELTA_COMMIT]
            if any(is_pending(data, i.requested) for i in done) or any(not i.is_completed for i in found.timeline.instants):
                return None
            text = schemas_of(found)[0]
            schema = RecordSchema.of(text, "x")
            assert isinstance(table.storage, SimStorage)
            records = {name: found.records(name) for name in _GROUPS if has(name, table.storage)}
            instant = later_than(table.runtime.now_ms(), found.timeline.newest_time)
            put, stats = table.storage.put, dict[str, tuple[WriteStat, ...]]()
            requested = Instant(instant, Action.COMPACTION.value, Progress.REQUESTED)
            put(f"{layout.METADATA_TABLE}/{layout.timeline(requested.file_name)}", b"plan")
            for partition, mine in records.items():
                groups = _GROUPS[partition]
                placed = [*zip(mine, file_groups_of(mine, len(groups)), strict=True)]
                for number, group in enumerate(groups):
                    path = f"{partition}/{group}_0-9-9_{instant}.hfile"
                    entries = sorted((key.encode(), schema.encoded(mine[key])) for key, at in placed if at == number)
                    put(f"{layout.METADATA_TABLE}/{path}", hfile_bytes(entries, {SCHEMA_INFO: text.encode()}, created_ms=0))
                    stats[partition] = (*stats.get(partition, ()), WriteStat(group, path, partition_path=partition))
            completion = later_than(table.runtime.now_ms(), instant)
            completed = Instant(instant, Action.COMMIT.value, Progress.COMPLETED, completion)
            commit = CommitMetadata(stats, "COMPACT", {"schema": text}, compacted=True)
            put(f"{layout.METADATA_TABLE}/{layout.timeline(completed.file_name)}", commit.to_bytes())
        return None


@dataclass(frozen=True)
class KeepMetadata(Reap):
    """One run of the upkeep of the metadata table, which compacts after `every` delta commits."""

    every: int = 1

    def run(self, engine: Engine) -> Committed | None:
        table = engine.coordinator.table
        keep_metadata(table, Budget.of(table.runtime, 60.0), every=self.every)
        return None


def metadata_table(server: SimServer, done: Instant | None = None) -> MetadataTable:
    """The metadata table as its readers see it. `done` is completed, although it is about to be."""
    timeline = Timeline.from_listing(server.page(layout.TIMELINE, "", 10**9)[0])
    if done is not None:
        timeline = timeline.with_completed(done)
    return MetadataTable.look(TableIO(ObserversStorage(server)), timeline)


def listed_files(table: MetadataTable) -> dict[str, int]:
    """The files that it lists, with their sizes."""
    files = table.files()
    return {layout.in_partition(partition, name): size for partition, names in files.items() for name, size in names.items()}
