"""The data locks of a table: one document next to it, changed by compare-and-swap, whatever its lock service is.

Each request is one write, however many partitions it names, and each grant happens in the write that made it possible. A
request queues up, looks, waits and looks again, within its bound.

Locks on several tables are had all or none, and nothing is held while waiting (`holding_several`). As in Hive, the tables
are asked one by one, in the order of their URIs, and each answers at once. When one refuses, all that was granted is
given back, and after a pause the whole list is asked again. So two statements over the same tables cannot hold each other
up forever, whatever the order in which they name them. For a single table, `DataLocks.acquire` is the better call: it
queues up, first come, first served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace

from lakelock.clock import Runtime
from lakelock.data_locks.base import FIRST_TOKEN, DataLease, LockedData, LockRequest, Mode, lock_request
from lakelock.data_locks.lock_table import Entry, LockTable, Watch, watch_s
from lakelock.errors import CorruptTableError, InputError, LakelockError, LockError, LockTimeout, StorageUnavailable
from lakelock.events import Event, EventKind, Events
from lakelock.identity import WriterIdentity
from lakelock.providers.base import (
    DRIFT_MARGIN_S,
    NO_ANSWER,
    Lease,
    LeaseService,
    LockClient,
    Opening,
    renewing,
    too_short,
)
from lakelock.settings import Settings
from lakelock.settings.sections import DataLockSettings
from lakelock.storage import Storage
from lakelock.table import layout
from lakelock.texts import command

_FIRST_PAUSE_S = 0.02
_PAUSE_GROWTH = 1.6
_GROWING_PAUSES = 30
_LONGEST_SWAP_PAUSE_S = 0.05
_SWAPS = 200
_RELEASE_ATTEMPTS = 3


def open_data_locks(
    settings: Settings, storage: Storage, runtime: Runtime, writer: WriterIdentity, events: Events | None = None
) -> DataLocks:
    return DataLocks(Opening(settings.lock.provider, settings, storage, runtime, writer, events or Events()))


@dataclass
class _Waiting:
    """One `acquire`, and later the lease that it got. `until_s`: when the waiting ends, on the monotonic clock.

    `sent`: when the write that made a version of my entry was about to be sent. `in_doubt`: a request got no answer, and may
    be carried out yet.
    """

    entry: Entry
    until_s: float
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    blockers: tuple[LockedData, ...] = ()
    looks: int = 0
    in_doubt: bool = False


class DataLocks(LockClient, LeaseService):
    """The shared and exclusive locks of one table. A lease is for all locks of a request."""

    what = "the data locks"
    lies_in_table = True
    _held: dict[str, DataLease]

    def __init__(self, opening: Opening) -> None:
        self._settings, self._storage = opening.settings.data_locks, opening.storage
        super().__init__(opening)
        # Kept across requests: a writer that only asks now and then, without waiting, must get past the dead, too.
        self._watch = Watch(opening.runtime)

    @property
    def identity(self) -> str:
        return f"storage:{layout.DATA_LOCKS}"

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        """Take all locks of the request within `wait_s` seconds (None: as configured), or take none and raise `LockTimeout`.

        Nothing is held while it waits. 0 asks once. A grant whose reply was lost is found again; giving up leaves nothing
        behind. Threads of one writer are different writers to each other.
        """
        self._notice_fork()
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        began_s = self.runtime.monotonic_s()
        entry = Entry(self.runtime.uuid(), request, self.writer, self._settings.lease_s, self.runtime.now_ms())
        waiting = _Waiting(entry, began_s + wait_s)
        try:
            lease = self._wait(waiting, began_s, wait_s)
        except BaseException:
            try:
                self.abandon(entry.grant)
            except LakelockError:
                waiting.in_doubt = True
            if waiting.in_doubt:
                self._taking_back.add(lambda: self.abandon(entry.grant), self._settings.lease_s, entry.grant)
            raise
        self._held[lease.grant] = lease
        if self._closed:  # another thread closed them while this one waited
            self.release(lease)
            self._ensure_open()
        return lease

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        began_s = self.runtime.monotonic_s()
        if self._update(lambda table: table.renewed(lease.grant)).find(lease.grant) is None:
            lease.lose("taken-over", "another writer took it for dead, or an operator broke it")
            lease.ensure_not_lost()
        lease.extend(began_s)
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here or self._held.pop(lease.grant, None) is None:
            return
        try:
            self.abandon(lease.grant)
        except LakelockError as error:  # the write that they were for may be committed, and an error would deny it
            self._warn(f"data locks were not given back; others wait up to {lease.lease_s:g} s: {error.message}")
        finally:
            lease.lose("released")

    def close(self) -> None:
        self._closed = True
        for lease in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        self._taking_back.end()

    def inspect(self) -> tuple[LockedData, ...]:
        """Who holds and who waits, in order of arrival."""
        _, table = self._read()
        return tuple(_shown(table, entry) for entry in table.entries)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        """Take the locks of the request with this `token` away, for an operator who knows that its holder is gone.

        Without `force` its lease is watched until it is over, and `LockError` raised as soon as it is renewed. Locks that are
        already gone are no error. `InputError` for a number that is no token.
        """
        if token < FIRST_TOKEN:
            raise InputError(
                f"{token} is not a token of data locks, which count from {FIRST_TOKEN}",
                hint="inspect() tells the tokens; break_all() takes all locks away",
            )
        entry = self._by_token(token)
        if entry is None:
            return
        if not force:
            self._outwait(entry)
        self.abandon(entry.grant)

    def break_all(self) -> None:
        """Take all locks of the table away from their holders and waiters, also what cannot be read: for an operator.

        Leases are not watched. A holder that is alive finds out when it renews, and its commit is checked in any case. Tokens
        stay above all earlier ones.
        """
        found = self._storage.get(layout.DATA_LOCKS)
        if found is None:
            return
        try:
            latest = LockTable.from_bytes(found.data).latest
        except CorruptTableError:
            latest = self.runtime.now_ms()
        if not self._swap(LockTable(latest), found.etag):
            raise LockError(
                "the data locks changed just now; nothing was broken",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
            )

    def _wait(self, waiting: _Waiting, began_s: float, wait_s: float) -> DataLease:
        reported = False

        def pause(left_s: float) -> None:
            nonlocal reported
            if not reported and waiting.blockers:
                reported = True
                holders = "; ".join(map(str, waiting.blockers))
                self._tell(EventKind.WAITING_FOR_LOCK, holder=holders, locks=str(waiting.entry.request))
            self._pause(waiting, left_s)

        def look() -> DataLease | None:
            try:
                return self._look(waiting)
            except NO_ANSWER:
                waiting.in_doubt = True
                raise

        lease = self._wait_for(look, pause, began_s, wait_s)
        if lease is None:
            raise self._timeout(waiting, wait_s)
        return lease

    def _timeout(self, waiting: _Waiting, waited_s: float) -> LockTimeout:
        """The error of a request that was not granted in time; names the holders in its way."""
        blockers = waiting.blockers
        longest_s = max((watch_s(blocker.lease_s) for blocker in blockers), default=0.0)
        who = "; ".join(map(str, blockers[:3])) or "a holder that has left since"
        more = f" and {len(blockers) - 3} more" if len(blockers) > 3 else ""
        return LockTimeout(
            f"data locks of {self.table} ({_short(waiting.entry.request)}) are blocked by {who}{more}; "
            f"gave up after {waited_s:g} s",
            hint=f"`{command('locks', 'ls', self.table)}` shows who blocks whom; "
            "raise data_locks.attempts if they are only slow"
            + too_short(longest_s, waited_s, "data_locks.attempts x data_locks.sleep_s"),
            blocked_by=[blocker.token for blocker in blockers],
            holders=[str(blocker) for blocker in blockers[:20]],
            waited_s=waited_s,
        )

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        """The pauses grow up to the configured one, and are never so long that my own request looks dead; each is different."""
        growing_s = _FIRST_PAUSE_S * _PAUSE_GROWTH ** min(waiting.looks, _GROWING_PAUSES)
        waiting.looks += 1
        pause_s = min(self._settings.sleep_s, self._settings.renew_s, growing_s) * (0.5 + 0.5 * self.runtime.random())
        self.runtime.sleep(min(pause_s, at_most_s))

    def _look(self, waiting: _Waiting) -> DataLease | None:
        """Queue up, or see whether it is my turn: the lease if it is."""
        mine = self._my_entry(waiting)
        if not mine.held:
            return None
        return DataLease(
            self.runtime,
            self.writer,
            mine.request,
            grant=mine.grant,
            token=mine.number,
            lease_s=self._settings.lease_s,
            began_s=waiting.sent[mine.version],
        )

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

    def _read(self) -> tuple[str | None, LockTable]:
        """The document as it is now: its version, and the table in it, an empty one before its first write."""
        found = self._storage.get(layout.DATA_LOCKS)
        return (found.etag, LockTable.from_bytes(found.data)) if found else (None, LockTable())

    def _swap(self, table: LockTable, etag: str | None) -> bool:
        """Replace the version `etag` (None: create); False if it was no longer current."""
        data = table.to_bytes()
        if etag is None:
            return self._storage.put_if_absent(layout.DATA_LOCKS, data) is not None
        return self._storage.put_if_match(layout.DATA_LOCKS, data, etag) is not None

    def _update(self, change: Callable[[LockTable], LockTable]) -> LockTable:
        """Apply a change that does no harm when applied twice, and return the table with it."""
        for _ in range(_SWAPS):
            etag, table = self._read()
            changed = change(table)
            if changed is table or self._swap(changed, etag):
                return changed
            self.runtime.sleep(_LONGEST_SWAP_PAUSE_S * self.runtime.random())
        raise StorageUnavailable(
            f"the data locks of {self.table} changed at each of {_SWAPS} attempts to write them", hint="run the operation again"
        )

    def abandon(self, grant: str) -> None:
        """Take a request out of the queue, held or not; nothing happens if it is not there."""
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

    def _outwait(self, seen: Entry) -> None:
        """Return once a holder has shown no sign of life for its whole lease, or has gone; `LockError` once it renewed."""
        over_s = self.runtime.monotonic_s() + seen.lease_s + DRIFT_MARGIN_S
        while self.runtime.monotonic_s() < over_s:
            self.runtime.sleep(min(self._settings.sleep_s, seen.lease_s / 10))
            now = self._by_token(seen.number)
            if now is None:
                return
            if now.version != seen.version:
                raise LockError(
                    f"the data locks with token {seen.number} are held by {seen.writer}, which renewed them just now",
                    hint="wait: a dead holder is replaced without your help; to break them anyway, use force",
                    token=seen.number,
                )

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._held = {}


def _short(request: LockRequest) -> str:
    leaves = request.leaves
    more = f" and {len(leaves) - 3} more" if len(leaves) > 3 else ""
    return ", ".join(map(str, leaves[:3])) + more


def _shown(table: LockTable, entry: Entry) -> LockedData:
    return LockedData(
        token=entry.number,
        request=entry.request,
        held=entry.held,
        writer=entry.writer,
        lease_s=entry.lease_s,
        since_ms=entry.since_ms,
        acquired_ms=entry.acquired_ms,
        blocked_by=() if entry.held else tuple(blocker.number for blocker in table.blockers(entry)),
    )


@dataclass(frozen=True)
class Wanted:
    """The request for one table; `events` receives this table's events only, `renew_s` overrides that of the whole request."""

    locks: DataLocks
    request: LockRequest
    events: Events | None = None
    renew_s: float | None = None


