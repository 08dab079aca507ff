"""The requests for data locks in a metastore: their order, read from its lock table.

The metastore numbers the requests in the order in which they appear (one row of its database guards the numbers), so a
request with a lower number than mine that I do not see yet will never appear. Who holds follows from that: every request
with no lower number in its way. It has to be worked out here, because the rule of Hive 2.3 has a hole: a
shared lock overtakes an exclusive one that waits, and the exclusive one is then granted as well, at the same time. The commit
lock needs none of this: every request for it is exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from lakelock.data_locks.base import LockedData
from lakelock.data_locks.hive_metastore.names import name_of, names_in, resource_of
from lakelock.data_locks.request import DataLock, LockRequest, Mode
from lakelock.providers.hive_metastore.queue import Agent, holder_of
from lakelock.providers.hive_metastore.thrift_calls import ACQUIRED, SHARED_READ, LockRow


@dataclass(frozen=True)
class Queued:
    """One request: its number and its rows."""

    lock_id: int
    rows: tuple[LockRow, ...]

    @property
    def first(self) -> LockRow:
        """The row with the facts that all rows share: user, host, agent, heartbeat."""
        return self.rows[0]

    @property
    def acquired(self) -> bool:
        """Whether the metastore granted it; that alone does not make it held."""
        return all(row.state == ACQUIRED for row in self.rows)

    @cached_property
    def modes(self) -> Mapping[str, Mode]:
        """The names that it locks."""
        return {
            name: Mode.SHARED if row.kind == SHARED_READ else Mode.EXCLUSIVE
            for row in self.rows
            for name in names_in(row.partition or "")
        }

    @cached_property
    def about(self) -> str:
        agent = Agent.of(self.first.agent)
        return agent.about if agent else ""

    def request(self) -> LockRequest:
        locks = sorted(DataLock(resource_of(name), mode) for name, mode in self.modes.items())
        return LockRequest(tuple(locks), self.about)


@dataclass(frozen=True)
class Queue:
    """All requests for one table, in order of arrival."""

    requests: tuple[Queued, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[LockRow]) -> Queue:
        """From the rows of the metastore, which are in order of their numbers."""
        return cls(tuple(Queued(lock_id, tuple(group)) for lock_id, group in groupby(rows, key=lambda row: row.lock_id)))

    def find(self, lock_id: int | None) -> Queued | None:
        return next((each for each in self.requests if each.lock_id == lock_id), None)

    def blockers(self, lock_id: int, modes: Mapping[str, Mode]) -> tuple[Queued, ...]:
        """The requests that keep the one with this number from being granted: every earlier request in its way."""
        return tuple(each for each in self.requests if each.lock_id < lock_id and _collide(each.modes, modes))

    def shown(self) -> tuple[LockedData, ...]:
        """Everybody, as an operator sees them."""
        return tuple(shown(each, self.blockers(each.lock_id, each.modes)) for each in self.requests)


def modes_of(request: LockRequest) -> Mapping[str, Mode]:
    """The names that a request locks."""
    return {name_of(lock.resource): lock.mode for lock in request.locks}


def shown(queued: Queued, blockers: Sequence[Queued]) -> LockedData:
    """One request, as an operator sees it. Times are by the clock of the metastore's database."""
    holder, held = holder_of(queued.first), queued.acquired and not blockers
    return LockedData(
        token=queued.lock_id,
        owner=holder.owner,
        request=queued.request(),
        held=held,
        writer=holder.writer,
        lease_s=holder.lease_s,
        acquired_ms=(queued.first.acquired_ms or None) if held else None,
        renewed_ms=holder.renewed_ms,
        blocked_by=tuple(blocker.lock_id for blocker in blockers),
    )


def _collide(one: Mapping[str, Mode], other: Mapping[str, Mode]) -> bool:
    few, many = sorted((one, other), key=len)
    return any(name in many and Mode.EXCLUSIVE in (mode, many[name]) for name, mode in few.items())
