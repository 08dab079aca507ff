"""Writers that know nothing of lakelock and follow Hudi's rules: the same lock, the timeline, heartbeats, file-group conflicts.

`eager` writers also roll back whatever they find pending, as Java Hudi does with `hoodie.clean.failed.writes.policy=EAGER`; the
others only instants without a heartbeat. Safety next to them is the safety that Hudi gives: it holds while the lock holds.
`careless` ones take no lock, as Java Hudi does by default: next to them nothing is safe, but nothing may stay unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace

from lakelock.errors import LakelockError, RolledBackError
from lakelock.markers.data_files import MarkerKind, listed, place
from lakelock.markers.liveness import StorageClock
from lakelock.occ.begin import inflight_key, requested_key
from lakelock.occ.footprint import COMPACT, CommitSummary
from lakelock.occ.open_table import OpenTable
from lakelock.table.commit_metadata import UNKNOWN, requested_replace_bytes
from lakelock.table.instants import later_than
from lakelock.table.log_files import LogFile
from lakelock.table.merged_slices import LoggedCommit, logs_of, with_logs
from lakelock.table.metadata_records import PARTITION_STATS, RECORD_INDEX
from lakelock.table.service_metadata import RollbackMetadata
from lakelock.table.snapshot import Snapshot
from tests.api import (
    Action,
    CommitMetadata,
    Committed,
    DataFile,
    FileGroupId,
    Instant,
    RollbackPlan,
    TableIO,
    Timeline,
    WriteStat,
    layout,
    read_snapshot,
    read_timeline,
)
from tests.api import State as Progress
from tests.simulator.checking.checks import FOREIGN_TAG
from tests.simulator.engine import Engine
from tests.simulator.metadata import AsJava, has, has_metadata_table
from tests.simulator.operations import Operation, State
from tests.simulator.rows import Row, changes_of, log_line, merged, partition_of, rows_of
from tests.simulator.storage import SimStorage

DEAD_AFTER_S = 4.0
SHOWN_WITHIN_S = 0.4
LOOKS_WITHIN_S = 1.0


@dataclass(frozen=True)
class Foreign(Operation):
    """What another engine does; an error from it says nothing about the outcome."""

    eager: bool = field(default=False, kw_only=True)
    careless: bool = field(default=False, kw_only=True)

    @property
    def action(self) -> Action:
        return Action.COMMIT

    @property
    def tells(self) -> bool:
        return False

    def run(self, engine: Engine) -> Committed | None:
        _Foreign(engine, self).commit()
        return None


@dataclass(frozen=True)
class ForeignWrite(Foreign):
    """Insert rows into new file groups, and with `bumps` add one to every value in one existing group."""

    rows: tuple[Row, ...]
    bumps: bool = False
    appends: bool = False
    """Whether it is a delta commit on a merge-on-read table: the values go to a log file, which deletes one row, too."""

    @property
    def action(self) -> Action:
        return Action.DELTA_COMMIT if self.appends else Action.COMMIT

    @property
    def serial(self) -> bool:
        return False


@dataclass(frozen=True)
class ForeignClustering(Foreign):
    """Move all rows of one partition into one new file group without changing them."""

    part: str

    @property
    def action(self) -> Action:
        return Action.REPLACE_COMMIT

    def apply(self, state: State) -> None:
        """Nothing happens to the rows."""


class _Foreign:
    """One foreign transaction."""

    def __init__(self, engine: Engine, write: Foreign) -> None:
        table, self._encode = engine.coordinator.table, engine.encode
        self._table, self._write, self._storage = table, write, table.storage
        with self._locked():
            self._roll_back_others()
            self._instant = self._new_instant(read_timeline(self._storage).newest_time)
        self._heartbeat = layout.heartbeat(self._instant)
        self._storage.put(self._heartbeat, b"")
        self._beating = table.runtime.every(1.0, self._beat, name="foreign-heartbeat")

    def _locked(self) -> AbstractContextManager[object]:
        return nullcontext() if self._write.careless else self._table.locked()

    def _new_instant(self, newest: str) -> str:
        for _ in range(10):
            newest = later_than(self._table.runtime.now_ms(), newest)
            # As Java Hudi, which waits for the greatest expected clock skew before anybody sees its instant.
            self._table.runtime.sleep(SHOWN_WITHIN_S * self._table.runtime.random())
            if self._was_used(newest):
                continue
            requested, plan = requested_key(newest, self._write.action), b""
            if self._write.action is Action.REPLACE_COMMIT:
                plan = requested_replace_bytes()
            if self._storage.put_if_absent(requested, plan) is not None:
                if len([i for i in read_timeline(self._storage).instants if i.requested == newest]) == 1:
                    return newest
                self._storage.delete([requested])
        raise RolledBackError("could not allocate an instant", hint="run again")

    def _was_used(self, instant: str) -> bool:
        """Whether a transaction has taken, or tried to take, this time. Hudi's clocks are assumed to know: no request."""
        storage = self._table.storage
        assert isinstance(storage, SimStorage)
        requested = [requested_key(instant, action) for action in (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)]
        requested.append(f"{layout.METADATA_TABLE}/{requested_key(instant, Action.DELTA_COMMIT)}")
        return any(storage.has_had(key) for key in (layout.heartbeat(instant), *requested))

    def commit(self) -> None:
        try:
            # As Java Hudi: only now, without the lock, does it read the files that its write builds on.
            self._table.runtime.sleep(LOOKS_WITHIN_S * self._table.runtime.random())
            stats = self._stats(read_timeline(self._storage))
            with self._locked():
                self._publish(stats)
        except LakelockError:
            self._beating.stop()
            with suppress(LakelockError), self._locked():
                if read_timeline(self._storage).state_of(self._instant) is not Progress.COMPLETED:
                    roll_back(self._table, self._instant, self._write.action)
            raise
        self._beating.stop()
        with suppress(LakelockError):
            self._storage.delete([*listed(self._storage, self._instant).keys, self._heartbeat])

    def _beat(self) -> None:
        with suppress(LakelockError):
            self._storage.put(self._heartbeat, b"")

    def _stats(self, baseline: Timeline) -> list[WriteStat]:
        self._baseline = baseline
        self._replaced: dict[str, tuple[str, ...]] = {}
        self._storage.put(inflight_key(self._instant, self._write.action), b"")
        if isinstance(self._write, ForeignClustering):
            return [self._clustered(partition_of(self._write.part))]
        assert isinstance(self._write, ForeignWrite)
        stats = [self._new_file(partition_of(row.part), [row]) for row in self._write.rows]
        files = self._slices_at(self._baseline).files if self._write.bumps else ()
        if files:
            stats.append(self._appended(files) if self._write.appends else self._bumped(files))
        return stats

    def _slices_at(self, timeline: Timeline) -> Snapshot:
        """The file slices that a timeline shows, with their log files."""
        bases = read_snapshot(TableIO(self._storage), timeline)
        stored = [(i, self._storage.get(layout.timeline(i.file_name))) for i in timeline.commits]
        commits = [
            LoggedCommit(i.requested, i.completion or "", CommitMetadata.from_bytes(each.data, i.file_name))
            for i, each in stored
            if each is not None
        ]
        logged = with_logs(bases, logs_of(commits))
        return bases.with_files({slice_.as_file: UNKNOWN for slice_ in logged}) if logged else bases

    def _appended(self, files: Sequence[DataFile]) -> WriteStat:
        """A log file with new values for some rows of a file group, which deletes another."""
        base = files[int(self._table.runtime.random() * len(files))]
        rows = [row._replace(value=row.value + 1) for row in self._rows(base) if self._table.runtime.random() < 0.7]
        gone = [rows.pop().key] if len(rows) > 1 else []
        log = LogFile(*base.group, self._instant, 1, "0-9-9")
        place(self._storage, self._instant, log, MarkerKind.CREATE)
        data = log_line(rows, gone)
        with self._storage.open_output(log.key) as output:
            output.write(data)
        return WriteStat(
            log.file_id, log.key, self._instant, num_writes=len(rows), num_update_writes=len(rows), num_deletes=len(gone),
            partition_path=log.partition, file_size_bytes=len(data), base_file="", log_files=(log.name,),
        )  # fmt: skip

    def _new_file(self, partition: str, rows: Sequence[Row]) -> WriteStat:
        file = DataFile(partition, f"{self._table.runtime.uuid()}-0", "0-9-9", self._instant)
        size, count = self._put(file, MarkerKind.CREATE, rows), len(rows)
        return WriteStat(
            file.file_id, file.key, partition_path=partition, num_writes=count, num_inserts=count, file_size_bytes=size
        )

    def _clustered(self, partition: str) -> WriteStat:
        files = self._slices_at(self._baseline).in_partition(partition)
        if not files:
            raise RolledBackError(f"{self._instant} finds nothing to cluster", hint="run again")
        rows = [row for file in files for row in self._rows(file)]
        self._replaced = {partition: tuple(file.file_id for file in files)}
        return self._new_file(partition, rows)

    def _rows(self, file: DataFile) -> tuple[Row, ...]:
        def read(key: str) -> bytes:
            with self._storage.open_input(key) as opened:
                return opened.read()

        return merged(rows_of(file.key, read(file.key)), [changes_of(log.key, read(log.key)) for log in file.logs])

    def _bumped(self, files: Sequence[DataFile]) -> WriteStat:
        assert isinstance(self._storage, SimStorage)
        base = files[int(self._table.runtime.random() * len(files))]
        if base.instant > self._instant and has(PARTITION_STATS, self._storage):  # its bounds would be mended by nobody
            raise RolledBackError(f"{self._instant} overlaps with {base.instant}", hint="run again")
        rows = [row._replace(value=row.value + 1) for row in self._rows(base)]
        file = DataFile(base.partition, base.file_id, "0-9-9", self._instant)
        size = self._put(file, MarkerKind.MERGE, rows)
        return WriteStat(
            file.file_id, file.key, prev_commit=base.instant, prev_base_file=base.name, partition_path=base.partition,
            num_writes=len(rows), num_update_writes=len(rows), file_size_bytes=size,
        )  # fmt: skip

    def _put(self, file: DataFile, kind: MarkerKind, rows: Sequence[Row]) -> int:
        place(self._storage, self._instant, file, kind)
        data = self._encode(file, rows)
        with self._storage.open_output(file.key) as output:
            output.write(data)
        return len(data)

    def _publish(self, stats: Sequence[WriteStat]) -> None:
        timeline = read_timeline(self._storage)
        if timeline.state_of(self._instant) is None:
            raise RolledBackError(f"{self._instant} was rolled back", hint="run again")
        mine = {stat.group for stat in stats if not stat.is_new_group}
        mine |= {FileGroupId(partition, file_id) for partition, ids in self._replaced.items() for file_id in ids}
        for other in timeline.commits:
            if other.requested in self._baseline.completed_instants:
                continue
            stored = self._storage.get(layout.timeline(other.file_name))
            metadata = CommitMetadata.from_bytes(stored.data if stored else b"{}", other.file_name)
            theirs = CommitSummary.of(other.requested, other.completion or "", metadata, None)
            if self._write.action is Action.DELTA_COMMIT and metadata.operation == COMPACT:
                continue  # as in Java Hudi: a log file lies on top of what was compacted
            if mine & (theirs.files.keys() | theirs.replaced):
                raise RolledBackError(f"{self._instant} overlaps with {other.requested}", hint="run again")
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            by_partition[stat.partition_path or ""] = (*by_partition.get(stat.partition_path or "", ()), stat)
        extra = {FOREIGN_TAG: self._write.tag, "schema": ""}
        clusters = self._write.action is Action.REPLACE_COMMIT
        operation, replaced = ("CLUSTER", self._replaced) if clusters else ("UPSERT", None)
        metadata = CommitMetadata(by_partition, operation, extra, replaced)
        completion = later_than(self._table.runtime.now_ms(), timeline.newest_time)
        done = Instant(self._instant, self._write.action.value, Progress.COMPLETED, completion)
        kept = _kept_metadata(self._table)
        if kept is not None:
            assert isinstance(self._storage, SimStorage)
            if has(RECORD_INDEX, self._storage) and any(i.requested > self._instant for i in kept.timeline.commits):
                # What Java says of keys under an earlier instant does not count: that is not lakelock's to mend.
                raise RolledBackError(f"{self._instant} began earlier than another commit", hint="run again")
            # Nor is a time that a clock which is ahead has given to a compaction of the metadata table.
            kept.ensure_free(self._instant)
            if has(PARTITION_STATS, self._storage):
                kept = replace(kept, shows=(*self._shown(timeline, stats), *(stat.path or "" for stat in stats)))
            kept.commit(self._instant, metadata, timeline)
        self._storage.put_if_absent(layout.timeline(done.file_name), metadata.to_bytes())

    def _shown(self, timeline: Timeline, stats: Sequence[WriteStat]) -> list[str]:
        """The files of a timeline that stay beside its own."""
        gone = {FileGroupId(partition, file_id) for partition, ids in self._replaced.items() for file_id in ids}
        rewritten = {stat.group for stat in stats if DataFile.parse(stat.path or "")}
        files = [file for file in self._slices_at(timeline).files if file.group not in gone | rewritten]
        return [key for file in files for key in (file.key, *(log.key for log in file.logs))]

    def _roll_back_others(self) -> None:
        """Under the lock: roll back what is pending and, unless eager, no longer has a heartbeat."""
        timeline = read_timeline(self._storage)
        if not timeline.pending:
            return
        beats = {item.key.rpartition("/")[2]: item.modified_ms for item in self._storage.list(layout.HEARTBEATS)}
        now_ms = StorageClock.measure(self._storage, self._table.runtime).now_ms(self._table.runtime)
        for instant in timeline.pending:
            beat_ms = beats.get(instant.requested)
            dead = beat_ms is not None and now_ms - beat_ms > DEAD_AFTER_S * 1000
            if (self._write.eager or dead) and not self._is_complete(timeline, instant):
                roll_back(self._table, instant.requested, Action(instant.action))

    def _is_complete(self, timeline: Timeline, instant: Instant) -> bool:
        return timeline.state_of(instant.requested) is Progress.COMPLETED


