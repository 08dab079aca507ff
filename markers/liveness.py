"""Who is still alive: judged by the age of heartbeat files, as Java Hudi does, but with one clock only.

Both ends of every age are times that the storage stamped on objects, so no two machines' clocks are ever compared. Every
doubt (a rounded time stamp, a late answer, a reference that is a little old) makes an age smaller, never greater.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from lakelock.clock import Runtime
from lakelock.errors import StorageUnavailable
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.settings import HeartbeatSettings
from lakelock.storage import Listed, Storage
from lakelock.storage.location import TableIO
from lakelock.table import layout
from lakelock.table.instants import Instant, is_instant_time
from lakelock.texts import StrEnum

CLOCK_GRAIN_MS = 1_000
"""Object stores round modification times to the second."""


def is_too_old(age_ms: float, limit_s: float) -> bool:
    """Whether a heartbeat of this age, by the storage's clock, is that of a dead owner, who gives up after `limit_s`."""
    return age_ms > limit_s * 1000 + CLOCK_GRAIN_MS


class LivenessState(StrEnum):
    """DEAD is proven and stays so. MISSING: there is no heartbeat, but the instant is too young for that to prove anything."""

    ALIVE = "alive"
    DEAD = "dead"
    MISSING = "missing"


@dataclass(frozen=True)
class Liveness:
    """What is known about one instant's writer. `evidence` says it in words; `record` is None for other engines' heartbeats.

    `is_foreign`: another engine's, because its heartbeat is empty or missing; known even if the record is not read.
    `patience`: the multiple of the limit for which it is left to that engine. Java Hudi mostly rolls back without the lock,
    and its commit fails if another was faster.
    """

    state: LivenessState
    age_s: float
    limit_s: float
    evidence: str
    record: HeartbeatRecord | None = None
    is_foreign: bool = False
    patience: int = 1

    @property
    def is_mine_to_reap(self) -> bool:
        """Whether its writer is dead, and, if it is another engine's, for so long that that engine has had its turn."""
        return self.state is LivenessState.DEAD and self.age_s > self.patience * self.limit_s

    @property
    def left_to_its_engine_s(self) -> float:
        """For how long a dead writer is still left to its own engine."""
        return max(0.0, self.patience * self.limit_s - self.age_s) if self.state is LivenessState.DEAD else 0.0


def who_removes(left_s: Iterable[float]) -> str:
    """Who removes the leftovers of dead writers, in words: `left_s` says for how long each is left to its own engine."""
    theirs = [seconds for seconds in left_s if seconds]
    but = f", but leaves {len(theirs)} of another engine to that engine for another {max(theirs):.0f} s" if theirs else ""
    return f"the next writer removes the leftovers{but}"


@dataclass(frozen=True)
class StorageClock:
    """The storage's time, read from an object just written and carried on by this process's monotonic clock."""

    stamped_ms: int
    read_at_s: float

    @classmethod
    def measure(cls, storage: Storage, runtime: Runtime) -> StorageClock:
        """Read the clock: one object is written, read and deleted."""
        key = layout.probe(runtime.uuid())
        storage.put(key, b"what time is it")
        read_at_s = runtime.monotonic_s()
        try:
            stored = storage.get(key)
        finally:
            storage.delete([key])
        if stored is None:
            raise StorageUnavailable(
                f"{storage.uri}: an object that was just written is missing: {key}",
                hint="run again; if it persists, this storage is not consistent enough for lakelock",
            )
        return cls(stored.modified_ms, read_at_s)

    def now_ms(self, runtime: Runtime) -> int:
        """The storage's time now, or a little earlier."""
        return self.stamped_ms + int((runtime.monotonic_s() - self.read_at_s) * 1000)


