"""The lock next to the table: Hudi's `table_lock.json`, changed only by conditional writes. Needs no server.

The same object and rules as Java Hudi's StorageBasedLockProvider, so its writers and ours exclude each other. Rules that
concern only the reader are stricter: see below for taking over, and `lakelock.providers.base` for the token. Acquire and
release together cost two requests while this writer is the only one, three where writers take turns.

Three fields of the file are Hudi's (`expired`, `validUntil`, `owner`, in this order); ours follow, and Java readers
ignore them. Java drops them when it writes, so nothing may depend on finding them.

Who may take over: Hudi compares `validUntil`, from the holder's clock, with the reader's clock, so a reader whose clock
is fast steals a live lock. Here no two machines' clocks are compared. A version of the file that was not renewed is taken
over when both hold:

* I have watched it unchanged for a third of the holder's lease, by my monotonic clock (a live holder renews at least that
  often);
* it is older than the holder's lease, either by storage's clock alone (time of the file against the time of a file
  written just now) or because I have watched it that long.

So a crash is noticed after at most one lease, and a holder that renews never loses the lock, whatever any clock shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from lakelock import storage as core_storage
from lakelock.errors import CorruptTableError, LockError, StorageError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import (
    DRIFT_MARGIN_S,
    NO_ANSWER,
    Holder,
    Lease,
    LockState,
    Opening,
    Strength,
    for_up_to,
    granted_as,
    past_ms,
    reserve_block,
)
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.storage import Stored
from lakelock.table import layout
from lakelock.texts import command

SHORTEST_JAVA_LEASE_S = 10.0
"""Java Hudi refuses a shorter validity."""


@dataclass(frozen=True)
class LockFile:
    """The content of the lock file. After a Java writer `token` and `limit` are 0 and `lease_ms` is None.

    `token` and `limit`: see `lakelock.providers.base`. `since_ms`: when this grant was made, by the holder's clock, for people.
    """

    expired: bool
    valid_until_ms: int
    owner: str
    token: int = 0
    limit: int = 0
    lease_ms: int | None = None
    writer: WriterIdentity | None = None
    since_ms: int | None = None

    def to_bytes(self) -> bytes:
        fields: dict[str, object] = {"expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner}
        if self.token:
            fields |= {"token": self.token, "tokenLimit": self.limit}
        if self.lease_ms is not None:
            fields["leaseMs"] = self.lease_ms
        if self.writer is not None:
            fields["writer"] = self.writer.as_dict()
        if self.since_ms is not None:
            fields["sinceMs"] = self.since_ms
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LockFile:
        """Read a lock file; `CorruptTableError` for anything that Hudi or lakelock cannot have written."""
        try:
            fields = JsonObject.parse(data)
            expired, until, owner = fields.get("expired"), fields.integer("validUntil"), fields.text("owner")
            if type(expired) is not bool or not owner:
                raise ValueError("a field has the wrong type")
        except ValueError as error:
            raise CorruptTableError(
                f"{layout.LOCK} cannot be read as a lock ({error}), so whether the table is locked is unknown",
                hint="make sure that no writer runs, then break the lock by force: lakelock locks break PATH --token 0 --force",
                key=layout.LOCK,
            ) from error
        lease, writer = fields.get("leaseMs"), fields.get("writer")
        return cls(
            expired,
            until,
            owner,
            token=_count(fields.get("token")),
            limit=_count(fields.get("tokenLimit")),
            lease_ms=lease if type(lease) is int and lease > 0 else None,
            writer=WriterIdentity.from_dict(writer) if isinstance(writer, dict) else None,
            since_ms=past_ms(fields.get("sinceMs")),
        )

    def released(self) -> LockFile:
        """The tombstone that marks the lock as free: the file is never deleted."""
        return replace(self, expired=True)

    def lease_s(self, modified_ms: int) -> float:
        """How long the holder may be silent. A Java holder does not say; it counts until `validUntil`."""
        if self.lease_ms is not None:
            return self.lease_ms / 1000
        return max(SHORTEST_JAVA_LEASE_S, (self.valid_until_ms - modified_ms) / 1000)


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


@dataclass(frozen=True)
class Sighting:
    """One version of a held lock file, and since when I have watched it (monotonic).

    `older_by_s`: how much older it is than my first look, by storage's clock, once measured.
    """

    stored: Stored
    file: LockFile
    since_s: float
    older_by_s: float | None = None

    @classmethod
    def of(cls, stored: Stored, now_s: float, before: Sighting | None = None) -> Sighting:
        """What I see now; the watch continues if `before` shows the same version."""
        if before is not None and before.stored.etag == stored.etag:
            return before
        return cls(stored, LockFile.from_bytes(stored.data), now_s)

    @property
    def lease_s(self) -> float:
        return self.file.lease_s(self.stored.modified_ms)

    @property
    def holder(self) -> Holder:
        file = self.file
        return Holder(file.owner, file.writer, file.token, self.lease_s, self.stored.modified_ms, file.since_ms)

    def with_age(self, age_s: float, now_s: float) -> Sighting:
        """The same, knowing that it is `age_s` old at `now_s`."""
        return replace(self, older_by_s=max(0.0, age_s - (now_s - self.since_s)))

    def watched_enough(self, now_s: float) -> bool:
        """Whether a live holder would have renewed since I began to watch."""
        return now_s - self.since_s >= watch_s(self.lease_s)

    def is_over(self, now_s: float) -> bool:
        """Whether the lock may be taken over."""
        age_s = now_s - self.since_s + (self.older_by_s or 0.0)
        return self.watched_enough(now_s) and age_s >= self.lease_s + DRIFT_MARGIN_S


def watch_s(lease_s: float) -> float:
    """How long a live holder with this lease may leave its file as it is, and somewhat more."""
    return lease_s / 3 + DRIFT_MARGIN_S


def age_s(modified_ms: int, storage_now_ms: int) -> float:
    """Age of an object by storage's own clock, rounded down where that clock only shows whole seconds."""
    coarse = modified_ms % 1000 == 0 and storage_now_ms % 1000 == 0
    return max(0.0, (storage_now_ms - modified_ms) / 1000 - (1.0 if coarse else 0.0))


STRENGTH = Strength(
    exclusion="linearizable conditional writes; a lease: a holder that pauses for longer is replaced, and finds out",
    token="a counter in the lock file, reserved in blocks in a file next to it; grows across release, crash and Java writers",
    crash_release="after at most one lease, for a waiter of a third of it; a shorter `lock.wait_s` never gets past it",
    failover="that of the storage: strongly consistent object stores, HDFS and POSIX file systems",
    clock_assumption="equal rates between lakelock writers; a Java peer compares validUntil with its own clock (0.5 s)",
    fairness=(
        "in order of arrival within a process; jittered polling between processes, so a later one may be first: if 8 "
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
            left = f"whose lease runs {for_up_to(seen.lease_s - age)}" if age is not None else "whose lease may still run"
            raise self.still_held(seen.holder, left)
        self._swap_for_break(seen.file.released(), found)

    def probe(self) -> None:
        write_id = self.runtime.uuid()
        core_storage.probe(self._storage, layout.probe(write_id), write_id)

    def _take(self, attempt: Attempt, before: LockFile | None, etag: str) -> Lease | None:
        """Write the lock file over the version that is free; None if another writer was faster (or our reply was lost)."""
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