@contextmanager
def holding_several(wanted: Sequence[Wanted], settings: DataLockSettings, runtime: Runtime) -> Iterator[tuple[DataLease, ...]]:
    """Hold all these locks while the block runs, renewed; the leases are in the order of the tables' URIs.

    `LockTimeout` names the holders in the way when `data_locks.attempts` are used up. Requests for one table become one, and
    so do those for tables that share one lock.
    """
    ordered = one_per_lock(wanted)
    leases = _all_acquired(ordered, settings, runtime)
    with ExitStack() as stack:
        for each, lease in zip(ordered, leases, strict=True):
            stack.callback(each.locks.release, lease)
        for each, lease in zip(ordered, leases, strict=True):
            stack.enter_context(renewing(each.locks, lease, runtime, each.renew_s or settings.renew_s, each.events))
        yield leases


def one_per_lock(wanted: Sequence[Wanted]) -> list[Wanted]:
    """One request per lock, in the order of the tables: two requests of one statement would be in each other's way."""
    if not wanted:
        raise ValueError("there is no table to lock")
    by_lock: dict[str, list[Wanted]] = {}
    for each in sorted(wanted, key=lambda each: each.locks.table):
        by_lock.setdefault(each.locks.lock_name, []).append(each)
    return [_united(found) for found in by_lock.values()]


