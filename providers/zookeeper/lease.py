"""A lock that a ZooKeeper session holds: an interruption does not end it, but puts it in doubt."""

from __future__ import annotations

from collections.abc import Callable

from lakelock.errors import LeaseLost, LockError
from lakelock.providers.base import Lease, LeaseLoss
from lakelock.providers.polling import PollingProvider
from lakelock.providers.zookeeper.queue import Contender
from lakelock.providers.zookeeper.requests import checking, syncing
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession

_LOOK_AGAIN_S = 0.02


class HeldBySession(Lease):
    """A lease together with the session that its nodes belong to.

    After a broken connection (SUSPENDED) nobody knows whether the session is still alive. `ensure_active` then waits
    until the service has confirmed session and node, as long as there is time.
    """

    def held_by(self, session: ZooKeeperSession, seen: Sight, renew: Callable[[Lease], object]) -> None:
        """Set which session holds it, as of `seen`, and how it is renewed. Call this first."""
        self.session, self._renew = session, renew
        self._epoch, self._confirmed = seen.epoch, seen.interruptions

    @property
    def is_doubtful(self) -> bool:
        """Whether the connection was interrupted since the service last confirmed the lock."""
        return self.session.interruptions != self._confirmed

    @property
    def session_is_over(self) -> bool:
        return self.session.epoch != self._epoch

    @property
    def lost(self) -> LeaseLoss | None:
        if self.session_is_over:
            self.lose("session-lost", "the ZooKeeper session ended, and its nodes with it")
        elif self.is_doubtful and not self.trouble:
            self.trouble = "the connection to ZooKeeper is interrupted"
        return super().lost

    def confirm(self, seen: Sight) -> None:
        """The service showed the node of this session in an answer to a request as of `seen`."""
        self._confirmed = seen.interruptions
        self.extend(seen.began_s)

    def renew_by(self, node: str, within_s: float) -> bool:
        """Extend the lease if the node at this path still stands for it; False when it is gone."""
        seen = self.session.sight()
        _, stat = self.session.ask(min(within_s, self.remaining_s()), syncing(node), checking(node))
        self.ensure_not_lost()
        if stat is None or stat.czxid != self.token or stat.ephemeralOwner != self.session.id:
            return False
        self.confirm(seen)
        return True

    def ensure_active(self, margin_s: float = 0.0) -> None:
        self.ensure_not_lost(margin_s)
        while self.is_doubtful:
            try:
                if self.session.wait_connected(self.remaining_s() - margin_s):
                    self._renew(self)
            except LeaseLost:
                raise
            except LockError:
                self._runtime.sleep(_LOOK_AGAIN_S)
            self.ensure_not_lost(margin_s)


class ZooKeeperLease(HeldBySession):
    """The commit lock, and the node that stands for it."""

    def __init__(
        self, provider: PollingProvider, session: ZooKeeperSession, node: Contender, seen: Sight, lease_s: float
    ) -> None:
        super().__init__(
            provider.runtime, provider.writer, grant=node.name, token=node.token, lease_s=lease_s, began_s=seen.began_s
        )
        self.held_by(session, seen, provider.renew)
