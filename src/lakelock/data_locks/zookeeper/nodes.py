"""Names and contents of the nodes that are data locks in ZooKeeper, and what follows from their order.

Next to the commit lock's node `<lock>` is `<lock>.data`, with one node for each resource that was ever locked and, in it, the
queue of this resource:

```
<lock>.data/@table/read-<grant>-lock-0000000007                  what was asked for, and by whom
<lock>.data/month=1/read-<grant>-lock-0000000003                 empty
<lock>.data/month=1%2Fday=2/write-<grant>-lock-0000000000        empty
```

All nodes of a request are made in one transaction, so that every queue has the requests in the same order, and are ephemeral.
Every request locks the table, so the queue of the table is also the list of all requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from lakelock.data_locks.base import LockedData
from lakelock.data_locks.lock_table import request_fields, request_of
from lakelock.data_locks.request import TABLE, LockRequest, Mode, Resource, collide, lock_request
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.zookeeper.queue import Stat, in_order

TABLE_QUEUE = "@table"
"""No partition has this name: `@` is written as %40 in partition names."""
_SAFE = " !$&'()*+,:;="
_WORDS = {Mode.SHARED: "read", Mode.EXCLUSIVE: "write"}
_GRANT = re.compile(r"(?:read|write)-([0-9a-f-]{36})-lock-").match


def queue_name(resource: Resource) -> str:
    """The name of the node that has the queue of a resource: one path component, different for different resources."""
    return TABLE_QUEUE if resource == TABLE else quote(resource.path, safe=_SAFE)


def node_prefix(mode: Mode, grant: str) -> str:
    """The beginning of a node's name; the server adds the number. The grant finds it again when a reply was lost."""
    return f"{_WORDS[mode]}-{grant}-lock-"


def grant_of(name: str) -> str:
    """Which request a node belongs to; of a foreign node its whole name."""
    found = _GRANT(name)
    return found[1] if found else name


def _is_shared(name: str) -> bool:
    return name.startswith("read-")


@dataclass(frozen=True)
class Standing:
    """Where a request stands in one queue: its node, and the nearest one before it that is in its way."""

    node: str
    before: str | None


def standing(children: Iterable[str], grant: str) -> Standing | None:
    """None when the request is not in this queue."""
    order = in_order(children)
    place = next((place for place, name in enumerate(order) if grant_of(name) == grant), None)
    if place is None:
        return None
    node = order[place]
    in_my_way = (name for name in reversed(order[:place]) if not (_is_shared(node) and _is_shared(name)))
    return Standing(node, next(in_my_way, None))


@dataclass(frozen=True)
class Asked:
    """One node of the table's queue as it was read: a request and its writer. `writer` is None for a foreign node."""

    name: str
    request: LockRequest
    token: int
    since_ms: int
    writer: WriterIdentity | None = None
    lease_s: float | None = None

    @property
    def grant(self) -> str:
        return grant_of(self.name)

    @classmethod
    def of(cls, name: str, data: bytes, stat: Stat) -> Asked:
        """A node that cannot be read counts as a lock on the table."""
        try:
            fields = JsonObject.parse(data)
            writer = WriterIdentity.from_dict(fields.child("writer").fields)
            return cls(name, request_of(fields), stat.czxid, stat.ctime, writer, fields.integer("leaseMs", at_least=1) / 1000)
        except ValueError:
            request = lock_request(shared=[TABLE]) if _is_shared(name) else lock_request(exclusive=[TABLE])
            return cls(name, request, stat.czxid, stat.ctime)


def node_data(request: LockRequest, writer: WriterIdentity, grant: str, lease_s: float) -> bytes:
    """The content of the node in the table's queue."""
    fields = {"grant": grant, **request_fields(request), "writer": writer.as_dict(), "leaseMs": round(lease_s * 1000)}
    return json.dumps(fields, separators=(",", ":")).encode()


def shown(asked: Asked, before: Sequence[Asked] = ()) -> LockedData:
    """A request for people to see; `before` are those that came earlier."""
    in_the_way = tuple(each.token for each in before if collide(each.request, asked.request))
    return LockedData(
        token=asked.token,
        owner=asked.grant,
        request=asked.request,
        held=not in_the_way,
        writer=asked.writer,
        lease_s=asked.lease_s,
        since_ms=asked.since_ms,
        blocked_by=in_the_way,
    )