def _united(found: Sequence[Wanted]) -> Wanted:
    if len(found) == 1:
        return found[0]
    leaves = [lock for each in found for lock in each.request.leaves]
    by_mode = {mode: [lock.resource for lock in leaves if lock.mode is mode] for mode in Mode}
    about = ", ".join(dict.fromkeys(each.request.about for each in found if each.request.about))
    return replace(found[0], request=lock_request(by_mode[Mode.SHARED], by_mode[Mode.EXCLUSIVE], about=about))


def _all_acquired(ordered: Sequence[Wanted], settings: DataLockSettings, runtime: Runtime) -> tuple[DataLease, ...]:
    refusal: LockTimeout | None = None
    for attempt in range(settings.attempts):
        if attempt:
            runtime.sleep(settings.sleep_s * (0.5 + 0.5 * runtime.random()))
        granted: list[DataLease] = []
        try:
            # One by one, so that what was granted before a refusal is known.
            granted.extend(each.locks.acquire(each.request, wait_s=0) for each in ordered)
            for lease in granted:
                lease.ensure_not_lost()
            return tuple(granted)
        except BaseException as error:
            for each, lease in reversed(list(zip(ordered, granted, strict=False))):
                each.locks.release(lease)
            if not isinstance(error, LockTimeout):
                raise
            if refusal is None and settings.attempts > 1:
                _tell(ordered[len(granted)], error)
            refusal = error
    assert refusal is not None, "there is at least one attempt"
    raise LockTimeout(
        f"not all of {len(ordered)} tables could be locked at once in {settings.attempts} attempts: {refusal.message}",
        hint=refusal.hint,
        **refusal.details,
    )


def _tell(refused: Wanted, error: LockTimeout) -> None:
    """Say once which holders the request waits for."""
    holders = error.details.get("holders")
    holder = "; ".join(map(str, holders)) if isinstance(holders, list) else error.message
    facts = {"holder": holder, "locks": str(refused.request)}
    (refused.events or Events()).emit(Event(EventKind.WAITING_FOR_LOCK, refused.locks.table, facts=facts))
