"""Places in the queues of a ZooKeeper lock: entered, watched, left, and found again when a reply was lost."""

from __future__ import annotations

from collections.abc import Callable

from lakelock.clock import Flag, Runtime
from lakelock.errors import ProviderUnavailable
from lakelock.providers.base import Holder
from lakelock.providers.zookeeper.queue import Contender, Stat, in_order, prefix
from lakelock.providers.zookeeper.requests import ensuring, entering, listing, reading, removing, syncing, vanishing, waking
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession

Within = Callable[[], float]
"""How many seconds the next request may take."""

_TRIES = 5


class SessionWaiter:
    """Waits with nodes of one session until somebody before us leaves. Used by one thread.

    Subclasses create nodes differently: the commit lock's node is created and its queue listed in one round trip; data locks'
    nodes are created in one transaction, in several queues.
    """

    def __init__(self, session: ZooKeeperSession, runtime: Runtime) -> None:
        self.session, self._runtime, self._epoch = session, runtime, session.epoch
        self._woken: Flag | None = None

    @property
    def is_out(self) -> bool:
        """Whether the session has ended, and our nodes with it."""
        return self.session.epoch != self._epoch

    @property
    def is_waiting(self) -> bool:
        """Whether we are queued and nothing has happened before us; a watch may be that of a later session."""
        return self._woken is not None and not self._woken.is_set() and not self.is_out

    def wait(self, at_most_s: float) -> bool:
        """Wait until somebody before us leaves, or the connection is interrupted; False if neither happens."""
        return self._woken is not None and self._woken.wait(at_most_s)

    def _is_ours(self, stat: Stat | None) -> bool:
        return stat is not None and stat.ephemeralOwner == self.session.id


class Waiter(SessionWaiter):
    """Waits in the queue under `path` with one node."""

    def __init__(self, session: ZooKeeperSession, path: str, grant: str, data: bytes, runtime: Runtime) -> None:
        super().__init__(session, runtime)
        self.node, self.holder = None, None
        self._path, self._data, self._prefix = path, data, prefix(grant)
        self._in_doubt = False

    node: Contender | None
    """Our node, once it is known."""
    holder: Holder | None
    """Who held the lock when we last looked."""

    @property
    def may_be_there(self) -> bool:
        """Whether a node of ours may be in the queue."""
        return self._in_doubt or (self.node is not None and not self.is_out)

    def step(self, within: Within) -> Sight | None:
        """Go as far as possible without waiting; what was seen when we are first, None while somebody is before us."""
        for _ in range(_TRIES):
            self._woken = None
            seen = self.session.sight()
            order = in_order(self._listed(within) if self.node else self.enter(within))
            if self.is_out:
                break
            if self.node is None or self.node.name not in order:
                self.node = None  # somebody removed it: we go to the end of the queue
            elif order[0] == self.node.name:
                return seen
            elif self._watch(within, order):
                break
        return None

    def enter(self, within: Within) -> list[str]:
        """Create our node, unless an earlier try has done so, and list the children: one round trip."""
        if self._in_doubt:
            children = self._listed(within)
            if self._find(within, children):
                return children
        for _ in range(_TRIES):
            self._in_doubt = True
            created, listed = self.session.ask(
                within(),
                entering(f"{self._path}/{self._prefix}", self._data, self.session.acl),
                listing(self._path),
            )
            # While we waited for a connection, another session may have begun, and the node is then that session's.
            self._in_doubt = self.is_out
            if created is not None:
                self.node = Contender.of(created[0].rpartition("/")[2], self._data, created[1])
                return list(listed or ())
            # Nobody has used this lock yet, or its node is a container, which ZooKeeper removes when it is empty.
            self.session.ask(within(), ensuring(self._path, self.session.acl))
        raise vanishing(self._path)

    def leave(self, within: Within) -> None:
        """Take our node out of the queue, even one whose creation was not confirmed."""
        if self.node is None and not self._find(within, self._listed(within)):
            return
        assert self.node is not None
        self.session.ask(within(), removing(f"{self._path}/{self.node.name}"))

    def _listed(self, within: Within) -> list[str]:
        """The children as of now: without the sync a server that lags behind shows nodes of sessions that are over."""
        _, children = self.session.ask(within(), syncing(self._path), listing(self._path))
        return list(children or ())

    def _find(self, within: Within, children: list[str]) -> bool:
        """Recognise our node whose creation was not confirmed; False if there is none."""
        for name in children:
            if name.startswith(self._prefix):
                (found,) = self.session.ask(within(), reading(f"{self._path}/{name}"))
                if found is not None and self._is_ours(found[1]):
                    self.node, self._in_doubt = Contender.of(name, *found), False
                    return True
        self._in_doubt = False
        return False

    def _watch(self, within: Within, order: list[str]) -> bool:
        """Be woken when the one before us leaves, and learn who holds the lock; False if it has left already."""
        assert self.node is not None
        woken = self._runtime.flag()
        before = order[order.index(self.node.name) - 1]
        requests = [reading(f"{self._path}/{before}", waking(woken))]
        if before != order[0]:
            requests.append(reading(f"{self._path}/{order[0]}"))
        found = self.session.ask(within(), *requests)
        if found[-1] is not None:
            self.holder = Contender.of(order[0], *found[-1]).holder
        if found[0] is None:
            return False
        self._woken = woken
        return True


def read_queue(session: ZooKeeperSession, path: str, within: Within) -> tuple[list[Contender], int]:
    """The contenders, the holder first, and a number that is no less than any token granted so far."""
    for _ in range(_TRIES):
        _, listed = session.ask(within(), syncing(path), lambda client: client.get_children_async(path, include_data=True))
        if listed is None:
            return [], 0
        order = in_order(listed[0])
        found = session.ask(within(), *(reading(f"{path}/{name}") for name in order))
        queue = [Contender.of(name, *node) for name, node in zip(order, found, strict=True) if node is not None]
        if not order or (queue and queue[0].name == order[0]):
            return queue, listed[1].pzxid
    raise ProviderUnavailable(f"the queue at {path} in ZooKeeper changes too fast to be read", hint="look again")
