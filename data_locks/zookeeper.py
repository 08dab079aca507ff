"""Data locks as queues in ZooKeeper: Hive's read and write nodes, with fair order and without polling.

A request enters the queues of all its resources in one transaction and keeps its place until it is granted or gives up.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from lakelock.data_locks.base import DataLease, DataLocks, LockedData, timeout
from lakelock.data_locks.request import LockRequest, collide
from lakelock.data_locks.watch import MARGIN_S
from lakelock.data_locks.zookeeper_nodes import TABLE_QUEUE, Asked, node_data, queue_name, shown
from lakelock.data_locks.zookeeper_requests import all_nodes, nodes_of, read_requests, remove, remove_each, waking
from lakelock.data_locks.zookeeper_waiter import DataWaiter
from lakelock.errors import LakelockError, LockError, ProviderUnavailable, SettingsError
from lakelock.events import Event, EventKind
from lakelock.providers.base import Lease, Opening
from lakelock.providers.polling import NO_ANSWER
from lakelock.providers.zookeeper_lease import HeldBySession
from lakelock.providers.zookeeper_place import Place, parse_place
from lakelock.providers.zookeeper_session import Sight, ZooKeeperSession, check_driver
from lakelock.providers.zookeeper_waiter import Within, reading, syncing

_TRY_S = 1.0
"""What a try that may not wait gives the service to answer, and how long somebody who gives up stays to clean up."""
_GIVE_BACK_S = 2.0
_LONGEST_WAIT_S = 1.0
_PAUSE_S = 0.05


class ZooKeeperDataLease(HeldBySession, DataLease):
    """Granted locks, and the nodes that stand for them."""

    def __init__(
        self, locks: ZooKeeperDataLocks, request: LockRequest, waiter: DataWaiter, seen: Sight, lease_s: float
    ) -> None:
        super().__init__(
            locks.runtime, locks.writer, request, grant=waiter.grant, token=waiter.token, lease_s=lease_s, began_s=seen.began_s
        )
        self.waiter = waiter
        self.held_by(waiter.session, seen, locks.renew)


@dataclass
class _Asking:
    """One `acquire`; `until_s` is when it gives up."""

    request: LockRequest
    until_s: float
    waiter: DataWaiter | None = None


class ZooKeeperDataLocks(DataLocks):
    """The data locks of one table below one node."""

    _session: ZooKeeperSession | None
    _held: dict[str, ZooKeeperDataLease]

    def __init__(self, opening: Opening) -> None:
        self.table = opening.storage.uri
        self.runtime, self.writer, self._events = opening.runtime, opening.writer, opening.events
        self._settings, self._options = opening.settings.data_locks, opening.settings.zookeeper
        lock = parse_place(opening.uri, opening.storage)
        self._place = Place(lock.hosts, f"{lock.path}.data")
        self._table_queue = f"{self._place.path}/{TABLE_QUEUE}"
        check_driver(self._options)
        self._start_afresh()

    @property
    def identity(self) -> str:
        return self._place.identity

    def acquire(self, request: LockRequest, *, wait_s: float | None = None) -> DataLease:
        wait_s = self._settings.wait_s if wait_s is None else wait_s
        asking = _Asking(request, self.runtime.monotonic_s() + wait_s)
        try:
            lease = self._wait(asking, wait_s)
        except BaseException:
            self._abandon(asking.waiter)
            raise
        self._held[lease.grant] = lease
        return lease

    def renew(self, lease: Lease) -> Lease:
        lease.ensure_not_lost()
        held = self._mine(lease)
        seen = held.session.sight()
        within_s = min(self._options.request_timeout_s, self._settings.renew_s, held.remaining_s())
        path = held.waiter.table_node
        _, stat = held.session.ask(within_s, syncing(path), lambda client: client.exists_async(path))
        held.ensure_not_lost()
        if stat is None or stat.czxid != held.token or stat.ephemeralOwner != held.session.id:
            held.lose("taken-over", "its nodes are gone: somebody broke the locks")
            held.ensure_not_lost()
        held.confirm(seen)
        return lease

    def release(self, lease: Lease) -> None:
        if not lease.is_here or self._held.pop(lease.grant, None) is None:
            return
        held = self._mine(lease)
        until_s = self.runtime.monotonic_s() + _GIVE_BACK_S
        try:
            while not held.session_is_over:
                try:
                    held.waiter.leave(lambda: max(0.0, until_s - self.runtime.monotonic_s()))
                    break
                except NO_ANSWER as error:
                    if self.runtime.monotonic_s() >= until_s:
                        self._abandon_later(held.waiter)
                        problem = f"data locks are not given back yet, and will be as soon as possible: {error.message}"
                        self._events.emit(Event(EventKind.ALERT, self.table, facts={"problem": problem}))
                        break
        finally:
            lease.lose("released")

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

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        for lease in tuple(self._held.values()):
            with suppress(LakelockError):
                self.release(lease)
        session, self._session = self._session, None
        if session is not None:
            session.end(wait_s=_TRY_S)

    def _wait(self, asking: _Asking, wait_s: float) -> ZooKeeperDataLease:
        failure: LakelockError | None = None
        told = False
        while True:
            try:
                lease, failure = self._attempt(asking), None
                if lease is not None:
                    return lease
            except NO_ANSWER as error:
                if error.details.get("final"):
                    raise
                failure = error
            left_s = asking.until_s - self.runtime.monotonic_s()
            if left_s <= 0:
                break
            blocker = asking.waiter.blocker if asking.waiter else None
            if blocker and not told:
                told = True
                facts = {"holder": str(shown(blocker)), "locks": str(asking.request)}
                self._events.emit(Event(EventKind.WAITING_FOR_LOCK, self.table, facts=facts))
            self._pause(asking.waiter, min(left_s, _LONGEST_WAIT_S))
        if failure is not None:
            raise ProviderUnavailable(
                f"the data locks of {self.table} could not be taken within {wait_s:g} s: {failure.message}", hint=failure.hint
            ) from failure
        raise timeout(self.table, asking.request, self._blockers(asking), wait_s)

    def _attempt(self, asking: _Asking) -> ZooKeeperDataLease | None:
        session, waiter, within = self._open(), asking.waiter, self._patience(asking)
        if waiter is not None and waiter.session is session and waiter.is_waiting:
            return None
        if not session.wait_connected(min(within(), self._options.connect_timeout_s)):
            raise session.unreachable("no connection")
        lease_s = self._lease_s(session)
        if waiter is None or waiter.session is not session or waiter.is_out:
            self._abandon_later(waiter)
            grant = self.runtime.uuid()
            data = node_data(asking.request, self.writer, grant, lease_s)
            waiter = DataWaiter(session, self._place.path, asking.request, data, grant, self.runtime)
            asking.waiter = waiter
        seen = waiter.step(within)
        return None if seen is None else ZooKeeperDataLease(self, asking.request, waiter, seen, lease_s)

    def _pause(self, waiter: DataWaiter | None, at_most_s: float) -> None:
        session = self._session
        if waiter is not None and waiter.is_waiting:
            waiter.wait(at_most_s)
        elif session is not None and not session.is_over and not session.is_connected:
            session.wait_connected(at_most_s)
        elif waiter is None or not waiter.wait(0):
            self.runtime.sleep(min(at_most_s, _PAUSE_S * (0.5 + self.runtime.random())))

    def _blockers(self, asking: _Asking) -> tuple[LockedData, ...]:
        """Who is in the way of a request that gives up."""
        waiter = asking.waiter
        if waiter is None:
            return ()
        try:
            asked = read_requests(waiter.session, self._table_queue, lambda: _TRY_S)
        except LakelockError:
            return (shown(waiter.blocker),) if waiter.blocker else ()
        before = [each for each in asked if each.token < waiter.token]
        return tuple(shown(each) for each in before if collide(each.request, asking.request))

    def _abandon(self, waiter: DataWaiter | None) -> None:
        if waiter is not None:
            try:
                waiter.leave(lambda: _TRY_S)
            except LakelockError:
                self._abandon_later(waiter)

    def _abandon_later(self, waiter: DataWaiter | None) -> None:
        # The session is not ended, as it may hold the locks of other threads.
        if waiter is not None and waiter.may_be_there:
            waiter.session.pursue(lambda: waiter.leave(lambda: waiter.session.timeout_s))

    def _watch_until_over(self, session: ZooKeeperSession, found: Asked) -> None:
        """Return once the session of the holder has ended, and `LockError` if it lives longer than one lease."""
        until_s = self.runtime.monotonic_s() + (found.lease_s or self._settings.lease_s) + MARGIN_S
        while True:
            gone = self.runtime.flag()
            (node,) = session.ask(self._patience()(), reading(self._table_queue, found.name, waking(gone)))
            if node is None:
                return
            if not gone.wait(max(0.0, until_s - self.runtime.monotonic_s())):
                raise LockError(
                    f"the data locks with token {found.token} are held by {found.writer or found.name}, whose session is alive",
                    hint="wait: ZooKeeper frees the locks of the dead without your help; to break them all the same, use force",
                    token=found.token,
                )

    def _patience(self, asking: _Asking | None = None) -> Within:
        """How long the next request may take: not beyond the end of the wait, but long enough for one try."""
        longest_s = self._options.request_timeout_s
        if asking is None:
            return lambda: longest_s
        return lambda: min(longest_s, max(_TRY_S, asking.until_s - self.runtime.monotonic_s()))

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

    def _mine(self, lease: Lease) -> ZooKeeperDataLease:
        if not isinstance(lease, ZooKeeperDataLease):
            raise LockError("this lease was granted by another service", hint="give it to the one that granted it")
        return lease

    def _connected(self) -> ZooKeeperSession:
        session = self._open()
        if not session.wait_connected(self._options.connect_timeout_s):
            raise session.unreachable("no connection")
        return session

    def _open(self) -> ZooKeeperSession:
        if self._pid != os.getpid():
            # A forked process holds nothing, is another writer, and must not touch the connection of its parent.
            self.writer = replace(self.writer, writer_id=self.runtime.uuid(), pid=os.getpid())
            self._start_afresh()
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = ZooKeeperSession(self._place, self._options, self._settings.lease_s, self.runtime)
            return self._session

    def _start_afresh(self) -> None:
        self._pid, self._opening = os.getpid(), self.runtime.mutex()
        self._session, self._held = None, {}
