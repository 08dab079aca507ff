"""The lock next to the table: Hudi's `table_lock.json`, changed only by conditional writes. Needs no server.

The same object and rules as Java Hudi's StorageBasedLockProvider, so its writers and ours exclude each other. Rules that
concern only the reader are stricter: see `lock_file` for taking over and `tokens` for the token. Acquire and release together
cost two requests while this writer is the only one, three where writers take turns.
"""

from __future__ import annotations

from dataclasses import replace

from lakelock import storage as core_storage
from lakelock.errors import CorruptTableError, LockError, StorageError
from lakelock.providers.base import Holder, Lease, LockState, Opening, Strength, for_up_to, granted_as
from lakelock.providers.lock_client import NO_ANSWER
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.providers.storage.lock_file import LockFile, Sighting, age_s, watch_s
from lakelock.providers.tokens import reserve_block
from lakelock.storage import Stored
from lakelock.table import layout
from lakelock.texts import command

STRENGTH = Strength(
    exclusion="linearizable conditional writes; a lease: a holder that pauses for longer is replaced, and finds out",
    token="a counter in the lock file, reserved in blocks in a file next to it; grows across release, crash and Java writers",
    crash_release="after at most one lease, for whoever waits for a third of it; a shorter `lock.wait_s` never gets past it",
    failover="that of the storage: strongly consistent object stores, HDFS and POSIX file systems",
    clock_assumption="equal rates between lakelock writers; a Java peer compares validUntil with its own clock (0.5 s)",
    fairness=(
        "in order of arrival within a process; jittered polling between processes, so whoever comes later may be first: if 8 "
        "writers keep it nearly always taken, for 0.2 s each, half of the waits end within 0.3 s, and one in 100 takes 8 s, in "
        "which 26 others pass; none is longer than lock.wait_s"
    ),
    cost="2 storage requests for acquire and release by a lone writer, 3 where writers take turns",
)

_GIVE_BACK_ATTEMPTS = 3


class _StorageLease(Lease):
    """A lease together with the version of the lock file that stands for it."""

    def __init__(self, provider: StorageLockProvider, file: LockFile, etag: str, began_s: float) -> None:
        super().__init__(
            provider.runtime,
            file.writer or provider.writer,
            grant=file.owner,
            token=file.token,
            lease_s=(file.lease_ms or 0) / 1000,
            began_s=began_s,
        )
        self.file, self.etag = file, etag


