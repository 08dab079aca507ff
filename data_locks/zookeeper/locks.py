"""Data locks as queues in ZooKeeper: Hive's read and write nodes, with fair order and without polling.

A request enters the queues of all its resources in one transaction and keeps its place until it is granted or gives up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from lakelock.clock import Runtime
from lakelock.data_locks.base import DataLease, LockedData
from lakelock.data_locks.polling import PollingDataLocks, Waiting
from lakelock.data_locks.request import LockRequest, collide
from lakelock.data_locks.watch import MARGIN_S
from lakelock.data_locks.zookeeper.nodes import TABLE_QUEUE, Asked, node_data, queue_name, shown
from lakelock.data_locks.zookeeper.requests import all_nodes, nodes_of, read_requests, remove, remove_each, waking
from lakelock.data_locks.zookeeper.waiter import DataWaiter
from lakelock.errors import LakelockError, LockError, SettingsError
from lakelock.identity import WriterIdentity
from lakelock.providers.base import Lease, Opening
from lakelock.providers.polling import NO_ANSWER
from lakelock.providers.zookeeper.lease import HeldBySession
from lakelock.providers.zookeeper.place import Place, parse_place
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession, check_driver
from lakelock.providers.zookeeper.waiter import Within, reading, syncing

_TRY_S = 1.0
"""What a try that may not wait gives the service to answer, and how long somebody who leaves stays to clean up."""
_LONGEST_WAIT_S = 1.0


@dataclass
class _Waiting(Waiting):
    """One `acquire`; `waiter` is its place in the queues, of the session that there is now."""

    waiter: DataWaiter | None = None


class ZooKeeperDataLease(HeldBySession, DataLease):
    """Granted locks, and the nodes that stand for them."""

    def __init__(
        self, runtime: Runtime, writer: WriterIdentity, request: LockRequest, waiter: DataWaiter, seen: Sight, lease_s: float
    ) -> None:
        began_s = seen.began_s
        super().__init__(runtime, writer, request, grant=waiter.grant, token=waiter.token, lease_s=lease_s, began_s=began_s)
        self.waiter = waiter


class ZooKeeperDataLocks(PollingDataLocks[_Waiting]):
    """The data locks of one table below one node."""

    _session: ZooKeeperSession | None

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        lock = parse_place(opening.uri, opening.storage)
        self._place = Place(lock.hosts, f"{lock.path}.data")
        self._table_queue = f"{self._place.path}/{TABLE_QUEUE}"
        self._options = opening.settings.zookeeper
        check_driver(self._options)
        self._opening, self._session = self._runtime.mutex(), None

    @property
    def identity(self) -> str:
        return self._place.identity

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        if not isinstance(lease, ZooKeeperDataLease):
            raise LockError("this lease was granted by another service", hint="give it to the one that granted it")
        seen = lease.session.sight()
        within_s = min(self._options.request_timeout_s, self._settings.renew_s, lease.remaining_s())
        path = lease.waiter.table_node
        _, stat = lease.session.ask(within_s, syncing(path), lambda client: client.exists_async(path))
        lease.ensure_not_lost()
        if stat is None or stat.czxid != lease.token or stat.ephemeralOwner != lease.session.id:
            lease.lose("taken-over", "its nodes are gone: somebody broke the locks")
            lease.ensure_not_lost()
        lease.confirm(seen)
        return lease

    def inspect(self) -> tuple[LockedData, ...]:
        asked = read_requests(self._connected(), self._table_queue, self._patience())
        return tuple(shown(each, asked[:place]) for place, each in enumerate(asked))

    def break_lock(self, token: int, *, force: bool = False) -> None:
        """As promised; token 0 with `force` clears everything, also what nobody can read."""
        session, within = self._connected(), self._patience()
        if token == 0 and force:
            return remove_each(session, all_nodes(session, self._place.path, within), within)
        asked = read_requests(session, self._table_queue, within)
        found = next((each for each in asked if each.token == token), None)
        if found is None:
            return None
        if not force:
            self._watch_until_over(session, found)
        queues = [f"{self._place.path}/{queue_name(lock.resource)}" for lock in found.request.locks]
        return remove(session, nodes_of(session, queues, found.grant, within), within)

    def _begin(self, request: LockRequest, grant: str, until_s: float) -> _Waiting:
        return _Waiting(request, grant, until_s)

    def _look(self, waiting: _Waiting) -> DataLease | None:
        session, waiter, within = self._open(), waiting.waiter, self._patience(waiting)
        if waiter is not None and waiter.session is session and waiter.is_waiting:
            return None
        if not session.wait_connected(min(within(), self._options.connect_timeout_s)):
            raise session.unreachable("no connection")
        lease_s = self._lease_s(session)
        if waiter is None or waiter.session is not session or waiter.is_out:
            if waiter is not None:
                # What is of the session before has gone with it, and must not be taken for what is new.
                self._leave_later(waiter)
                waiting.grant = self._runtime.uuid()
            data = node_data(waiting.request, self._writer, waiting.grant, lease_s)
            waiter = DataWaiter(session, self._place.path, waiting.request, data, waiting.grant, self._runtime)
            waiting.waiter = waiter
        seen = waiter.step(within)
        if seen is None:
            return None
        lease = ZooKeeperDataLease(self._runtime, self._writer, waiting.request, waiter, seen, lease_s)
        lease.held_by(session, seen, self.renew)
        return lease

    def _pause(self, waiting: _Waiting, at_most_s: float) -> None:
        session, waiter = self._session, waiting.waiter
        at_most_s = min(at_most_s, _LONGEST_WAIT_S)
        if waiter is not None and waiter.is_waiting:
            waiter.wait(at_most_s)
        elif session is not None and not session.is_over and not session.is_connected:
            session.wait_connected(at_most_s)
        elif waiter is None or not waiter.wait(0):
            super()._pause(waiting, at_most_s)

    def _blockers(self, waiting: _Waiting) -> tuple[LockedData, ...]:
        """One of them while there is time left, which has been read already, and all of them at the end."""
        waiter = waiting.waiter
        if waiter is None:
            return ()
        one = () if waiter.blocker is None else (shown(waiter.blocker),)
        if self._runtime.monotonic_s() < waiting.until_s:
            return one
        try:
            asked = read_requests(waiter.session, self._table_queue, lambda: _TRY_S)
        except LakelockError:
            return one
        before = [each for each in asked if each.token < waiter.token]
        return tuple(shown(each) for each in before if collide(each.request, waiting.request))

    def _leave(self, waiting: _Waiting) -> None:
        """As promised; what finds the service unreachable goes on in the background for as long as the session lives."""
        waiter, until_s = waiting.waiter, self._runtime.monotonic_s() + _TRY_S
        if waiter is None:
            return
        while True:
            try:
                waiter.leave(lambda: max(0.0, until_s - self._runtime.monotonic_s()))
                return
            except NO_ANSWER:
                if self._runtime.monotonic_s() >= until_s:
                    self._leave_later(waiter)
                    raise

    def _leave_later(self, waiter: DataWaiter) -> None:
        # The session is not ended, as it may hold the locks of other threads.
        if waiter.may_be_there:
            waiter.session.pursue(lambda: waiter.leave(lambda: waiter.session.timeout_s))

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None and self._pid == os.getpid():
            session.end(wait_s=_TRY_S)

    def _watch_until_over(self, session: ZooKeeperSession, found: Asked) -> None:
        """Return once the session of the holder has ended, and `LockError` if it lives longer than one lease."""
        until_s = self._runtime.monotonic_s() + (found.lease_s or self._settings.lease_s) + MARGIN_S
        while True:
            gone = self._runtime.flag()
            (node,) = session.ask(self._patience()(), reading(self._table_queue, found.name, waking(gone)))
            if node is None:
                return
            if not gone.wait(max(0.0, until_s - self._runtime.monotonic_s())):
                raise LockError(
                    f"the data locks with token {found.token} are held by {found.writer or found.name}, whose session is alive",
                    hint="wait: ZooKeeper frees the locks of the dead without your help; to break them all the same, use force",
                    token=found.token,
                )

    def _patience(self, waiting: _Waiting | None = None) -> Within:
        """How long the next request may take: not beyond the end of the wait, but long enough for one try."""
        longest_s = self._options.request_timeout_s
        if waiting is None:
            return lambda: longest_s
        return lambda: min(longest_s, max(_TRY_S, waiting.until_s - self._runtime.monotonic_s()))

    def _lease_s(self, session: ZooKeeperSession) -> float:
        """How long a lease is: never longer than the server keeps a silent session."""
        lease_s, renew_s = min(self._settings.lease_s, session.timeout_s), self._settings.renew_s
        if lease_s < 2 * renew_s:
            raise SettingsError(
                f"this ZooKeeper ends silent sessions after {lease_s:g} s, too soon for data_locks.renew_s = {renew_s:g}",
                hint=f"set data_locks.lease_s = {lease_s:g} and data_locks.renew_s = {lease_s / 3:.3g}, "
                "or raise its maxSessionTimeout",
                key="data_locks.lease_s",
            )
        return lease_s

    def _connected(self) -> ZooKeeperSession:
        session = self._open()
        if not session.wait_connected(self._options.connect_timeout_s):
            raise session.unreachable("no connection")
        return session

    def _open(self) -> ZooKeeperSession:
        self._notice_fork()
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = ZooKeeperSession(self._place, self._options, self._settings.lease_s, self._runtime)
            return self._session

    def _notice_fork(self) -> None:
        if self._pid != os.getpid():
            # The connection of the parent must not be touched, so it is let go and not closed.
            self._opening, self._session = self._runtime.mutex(), None
        super()._notice_fork()
