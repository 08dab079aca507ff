"""One place in the queue of a ZooKeeper lock: entered, watched, left, and found again when a reply got lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakelock.clock import Flag, Runtime
from lakelock.errors import ProviderUnavailable
from lakelock.providers.base import Holder
from lakelock.providers.zookeeper.queue import Contender, in_order, prefix
from lakelock.providers.zookeeper.session import Request, Sight, ZooKeeperSession

Within = Callable[[], float]
"""How many seconds the next request may take."""

_TRIES = 5
_EPHEMERAL, _SEQUENTIAL = 1, 2


class Waiter:
    """Waits in the queue under `path` with a node of its own. Used by one thread."""

    def __init__(self, session: ZooKeeperSession, path: str, grant: str, data: bytes, runtime: Runtime) -> None:
        self.session, self.node, self.holder = session, None, None
        self._path, self._data, self._runtime = path, data, runtime
        self._epoch, self._prefix = session.epoch, prefix(grant)
        self._in_doubt = False
        self._woken: Flag | None = None

    session: ZooKeeperSession
    node: Contender | None
    """Our node, once it is known."""
    holder: Holder | None
    """Who held the lock when we last looked."""

    @property
    def is_out(self) -> bool:
        """Whether the session has ended, and our node with it."""
        return self.session.epoch != self._epoch

    @property
    def may_be_there(self) -> bool:
        """Whether a node of ours may be in the queue."""
        return self._in_doubt or (self.node is not None and not self.is_out)

    @property
    def is_waiting(self) -> bool:
        """Whether we are in the queue and nothing has happened before us; a watch may be that of a later session."""
        return self._woken is not None and not self._woken.is_set() and not self.is_out

    def wait(self, at_most_s: float) -> bool:
        """Wait until the one before us leaves, or the connection is interrupted; False when neither happened."""
        return self._woken is not None and self._woken.wait(at_most_s)

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
                lambda client: client.get_children_async(self._path),
            )
            # While we waited for a connection another session may have begun, which has the node then.
            self._in_doubt = self.is_out
            if created is not None:
                self.node = Contender.of(created[0].rpartition("/")[2], self._data, created[1])
                return list(listed or ())
            # Nobody has used this lock yet, or its node is a container, which ZooKeeper removes when it is empty.
            self.session.ask(within(), lambda client: client.ensure_path_async(self._path, self.session.acl))
        raise ProviderUnavailable(f"the node {self._path} keeps vanishing from ZooKeeper", hint="find out who removes it")

    def leave(self, within: Within) -> None:
        """Take our node out of the queue, also one of which we have not heard."""
        if self.node is None and not self._find(within, self._listed(within)):
            return
        assert self.node is not None
        self.session.ask(within(), removing(self._path, self.node.name))

    def _listed(self, within: Within) -> list[str]:
        """The children as of now: without the sync a server that lags behind shows nodes of sessions that are over."""
        _, children = self.session.ask(within(), syncing(self._path), lambda client: client.get_children_async(self._path))
        return list(children or ())

    def _find(self, within: Within, children: list[str]) -> bool:
        """Recognise a node of ours whose creation was not confirmed; False if there is none."""
        for name in children:
            if name.startswith(self._prefix):
                (found,) = self.session.ask(within(), reading(self._path, name))
                if found is not None and found[1].ephemeralOwner == self.session.id:
                    self.node, self._in_doubt = Contender.of(name, *found), False
                    return True
        self._in_doubt = False
        return False

    def _watch(self, within: Within, order: list[str]) -> bool:
        """Be woken when the one before us leaves, and learn who holds the lock; False if it has left already."""
        assert self.node is not None
        woken = self._runtime.flag()
        before = order[order.index(self.node.name) - 1]
        requests = [reading(self._path, before, lambda event: woken.set())]
        if before != order[0]:
            requests.append(reading(self._path, order[0]))
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
        found = session.ask(within(), *(reading(path, name) for name in order))
        queue = [Contender.of(name, *node) for name, node in zip(order, found, strict=True) if node is not None]
        if not order or (queue and queue[0].name == order[0]):
            return queue, listed[1].pzxid
    raise ProviderUnavailable(f"the queue at {path} in ZooKeeper changes too fast to be read", hint="look again")


def entering(path: str, data: bytes, acl: list[Any]) -> Request:
    """Create a node whose name the service completes; its path and stat.

    kazoo's own `create_async` hands the answer on from thread to thread, which takes longer than the rest of the work here.
    """

    def create(client: Any) -> Any:
        from kazoo.protocol.serialization import Create2

        result = client.handler.async_result()
        client._call(Create2(path, data, acl, _EPHEMERAL | _SEQUENTIAL), result)
        return result

    return create


def reading(path: str, name: str, watch: Callable[[Any], None] | None = None) -> Request:
    return partial(_read, f"{path}/{name}", watch)


def removing(path: str, name: str) -> Request:
    return lambda client: client.delete_async(f"{path}/{name}")


def syncing(path: str) -> Request:
    """What follows in the same call sees everything that was done before it."""
    return lambda client: client.sync_async(path)


def _read(path: str, watch: Callable[[Any], None] | None, client: Any) -> Any:
    return client.get_async(path, watch=watch)