class StorageLockProvider(PollingProvider):
    """The table lock as one object in the table's own storage."""

    strength = STRENGTH
    lies_in_table = True

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._storage = opening.storage
        self._own_release: tuple[LockFile, str] | None = None
        self._alone = True
        self._watched: Sighting | None = None

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return f"storage:{layout.LOCK}"

    @property
    def last_release(self) -> str:
        own = self._own_release
        return own[1] if own is not None and self._alone else ""

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        remembered, self._own_release = self._own_release, None
        if remembered is not None and self._alone:
            lease = self._take(attempt, *remembered)
            if lease is not None:
                lease.follows = remembered[1]
                return lease
            self._alone = False
        found = self._storage.get(layout.LOCK)
        if found is None:
            return self._take(attempt, None, "")
        self._alone = self._alone or (remembered is not None and remembered[1] == found.etag)
        now_s = self.runtime.monotonic_s()
        seen = self._watched = Sighting.of(found, now_s, self._watched)
        if seen.file.owner == attempt.grant and not seen.file.expired:
            return self._adopt(attempt, seen)
        if seen.file.expired or self._is_over(seen, now_s):
            return self._take(attempt, seen.file, found.etag)
        return seen.holder

    def extend(self, lease: Lease) -> None:
        held = granted_as(_StorageLease, lease)
        for _ in range(2):
            began_s = self.runtime.monotonic_s()
            file = self._new_file(held.file.owner, held.file.token, held.file.limit, held.file.since_ms)
            etag = self._storage.put_if_match(layout.LOCK, file.to_bytes(), held.etag)
            if etag is not None:
                held.file, held.etag = file, etag
                return held.extend(began_s)
            # An earlier renewal of ours, whose reply was lost, may have changed the version.
            if not self._refresh(held):
                break
        raise self.taken_over(held, "went to another writer")

    def give_back(self, lease: Lease) -> None:
        held = granted_as(_StorageLease, lease)
        for remaining in reversed(range(_GIVE_BACK_ATTEMPTS)):
            try:
                released = held.file.released()
                etag = self._storage.put_if_match(layout.LOCK, released.to_bytes(), held.etag)
                if etag is not None:
                    self._own_release = (released, etag)
                    return
                if not self._refresh(held):
                    return
            except NO_ANSWER:
                if not remaining:
                    raise

    def abandon(self, attempt: Attempt) -> None:
        if not attempt.doubt:
            return
        found = self._storage.get(layout.LOCK)
        if found is not None:
            file = LockFile.from_bytes(found.data)
            if file.owner == attempt.grant and not file.expired:
                self._storage.put_if_match(layout.LOCK, file.released().to_bytes(), found.etag)

    def inspect(self) -> LockState:
        found = self._storage.get(layout.LOCK)
        if found is None:
            return LockState(None, 0)
        seen = Sighting.of(found, self.runtime.monotonic_s())
        if seen.file.expired:
            return LockState(None, seen.file.token)
        return LockState(replace(seen.holder, left_s=self._left_s(seen)), seen.file.token)

    def break_lock(self, token: int, *, force: bool = False) -> None:
        found = self._storage.get(layout.LOCK)
        if found is None:
            return
        try:
            seen = Sighting.of(found, self.runtime.monotonic_s())
        except CorruptTableError:
            if not force:
                raise
            self._swap_for_break(LockFile(True, 0, self.runtime.uuid()), found)
            return
        self.ensure_latest(token, seen.file.token)
        if seen.file.expired:
            return
        age = self._age_s(found)
        if not force and (age is None or age < seen.lease_s):
            left = for_up_to(seen.lease_s - age) if age is not None else "as far as can be told"
            raise self.still_held(seen.holder, f"whose lease runs {left}")
        self._swap_for_break(seen.file.released(), found)

    def probe(self) -> None:
        write_id = self.runtime.uuid()
        core_storage.probe(self._storage, layout.probe(write_id), write_id)

    def _take(self, attempt: Attempt, before: LockFile | None, etag: str) -> Lease | None:
        """Write the lock file over the version that is free; None if somebody else was faster (or our reply was lost)."""
        if before is None or before.token >= before.limit:
            token, limit = reserve_block(self._storage, expect_new=before is None)
        else:
            token, limit = before.token + 1, before.limit
        began_s = self.runtime.monotonic_s()
        file = self._new_file(attempt.grant, token, limit)
        attempt.sent.setdefault((file.valid_until_ms, token), began_s)
        if before is None:
            new = self._storage.put_if_absent(layout.LOCK, file.to_bytes())
        else:
            new = self._storage.put_if_match(layout.LOCK, file.to_bytes(), etag)
        return None if new is None else _StorageLease(self, file, new, began_s)

    def _adopt(self, attempt: Attempt, seen: Sighting) -> Lease | None:
        """The lease that a request of ours got although its reply was lost; None (and given back) if it is over already."""
        began_s = attempt.sent.get((seen.file.valid_until_ms, seen.file.token), float("-inf"))
        lease = _StorageLease(self, seen.file, seen.stored.etag, began_s)
        if lease.lost is None:
            return lease
        self.give_back(lease)
        return None

    def _new_file(self, grant: str, token: int, limit: int, since_ms: int | None = None) -> LockFile:
        lease_ms, now_ms = round(self._settings.lease_s * 1000), self.runtime.now_ms()
        return LockFile(False, now_ms + lease_ms, grant, token, limit, lease_ms, self.writer, since_ms or now_ms)

    def _refresh(self, held: _StorageLease) -> bool:
        """Learn the current version of the lock file; False when it is no longer this lease's."""
        found = self._storage.get(layout.LOCK)
        if found is None:
            return False
        file = LockFile.from_bytes(found.data)
        if file.expired or file.owner != held.grant:
            return False
        held.file, held.etag = file, found.etag
        return True

    def _is_over(self, seen: Sighting, now_s: float) -> bool:
        if not seen.watched_enough(now_s):
            return False
        if seen.older_by_s is None:
            age = self._age_s(seen.stored)
            seen = self._watched = seen.with_age(age or 0.0, now_s)
        return seen.is_over(now_s)

    def _left_s(self, seen: Sighting) -> float | None:
        """How much longer the lease runs at most, 0 when it is over. None if storage cannot tell."""
        age = self._age_s(seen.stored)
        return None if age is None else max(0.0, seen.lease_s - age)

    def _age_s(self, stored: Stored) -> float | None:
        """How long ago `stored` was written, by storage's clock, as a file written now shows it. None if it cannot tell."""
        key = layout.probe(self.runtime.uuid())
        try:
            self._storage.put(key, b"")
            now = self._storage.get(key)
            self._storage.delete([key])
        except StorageError:
            return None
        return None if now is None else age_s(stored.modified_ms, now.modified_ms)

    def _swap_for_break(self, file: LockFile, found: Stored) -> None:
        if self._storage.put_if_match(layout.LOCK, file.to_bytes(), found.etag) is None:
            raise LockError(
                f"the lock of {self.table} changed hands just now; nothing was broken",
                hint=f"look again with `{command('locks', 'ls', self.table)}`",
            )
