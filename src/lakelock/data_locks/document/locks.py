"""Data locks as one document changed by compare-and-swap, for services that have no shared locks of their own.

Each request is one write, however many partitions it names, and each grant happens in the write that made it possible.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from lakelock.data_locks.base import DataLease, LockedData
from lakelock.data_locks.document.register import Register, Subscription, Version
from lakelock.data_locks.lock_table import Entry, LockTable
from lakelock.data_locks.polling import PollingDataLocks, Waiting
from lakelock.data_locks.request import LockRequest
from lakelock.data_locks.watch import Watch, watch_s
from lakelock.errors import CorruptTableError, LockError, StorageUnavailable
from lakelock.providers.base import Lease, Opening
from lakelock.providers.lock_client import NO_ANSWER
from lakelock.texts import command

_LONGEST_SWAP_PAUSE_S = 0.05
_SWAPS = 200
_RELEASE_ATTEMPTS = 3


@dataclass
class _Waiting(Waiting):
    """One `acquire`. `sent`: when the write that made a version of my entry was about to be sent."""

    entry: Entry
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    blockers: tuple[LockedData, ...] = ()
    subscription: Subscription | None = None

    def unsubscribe(self) -> None:
        subscription, self.subscription = self.subscription, None
        if subscription is not None:
            subscription.close()


class DocumentDataLocks(PollingDataLocks[_Waiting]):
    """The lock table of one table in a register."""

    def __init__(self, opening: Opening, register: Register) -> None:
        super().__init__(opening)
        self._register, self.lies_in_table = register, register.lies_in_table
        # Kept across requests: a writer that only asks now and then, without waiting, must get past the dead, too.
        self._watch = Watch(opening.runtime)

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return self._register.identity

    def inspect(self) -> tuple[LockedData, ...]:
        _, table = self._read()
        return tuple(_shown(table, entry) for entry in table.entries)

    def break_all(self) -> None:
        self._clear()

    def _break(self, token: int, *, force: bool) -> None:
        entry = self._by_token(token)
        if entry is None:
            return
        if not force:

            def version() -> tuple[int, int] | None:
                now = self._by_token(token)
                return None if now is None else now.version

            self._outwait(token, entry.writer, entry.lease_s, entry.version, version)
        self._remove(entry.grant)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        entry = Entry(grant, request, self.writer, self._settings.lease_s, self.runtime.now_ms())
        return _Waiting(request, grant, until_s, entry)

    def _wait(self, waiting: _Waiting, began_s: float, wait_s: float) -> DataLease:
        try:
            return super()._wait(waiting, began_s, wait_s)
        finally:
            waiting.unsubscribe()

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        """Wait to be notified where the service can notify, otherwise for a growing pause."""
        if waiting.blockers:
            try:
                if waiting.subscription is not None:
                    waiting.subscription.wait(min(self._pause_s(), at_most_s))
                    return
                waiting.subscription = self._register.listen(waiting.grant)
                if waiting.subscription is not None:  # my turn may have come before I was subscribed: look once more
                    return
            except NO_ANSWER:
                waiting.unsubscribe()
        super()._pause(waiting, at_most_s)

    def _look(self, waiting: _Waiting) -> DataLease | None:
        mine = self._my_entry(waiting)
        return self._lease(waiting, mine.number, waiting.sent[mine.version]) if mine.held else None

    def _my_entry(self, waiting: _Waiting) -> Entry:
        """My entry as it is now: queued if it was not, renewed when due, with dead entries before it removed."""

        renew_s = self._settings.renew_s

        def next_table(table: LockTable) -> LockTable:
            grant, now_ms = waiting.entry.grant, self.runtime.now_ms()
            mine = table.find(grant)
            if mine is not None and self.runtime.monotonic_s() - waiting.sent.get(mine.version, float("-inf")) >= renew_s:
                table = table.renewed(grant)
            table = table.enqueued(waiting.entry, now_ms)
            mine = table.find(grant)
            assert mine is not None
            if dead := self._watch.over(table.blockers(mine)):
                table = table.without(dead, now_ms)
                mine = table.find(grant)
                assert mine is not None
            # The earliest request that may have made this version counts: its reply may have been lost.
            waiting.sent.setdefault(mine.version, self.runtime.monotonic_s())
            return table

        table = self._update(next_table)
        mine = table.find(waiting.entry.grant)
        assert mine is not None
        blockers = table.blockers(mine)
        self._watch.see(table.entries)
        waiting.blockers = tuple(_shown(table, blocker) for blocker in blockers)
        return mine

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        return waiting.blockers

    def _read(self) -> tuple[Version | None, LockTable]:
        """The document as it is now, and the table in it: an empty one before its first write."""
        version = self._register.read()
        return version, LockTable.from_bytes(version.data) if version else LockTable()

    def _update(self, change: Callable[[LockTable], LockTable]) -> LockTable:
        """Apply a change that does no harm when applied twice, and return the table with it."""
        for _ in range(_SWAPS):
            version, table = self._read()
            changed = change(table)
            if changed is table or self._register.swap(changed.to_bytes(), version) is not None:
                self._wake(table, changed)
                return changed
            self.runtime.sleep(_LONGEST_SWAP_PAUSE_S * self.runtime.random())
        raise StorageUnavailable(
            f"the data locks of {self.table} changed at each of {_SWAPS} attempts to write them", hint="run the operation again"
        )

    def _wake(self, before: LockTable, after: LockTable) -> None:
        """Notify those whose turn has come; whoever misses it finds out by looking."""
        waited = {entry.grant for entry in before.entries if not entry.held}
        granted = [entry.grant for entry in after.entries if entry.held and entry.grant in waited]
        if granted:
            with suppress(*NO_ANSWER):
                self._register.wake(granted)

    def abandon(self, waiting: _Waiting) -> None:
        self._remove(waiting.grant)

    def _extend(self, lease: Lease) -> str:
        began_s = self.runtime.monotonic_s()
        if self._update(lambda table: table.renewed(lease.grant)).find(lease.grant) is None:
            return "another writer took it for dead, or an operator broke it"
        lease.extend(began_s)
        return ""

    def _disconnect(self) -> None:
        self._register.close()

    def _remove(self, grant: str) -> None:
        for remaining in reversed(range(_RELEASE_ATTEMPTS)):
            try:
                self._update(lambda table: table.without([grant], self.runtime.now_ms()))
                return
            except NO_ANSWER:
                if not remaining:
                    raise

    def _by_token(self, token: int) -> Entry | None:
        _, table = self._read()
        return next((entry for entry in table.entries if entry.number == token), None)

    def _clear(self) -> None:
        """Start over, with tokens above all earlier ones."""
        version = self._register.read()
        if version is None:
            return
        try:
            latest = LockTable.from_bytes(version.data).latest
        except CorruptTableError:
            latest = self.runtime.now_ms()
        if self._register.swap(LockTable(latest).to_bytes(), version) is None:
            raise LockError(
                "the data locks changed just now; nothing was broken",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
            )


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
