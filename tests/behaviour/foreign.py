"""What another Hudi engine does to a table, file by file, for tests without that engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from tests.api import (
    Action,
    BaseFileWriter,
    CommitMetadata,
    DataFile,
    FileGroupId,
    Instant,
    Keyed,
    RollbackPlan,
    Stamp,
    State,
    Storage,
    TableIO,
    TableProperties,
    TableSchema,
    WriteStat,
    layout,
    read_snapshot,
    read_timeline,
)

from lakelock.settings import WriteSettings
from lakelock.table.avro import COMPACTION_PLAN, REQUESTED_REPLACE, encode
from lakelock.table.instants import later_than
from lakelock.table.log_files import LogFile
from lakelock.table.log_writing import LogChanges, LogStamp, log_bytes, log_stat
from lakelock.table.properties import read_properties
from lakelock.table.service_metadata import CleanPlan, RollbackMetadata

AFTER_ALL_MS = 1

ARCHIVE = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        ("version", pa.int32()),
    ]
)
"""The rows of Java 1.2's archive files (see the golden table `mixed_archived`)."""


@dataclass
class Peer:
    """One foreign writer of a table; it takes no lock and knows nothing of decisions and claims."""

    storage: Storage

    def later(self) -> str:
        """A time after everything in the timeline."""
        return later_than(AFTER_ALL_MS, read_timeline(self.storage).newest_time)

    def begin(self, action: Action = Action.COMMIT, *, instant: str = "", plan: bytes = b"") -> str:
        """Request an instant."""
        instant = instant or self.later()
        requested = Instant(instant, action.value, State.REQUESTED)
        assert self.storage.put_if_absent(layout.timeline(requested.file_name), plan) is not None
        return instant

    def write(self, instant: str, partition: str, file_id: str) -> WriteStat:
        """A new file group, or the next slice of one that there is."""
        old = read_snapshot(TableIO(self.storage), read_timeline(self.storage)).group(FileGroupId(partition, file_id))
        new = DataFile(partition, file_id, "0-0-0", instant, 4)
        with self.storage.open_output(new.key) as out:
            out.write(b"rows")
        previous = {"prev_commit": old.instant, "prev_base_file": old.name} if old else {}
        return WriteStat(file_id, new.key, partition_path=partition, num_writes=1, file_size_bytes=4, **previous)

    def complete(
        self, instant: str, stats: Iterable[WriteStat], *, action: Action = Action.COMMIT, operation: str = "UPSERT",
        replaced: Mapping[str, tuple[str, ...]] | None = None, extra: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Make it visible."""
        parts: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            parts[stat.partition_path or ""] = (*parts.get(stat.partition_path or "", ()), stat)
        done = Instant(instant, action.value, State.COMPLETED, self.later())
        data = CommitMetadata(parts, operation, dict(extra or {}), replaced).to_bytes()
        assert self.storage.put_if_absent(layout.timeline(done.file_name), data) is not None

    def commit(self, partition: str, file_id: str) -> str:
        """One whole write of one file group."""
        instant = self.begin()
        self.complete(instant, [self.write(instant, partition, file_id)])
        return instant

    def insert(self, rows: pa.Table, partition: str, *, instant: str = "", schema: str = "", keys: Sequence[str] = ()) -> str:
        """Rows in a new file group, and a commit that says what columns the table has now, by default those of the rows.

        `keys`: the record keys, where they are such as lakelock refuses.
        """
        instant, properties = instant or self.begin(), read_properties(self.storage)
        columns, new = TableSchema(rows.schema), DataFile(partition, f"peer-{instant}-0", "0-0-0", instant, 0)
        with self.storage.open_output(new.key) as out:
            writer = BaseFileWriter(out, columns, Stamp(properties.name, instant, partition, new.name), WriteSettings())
            keyed = Keyed(rows, pa.chunked_array([list(keys)], pa.string())) if keys else Keyed.of(rows, properties)
            writer.add_new(keyed.rows, keyed.keys)
            writer.close()
            size_bytes = out.tell()
        stat = WriteStat(new.file_id, new.key, partition_path=partition, num_writes=len(keyed), file_size_bytes=size_bytes)
        self.complete(instant, [stat], operation="INSERT", extra={"schema": schema or columns.to_avro_json(properties.name)})
        return instant

    def append(
        self, group: FileGroupId, rows: pa.Table | None = None, deleted: Sequence[str] = (), *, instant: str = "",
        columns: TableSchema | None = None,
    ) -> str:  # fmt: skip
        """Rows and deletes in a log file of a file group, as Java's merge-on-read writer has them."""
        instant, properties = instant or self.begin(Action.DELTA_COMMIT), read_properties(self.storage)
        schema = columns or TableSchema(rows.schema) if rows is not None else columns
        assert schema is not None
        changes = LogChanges(None if rows is None else Keyed.of(rows, properties), deleted)
        stamp = LogStamp(instant, group, "0-0-0")
        data = log_bytes(changes, schema, properties.name, stamp)
        with self.storage.open_output(stamp.file.key) as out:
            out.write(data)
        extra = {"schema": schema.to_avro_json(properties.name)}
        self.complete(instant, [log_stat(changes, stamp, len(data))], action=Action.DELTA_COMMIT, extra=extra)
        return instant

    def alter(self, schema: str) -> str:
        """Say what columns the table has from now on, and write nothing."""
        instant = self.begin()
        self.complete(instant, [], operation="ALTER_SCHEMA", extra={"schema": schema})
        return instant

    def plan_clustering(self, *groups: FileGroupId, instant: str = "") -> str:
        """Schedule clustering of file groups; somebody will execute it later."""
        slices = [{"partitionPath": group.partition, "fileId": group.file_id} for group in groups]
        plan = {"inputGroups": [{"slices": slices}]}
        record = {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": None, "version": 1}
        return self.begin(Action.CLUSTERING, instant=instant, plan=encode(REQUESTED_REPLACE, record))

    def plan_compaction(self, *groups: FileGroupId, action: Action = Action.COMPACTION) -> str:
        """Schedule compaction of file groups, of all their log files or only of these into one."""
        named = [{"baseInstantTime": None, "partitionPath": group.partition, "fileId": group.file_id} for group in groups]
        plan = encode(COMPACTION_PLAN, {"operations": named, "extraMetadata": None, "version": 2})
        return self.begin(action, plan=plan)

    def execute_clustering(self, instant: str, old: FileGroupId, new: str) -> None:
        """Replace the file group by a new one."""
        stat = self.write(instant, old.partition, new)
        replaced = {old.partition: (old.file_id,)}
        self.complete(instant, [stat], action=Action.REPLACE_COMMIT, operation="CLUSTER", replaced=replaced)

    def roll_back_eagerly(self, instant: str) -> None:
        """What EAGER does to whatever is pending: a plan, and the target's timeline files are gone."""
        self.begin(Action.ROLLBACK, plan=RollbackPlan(instant, "commit", {}).to_bytes())
        names = [i.key for i in self.storage.list(layout.TIMELINE) if layout.split_path(i.key)[1].startswith(instant)]
        self.storage.delete(names)

    def plan_rollback(self, target: str, *, written: bool = True) -> tuple[str, RollbackPlan]:
        """Plan to roll an instant back, with all files that it has now; without `written` the plan has no content yet."""
        files: dict[str, tuple[str, ...]] = {}
        for item in self.storage.list(""):
            file = DataFile.parse(item.key) or LogFile.parse(item.key)
            if file is not None and file.instant == target:
                files[file.partition] = (*files.get(file.partition, ()), file.name)
        plan = RollbackPlan(target, "commit", files)
        return self.begin(Action.ROLLBACK, plan=plan.to_bytes() if written else b""), plan

    def carry_out_rollback(self, rollback: str, plan: RollbackPlan) -> None:
        """Delete data files and what shows the instant as pending; then the rollback is completed, as Java does it."""
        target, action = plan.target_instant, plan.target_action
        self.storage.delete([layout.in_partition(part, name) for part, names in plan.files.items() for name in names])
        for kind in (Action.COMMIT.value, Action.DELTA_COMMIT.value, Action.REPLACE_COMMIT.value):
            states = [Instant(target, kind, state).file_name for state in (State.REQUESTED, State.INFLIGHT)]
            self.storage.delete([layout.timeline(name) for name in states])
        done = Instant(rollback, Action.ROLLBACK.value, State.COMPLETED, self.later())
        data = RollbackMetadata(rollback, 1, target, action, plan.files).to_bytes()
        assert self.storage.put_if_absent(layout.timeline(done.file_name), data) is not None

    def roll_back(self, target: str) -> str:
        """Roll an instant back, from the plan to the end."""
        rollback, plan = self.plan_rollback(target)
        self.carry_out_rollback(rollback, plan)
        return rollback

    def service(self, action: Action) -> None:
        """A clean, an archival mark or a savepoint that completes."""
        plan = CleanPlan("KEEP_LATEST_COMMITS", "", "", "", {}).to_bytes() if action is Action.CLEAN else b"plan"
        instant = self.begin(action, plan=plan)
        done = Instant(instant, action.value, State.COMPLETED, self.later())
        assert self.storage.put_if_absent(layout.timeline(done.file_name), b"done") is not None

    def plan_cleaning(self, *partitions: str) -> str:
        """Plan to remove the folders of these partitions."""
        return self.begin(
            Action.CLEAN, plan=CleanPlan("KEEP_LATEST_COMMITS", "", "", "", {}, partitions_to_remove=partitions).to_bytes()
        )

    def clean(self, instant: str) -> None:
        """Say that a planned cleaning is done."""
        done = Instant(instant, Action.CLEAN.value, State.COMPLETED, self.later())
        assert self.storage.put_if_absent(layout.timeline(done.file_name), b"done") is not None

    def archive(self, *instants: str) -> None:
        """Move instants out of the active timeline, as Java does: first into a file that names the first and the last."""
        names = [i.key for i in self.storage.list(layout.TIMELINE) if layout.split_path(i.key)[1][:17] in instants]
        rows = []
        for instant in (i for i in read_timeline(self.storage).instants if i.is_completed and i.requested in instants):
            stored = self.storage.get(layout.timeline(instant.file_name))
            assert stored is not None
            rows.append((instant.requested, instant.completion, instant.action, stored.data, None, 1))
        with self.storage.open_output(f"{layout.HISTORY}/{min(instants)}_{max(instants)}_0.parquet") as out:
            pq.write_table(pa.table(list(zip(*rows, strict=True)) or [[] for _ in ARCHIVE], schema=ARCHIVE), out)
        self.storage.delete(names)

    def change_properties(self, **changes: str) -> None:
        """Set keys of hoodie.properties, whose dots are double underscores here."""
        known = read_properties(self.storage).values
        new = TableProperties({**known, **{f"hoodie.{k.replace('__', '.')}": v for k, v in changes.items()}})
        self.storage.put(layout.PROPERTIES, new.serialize(0))
