"""The table lock as a queue in ZooKeeper: Curator's InterProcessMutex, so Java Hudi's writers take part in it.

What Java Hudi's ZookeeperBasedLockProvider creates and understands is in `zookeeper_queue`. Entering the queue and seeing
that it is empty is one round trip, and so is leaving it. A waiter watches the one before it and asks nothing meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from lakelock.errors import LakelockError, LeaseLost, LockError, SettingsError
from lakelock.providers.base import Holder, Lease, LockState, Opening, Strength
from lakelock.providers.polling import NO_ANSWER, Attempt, PollingProvider
from lakelock.providers.zookeeper.lease import ZooKeeperLease
from lakelock.providers.zookeeper.place import parse_place
from lakelock.providers.zookeeper.queue import Contender, node_data
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession, check_driver
from lakelock.providers.zookeeper.waiter import Waiter, read_queue, removing, syncing

STRENGTH = Strength(
    exclusion="linearizable queue of the ensemble; a holder that is cut off beyond its session's time-out is replaced and "
    "finds out",
    token="the czxid of the holder's node, from the ensemble's transaction log; grows across release, crash and Java writers",
    crash_release="at the end of the dead holder's session: one lease after its last ping",
    failover="a held lock survives the loss of a minority of the servers and a change of the leader",
    clock_assumption="equal rates; no clock is compared across machines",
    fairness="in order of arrival, also between processes and with Java writers",
    cost="2 round trips for acquire and release; one per waiter and release, without polling",
)

_CLOSE_S = 1.0
"""How long closing waits for the service to hear that the session is over."""

_TELL_S = 1.0
_GIVE_BACK_S = 2.0


class ZooKeeperLockProvider(PollingProvider):
    """The lock of one table as one znode, whose children are the contenders."""

    _session: ZooKeeperSession | None
    _waiter: Waiter | None
    _look_once_more: bool
    _about_me: bytes

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._place = parse_place(opening.uri, opening.storage)
        self._options = opening.settings.zookeeper
        check_driver(self._options)

    @property
    def identity(self) -> str:
        return self._place.identity

    @property
    def strength(self) -> Strength:
        return STRENGTH

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        session = self._open()
        waiter = self._waiter
        if waiter is not None and waiter.session is session and waiter.is_waiting and not self._look_once_more:
            return waiter.holder
        self._look_once_more = False
        within = self._patience(attempt)
        if not session.wait_connected(min(within(), self._options.connect_timeout_s)):
            raise session.unreachable("no connection")
        if waiter is None or waiter.session is not session or waiter.is_out:
            grant = attempt.grant
            if waiter is not None and waiter.may_be_there:
                # It is looked for by its name, and must not be taken for the next one.
                waiter.session.pursue(partial(waiter.leave, lambda: session.timeout_s))
                grant = self.runtime.uuid()
            waiter = self._waiter = self._new_waiter(session, grant)
        seen = waiter.step(within)
        if seen is None or waiter.node is None:
            return waiter.holder
        lease = self._lease(session, waiter.node, seen)
        self._waiter = None
        return lease

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        waiter, session = self._waiter, self._session
        pause_s = min(at_most_s, _TELL_S)
        if waiter is not None and waiter.is_waiting:
            woken = waiter.wait(pause_s)
            # Who holds the lock in the end is asked once more, for the message: those before us may have moved on.
            self._look_once_more = not woken and pause_s == at_most_s
        elif session is not None and not session.is_over and not session.is_connected:
            session.wait_connected(pause_s)
        elif waiter is None or not waiter.wait(0):
            super().pause(attempt, at_most_s)

    def abandon(self, attempt: Attempt) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or not waiter.may_be_there:
            return
        try:
            waiter.leave(self._patience(attempt))
        except LakelockError:
            session = waiter.session
            session.end(lambda: waiter.leave(lambda: session.timeout_s))

    def extend(self, lease: Lease) -> None:
        held = self._mine(lease)
        seen = held.session.sight()
        # Not longer than until the next renewal: a release would have to wait for this one.
        within_s = min(self._options.request_timeout_s, self._settings.renew_s, held.remaining_s())
        path = f"{self._place.path}/{held.grant}"
        _, stat = held.session.ask(within_s, syncing(path), lambda client: client.exists_async(path))
        held.ensure_not_lost()
        if stat is None or stat.czxid != held.token or stat.ephemeralOwner != held.session.id:
            raise LeaseLost(
                f"the lock of {self.table} was taken away: its node {held.grant} is gone",
                hint="somebody broke the lock; run the operation again",
                reason="taken-over",
                token=held.token,
            )
        held.confirm(seen)

    def give_back(self, lease: Lease) -> None:
        held = self._mine(lease)
        session, leave = held.session, removing(self._place.path, held.grant)
        until_s = self.runtime.monotonic_s() + _GIVE_BACK_S
        while not held.session_is_over:
            left_s = max(0.0, until_s - self.runtime.monotonic_s())
            try:
                session.ask(left_s, leave)
                return
            except NO_ANSWER:
                if self.runtime.monotonic_s() >= until_s:
                    session.end(lambda: session.ask(session.timeout_s, leave))
                    raise

    def close(self) -> None:
        super().close()
        session, self._session = self._session, None
        if session is not None and self._pid == os.getpid():
            session.end(wait_s=_CLOSE_S)

    def inspect(self) -> LockState:
        queue, latest = self._read_queue(self._open())
        if not queue:
            return LockState(None, latest)
        holders = tuple(contender.holder for contender in queue)
        return LockState(holders[0], holders[0].token, holders[1:])

    def break_lock(self, token: int, *, force: bool = False) -> None:
        session = self._open()
        queue, _ = self._read_queue(session)
        if not queue:
            return
        found = queue[0]
        if found.token != token:
            raise LockError(
                f"the lock of {self.table} has token {found.token}, not {token}: another grant has followed",
                hint=f"look again with `lakelock locks ls {self.table}`",
                token=found.token,
            )
        if found.session_id and not force:
            raise LockError(
                f"the lock of {self.table} is held by {found.holder}, whose session is alive",
                hint="wait: ZooKeeper frees the lock of a dead holder without your help; to break it all the same, use force",
                holder=found.holder.as_dict(),
            )
        session.ask(self._options.request_timeout_s, removing(self._place.path, found.name))

    def probe(self) -> None:
        session = self._open()
        if not session.wait_connected(self._options.connect_timeout_s):
            raise session.unreachable("no connection")
        # Going to the end of the queue and leaving it takes every permission that the lock needs, and disturbs nobody.
        waiter = self._new_waiter(session, self.runtime.uuid())
        try:
            waiter.enter(self._patience())
            self._lease_s(session)
        finally:
            if waiter.may_be_there:
                waiter.leave(self._patience())

    def _new_waiter(self, session: ZooKeeperSession, grant: str) -> Waiter:
        if not self._about_me:
            self._about_me = node_data(self.writer, self._settings.lease_s)
        return Waiter(session, self._place.path, grant, self._about_me, self.runtime)

    def _read_queue(self, session: ZooKeeperSession) -> tuple[list[Contender], int]:
        if not session.wait_connected(self._options.connect_timeout_s):
            raise session.unreachable("no connection")
        return read_queue(session, self._place.path, self._patience())

    def _patience(self, attempt: Attempt | None = None) -> Callable[[], float]:
        """How long the next request may take: hardly beyond the end of the attempt."""
        longest_s = self._options.request_timeout_s
        if attempt is None:
            return lambda: longest_s
        return lambda: min(longest_s, self.within_s(attempt))

    def _lease(self, session: ZooKeeperSession, node: Contender, seen: Sight) -> Lease:
        return ZooKeeperLease(self, session, node, seen, self._lease_s(session))

    def _lease_s(self, session: ZooKeeperSession) -> float:
        """How long a lease is: never longer than the server keeps a silent session."""
        lease_s, renew_s = min(self._settings.lease_s, session.timeout_s), self._settings.renew_s
        if lease_s < 2 * renew_s:
            raise SettingsError(
                f"this ZooKeeper ends silent sessions after {lease_s:g} s, which is too soon for lock.renew_s = {renew_s:g}",
                hint=f"set lock.lease_s = {lease_s:g} and lock.renew_s = {lease_s / 3:.3g}, or raise its maxSessionTimeout",
                key="lock.lease_s",
            )
        return lease_s

    def _mine(self, lease: Lease) -> ZooKeeperLease:
        if not isinstance(lease, ZooKeeperLease):
            raise LockError("this lease was granted by another provider", hint="give it to the provider that granted it")
        return lease

    def _open(self) -> ZooKeeperSession:
        self._notice_fork()
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = ZooKeeperSession(self._place, self._options, self._settings.lease_s, self.runtime)
            return self._session

    def _start_afresh(self) -> None:
        # A forked process must not touch the connection of its parent, so it is let go and not closed.
        super()._start_afresh()
        self._opening = self.runtime.mutex()
        self._session = None
        self._waiter = None
        self._look_once_more = False
        self._about_me = b""

    def _rest(self, wait_s: float) -> None:
        """The queue is fair: nobody needs to stay away."""
