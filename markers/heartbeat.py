"""A writer's sign of life: a file whose age every other writer, Java Hudi included, can judge.

Java looks at the file's modification time only; the content says who writes, for lakelock's messages and its collector.
The owner judges itself by its own monotonic clock, counted from the start of the last write that succeeded, so it gives
up no later than others can take it for dead, and once it has given up it stays dead.

If no process of a job lives as long as its transaction, its tasks keep up a shared heartbeat together. Thousands of tasks that
all wrote one object would be throttled, or refused for writing it at the same moment. So each task checks the heartbeat at
times of its own, and beats only if no other task has since its last check. The first task to beat goes on, the others see its
beats, and one of them takes over when it ends. A task that ends before its first check compares the heartbeat's age with an
object that it wrote itself, by the storage's clock. A heartbeat that was deleted is never put again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace

from lakelock.clock import Repeating, Runtime
from lakelock.errors import LakelockError, RolledBackError, StorageUnavailable
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.storage import Created, Storage, Stored, create
from lakelock.table import layout

FORMAT = 1
START_ATTEMPTS = 3
_MOST_SHOWN = 200
LOST = "lost"
"""In place of its `write_id` in a heartbeat that a process of its own job has found too old: no other goes on with it."""


@dataclass(frozen=True)
class HeartbeatRecord:
    """What a heartbeat file says about its transaction.

    `first` is at most the head of the decision log that the transaction noted before its instant existed: no later decision
    may be collected while it lives. `write_id` distinguishes this heartbeat from any other of the same writer.
    """

    instant: str
    writer: WriterIdentity
    operation: str
    first: int
    interval_s: float
    tolerable_misses: int
    write_id: str = ""

    @property
    def limit_s(self) -> float:
        """The age at which the writer is dead."""
        return self.interval_s * self.tolerable_misses

    def to_bytes(self) -> bytes:
        fields = {**self.__dict__, "writer": self.writer.as_dict()}
        return json.dumps({"format": FORMAT, **fields}, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> HeartbeatRecord | None:
        """The record, None for a file that another engine wrote (Java's are empty) or that cannot be read."""
        try:
            found = JsonObject.parse(data)
            return cls(
                instant=found.text("instant"),
                writer=WriterIdentity.from_dict(found.child("writer").fields),
                operation=found.text("operation"),
                first=found.integer("first", at_least=0),
                interval_s=found.number("interval_s"),
                tolerable_misses=found.integer("tolerable_misses"),
                write_id=found.text("write_id", ""),
            )
        except ValueError:
            return None


def mark_lost(storage: Storage, record: HeartbeatRecord, beat: Stored) -> None:
    """Mark a heartbeat that was too old before its last beat: otherwise it would look alive while others roll back."""
    with suppress(StorageUnavailable):
        storage.put_if_match(layout.heartbeat(record.instant), replace(record, write_id=LOST).to_bytes(), beat.etag)


class Heartbeat:
    """The running heartbeat of one transaction; made by `start`."""

    def __init__(self, storage: Storage, record: HeartbeatRecord, runtime: Runtime, began_s: float, key: str = "") -> None:
        """`key`: where it beats, if not where the heartbeats of transactions are."""
        self.record = record
        self.key = key or layout.heartbeat(record.instant)
        self._storage, self._runtime = storage, runtime
        self._data = record.to_bytes()
        self._pid = os.getpid()
        self._beat_s = began_s
        self._died = self._stopped = False
        self._problem = ""
        self._repeating: Repeating | None = None

    @classmethod
    def start(cls, storage: Storage, record: HeartbeatRecord, runtime: Runtime, *, key: str = "") -> Heartbeat | None:
        """Create the file and keep it fresh in the background; None when the instant is another's.

        Call it before the requested file exists: an instant of ours is never seen without a heartbeat.
        `key`: the file, if it is not the heartbeat of a transaction.
        """
        record = record if record.write_id else replace(record, write_id=runtime.uuid())
        data = record.to_bytes()
        # The same bytes again after a lost reply: whichever of the attempts lands, it is this one heartbeat, which may be as
        # old as the first of them.
        began_s = runtime.monotonic_s()
        for _ in range(START_ATTEMPTS):
            made = create(storage, key or layout.heartbeat(record.instant), data, durable=False)
            if made is Created.THEIRS:
                return None
            if made is Created.OURS:
                heartbeat = cls(storage, record, runtime, began_s, key)
                try:
                    return heartbeat._run()
                except BaseException:  # no thread could be started: it would never beat
                    heartbeat.stop(delete=True)
                    raise
        raise StorageUnavailable(
            f"no answer whether the heartbeat of {record.instant} was created",
            hint="run the operation again when storage answers",
        )

    @classmethod
    def resume(cls, storage: Storage, record: HeartbeatRecord, runtime: Runtime) -> Heartbeat | None:
        """Go on beating for a transaction that another process of the same job began; None when it is lost.

        Lost means that the file is gone, or that by the storage's own clock it went without a beat for too long. That stays so:
        the beat by which this measures is taken back, or the next process of the job would find it fresh.
        """
        key, data = layout.heartbeat(record.instant), record.to_bytes()
        began_s = runtime.monotonic_s()
        before = storage.get(key)
        if before is None or before.data != data:
            return None
        # Refused when a task of the same transaction beat in between, or a reaper removed it: the second look tells. That both
        # beat at one moment may also come as no answer.
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                storage.put_if_match(key, data, before.etag)
                break
            except StorageUnavailable:
                if attempt == START_ATTEMPTS:
                    raise
        after = storage.get(key)
        if after is None or after.data != data:
            return None
        if after.modified_ms - before.modified_ms >= record.limit_s * 1000:
            mark_lost(storage, record, after)
            return None
        return cls(storage, record, runtime, began_s)._run()

    @property
    def period_s(self) -> float:
        """The time between two beats: a quarter of the limit, so that two lost beats in a row do not kill the writer."""
        return min(self.record.interval_s, self.record.limit_s / 4)

    def _run(self) -> Heartbeat:
        self._repeating = self._runtime.every(self.period_s, self._beat, name=f"heartbeat-{self.record.instant}")
        return self

    def alive(self) -> bool:
        """False for ever once the last beat is too old, or in a process that merely inherited this object by a fork."""
        if self.age_s() >= self.record.limit_s:
            self._died = True
        return not self._died and self._is_mine()

    def age_s(self) -> float:
        """Seconds since the start of the last beat that succeeded."""
        return self._runtime.monotonic_s() - self._beat_s

    def ensure_alive(self) -> None:
        """Raise `RolledBackError` once others may take this writer for dead: they may already be removing its files."""
        if self.alive():
            return
        why = f": {self._problem}" if self._problem else "; this process was paused, or its storage did not answer"
        raise RolledBackError(
            f"{self.record.instant}: no heartbeat for {self.age_s():.1f} s ({self.record.limit_s:g} s allowed){why}",
            hint="run the operation again; where long pauses are normal, raise heartbeat.tolerable_misses",
            instant=self.record.instant,
        )

    def stop(self, *, delete: bool) -> None:
        """Stop beating; with `delete`, remove the file. May be called twice.

        On return no beat is under way, so the file does not come back. One that cannot be deleted goes stale and is removed by
        the next writer that reaps, hence no error.
        """
        self._stopped = True
        if not self._is_mine():
            return
        if self._repeating is not None:
            self._repeating.stop()
        if delete:
            try:
                self._storage.delete([self.key])
            except LakelockError as error:
                self._problem = error.message

    def _beat(self) -> None:
        if self._stopped or not self.alive():
            return
        began_s = self._runtime.monotonic_s()
        try:
            self._storage.put(self.key, self._data)
        except Exception as error:  # noqa: BLE001  one that escapes would end the beats in silence
            self._problem = _said(error)
            return
        # A beat that took too long does not bring the writer back: others may have judged the old one meanwhile.
        if self.alive():
            self._beat_s, self._problem = began_s, ""

    def _is_mine(self) -> bool:
        return os.getpid() == self._pid


def _said(error: Exception) -> str:
    """What went wrong with a beat; not only storage may, but its driver, too."""
    return error.message if isinstance(error, LakelockError) else f"{type(error).__name__}: {error}"[:_MOST_SHOWN]


FIRST_CHECKS = 32
"""The first looks of all tasks are spread over this part of the limit."""
CHECK_MOMENTS = 16
"""How many times a task may wake up in that time: its first look comes at one of so many moments, or between two."""


class SharedHeartbeat(Heartbeat):
    """A task's part in its job's heartbeat; made by `join`. Alive as a `Heartbeat` is, whichever task beats."""

    def __init__(self, storage: Storage, record: HeartbeatRecord, runtime: Runtime, began_s: float, found: Stored) -> None:
        super().__init__(storage, record, runtime, began_s)
        self._seen_ms, self._looked_s, self._due_s = found.modified_ms, began_s, began_s
        self._spread_s = record.limit_s / FIRST_CHECKS

    @classmethod
    def join(cls, storage: Storage, record: HeartbeatRecord, runtime: Runtime) -> SharedHeartbeat | None:
        """Help to keep up the heartbeat of the transaction; None when it is lost. One request."""
        began_s = runtime.monotonic_s()
        found = storage.get(layout.heartbeat(record.instant))
        if found is None or found.data != record.to_bytes():
            return None
        shared = cls(storage, record, runtime, began_s, found)
        tick_s = shared._spread_s * max(runtime.random(), 1 / CHECK_MOMENTS)
        shared._repeating = runtime.every(tick_s, shared._beat, name=f"shared-heartbeat-{record.instant}")
        return shared

    def wrote(self, beat: Stored, at_ms: int) -> None:
        """At the end of a task: beat if `beat`, the heartbeat as it was just read, is old at the storage's time `at_ms`.

        `at_ms` is when the storage says that the task wrote something: no later than now.
        """
        if at_ms - beat.modified_ms >= self.period_s * 1000:
            # A task whose beat came second, or got no answer, has done its work all the same: the commit checks the heartbeat.
            with suppress(LakelockError):
                self._storage.put_if_match(self.key, self._data, beat.etag)

    def _beat(self) -> None:
        now_s = self._runtime.monotonic_s()
        if self._stopped or now_s < self._due_s or not self.alive():
            return
        # If another task has beaten since the last look, it did so no earlier than that look began.
        since_s, beaten = self._looked_s, None
        try:
            found = self._storage.get(self.key)
            if found is not None and found.modified_ms == self._seen_ms:
                since_s = self._runtime.monotonic_s()
                beaten = self._storage.put_if_match(self.key, self._data, found.etag)
                found = self._storage.get(self.key)
        except Exception as error:  # noqa: BLE001  one that escapes would end the beats in silence
            # No answer, refused or throttled, perhaps because others beat at this moment: the next look tells.
            self._problem, self._due_s = _said(error), now_s + self._spread_s
            return
        if found is None or found.data != self._data:
            self._problem, self._died = "it was removed, as the transaction has ended or was rolled back", True
        elif found.modified_ms - self._seen_ms >= self.record.limit_s * 1000:
            mark_lost(self._storage, self.record, found)
            self._problem, self._died = "by the storage's clock it has been silent for too long", True
        elif (beaten is not None or found.modified_ms != self._seen_ms) and self.alive():
            self._beat_s, self._problem = max(self._beat_s, since_s), ""
        if found is not None:
            self._seen_ms, self._looked_s, self._due_s = found.modified_ms, now_s, now_s + self.period_s
