"""The lock item of the awslabs lock client, which Java Hudi uses: what it says, and when its holder may be presumed dead.

```
key                  S  the partition key: one item per lock
ownerName            S  one name per grant, so that equal names mean the same grant
leaseDuration        S  milliseconds, as text
recordVersionNumber  S  a new UUID with every grant and renewal
isReleased           S  "1" when the lock is free, otherwise absent
```

Java reads the first four without checking that they exist, so they always do. It ignores `token`, `tokenLimit`,
`writer` and `since`, which are ours, and drops them when it writes; it deletes the item when it releases.
Therefore nothing may depend on finding them: see `dynamodb` for the token.

No clock value is stored except `since`, when the holder took the lock by its own clock, and that is only shown. A holder is
dead once a waiter has watched the same recordVersionNumber for a whole lease, by its own monotonic clock, starting after
its first read. The holder's deadline counts from before it wrote that number, so it has passed by then, whatever any clock
shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakelock.errors import LockError
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import Holder, past_ms

Attributes = Mapping[str, Mapping[str, Any]]
"""An item or part of one as DynamoDB's API has it: `{"ownerName": {"S": "..."}}`."""

_MOST_DIGITS = 38
"""The most that DynamoDB's numbers have."""

_DRIFT = 0.01
"""Share of a lease by which a waiter waits longer than the lease: allowance for clocks that run at different rates."""


@dataclass(frozen=True)
class LockItem:
    """The lock item. `token`, `limit` (see `dynamodb`) are 0 and `writer` is None after a Java writer."""

    key: str
    owner: str
    version: str
    lease_ms: int
    released: bool = False
    token: int = 0
    limit: int = 0
    writer: WriterIdentity | None = None
    since_ms: int | None = None

    @classmethod
    def parse(cls, item: Attributes) -> LockItem:
        """Read an item; `LockError` for one that no lock client can have written: an unknown state never counts as free."""
        try:
            key, owner, version, lease = (
                item[name]["S"] for name in ("key", "ownerName", "recordVersionNumber", "leaseDuration")
            )
            lease_ms = int(lease)
            if lease_ms <= 0:
                raise ValueError(f"leaseDuration is {lease}")
        except (KeyError, ValueError) as error:
            raise LockError(
                f"the lock item {item.get('key', {}).get('S', '?')} cannot be read as a lock ({error!r})",
                hint="make sure that no writer runs, then delete the item",
            ) from error
        return cls(
            key,
            owner,
            version,
            lease_ms,
            released=item.get("isReleased", {}).get("S") == "1",
            token=_count(item.get("token")),
            limit=_count(item.get("tokenLimit")),
            writer=_writer(item.get("writer")),
            since_ms=past_ms(_count(item.get("since"))),
        )

    @property
    def lease_s(self) -> float:
        return self.lease_ms / 1000

    @property
    def numbered(self) -> bool:
        """Whether the next token can be taken from the item itself."""
        return 0 < self.token < self.limit

    @property
    def holder(self) -> Holder:
        return Holder(self.owner, self.writer, self.token, self.lease_s, since_ms=self.since_ms)


def _count(value: Mapping[str, str] | None) -> int:
    text = (value or {}).get("N", "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def _writer(value: Mapping[str, str] | None) -> WriterIdentity | None:
    try:
        return WriterIdentity.from_dict(JsonObject.parse((value or {}).get("S", "")).fields)
    except ValueError:
        return None


def writer_text(writer: WriterIdentity) -> str:
    """The attribute `writer`: for people, and for `inspect`."""
    return json.dumps(writer.as_dict(), separators=(",", ":"))


@dataclass(frozen=True)
class Sighting:
    """One version of a held item, and since when it is being watched, by our monotonic clock.

    Simpler than that of a lock file: an item has no age of its own, so only the time it was watched counts.
    """

    item: LockItem
    since_s: float

    @classmethod
    def of(cls, item: LockItem, now_s: float, before: Sighting | None) -> Sighting:
        """What is seen at `now_s`, after the reply arrived; the watch continues if `before` shows the same version."""
        if before is not None and before.item.version == item.version and before.item.owner == item.owner:
            return replace(before, item=item)
        return cls(item, now_s)

    @property
    def over_at_s(self) -> float:
        """When the holder may be replaced unless it renews until then."""
        return self.since_s + watch_s(self.item.lease_s)


def watch_s(lease_s: float) -> float:
    """How long a silent holder with this lease is watched before it is replaced."""
    return lease_s * (1 + _DRIFT)
