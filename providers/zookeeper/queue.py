"""The queue of one lock in ZooKeeper, as Curator's InterProcessMutex keeps it.

Each contender is an ephemeral sequential child `_c_<uuid>-lock-<number>` of the lock's node, and the lowest number holds the
lock. Curator sorts every child of the node by what follows its last `lock-`, so every child that ends in a number takes part
here too. Numbers are compared modulo 2^32: the server's counter runs over into negative numbers after 2^31 contenders, and
the newcomer must not overtake the holder then (in Curator, which compares text, it does).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import Holder

_SEQUENCE = re.compile(r"lock-(-?\d{9,10})$|(\d{10})$").search
_CIRCLE = 1 << 32
_LONGEST_SHOWN = 80


class Stat(Protocol):
    """The part of a node's stat that is needed here."""

    @property
    def czxid(self) -> int: ...
    @property
    def ctime(self) -> int: ...
    @property
    def ephemeralOwner(self) -> int: ...  # noqa: N802 - the name is kazoo's


def prefix(grant: str) -> str:
    """The beginning of the name of a contender; the uuid finds it again when the reply to its creation was lost."""
    return f"_c_{grant}-lock-"


def in_order(children: Iterable[str]) -> list[str]:
    """The contenders among `children`, the holder first."""
    numbers = {child: int(found[1] or found[2]) for child in children if (found := _SEQUENCE(child))}
    if len(numbers) < 2:
        return list(numbers)
    # Less than half the circle is in use at any time, so the first one is where the largest gap ends.
    circle = sorted({number % _CIRCLE for number in numbers.values()})
    gaps = [(number - before) % _CIRCLE or _CIRCLE for before, number in zip([circle[-1], *circle], circle, strict=False)]
    first = circle[gaps.index(max(gaps))]
    return sorted(numbers, key=lambda child: ((numbers[child] - first) % _CIRCLE, child))


def node_data(writer: WriterIdentity, lease_s: float) -> bytes:
    """What a contender writes into its node. Curator never reads it."""
    return json.dumps({"writer": writer.as_dict(), "leaseMs": round(lease_s * 1000)}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Contender:
    """One node of the queue as it was read."""

    name: str
    data: bytes
    token: int
    session_id: int
    created_ms: int

    @classmethod
    def of(cls, name: str, data: bytes, stat: Stat) -> Contender:
        return cls(name, data, stat.czxid, stat.ephemeralOwner, stat.ctime)

    @property
    def holder(self) -> Holder:
        """Who it is. For a foreign writer: the name of its node and what it wrote there."""
        try:
            fields = JsonObject.parse(self.data)
            writer, lease_ms = WriterIdentity.from_dict(fields.child("writer").fields), fields.get("leaseMs")
        except ValueError:
            return Holder(self._foreign_name(), token=self.token, since_ms=self.created_ms)
        lease_s = lease_ms / 1000 if type(lease_ms) is int and 0 < lease_ms < 2**63 else None
        return Holder(self.name, writer, self.token, lease_s, since_ms=self.created_ms)

    def _foreign_name(self) -> str:
        said = self.data[:_LONGEST_SHOWN].decode("utf-8", "replace")
        return f"{self.name}: {said}" if said and said.isprintable() else self.name
