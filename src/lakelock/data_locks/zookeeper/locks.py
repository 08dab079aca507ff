"""Data locks as queues in ZooKeeper: Hive's read and write nodes, with fair order and without polling.

A request enters the queues of all its resources in one transaction and keeps its place until it is granted or gives up.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakelock.clock import Runtime
from lakelock.data_locks.base import DataLease, LockedData
from lakelock.data_locks.polling import PollingDataLocks, Waiting
from lakelock.data_locks.request import LockRequest, collide
from lakelock.data_locks.zookeeper.nodes import TABLE_QUEUE, Asked, node_data, queue_name, shown
from lakelock.data_locks.zookeeper.requests import all_nodes, nodes_of, read_requests, remove, remove_each
from lakelock.data_locks.zookeeper.waiter import DataWaiter
from lakelock.errors import LakelockError, LockError
from lakelock.identity import WriterIdentity
from lakelock.providers.base import DRIFT_MARGIN_S, Lease, Opening, granted_as
from lakelock.providers.lock_client import NO_ANSWER
from lakelock.providers.zookeeper.client import ZooKeeperClient
from lakelock.providers.zookeeper.lease import HeldBySession
from lakelock.providers.zookeeper.place import Place, parse_place
from lakelock.providers.zookeeper.requests import reading, waking
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession
from lakelock.providers.zookeeper.waiter import Within

_TRY_S = 1.0
"""How long the service has to answer a try that may not wait, and how long leaving may take."""
_LONGEST_WAIT_S = 1.0


@dataclass
class _Waiting(Waiting):
    """One `acquire`; `waiter` is its place in the queues, in the current session."""

    waiter: DataWaiter | None = None


class ZooKeeperDataLease(HeldBySession, DataLease):
    """Granted locks, and the nodes that stand for them."""

    def __init__(
        self, runtime: Runtime, writer: WriterIdentity, request: LockRequest, waiter: DataWaiter, seen: Sight, lease_s: float
    ) -> None:
        began_s = seen.began_s
        super().__init__(runtime, writer, request, grant=waiter.grant, token=waiter.token, lease_s=lease_s, began_s=began_s)
        self.waiter = waiter


class ZooKeeperDataLocks(ZooKeeperClient, PollingDataLocks[_Waiting]):
    """The data locks of one table below one node."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        lock = parse_place(opening.uri, opening.storage)
        self._locate(Place(lock.hosts, f"{lock.path}.data"), opening)
        self._table_queue = f"{self._place.path}/{TABLE_QUEUE}"

    def inspect(self) -> tuple[LockedData, ...]:
        asked = read_requests(self._connected(), self._table_queue, self._patience())
        return tuple(shown(each, asked[:place]) for place, each in enumerate(asked))

    def break_all(self) -> None:
        session, within = self._connected(), self._patience()
        remove_each(session, all_nodes(session, self._place.path, within), within)

    def _break(self, token: int, *, force: bool) -> None:
        session, within = self._connected(), self._patience()
        asked = read_requests(session, self._table_queue, within)
        found = next((each for each in asked if each.token == token), None)
        if found is None:
            return
        if not force:
            self._watch_until_over(session, found)
        queues = [f"{self._place.path}/{queue_name(lock.resource)}" for lock in found.request.locks]
        remove(session, nodes_of(session, queues, found.grant, within), within)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        return _Waiting(request, grant, until_s)

    def _look(self, waiting: _Waiting) -> DataLease | None:
        session, waiter, within = self._open(), waiting.waiter, self._patience(waiting)
        if waiter is not None and waiter.session is session and waiter.is_waiting:
            return None
        self._ensure_connected(session, within())
        lease_s = self._lease_s(session)
        if waiter is None or waiter.session is not session or waiter.is_out:
            if waiter is not None:
                # The nodes of the previous session are gone with it, and must not be taken for new ones.
                self._leave_later(waiter)
                waiting.grant = self.runtime.uuid()
            data = node_data(waiting.request, self.writer, waiting.grant, lease_s)
            waiter = DataWaiter(session, self._place.path, waiting.request, data, waiting.grant, self.runtime)
            waiting.waiter = waiter
        seen = waiter.step(within)
        if seen is None:
            return None
        lease = ZooKeeperDataLease(self.runtime, self.writer, waiting.request, waiter, seen, lease_s)
        lease.held_by(session, seen, self.renew)
        return lease

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        waiter = waiting.waiter
        at_most_s = min(at_most_s, _LONGEST_WAIT_S)
        if waiter is not None and waiter.is_waiting:
            waiter.wait(at_most_s)
        elif not self._wait_reconnected(at_most_s) and (waiter is None or not waiter.wait(0)):
            super()._pause(waiting, at_most_s)

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        """While there is time left, one of them, which has already been read; all of them at the end."""
        waiter = waiting.waiter
        if waiter is None:
            return ()
        one = () if waiter.blocker is None else (shown(waiter.blocker),)
        if self.runtime.monotonic_s() < waiting.until_s:
            return one
        try:
            asked = read_requests(waiter.session, self._table_queue, lambda: _TRY_S)
        except LakelockError:
            return one
        before = [each for each in asked if each.token < waiter.token]
        return tuple(shown(each) for each in before if collide(each.request, waiting.request))

    def abandon(self, waiting: _Waiting) -> None:
        """As promised; while the service is unreachable, it continues in the background for as long as the session lives."""
        waiter, until_s = waiting.waiter, self.runtime.monotonic_s() + _TRY_S
        if waiter is None:
            return
        while True:
            try:
                waiter.leave(lambda: max(0.0, until_s - self.runtime.monotonic_s()))
                return
            except NO_ANSWER:
                if self.runtime.monotonic_s() >= until_s:
                    self._leave_later(waiter)
                    raise

    def take_back(self, waiting: _Waiting) -> None:
        """The session carries requests out in their order, and what could not be asked of it is asked in the background."""

    def _leave_later(self, waiter: DataWaiter) -> None:
        # The session is not ended, as it may hold the locks of other threads.
        if waiter.may_be_there:
            waiter.session.pursue(lambda: waiter.leave(lambda: waiter.session.timeout_s))

    def _extend(self, lease: Lease) -> str:
        held = granted_as(ZooKeeperDataLease, lease)
        return "" if self._renewed(held, held.waiter.table_node) else "its nodes are gone: somebody broke the locks"

    def _disconnect(self) -> None:
        self._end_session(_TRY_S)

    def _watch_until_over(self, session: ZooKeeperSession, found: Asked) -> None:
        """Return once the session of the holder has ended, and `LockError` if it lives longer than one lease.

        Not `_outwait`: the service tells when a holder is gone, and not when it renews.
        """
        until_s = self.runtime.monotonic_s() + (found.lease_s or self._settings.lease_s) + DRIFT_MARGIN_S
        while True:
            gone = self.runtime.flag()
            (node,) = session.ask(self._patience()(), reading(f"{self._table_queue}/{found.name}", waking(gone)))
            if node is None:
                return
            if not gone.wait(max(0.0, until_s - self.runtime.monotonic_s())):
                raise LockError(
                    f"the data locks with token {found.token} are held by {found.writer or found.name}, whose session is alive",
                    hint="wait: ZooKeeper frees the locks of the dead without your help; to break them anyway, use force",
                    token=found.token,
                )

    def _patience(self, waiting: _Waiting | None = None) -> Within:
        """How long the next request may take: not beyond the end of the wait, but long enough for one try."""
        longest_s = self._options.request_timeout_s
        if waiting is None:
            return lambda: longest_s
        return lambda: min(longest_s, max(_TRY_S, waiting.until_s - self.runtime.monotonic_s()))
