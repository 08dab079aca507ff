"""A client of ZooKeeper: one session per process, and leases no longer than the session's time-out."""

from __future__ import annotations

import os
import weakref
from math import inf
from typing import Any

from lakelock.errors import SettingsError
from lakelock.providers.base import Opening
from lakelock.providers.lock_client import LockClient
from lakelock.providers.zookeeper.lease import HeldBySession
from lakelock.providers.zookeeper.options import ZooKeeperOptions
from lakelock.providers.zookeeper.place import Place
from lakelock.providers.zookeeper.session import NO_CONNECTION, ZooKeeperSession, check_driver


class ZooKeeperClient(LockClient):
    """The part of a lock provider, or of data locks, that keeps the session."""

    _session: ZooKeeperSession | None
    _end_when_lost: weakref.finalize[..., Any] | None

    def _locate(self, place: Place, opening: Opening) -> None:
        self._place, self._options = place, ZooKeeperOptions.of(opening.settings.lock_options)
        check_driver(self._options)

    @property
    def identity(self) -> str:
        return self._place.identity

    def _open(self) -> ZooKeeperSession:
        """The existing session, or a new one; it may not be connected yet."""
        self._notice_fork()
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = ZooKeeperSession(self._place, self._options, self._leasing.lease_s, self.runtime)
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
        name, renew_s = self._leasing.section, self._leasing.renew_s
        lease_s = min(self._leasing.lease_s, session.timeout_s)
        if lease_s < 2 * renew_s:
            raise SettingsError(
                f"this ZooKeeper ends silent sessions after {lease_s:g} s, which is too soon for {name}.renew_s = {renew_s:g}",
                hint=f"set {name}.lease_s = {lease_s:g} and {name}.renew_s = {lease_s / 3:.3g}, or raise its maxSessionTimeout",
                key=f"{name}.lease_s",
            )
        return lease_s

    def _renewed(self, held: HeldBySession, node: str) -> bool:
        # Not longer than until the next renewal: a release would have to wait for this one.
        return held.renew_by(node, min(self._options.request_timeout_s, self._leasing.renew_s))

    def _ends_with_me(self, session: ZooKeeperSession) -> None:
        """End the session when nobody refers to this client any more, although it was not closed: its threads would stay."""
        if self._end_when_lost is not None:
            self._end_when_lost.detach()
        self._end_when_lost = weakref.finalize(self, _end_here, session, os.getpid())
        self._end_when_lost.atexit = False

    def _end_session(self, wait_s: float) -> None:
        session, self._session = self._session, None
        if session is not None and self._pid == os.getpid():
            session.end(wait_s=wait_s)

    def _start_afresh(self) -> None:
        # A forked process must not touch the connection of its parent, so it is let go and not closed.
        super()._start_afresh()
        self._opening, self._session, self._end_when_lost = self.runtime.mutex(), None, None


def _end_here(session: ZooKeeperSession, pid: int) -> None:
    """A forked process leaves the session of its parent alone."""
    if pid == os.getpid():
        session.end()
