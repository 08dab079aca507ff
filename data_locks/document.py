"""Data locks as one document changed by compare-and-swap, for services that have no shared locks of their own.

Each request is one write, however many partitions it names, and each grant happens in the write that made it possible.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakelock.data_locks.base import DataLease, DataLocks, LockedData, timeout
from lakelock.data_locks.lock_table import Entry, LockTable
from lakelock.data_locks.register import Ear, Register
from lakelock.data_locks.request import LockRequest
from lakelock.data_locks.watch import Watch
from lakelock.errors import CorruptTableError, LakelockError, LockError, ProviderUnavailable, StorageUnavailable
from lakelock.events import Event, EventKind
from lakelock.providers.base import Lease, Opening
from lakelock.providers.polling import NO_ANSWER

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.6
_GROWING_PAUSES = 30
_LONGEST_SWAP_PAUSE_S = 0.05
_SWAPS = 200
_RELEASE_ATTEMPTS = 3


@dataclass
class _Waiting:
    """One `acquire`. `sent`: when the write that made a version of my entry was about to be sent."""

    entry: Entry
    watch: Watch
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    blockers: tuple[LockedData, ...] = ()
    looks: int = 0
    ear: Ear | None = None

    def go_deaf(self) -> None:
        ear, self.ear = self.ear, None
        if ear is not None:
            ear.close()


class DocumentDataLocks(DataLocks):
    """The lock table of one table in a register."""

    def __init__(self, opening: Opening, register: Register) -> None:
        self.table = opening.storage.uri
        self._runtime, self._writer, self._events = opening.runtime, opening.writer, opening.events
        self._settings, self._register = opening.settings.data_locks, register
        self._held: dict[str, DataLease] = {}
        self._pid = os.getpid()

    @property
    def identity(self) -> str:
        return self._register.identity

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        self._notice_fork()
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        began_s, now_ms = self._runtime.monotonic_s(), self._runtime.now_ms()
        entry = Entry(self._runtime.uuid(), request, self._writer, self._settings.lease_s, now_ms)
        waiting = _Waiting(entry, Watch(self._runtime))
        try:
            lease = self._wait(waiting, began_s, wait_s)
        except BaseException:
            with suppress(LakelockError):
                self._leave(entry.grant)
            raise
        finally:
            waiting.go_deaf()
        self._held[lease.grant] = lease
        return lease

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        began_s = self._runtime.monotonic_s()
        table = self._update(lambda table: table.renewed(lease.grant))
        if table.find(lease.grant) is None:
            lease.lose("taken-over", "another writer took it for dead, or an operator broke it")
            lease.ensure_not_lost()
        lease.extend(began_s)
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here or self._held.pop(lease.grant, None) is None:
            return
        try:
            self._leave(lease.grant)
        except NO_ANSWER as error:
            problem = f"data locks were not given back; others wait up to {lease.lease_s:g} s: {error.message}"
            self._events.emit(Event(EventKind.ALERT, self.table, facts={"problem": problem}))
        finally:
            lease.lose("released")

    def inspect(self) -> tuple[LockedData, ...]:
        version = self._register.read()
        table = LockTable.from_bytes(version.data) if version else LockTable()
        return tuple(_shown(table, entry) for entry in table.entries)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        """As promised; token 0 with `force` clears everything, also a document that cannot be read."""
        if token == 0 and force:
            return self._clear()
        entry = self._by_token(token)
        if entry is None:
            return None
        if not force:
            self._watch_until_over(entry)
        self._leave(entry.grant)
        return None

    def close(self) -> None:
        for lease in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        self._register.close()

    def _wait(self, waiting: _Waiting, began_s: float, wait_s: float) -> DataLease:
        failure: LakelockError | None = None
        told = False
        while True:
            try:
                mine, failure = self._look(waiting), None
                if mine.held:
                    return self._lease(mine, waiting.sent[mine.version])
            except NO_ANSWER as error:
                if error.details.get("final"):
                    raise
                failure = error
            left_s = wait_s - (self._runtime.monotonic_s() - began_s)
            if left_s <= 0:
                break
            if waiting.blockers and not told:
                told = True
                facts = {"holder": "; ".join(map(str, waiting.blockers)), "locks": str(waiting.entry.request)}
                self._events.emit(Event(EventKind.WAITING_FOR_LOCK, self.table, facts=facts))
            self._pause(waiting, left_s)
        if failure is not None:
            raise ProviderUnavailable(
                f"the data locks of {self.table} could not be taken within {wait_s:g} s: {failure.message}", hint=failure.hint
            ) from failure
        raise timeout(self.table, waiting.entry.request, waiting.blockers, wait_s)

    def _look(self, waiting: _Waiting) -> Entry:
        """My entry as it is now: queued if it was not, renewed when due, and without those before it who are dead."""

        def next_table(table: LockTable) -> LockTable:
            grant, now_ms = waiting.entry.grant, self._runtime.now_ms()
            mine = table.find(grant)
            if mine is not None:
                table = table.without(waiting.watch.over(table.blockers(mine)), now_ms)
                if self._runtime.monotonic_s() - waiting.sent.get(mine.version, float("-inf")) >= self._settings.renew_s:
                    table = table.renewed(grant)
            table = table.enqueued(waiting.entry, now_ms)
            mine = table.find(grant)
            assert mine is not None
            # The earliest request that can have made this version counts: its reply may have got lost.
            waiting.sent.setdefault(mine.version, self._runtime.monotonic_s())
            return table

        table = self._update(next_table)
        mine = table.find(waiting.entry.grant)
        assert mine is not None
        blockers = table.blockers(mine)
        waiting.watch.see(blockers)
        waiting.blockers = tuple(_shown(table, blocker) for blocker in blockers)
        return mine

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        """Wait until I am told, where the service can, or else for a pause that grows; never until my entry looks dead."""
        longest_s = min(self._settings.sleep_s, self._settings.renew_s)
        jitter = 0.5 + 0.5 * self._runtime.random()
        if waiting.blockers:
            try:
                if waiting.ear is not None:
                    waiting.ear.wait(min(longest_s * jitter, at_most_s))
                    return
                waiting.ear = self._register.listen(waiting.entry.grant)
                if waiting.ear is not None:  # it may have been my turn before I could hear it: look once more
                    return
            except NO_ANSWER:
                waiting.go_deaf()
        pause_s = min(longest_s, _FIRST_PAUSE_S * _PAUSE_GROWTH ** min(waiting.looks, _GROWING_PAUSES))
        waiting.looks += 1
        self._runtime.sleep(min(pause_s * jitter, at_most_s))

    def _lease(self, entry: Entry, began_s: float) -> DataLease:
        return DataLease(
            self._runtime,
            self._writer,
            entry.request,
            grant=entry.grant,
            token=entry.number,
            lease_s=entry.lease_s,
            began_s=began_s,
        )

    def _update(self, change: Callable[[LockTable], LockTable]) -> LockTable:
        """Apply a change that does no harm when applied twice, and return the table with it."""
        for _ in range(_SWAPS):
            version = self._register.read()
            table = LockTable.from_bytes(version.data) if version else LockTable()
            changed = change(table)
            if changed is table or self._register.swap(changed.to_bytes(), version) is not None:
                self._wake(table, changed)
                return changed
            self._runtime.sleep(_LONGEST_SWAP_PAUSE_S * self._runtime.random())
        raise StorageUnavailable(
            f"the table of data locks of {self.table} keeps changing under our hands", hint="run the operation again"
        )

    def _wake(self, before: LockTable, after: LockTable) -> None:
        """Tell those whose turn has come; who does not hear it finds out by looking."""
        waited = {entry.grant for entry in before.entries if not entry.held}
        granted = [entry.grant for entry in after.entries if entry.held and entry.grant in waited]
        if granted:
            with suppress(*NO_ANSWER):
                self._register.wake(granted)

    def _leave(self, grant: str) -> None:
        for remaining in reversed(range(_RELEASE_ATTEMPTS)):
            try:
                self._update(lambda table: table.without([grant], self._runtime.now_ms()))
                return
            except NO_ANSWER:
                if not remaining:
                    raise

    def _by_token(self, token: int) -> Entry | None:
        version = self._register.read()
        table = LockTable.from_bytes(version.data) if version else LockTable()
        return next((entry for entry in table.entries if entry.number == token), None)

    def _watch_until_over(self, entry: Entry) -> None:
        """Return once the entry has shown no sign of life for its whole lease, or has gone."""
        watch = Watch(self._runtime)
        while not watch.over([entry]):
            watch.see([entry])
            self._runtime.sleep(min(self._settings.sleep_s, entry.lease_s / 10))
            now = self._by_token(entry.number)
            if now is None:
                return
            if now.version != entry.version:
                raise LockError(
                    f"the data locks with token {entry.number} are held by {entry.writer}, who renewed them just now",
                    hint="wait: a dead holder is replaced without your help; to break them all the same, use force",
                    token=entry.number,
                )

    def _clear(self) -> None:
        """Start anew, with tokens above all that ever were."""
        version = self._register.read()
        if version is None:
            return
        try:
            latest = LockTable.from_bytes(version.data).latest
        except CorruptTableError:
            latest = self._runtime.now_ms()
        if self._register.swap(LockTable(latest).to_bytes(), version) is None:
            raise LockError("the data locks changed just now; nothing was broken", hint="look again with `lakelock locks ls`")

    def _notice_fork(self) -> None:
        """A forked process holds nothing and is another writer."""
        if self._pid != os.getpid():
            self._pid, self._held = os.getpid(), {}
            self._writer = replace(self._writer, writer_id=self._runtime.uuid(), pid=self._pid)


def _shown(table: LockTable, entry: Entry) -> LockedData:
    return LockedData(
        token=entry.number,
        owner=entry.grant,
        request=entry.request,
        held=entry.held,
        writer=entry.writer,
        lease_s=entry.lease_s,
        since_ms=entry.since_ms,
        acquired_ms=entry.acquired_ms,
        blocked_by=() if entry.held else tuple(blocker.number for blocker in table.blockers(entry)),
    )
