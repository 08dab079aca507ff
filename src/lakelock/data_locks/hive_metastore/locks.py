"""Data locks in the lock table of a Hive metastore: one call for a request, however many partitions it names.

The metastore keeps the queue, in order of arrival, and drops whoever is silent. Who holds is read from the queue (see
`queue`), so a grant takes two calls: one to queue up, one to see who came before. A waiter looks, which costs the metastore
one query, and sends a sign of life when one is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelock.data_locks.base import DataLease, LockedData
from lakelock.data_locks.hive_metastore.names import data_place, parts_of
from lakelock.data_locks.hive_metastore.queue import Queue, Queued, modes_of, shown
from lakelock.data_locks.polling import PollingDataLocks, Waiting
from lakelock.data_locks.request import LockRequest, Mode
from lakelock.errors import LockError
from lakelock.providers.base import Lease, Opening
from lakelock.providers.hive_metastore.place import Place
from lakelock.providers.hive_metastore.queue import Agent, is_of, watch_s
from lakelock.providers.hive_metastore.request import Request
from lakelock.providers.hive_metastore.table import LockCalls, NoSuchLock
from lakelock.providers.hive_metastore.thrift_calls import ACQUIRED

_LEAST_S = 1.0
"""Minimum time for a call: even a writer that does not wait at all tries once."""


@dataclass
class _Waiting(Waiting):
    """`heard_s`: when the latest call that the metastore took for a sign of life was about to be sent."""

    agent: Agent
    modes: Mapping[str, Mode]
    place: Request
    heard_s: float = 0.0
    queue: Queue = field(default_factory=Queue)
    blockers: tuple[Queued, ...] = ()


class MetastoreDataLocks(PollingDataLocks[_Waiting]):
    """The data locks of one table in a metastore, in a database and under a name that need not exist."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._opening = opening
        self._place = data_place(Place.of(opening.uri, opening.settings.hive_metastore.uris, self.table))
        self._calls = LockCalls(opening, self._place, self._warn)
        self._call_s = self._calls.call_s

    def watch_s(self, lease_s: float) -> float:
        return watch_s(lease_s)

    @property
    def identity(self) -> str:
        return self._place.identity

    def inspect(self) -> tuple[LockedData, ...]:
        return self._look_around(self._call_s).shown()

    def break_all(self) -> None:
        for queued in self._look_around(self._call_s).requests:
            self._calls.unlock(queued.lock_id, self._call_s)

    def _break(self, token: int, *, force: bool) -> None:
        queued = self._look_around(self._call_s).find(token)
        if queued is None:
            return
        if not force:
            self._watch_until_over(queued)
        self._calls.unlock(token, self._call_s)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        agent = Agent.by(self.writer, grant, self._settings.lease_s, request.about)
        return _Waiting(request, grant, until_s, agent, modes_of(request), Request(grant))

    def _look(self, waiting: _Waiting) -> DataLease | None:
        within_s = self._left_s(waiting)
        self._calls.ensure_lease_fits(self._settings, within_s)
        try:
            granted = self._show_life(waiting, within_s)
            lock_id = self._place_of(waiting, within_s)
            if lock_id is None or waiting.blockers:
                return None
            if not granted and not self._check(waiting, lock_id, within_s):
                return None
        except NoSuchLock:
            waiting.place.start_again()
            return None
        lease = self._lease(waiting, lock_id, waiting.heard_s)
        if lease.lost is not None:  # an answer that took longer than a lease
            self._calls.unlock(lock_id, within_s)
            waiting.place.start_again()
            return None
        return lease

    def _show_life(self, waiting: _Waiting, within_s: float) -> bool:
        """Queue up if I am not queued, and renew my place when due. True if the metastore granted the request just now."""
        place = waiting.place
        if place.is_lost:
            place.find(self._calls, within_s)
            waiting.heard_s = float("-inf")
        if place.lock_id is not None:
            due = self.runtime.monotonic_s() - waiting.heard_s >= self._settings.renew_s
            return due and self._check(waiting, place.lock_id, within_s)
        began_s = self.runtime.monotonic_s()
        answer = place.enter(self._calls, self.writer, waiting.agent, within_s, parts_of(waiting.request))
        waiting.heard_s = began_s
        return answer.state == ACQUIRED

    def _check(self, waiting: _Waiting, lock_id: int, within_s: float) -> bool:
        began_s = self.runtime.monotonic_s()
        state = self._calls.check(lock_id, within_s).state
        waiting.heard_s = began_s
        return state == ACQUIRED

    def _place_of(self, waiting: _Waiting, within_s: float) -> int | None:
        """See who is before me, and remove the dead and a second request of my own; my number while I am queued."""
        waiting.queue = queue = self._look_around(within_s)
        mine = queue.find(waiting.place.lock_id)
        if mine is None:
            if waiting.place.lock_id is not None:
                self._calls.unlock(waiting.place.lock_id, within_s)
            waiting.place.start_again()
            return None
        twins = [each for each in queue.requests if each is not mine and is_of(each.first, waiting.grant)]
        blockers = [each for each in queue.blockers(mine.lock_id, waiting.modes) if each not in twins]
        watched = [each.first for each in (*blockers, mine)]
        dead = {row.lock_id for row in waiting.place.watch.dead(watched, mine.lock_id, self.runtime.monotonic_s())}
        for lock_id in dead | {twin.lock_id for twin in twins}:
            self._calls.unlock(lock_id, within_s)
            waiting.looks = 0
        waiting.blockers = tuple(each for each in blockers if each.lock_id not in dead)
        return mine.lock_id

    def _look_around(self, within_s: float) -> Queue:
        return Queue.of(self._calls.rows(within_s))

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        return tuple(shown(each, waiting.queue.blockers(each.lock_id, each.modes)) for each in waiting.blockers)

    def abandon(self, waiting: _Waiting) -> None:
        within_s = min(self._left_s(waiting), max(_LEAST_S, self._call_s))
        waiting.place.leave(self._calls, lambda: within_s)

    def take_back(self, waiting: _Waiting) -> None:
        calls = LockCalls(self._opening, self._place, self._warn)  # with a connection of its own: nobody waits for this one
        try:
            calls.remove(waiting.grant, _LEAST_S)
        finally:
            calls.close()

    def _extend(self, lease: Lease) -> str:
        began_s = self.runtime.monotonic_s()
        try:
            self._calls.heartbeat(lease.token, lease.remaining_s())
        except NoSuchLock:
            return "it expired in the metastore, or an operator broke it"
        lease.extend(began_s)
        return ""

    def _disconnect(self) -> None:
        self._calls.close()

    def _left_s(self, waiting: _Waiting) -> float:
        return max(_LEAST_S, waiting.until_s - self.runtime.monotonic_s())

    def _watch_until_over(self, queued: Queued) -> None:
        """Return once the request has shown no sign of life for its whole lease, or has gone."""
        holder = shown(queued, ())
        if holder.lease_s is None:
            raise LockError(
                f"the data locks with token {queued.lock_id} were not taken by lakelock but by {holder.owner}",
                hint="the metastore drops them when their holder is gone; to break them anyway, use force",
                token=queued.lock_id,
            )

        def heartbeat_ms() -> int | None:
            now = self._look_around(self._call_s).find(queued.lock_id)
            return None if now is None else now.first.heartbeat_ms

        self._outwait(queued.lock_id, holder.writer, holder.lease_s, queued.first.heartbeat_ms, heartbeat_ms)
