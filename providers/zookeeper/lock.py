"""The table lock as a queue in ZooKeeper: Curator's InterProcessMutex, so Java Hudi's writers take part in it.

What Java Hudi's ZookeeperBasedLockProvider creates and understands is in `queue`. Entering the queue and seeing
that it is empty is one round trip, and so is leaving it. A waiter watches the one before it and sends no requests meanwhile.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from lakelock.errors import LakelockError, SettingsError
from lakelock.providers.base import NO_ANSWER, Holder, Lease, LockState, Opening, Strength, granted_as
from lakelock.providers.polling import Attempt, PollingProvider
from lakelock.providers.zookeeper.queue import (
    Contender,
    Waiter,
    ZooKeeperLease,
    node_data,
    read_queue,
    removing,
)
from lakelock.providers.zookeeper.session import NO_CONNECTION, ZooKeeperOptions, ZooKeeperSession, check_driver, parse_place

STRENGTH = Strength(
    exclusion="linearizable queue of the ensemble; a holder cut off for longer than its session's time-out is replaced, and "
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

    strength = STRENGTH
    _waiter: Waiter | None
    _look_once_more: bool
    _about_me: bytes
    _session: ZooKeeperSession | None
    _end_when_lost: weakref.finalize[..., Any] | None

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._place = parse_place(opening.uri, opening.storage)
        self._options = ZooKeeperOptions.of(opening.settings.lock_options)
        check_driver(self._options)

    @property
    def identity(self) -> str:
        return self._place.identity

    def attempt(self, attempt: Attempt) -> Lease | Holder | None:
        session = self._open()
        waiter = self._waiter
        if waiter is not None and waiter.session is session and waiter.is_waiting and not self._look_once_more:
            return waiter.holder
        self._look_once_more = False
        within = self._patience(attempt)
        self._ensure_connected(session, within())
        if waiter is None or waiter.session is not session or waiter.is_out:
            grant = attempt.grant
            if waiter is not None and waiter.may_be_there:
                # The old node would be found by its name, and must not be taken for the new one.
                waiter.session.keep_trying(partial(waiter.leave, lambda: session.timeout_s))
                grant = self.runtime.uuid()
            waiter = self._waiter = self._new_waiter(session, grant)
        seen = waiter.step(within)
        if seen is None or waiter.node is None:
            return waiter.holder
        lease = ZooKeeperLease(self, session, waiter.node, seen, self._lease_s(session))
        self._waiter = None
        return lease

    def pause(self, attempt: Attempt, at_most_s: float) -> None:
        waiter = self._waiter
        pause_s = min(at_most_s, _TELL_S)
        if waiter is not None and waiter.is_waiting:
            woken = waiter.wait(pause_s)
            # The holder is looked up once more at the end, for the message: those before us may have moved on.
            self._look_once_more = not woken and pause_s == at_most_s
        elif not self._wait_reconnected(pause_s) and (waiter is None or not waiter.wait(0)):
            super().pause(attempt, at_most_s)

    def abandon(self, attempt: Attempt) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or not waiter.may_be_there:
            return
        try:
            waiter.leave(self._patience(attempt))
        except BaseException as error:
            session = waiter.session
            session.end(lambda: waiter.leave(lambda: session.timeout_s))
            if not isinstance(error, LakelockError):
                raise

    def extend(self, lease: Lease) -> None:
        held = granted_as(ZooKeeperLease, lease)
        # Not longer than until the next renewal: a release would have to wait for this one.
        within_s = min(self._options.request_timeout_s, self._settings.renew_s)
        if not held.renew_by(f"{self._place.path}/{held.grant}", within_s):
            hint = "the lock was broken by an operator; run the operation again"
            raise self.taken_over(held, f"was taken away: its node {held.grant} is gone", hint)

    def give_back(self, lease: Lease) -> None:
        held = granted_as(ZooKeeperLease, lease)
        session, leave = held.session, removing(f"{self._place.path}/{held.grant}")
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
            except BaseException:
                # Refused, or interrupted by Ctrl-C: the node would stay, and keep others out, as long as the session does.
                session.end()
                raise

    def disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None and self._pid == os.getpid():
            session.end(wait_s=_CLOSE_S)

    def inspect(self) -> LockState:
        queue, latest = self._read_queue(self._connected())
        if not queue:
            return LockState(None, latest)
        holders = tuple(contender.holder for contender in queue)
        return LockState(holders[0], holders[0].token, holders[1:])

    def break_lock(self, token: int, *, force: bool = False) -> None:
        session = self._connected()
        queue, _ = self._read_queue(session)
        if not queue:
            return
        found = queue[0]
        self.ensure_latest(token, found.token)
        if found.session_id and not force:
            hint = "wait: ZooKeeper frees the lock of a dead holder without your help"
            raise self.still_held(found.holder, "whose session is alive", hint)
        session.ask(self._options.request_timeout_s, removing(f"{self._place.path}/{found.name}"))

    def probe(self) -> None:
        session = self._connected()
        # Entering the queue at its end and leaving it needs every permission that the lock needs, and disturbs no other.
        waiter = self._new_waiter(session, self.runtime.uuid())
        try:
            waiter.enter(self._patience())
            self._lease_s(session)
        finally:
            if waiter.may_be_there:
                try:
                    waiter.leave(self._patience())
                except BaseException:
                    session.end()
                    raise

    def _new_waiter(self, session: ZooKeeperSession, grant: str) -> Waiter:
        if not self._about_me:
            self._about_me = node_data(self.writer, self._settings.lease_s)
        return Waiter(session, self._place.path, grant, self._about_me, self.runtime)

    def _read_queue(self, session: ZooKeeperSession) -> tuple[list[Contender], int]:
        return read_queue(session, self._place.path, self._patience())

    def _patience(self, attempt: Attempt | None = None) -> Callable[[], float]:
        """How long the next request may take: not much beyond the end of the attempt."""
        longest_s = self._options.request_timeout_s
        if attempt is None:
            return lambda: longest_s
        return lambda: min(longest_s, self.within_s(attempt))

    def _open(self) -> ZooKeeperSession:
        """The existing session, or a new one; it may not be connected yet."""
        self._notice_fork()
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = ZooKeeperSession(self._place, self._options, self._settings.lease_s, self.runtime)
                self._ends_with_me(self._session)
            return self._session

    def _connected(self) -> ZooKeeperSession:
        session = self._open()
        self._ensure_connected(session)
        return session

    def _ensure_connected(self, session: ZooKeeperSession, within_s: float = inf) -> None:
        """Wait for a connection; `ProviderUnavailable` if there is none within `lock.options.connect_timeout_s`."""
        if not session.wait_connected(min(within_s, self._options.connect_timeout_s)):
            raise session.unreachable(NO_CONNECTION)

    def _wait_reconnected(self, at_most_s: float) -> bool:
        """Wait for a lost connection to come back; False, at once, when none was lost."""
        session = self._session
        if session is None or session.is_over or session.is_connected:
            return False
        session.wait_connected(at_most_s)
        return True

    def _lease_s(self, session: ZooKeeperSession) -> float:
        """How long a lease is: never longer than the server keeps a silent session."""
        renew_s = self._settings.renew_s
        lease_s = min(self._settings.lease_s, session.timeout_s)
        if lease_s < 2 * renew_s:
            raise SettingsError(
                f"this ZooKeeper ends silent sessions after {lease_s:g} s, which is too soon for lock.renew_s = {renew_s:g}",
                hint=f"set lock.lease_s = {lease_s:g} and lock.renew_s = {lease_s / 3:.3g}, or raise its maxSessionTimeout",
                key="lock.lease_s",
            )
        return lease_s

    def _ends_with_me(self, session: ZooKeeperSession) -> None:
        """End the session when this client is garbage, although it was not closed: its threads would stay."""
        if self._end_when_lost is not None:
            self._end_when_lost.detach()
        self._end_when_lost = weakref.finalize(self, _end_here, session, os.getpid())
        self._end_when_lost.atexit = False

    def _start_afresh(self) -> None:
        # A forked process must not touch the connection of its parent, so it is let go and not closed.
        super()._start_afresh()
        self._opening, self._session, self._end_when_lost = self.runtime.mutex(), None, None
        self._waiter, self._look_once_more, self._about_me = None, False, b""

    def _rest(self, wait_s: float) -> None:
        """No need to stay away: the queue is fair."""


def _end_here(session: ZooKeeperSession, pid: int) -> None:
    """A forked process leaves the session of its parent alone."""
    if pid == os.getpid():
        session.end()
