"""Writers that know nothing of lakelock but follow Hudi's rules: the same lock, the timeline, heartbeats, file-group conflicts.

`eager` ones also roll back whatever they find pending, as Java Hudi does with `hoodie.clean.failed.writes.policy=EAGER`; the
others only what has no heartbeat any more. Safety next to them is what Hudi gives: it holds while the lock holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from lakelock.errors import LakelockError, RolledBackError
from lakelock.markers.direct import listed, place
from lakelock.markers.liveness import StorageClock
from lakelock.markers.names import MarkerKind
from lakelock.occ.baseline import inflight_key, requested_key
from lakelock.occ.committed import Committed
from lakelock.occ.conflicts.footprint import files_of
from lakelock.occ.open_table import OpenTable
from lakelock.simulator.checks import FOREIGN_TAG
from lakelock.simulator.engine import Engine
from lakelock.simulator.operations import Operation
from lakelock.simulator.rows import Row, partition_of, rows_of
from lakelock.simulator.storage import SimStorage
from lakelock.table import layout
from lakelock.table.commit_metadata import CommitMetadata, WriteStat
from lakelock.table.instants import Action, Instant, State, later_than
from lakelock.table.services import RollbackMetadata, RollbackPlan
from lakelock.table.snapshot import DataFile, read_snapshot
from lakelock.table.timeline import Timeline, read_timeline

DEAD_AFTER_S = 4.0
SHOWN_WITHIN_S = 0.4
LOOKS_WITHIN_S = 1.0


@dataclass(frozen=True)
class ForeignWrite(Operation):
    """Insert rows into new file groups, and with `bumps` add one to every value in one existing group."""

    rows: tuple[Row, ...]
    bumps: bool = False
    eager: bool = False

    def run(self, engine: Engine) -> Committed | None:
        _Foreign(engine, self).commit()
        return None

    @property
    def serial(self) -> bool:
        return False


class _Foreign:
    """One foreign transaction."""

    def __init__(self, engine: Engine, write: ForeignWrite) -> None:
        table, self._encode = engine.coordinator.table, engine.encode
        self._table, self._write, self._storage = table, write, table.storage
        with table.locked():
            self._roll_back_others()
            self._instant = self._new_instant(read_timeline(self._storage).newest_time)
        self._heartbeat = layout.heartbeat(self._instant)
        self._storage.put(self._heartbeat, b"")
        self._beating = table.runtime.every(1.0, self._beat, name="foreign-heartbeat")

    def _new_instant(self, newest: str) -> str:
        for _ in range(10):
            newest = later_than(self._table.runtime.now_ms(), newest)
            # As Java Hudi, which lets the greatest expected difference of clocks pass before anybody sees its time.
            self._table.runtime.sleep(SHOWN_WITHIN_S * self._table.runtime.random())
            if self._was_used(newest):
                continue
            if self._storage.put_if_absent(requested_key(newest, Action.COMMIT), b"") is not None:
                if len([i for i in read_timeline(self._storage).instants if i.requested == newest]) == 1:
                    return newest
                self._storage.delete([requested_key(newest, Action.COMMIT)])
        raise RolledBackError("no instant to be had", hint="run again")

    def _was_used(self, instant: str) -> bool:
        """Whether a transaction has had this time, or has tried to take it. Assumed of Hudi's clocks, so no request is made."""
        storage = self._table.storage
        assert isinstance(storage, SimStorage)
        requested = [requested_key(instant, action) for action in (Action.COMMIT, Action.REPLACE_COMMIT)]
        return any(storage.has_had(key) for key in (layout.heartbeat(instant), *requested))

    def commit(self) -> None:
        try:
            # As Java Hudi: only now, without the lock, it looks at what its write builds on.
            self._table.runtime.sleep(LOOKS_WITHIN_S * self._table.runtime.random())
            stats = self._stats(read_timeline(self._storage))
            with self._table.locked():
                self._publish(stats)
        except LakelockError:
            self._beating.stop()
            with suppress(LakelockError), self._table.locked():
                if read_timeline(self._storage).state_of(self._instant) is not State.COMPLETED:
                    roll_back(self._table, self._instant, Action.COMMIT)
            raise
        self._beating.stop()
        with suppress(LakelockError):
            self._storage.delete([*listed(self._storage, self._instant).keys, self._heartbeat])

    def _beat(self) -> None:
        with suppress(LakelockError):
            self._storage.put(self._heartbeat, b"")

    def _stats(self, baseline: Timeline) -> list[WriteStat]:
        self._baseline = baseline
        self._storage.put(inflight_key(self._instant, Action.COMMIT), b"")
        stats = [self._new_file(row) for row in self._write.rows]
        files = read_snapshot(self._storage, self._baseline).files if self._write.bumps else ()
        if files:
            stats.append(self._bumped(files))
        return stats

    def _new_file(self, row: Row) -> WriteStat:
        partition = partition_of(row.part)
        file = DataFile(partition, f"{self._table.runtime.uuid()}-0", "0-9-9", self._instant)
        size = self._put(file, MarkerKind.CREATE, [row])
        return WriteStat(file.file_id, file.key, partition_path=partition, num_writes=1, num_inserts=1, file_size_bytes=size)

    def _bumped(self, files: Sequence[DataFile]) -> WriteStat:
        base = files[int(self._table.runtime.random() * len(files))]
        with self._storage.open_input(base.key) as opened:
            rows = [row._replace(value=row.value + 1) for row in rows_of(base.key, opened.read())]
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
        for other in timeline.commits:
            if other.requested in self._baseline.completed_instants:
                continue
            stored = self._storage.get(layout.timeline(other.file_name))
            theirs = CommitMetadata.from_bytes(stored.data if stored else b"{}", other.file_name)
            if mine & (set(files_of(theirs)) | theirs.replaced_groups):
                raise RolledBackError(f"{self._instant} overlaps with {other.requested}", hint="run again")
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            by_partition[stat.partition_path or ""] = (*by_partition.get(stat.partition_path or "", ()), stat)
        extra = {FOREIGN_TAG: self._write.tag, "schema": ""}
        metadata = CommitMetadata(by_partition, "UPSERT", extra, None)
        completion = later_than(self._table.runtime.now_ms(), timeline.newest_time)
        done = Instant(self._instant, Action.COMMIT.value, State.COMPLETED, completion)
        self._storage.put_if_absent(layout.timeline(done.file_name), metadata.to_bytes())

    def _roll_back_others(self) -> None:
        """Under the lock: what is pending and, unless eager, has no heartbeat any more."""
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
        return timeline.state_of(instant.requested) is State.COMPLETED


def roll_back(table: OpenTable, target: str, action: Action) -> None:
    """Roll an instant back as Java does: plan, data files, pending files, markers, result; the lock is held."""
    storage = table.storage
    found: dict[str, tuple[str, ...]] = {}
    for marker in sorted(listed(storage, target).markers):
        found[marker.partition] = (*found.get(marker.partition, ()), marker.file_name)
    instant = later_than(table.runtime.now_ms(), read_timeline(storage).newest_time)
    requested = Instant(instant, Action.ROLLBACK.value, State.REQUESTED)
    storage.put(layout.timeline(requested.file_name), RollbackPlan(target, action.value, found).to_bytes())
    storage.delete([layout.in_partition(partition, name) for partition, names in found.items() for name in names])
    storage.delete([inflight_key(target, action)])
    storage.delete([requested_key(target, action)])
    storage.delete([*listed(storage, target).keys, layout.heartbeat(target)])
    completion = later_than(table.runtime.now_ms(), instant)
    done = Instant(instant, Action.ROLLBACK.value, State.COMPLETED, completion)
    storage.put(layout.timeline(done.file_name), RollbackMetadata(instant, 1, target, action.value, found).to_bytes())
