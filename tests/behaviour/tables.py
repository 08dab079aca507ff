"""Tables for protocol tests: real storage and the real engine; files hold a few bytes instead of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from tests.api import (
    Action,
    CommitMetadata,
    Committed,
    Coordinator,
    DataFile,
    Event,
    Instant,
    MemoryStorage,
    Runtime,
    State,
    Storage,
    StorageLocation,
    SystemRuntime,
    TableProperties,
    TableSchema,
    Transaction,
    WriteRequest,
    WriteStat,
    create_table,
    format_instant,
    layout,
)

from lakelock.errors import ConflictError
from lakelock.markers import data_files
from lakelock.markers.data_files import MarkerKind
from lakelock.occ.footprint import ReadKind
from lakelock.settings import ConcurrencySettings, HeartbeatSettings, LockSettings, RetrySettings, Settings
from lakelock.table.index import TableIndex
from lakelock.table.merged_slices import Change
from lakelock.table.properties import COPY_ON_WRITE
from lakelock.table.pruning import StatisticsOf

LIGHT_FROM_MS = 1_700_000_000_000
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("month", pa.string())])
QUICK = Settings(
    heartbeat=HeartbeatSettings(interval_s=1.0, tolerable_misses=2),
    lock=LockSettings(wait_s=20, lease_s=3, renew_s=0.5, poll_s=0.02),
    retry=RetrySettings(first_wait_s=0.01, longest_wait_s=0.1, holder_wait_s=10),
)
PATIENCE_S = 10.0
HUDI = Settings(concurrency=ConcurrencySettings(profile="hudi"), lock=QUICK.lock, heartbeat=QUICK.heartbeat)


TABLE_TYPE = COPY_ON_WRITE
"""The type of tables that a test makes and says nothing of: `both_types` runs it with each."""


def new_table(
    storage: Storage,
    columns: pa.Schema = SCHEMA,
    partition_by: Sequence[str] = ("month",),
    table_type: str | None = None,
    index: TableIndex | None = None,
) -> None:
    runtime = SystemRuntime()
    schema = TableSchema.from_arrow(columns)
    properties = TableProperties.new(
        "t",
        record_keys=("id",),
        partition_fields=tuple(partition_by),
        create_schema=schema.to_avro_json("t"),
        table_type=table_type or TABLE_TYPE,
    )
    create_table(storage, properties.indexed(index), runtime)


@dataclass
class Recorder:
    """Keeps every event of one writer."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [e.kind.value for e in self.events]


def writer(
    storage: Storage,
    settings: Settings = QUICK,
    name: str = "w",
    listener: Recorder | None = None,
    runtime: Runtime | None = None,
) -> Coordinator:
    """One more writer on the table, as a process of its own would be.

    By the clock of the machine none is taken for dead after two seconds: beside busy cores it may have no turn for as long.
    """
    if runtime is None:
        misses = max(settings.heartbeat.tolerable_misses, int(PATIENCE_S / settings.heartbeat.interval_s))
        settings = replace(settings, heartbeat=replace(settings.heartbeat, tolerable_misses=misses))
    location = StorageLocation(storage.uri)
    listeners = (listener,) if listener else ()
    return Coordinator.open(location, settings, runtime=runtime, application=name, listeners=listeners, storage=storage)


def put_file(
    tx: Transaction, storage: Storage, partition: str, file_id: str, rows: int = 1, *, token: str = "0-1-0"
) -> WriteStat:
    """Write one base file as a task would: marker first. A file id that the snapshot has makes a new slice of it."""
    tx.write_context()
    old = tx.snapshot().group(DataFile(partition, file_id, "", "", 0).group)
    new = DataFile(partition, file_id, token, tx.instant, 4)
    data_files.place(storage, tx.instant, new, MarkerKind.MERGE if old else MarkerKind.CREATE)
    with storage.open_output(new.key) as out:
        out.write(b"rows")
    previous = {"prev_commit": old.instant, "prev_base_file": old.name} if old else {}
    return WriteStat(
        file_id, new.key, num_writes=rows, num_inserts=0 if old else rows, num_update_writes=rows if old else 0,
        partition_path=partition, file_size_bytes=4, total_write_bytes=4, **previous,
    )  # fmt: skip


