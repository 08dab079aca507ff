"""Hudi's `table_lock.json`: what it says, and when its holder may be presumed dead.

Three fields are Hudi's (`expired`, `validUntil`, `owner`, in this order); ours follow, and Java readers ignore them. Java
drops them when it writes, so nothing may depend on finding them.

Who may take over: Hudi compares `validUntil`, from the holder's clock, with the reader's clock, so a reader whose clock is
fast steals a live lock. Here no two machines' clocks are compared. A version of the file that was not renewed is taken over
when both hold:

* I have watched it unchanged for a third of the holder's lease, by my monotonic clock (a live holder renews at least that
  often);
* it is older than the holder's lease, either by storage's clock alone (time of the file against the time of a file
  written just now) or because I have watched it that long.

So a crash is noticed after at most one lease, and a holder that renews never loses the lock, whatever any clock shows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from lakelock.errors import CorruptTableError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import DRIFT_MARGIN_S, Holder, past_ms
from lakelock.storage import Stored
from lakelock.table import layout

SHORTEST_JAVA_LEASE_S = 10.0
"""Java Hudi refuses a shorter validity."""


@dataclass(frozen=True)
class LockFile:
    """The content of the lock file. `token` and `limit` (see `tokens`) are 0 and `lease_ms` None after a Java writer.

    `since_ms`: when this grant was made, by the holder's clock, for people.
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
                f"{layout.LOCK} cannot be read as a lock ({error}), so nobody can tell whether the table is locked",
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
