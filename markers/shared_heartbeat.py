"""A heartbeat that the tasks of one job keep up together, where no process of the job lives as long as its transaction.

Thousands of tasks that all wrote one object would be throttled, or refused for writing it at the same moment. So each task
checks it now and then, at times of its own, and beats if nobody has since its last check. The first task to find that keeps
beating, the others see its beats, and one of them takes over when it ends. A task that ends before its first check compares
the heartbeat with what it wrote itself, by the storage's clock. Nothing brings back a heartbeat that was removed.
"""

from __future__ import annotations

from contextlib import suppress

from lakelock.clock import Runtime
from lakelock.errors import LakelockError
from lakelock.markers.heartbeat import Heartbeat, HeartbeatRecord, mark_lost
from lakelock.storage import Storage, Stored
from lakelock.table import layout

FIRST_LOOKS = 32
"""The first looks of all tasks are spread over this part of the limit."""
TICKS = 16
"""How many times a task may wake up in that time: its first look comes at one of so many moments, or between two."""


class SharedHeartbeat(Heartbeat):
    """A task's part in its job's heartbeat; made by `join`. Alive as a `Heartbeat` is, whichever task beats."""

    def __init__(self, storage: Storage, record: HeartbeatRecord, runtime: Runtime, began_s: float, found: Stored) -> None:
        super().__init__(storage, record, runtime, began_s)
        self._seen_ms, self._looked_s, self._due_s = found.modified_ms, began_s, began_s
        self._spread_s = record.limit_s / FIRST_LOOKS

    @classmethod
    def join(cls, storage: Storage, record: HeartbeatRecord, runtime: Runtime) -> SharedHeartbeat | None:
        """Help to keep up the heartbeat of the transaction; None when it is lost. One request."""
        began_s = runtime.monotonic_s()
        found = storage.get(layout.heartbeat(record.instant))
        if found is None or found.data != record.to_bytes():
            return None
        shared = cls(storage, record, runtime, began_s, found)
        tick_s = shared._spread_s * max(runtime.random(), 1 / TICKS)
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
        # A beat that the last look did not see came after that look began.
        since_s, beaten = self._looked_s, None
        try:
            found = self._storage.get(self.key)
            if found is not None and found.modified_ms == self._seen_ms:
                since_s = self._runtime.monotonic_s()
                beaten = self._storage.put_if_match(self.key, self._data, found.etag)
                found = self._storage.get(self.key)
        except LakelockError as error:
            # No answer, refused or throttled, perhaps because others beat at this moment: the next look tells.
            self._problem, self._due_s = error.message, now_s + self._spread_s
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