def insert(coordinator: Coordinator, storage: Storage, partition: str, file_id: str, **asked: object) -> Committed:
    """A blind insert of one new file group."""
    with coordinator.begin(WriteRequest("INSERT", **asked)) as tx:  # type: ignore[arg-type]
        return tx.commit([put_file(tx, storage, partition, file_id)])


def collided_writers(storage: Storage) -> tuple[Coordinator, Coordinator]:
    """Two writers of a new table: one has inserted file group `f`, and lost its upsert of it to the other, as it must."""
    one, other = writer(storage), writer(storage)
    insert(one, storage, "month=1", "f")
    with one.begin("UPSERT") as mine, other.begin("UPSERT") as theirs:
        theirs.commit([put_file(theirs, storage, "month=1", "f", token="1-1-0")])
        with pytest.raises(ConflictError):
            mine.commit([put_file(mine, storage, "month=1", "f")])
    return one, other


def visible(storage: Storage) -> list[str]:
    """`partition/file id@instant` of every visible file, by a fresh reader."""
    snapshot = writer(storage).snapshot()
    return [f"{f.group}@{f.instant}" for f in snapshot.files]


def groups(storage: Storage) -> list[str]:
    return [name.split("@")[0] for name in visible(storage)]


def leftovers(storage: Storage) -> list[str]:
    """What should be gone once all is quiet: markers, heartbeats, claims, pending instants and rollbacks, unseen data files."""
    snapshot = writer(storage).snapshot()
    timeline = writer(storage).table.timeline()
    seen = {f.key for f in snapshot.files}
    found = [
        i.key for folder in (".hoodie/.temp", ".hoodie/.heartbeat", ".hoodie/.lakelock/claims") for i in storage.list(folder)
    ]
    found += [i.file_name for i in (*timeline.pending, *timeline.rollbacks) if not i.is_completed]
    for item in storage.list(""):
        data = DataFile.parse(item.key, item.size_bytes)
        if data is not None and item.key not in seen and not timeline.is_visible(data.instant):
            found.append(item.key)
    return found


class ScriptedRead:
    """A read that sees exactly the files whose file id is in `sees`."""

    description = "rows of a test"

    def __init__(self, sees: Iterable[str], partitions: Iterable[str] | None = None, kind: ReadKind = ReadKind.ROWS) -> None:
        self.sees, self.partitions, self.kind = set(sees), partitions, kind
        self.looked_at: list[str] = []

    def concerns(self, partition: str) -> bool:
        return self.partitions is None or partition in self.partitions

    def candidates(self, files: Sequence[DataFile], statistics: StatisticsOf) -> Sequence[DataFile]:
        return files

    def matches(self, files: Sequence[DataFile]) -> str | None:
        self.looked_at += [f.file_id for f in files]
        return next((f"{f.partition}: a row of {f.file_id}" for f in files if f.file_id in self.sees), None)

    def changed_by(self, changes: Sequence[Change]) -> str | None:
        return self.matches([change.made for change in changes])


def memory_table() -> MemoryStorage:
    storage = MemoryStorage()
    new_table(storage)
    return storage


def new_file(tx: Transaction, storage: Storage, file_id: str) -> WriteStat:
    """A new file and its marker, as a task of an insert writes them: it lists nothing."""
    file = DataFile("month=1", file_id, "0-1-0", tx.instant, 4)
    tx.write_context()
    data_files.place(storage, tx.instant, file, MarkerKind.CREATE)
    with storage.open_output(file.key) as output:
        output.write(b"rows")
    return WriteStat(file_id, file.key, num_writes=1, num_inserts=1, partition_path="month=1", file_size_bytes=4)


def light_commits(storage: Storage, first: int, last: int, *, files: int = 1, partitions: int = 5) -> None:
    """Commits of another engine that name files which nobody opens, one a second, each into one of the partitions."""
    for number in range(first, last):
        instant, done = (format_instant(LIGHT_FROM_MS + 1_000 * number + ms) for ms in (0, 500))
        partition = f"month={number % partitions}"
        named = [DataFile(partition, f"f{number}-{each}", "0-0-0", instant, 4) for each in range(files)]
        stats = tuple(
            WriteStat(file.file_id, file.key, partition_path=partition, num_writes=1, file_size_bytes=4) for file in named
        )
        completed = Instant(instant, Action.COMMIT.value, State.COMPLETED, done)
        metadata = CommitMetadata({partition: stats}, "INSERT", {"schema": ""})
        storage.put_if_absent(layout.timeline(completed.file_name), metadata.to_bytes())
