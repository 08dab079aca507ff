"""Hudi's metadata table in a run: made before it begins, compacted by another engine, and read as its readers read it.

The other engine compacts as Java Hudi does: under the lock, and only what nobody may take back any more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakelock.occ.metadata_upkeep import keep_metadata
from lakelock.occ.retention import Budget
from lakelock.table.commit_metadata import WriteStat
from lakelock.table.hfile import SCHEMA_INFO, hfile_bytes
from lakelock.table.instants import later_than
from lakelock.table.metadata_records import ALL_PARTITIONS, FILES, RecordSchema
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
from tests.simulator.operations import Operation, Reap
from tests.simulator.runtime import START_MS
from tests.simulator.scheduler import Process
from tests.simulator.storage import ObserversStorage, SimServer, SimStorage

_FILE = {
    "type": "record",
    "name": "File",
    "fields": [{"name": "size", "type": "long"}, {"name": "isDeleted", "type": "boolean"}],
}
_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "HoodieMetadataRecord",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "type", "type": "int"},
            {"name": "filesystemMetadata", "type": ["null", {"type": "map", "values": _FILE}], "default": None},
        ],
    }
)
_GROUP = "files-0000-0"
_PROPERTIES = f"{layout.METADATA_TABLE}/{layout.PROPERTIES}"


def has_metadata_table(storage: SimServer | SimStorage) -> bool:
    """Whether the run has one: common knowledge, not a request."""
    return storage.has_had(_PROPERTIES)


def make_metadata_table(server: SimServer, properties: TableProperties, process: Process) -> TableProperties:
    """Make an empty metadata table; the properties of its table."""
    server.write(_PROPERTIES, properties.serialize(0), process)
    made_ms = START_MS - 3_600_000
    first = BOOTSTRAP + "000"
    nothing = {ALL_PARTITIONS: {"key": "", "type": 1, "filesystemMetadata": {}}}
    log = group_logs(format_instant(made_ms), {FILES: nothing}, {FILES: (_GROUP,)}, _SCHEMA)[0]
    name = f".{_GROUP}_{first}.log.1_0-0-0"
    stat = WriteStat(_GROUP, f"{FILES}/{name}", prev_commit=first, partition_path=FILES, log_files=(name,))
    server.write(f"{layout.METADATA_TABLE}/{FILES}/{name}", log.data, process)
    done = Instant(first, Action.DELTA_COMMIT.value, Progress.COMPLETED, format_instant(made_ms))
    commit = CommitMetadata({FILES: (stat,)}, "UPSERT_PREPPED", {"schema": _SCHEMA})
    server.write(f"{layout.METADATA_TABLE}/{layout.timeline(done.file_name)}", commit.to_bytes(), process)
    return properties.changed({METADATA_PARTITIONS: FILES})


@dataclass(frozen=True)
class CompactMetadata(Operation):
    """Compact `files`."""

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
            records = found.records(FILES)
            instant = later_than(table.runtime.now_ms(), found.timeline.newest_time)
            entries = sorted((key.encode(), schema.encoded(record)) for key, record in records.items())
            name = f"{_GROUP}_0-9-9_{instant}.hfile"
            put = table.storage.put
            requested = Instant(instant, Action.COMPACTION.value, Progress.REQUESTED)
            put(f"{layout.METADATA_TABLE}/{layout.timeline(requested.file_name)}", b"plan")
            put(f"{layout.METADATA_TABLE}/{FILES}/{name}", hfile_bytes(entries, {SCHEMA_INFO: text.encode()}, created_ms=0))
            completion = later_than(table.runtime.now_ms(), instant)
            completed = Instant(instant, Action.COMMIT.value, Progress.COMPLETED, completion)
            stat = WriteStat(_GROUP, f"{FILES}/{name}", partition_path=FILES)
            commit = CommitMetadata({FILES: (stat,)}, "COMPACT", {"schema": text}, compacted=True)
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


def listed_files(server: SimServer, done: Instant | None = None) -> dict[str, int]:
    """The files and sizes that readers of the metadata table see. `done` is completed, although it is about to be."""
    storage = ObserversStorage(server)
    timeline = Timeline.from_listing(server.page(layout.TIMELINE, "", 10**9)[0])
    if done is not None:
        timeline = timeline.with_completed(done)
    files = MetadataTable.look(TableIO(storage), timeline).files()
    return {layout.in_partition(partition, name): size for partition, names in files.items() for name, size in names.items()}