def judge(
    beats: Iterable[Listed], now_ms: int, settings: HeartbeatSettings, records: Mapping[str, HeartbeatRecord]
) -> dict[str, Liveness]:
    """Judge heartbeat files by their age at the storage time `now_ms`, by instant.

    A record in a file sets its own limit, by which its owner gives up; for the others `settings` set it, as in Java.
    """
    judged = {}
    for beat in beats:
        instant = beat.key.rpartition("/")[2]
        if not is_instant_time(instant):
            continue
        record = records.get(instant)
        limit_s = record.limit_s if record else settings.limit_s
        age_ms = max(0, now_ms - beat.modified_ms)
        dead = is_too_old(age_ms, limit_s)
        evidence = f"its heartbeat is {age_ms / 1000:.0f} s old, {limit_s:g} s are allowed"
        state = LivenessState.DEAD if dead else LivenessState.ALIVE
        is_foreign = not beat.size_bytes
        patience = settings.foreign_patience if is_foreign else 1
        judged[instant] = Liveness(state, age_ms / 1000, limit_s, evidence, record, is_foreign, patience)
    return judged


def judge_missing(requested_ms: int, now_ms: int, settings: HeartbeatSettings) -> Liveness:
    """Judge a pending instant that has no heartbeat; `requested_ms` is the storage time of its timeline file.

    lakelock creates the heartbeat first and removes it last, so this is another engine's: one that has stopped, or one that
    has not created it yet.
    """
    limit_s = settings.limit_s
    age_ms = max(0, now_ms - requested_ms)
    dead = is_too_old(age_ms, limit_s)
    evidence = f"it has no heartbeat and was requested {age_ms / 1000:.0f} s ago, {limit_s:g} s are allowed"
    state = LivenessState.DEAD if dead else LivenessState.MISSING
    return Liveness(state, age_ms / 1000, limit_s, evidence, is_foreign=True, patience=settings.foreign_patience)


def judge_all(
    io: TableIO, settings: HeartbeatSettings, pending: Collection[Instant], *, own: str = "", read_alive: bool = True
) -> dict[str, Liveness]:
    """Judge every heartbeat there is and every pending instant that has none, by instant.

    `own` is the judge's own running instant: its heartbeat tells the time, so nothing has to be written for that.
    Without `read_alive` only the records of suspects are read, so the cost does not grow with the number of live writers; then
    `settings`, not its own limit, says whether a writer is a suspect.
    """
    storage, runtime = io.storage, io.runtime
    beats = _listed(storage)
    missing = [instant for instant in pending if instant.requested not in beats]
    if not missing and beats.keys() <= ({own} if own else set()):
        return {}
    if own in beats:
        now_ms = beats[own].modified_ms
    else:
        # Owners may have beaten between the first listing and the clock: what is listed after it is at least as old.
        now_ms, beats = StorageClock.measure(storage, runtime).now_ms(runtime), _listed(storage)
        missing = [instant for instant in pending if instant.requested not in beats]
    at_first_sight = judge(beats.values(), now_ms, settings, {})
    wanted = [
        instant
        for instant, liveness in at_first_sight.items()
        if beats[instant].size_bytes and (read_alive or liveness.state is LivenessState.DEAD)
    ]
    stored = io.gather([partial(storage.get, layout.heartbeat(i)) for i in wanted])
    read = {instant: HeartbeatRecord.from_bytes(found.data) for instant, found in zip(wanted, stored, strict=True) if found}
    judged = judge(beats.values(), now_ms, settings, {instant: record for instant, record in read.items() if record})
    reads = [partial(storage.get, layout.timeline(instant.file_name)) for instant in missing]
    for instant, requested in zip(missing, io.gather(reads), strict=True):
        if requested is not None:
            judged[instant.requested] = judge_missing(requested.modified_ms, now_ms, settings)
    return judged


def _listed(storage: Storage) -> dict[str, Listed]:
    """The heartbeats by their instants."""
    return {beat.key.rpartition("/")[2]: beat for beat in storage.list(layout.HEARTBEATS)}