def _kept_metadata(table: OpenTable) -> AsJava | None:
    """The metadata table; no request where there is none."""
    assert isinstance(table.storage, SimStorage)
    found = AsJava.look(table, table.properties()) if has_metadata_table(table.storage) else None
    assert found is None or isinstance(found, AsJava)
    return found


def roll_back(table: OpenTable, target: str, action: Action) -> None:
    """Roll an instant back as Java does: plan, data files, pending files, markers, result; the lock is held."""
    storage = table.storage
    found: dict[str, tuple[str, ...]] = {}
    for marker in sorted(listed(storage, target).markers):
        found[marker.partition] = (*found.get(marker.partition, ()), marker.file_name)
    instant = later_than(table.runtime.now_ms(), read_timeline(storage).newest_time)
    requested = Instant(instant, Action.ROLLBACK.value, Progress.REQUESTED)
    storage.put(layout.timeline(requested.file_name), RollbackPlan(target, action.value, found).to_bytes())
    storage.delete([layout.in_partition(partition, name) for partition, names in found.items() for name in names])
    kept = _kept_metadata(table)
    if kept is not None:
        kept.withdraw(target)
    storage.delete([inflight_key(target, action)])
    storage.delete([requested_key(target, action)])
    storage.delete([*listed(storage, target).keys, layout.heartbeat(target)])
    completion = later_than(table.runtime.now_ms(), instant)
    done = Instant(instant, Action.ROLLBACK.value, Progress.COMPLETED, completion)
    storage.put(layout.timeline(done.file_name), RollbackMetadata(instant, 1, target, action.value, found).to_bytes())
