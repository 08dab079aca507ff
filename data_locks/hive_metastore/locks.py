"""Data locks in the lock table of a Hive metastore: one call for a request, however many partitions it names.

The metastore keeps the queue, in order of arrival, and drops who is silent. Who holds is read from the queue (see
`metastore_queue`), so a grant takes two calls: one to queue up, one to look who is there before. A waiter looks, which costs
the metastore one query, and sends a sign of life when one is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelock.data_locks.base import DataLease, LockedData, still_renewed
from lakelock.data_locks.hive_metastore.names import data_place, parts_of
from lakelock.data_locks.hive_metastore.queue import Queue, Queued, modes_of, shown
from lakelock.data_locks.polling import PollingDataLocks, Waiting
from lakelock.data_locks.request import LockRequest, Mode
from lakelock.errors import LockError, SettingsError
from lakelock.providers.base import Lease, Opening
from lakelock.providers.hive_metastore.client import MetastoreClient
from lakelock.providers.hive_metastore.place import Place
from lakelock.providers.hive_metastore.queue import Agent, Watch, is_of
from lakelock.providers.hive_metastore.table import LockTable, NoSuchLock
from lakelock.providers.hive_metastore.thrift_calls import ACQUIRED

_LEAST_S = 1.0
"""Time that a call gets at least, so that even a writer that does not wait at all tries once."""


@dataclass
class _Waiting(Waiting):
    """`asked`: a request may have reached the metastore; `doubted`: perhaps more than one did.

    `heard_s`: when the latest call that the metastore took for a sign of life was about to be sent.
    """

    agent: Agent
    modes: Mapping[str, Mode]
    lock_id: int | None = None
    asked: bool = False
    doubted: bool = False
    heard_s: float = 0.0
    queue: Queue = field(default_factory=Queue)
    blockers: tuple[Queued, ...] = ()
    watch: Watch = field(default_factory=Watch)

    def start_again(self) -> None:
        """The metastore knows nothing of the request any more."""
        self.lock_id, self.asked = None, False


class MetastoreDataLocks(PollingDataLocks[_Waiting]):
    """The data locks of one table in a metastore, in a database and under a name that need not exist."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        client = opening.settings.hive_metastore
        self._place = data_place(Place.of(opening.uri, client.uris, self.table))
        self._client = MetastoreClient(self._runtime, client, self._place.addresses, self._writer.user, self._warn)
        self._locks = LockTable(self._client, self._place)
        self._call_s = client.socket_timeout_s
        self._lease_fits = False

    @property
    def identity(self) -> str:
        return self._place.identity

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        began_s = self._runtime.monotonic_s()
        try:
            self._locks.heartbeat(lease.token, lease.remaining_s())
        except NoSuchLock:
            lease.lose("taken-over", "it expired in the metastore, or an operator broke it")
            lease.ensure_not_lost()
        lease.extend(began_s)
        return lease

    def inspect(self) -> tuple[LockedData, ...]:
        return self._look_around(self._call_s).shown()

    def break_lock(self, token: int, *, force: bool = False) -> None:
        queued = self._look_around(self._call_s).find(token)
        if queued is None:
            return
        if not force:
            self._watch_until_over(queued)
        self._locks.unlock(token, self._call_s)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        writer, lease_s = self._writer, self._settings.lease_s
        agent = Agent(grant, writer.writer_id, lease_s, writer.pid, writer.application, request.about)
        return _Waiting(request, grant, until_s, agent, modes_of(request))

    def _look(self, waiting: _Waiting) -> DataLease | None:
        within_s = self._left_s(waiting)
        self._ensure_lease_fits(within_s)
        try:
            granted = self._show_life(waiting, within_s)
            lock_id = self._place_of(waiting, within_s)
            if lock_id is None or waiting.blockers:
                return None
            if not granted and not self._check(waiting, lock_id, within_s):
                return None
        except NoSuchLock:
            waiting.start_again()
            return None
        lease = self._lease(waiting, lock_id, waiting.heard_s)
        if lease.lost is not None:  # an answer that took longer than a lease
            self._locks.unlock(lock_id, within_s)
            waiting.start_again()
            return None
        return lease

    def _show_life(self, waiting: _Waiting, within_s: float) -> bool:
        """Queue up if I am not in the queue, and renew my place when that is due. Whether the metastore granted it just now."""
        if waiting.asked and waiting.lock_id is None:
            self._adopt(waiting, within_s)
        if waiting.lock_id is not None:
            due = self._runtime.monotonic_s() - waiting.heard_s >= self._settings.renew_s
            return due and self._check(waiting, waiting.lock_id, within_s)
        began_s = self._runtime.monotonic_s()

        def sending() -> None:
            waiting.asked = True

        parts = parts_of(waiting.request)
        answer = self._locks.lock(self._writer, waiting.agent, within_s, sending=sending, parts=parts)
        waiting.lock_id, waiting.heard_s = answer.lock_id, began_s
        return answer.state == ACQUIRED

    def _check(self, waiting: _Waiting, lock_id: int, within_s: float) -> bool:
        began_s = self._runtime.monotonic_s()
        state = self._locks.check(lock_id, within_s).state
        waiting.heard_s = began_s
        return state == ACQUIRED

    def _adopt(self, waiting: _Waiting, within_s: float) -> None:
        """Find the request whose reply got lost. It may also arrive later, so there may come to be two (`doubted`)."""
        waiting.doubted = True
        for row in self._locks.rows(within_s):
            if is_of(row, waiting.grant):
                waiting.lock_id, waiting.heard_s = row.lock_id, float("-inf")
                return

    def _place_of(self, waiting: _Waiting, within_s: float) -> int | None:
        """See who is before me, and clear away the dead and a second request of my own; my number while I am there."""
        waiting.queue = queue = self._look_around(within_s)
        mine = queue.find(waiting.lock_id)
        if mine is None:
            if waiting.lock_id is not None:
                self._locks.unlock(waiting.lock_id, within_s)
            waiting.start_again()
            return None
        twins = [each for each in queue.requests if each is not mine and is_of(each.first, waiting.grant)]
        blockers = [each for each in queue.blockers(mine.lock_id, waiting.modes) if each not in twins]
        watched = [each.first for each in (*blockers, mine)]
        dead = {row.lock_id for row in waiting.watch.dead(watched, mine.lock_id, self._runtime.monotonic_s())}
        for lock_id in dead | {twin.lock_id for twin in twins}:
            self._locks.unlock(lock_id, within_s)
            waiting.looks = 0
        waiting.blockers = tuple(each for each in blockers if each.lock_id not in dead)
        return mine.lock_id

    def _look_around(self, within_s: float) -> Queue:
        return Queue.of(self._locks.rows(within_s))

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        return tuple(shown(each, waiting.queue.blockers(each.lock_id, each.modes)) for each in waiting.blockers)

    def _leave(self, waiting: _Waiting) -> None:
        within_s = min(self._left_s(waiting), max(_LEAST_S, self._call_s))
        if waiting.lock_id is not None:
            self._locks.unlock(waiting.lock_id, within_s)
        if waiting.doubted or (waiting.asked and waiting.lock_id is None):
            self._locks.remove(waiting.grant, within_s)

    def _disconnect(self) -> None:
        self._client.close()

    def _left_s(self, waiting: _Waiting) -> float:
        return max(_LEAST_S, waiting.until_s - self._runtime.monotonic_s())

    def _watch_until_over(self, queued: Queued) -> None:
        """Return once the request has shown no sign of life for its whole lease, or has gone."""
        watch, now = Watch(), queued
        holder = shown(queued, ())
        if holder.lease_s is None:
            raise LockError(
                f"the data locks with token {queued.lock_id} were not taken by lakelock but by {holder.owner}",
                hint="the metastore drops them when their holder is gone; to break them all the same, use force",
                token=queued.lock_id,
            )
        while not watch.dead([now.first], queued.lock_id + 1, self._runtime.monotonic_s()):
            self._runtime.sleep(min(self._settings.sleep_s, holder.lease_s / 10))
            found = self._look_around(self._call_s).find(queued.lock_id)
            if found is None:
                return
            now = found
            if now.first.heartbeat_ms != queued.first.heartbeat_ms:
                raise still_renewed(queued.lock_id, holder.writer)

    def _ensure_lease_fits(self, within_s: float) -> None:
        """A metastore that drops a request before its lease is over would give its locks to two at once."""
        if self._lease_fits:
            return
        timeout_s, lease_s = self._locks.timeout_s(within_s), self._settings.lease_s
        if lease_s > timeout_s:
            raise SettingsError(
                f"data_locks.lease_s is {lease_s:g} s, but the metastore drops a lock after {timeout_s:g} s "
                "(its hive.txn.timeout)",
                hint=f"set data_locks.lease_s to {timeout_s:g} or less, or raise hive.txn.timeout of the metastore",
                key="data_locks.lease_s",
            )
        self._lease_fits = True
