"""The queue of one lock in ZooKeeper, as Curator's InterProcessMutex keeps it: places, requests and leases.

Each contender is an ephemeral sequential child `_c_<uuid>-lock-<number>` of the lock's node, and the lowest number holds
the lock. Curator sorts every child of the node by what follows its last `lock-`, so every child that ends in a number
takes part here too. Numbers are compared modulo 2^32: the server's counter runs over into negative numbers after 2^31
contenders, and the newcomer must not overtake the holder then (in Curator, which compares text, it does).

A place is entered, watched, left, and found again when a reply was lost. A session sends several requests in one round
trip. There is one session per process, and leases are no longer than its time-out; an interruption does not end a lease,
but puts it in doubt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from lakelock.clock import Flag, Runtime
from lakelock.errors import LeaseLost, LockError, ProviderUnavailable
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import Holder, Lease, LeaseLoss
from lakelock.providers.polling import PollingProvider
from lakelock.providers.zookeeper.session import (
    Request,
    Sight,
    ZooKeeperSession,
)

_SEQUENCE = re.compile(r"lock-(-?\d{9,10})$|(\d{10})$").search
_CIRCLE = 1 << 32
_LONGEST_SHOWN = 80


class Stat(Protocol):
    """The part of a node's stat that is needed here."""

    @property
    def czxid(self) -> int: ...
    @property
    def ctime(self) -> int: ...
    @property
    def ephemeralOwner(self) -> int: ...  # noqa: N802 - the name is kazoo's


def prefix(grant: str) -> str:
    """The beginning of the name of a contender; the uuid finds it again when the reply to its creation was lost."""
    return f"_c_{grant}-lock-"


def in_order(children: Iterable[str]) -> list[str]:
    """The contenders among `children`, the holder first."""
    numbers = {child: int(found[1] or found[2]) for child in children if (found := _SEQUENCE(child))}
    if len(numbers) < 2:
        return list(numbers)
    # Less than half the circle is in use at any time, so the first one is where the largest gap ends.
    circle = sorted({number % _CIRCLE for number in numbers.values()})
    gaps = [(number - before) % _CIRCLE or _CIRCLE for before, number in zip([circle[-1], *circle], circle, strict=False)]
    first = circle[gaps.index(max(gaps))]
    return sorted(numbers, key=lambda child: ((numbers[child] - first) % _CIRCLE, child))


def node_data(writer: WriterIdentity, lease_s: float) -> bytes:
    """What a contender writes into its node. Curator never reads it."""
    return json.dumps({"writer": writer.as_dict(), "leaseMs": round(lease_s * 1000)}, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Contender:
    """One node of the queue as it was read."""

    name: str
    data: bytes
    token: int
    session_id: int
    created_ms: int

    @classmethod
    def of(cls, name: str, data: bytes, stat: Stat) -> Contender:
        return cls(name, data, stat.czxid, stat.ephemeralOwner, stat.ctime)

    @property
    def holder(self) -> Holder:
        """Who it is. For a foreign writer: the name of its node and what it wrote there."""
        try:
            fields = JsonObject.parse(self.data)
            writer, lease_ms = WriterIdentity.from_dict(fields.child("writer").fields), fields.get("leaseMs")
        except ValueError:
            return Holder(self._foreign_name(), token=self.token, since_ms=self.created_ms)
        lease_s = lease_ms / 1000 if type(lease_ms) is int and 0 < lease_ms < 2**63 else None
        return Holder(self.name, writer, self.token, lease_s, since_ms=self.created_ms)

    def _foreign_name(self) -> str:
        said = self.data[:_LONGEST_SHOWN].decode("utf-8", "replace")
        return f"{self.name}: {said}" if said and said.isprintable() else self.name


_EPHEMERAL, _SEQUENTIAL = 1, 2


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


def ensuring(path: str, acl: list[Any]) -> Request:
    """Create a node that stays, and those above it, where they are missing."""
    return lambda client: client.ensure_path_async(path, acl)


def listing(path: str) -> Request:
    return lambda client: client.get_children_async(path)


def checking(path: str) -> Request:
    """The stat of a node."""
    return lambda client: client.exists_async(path)


def reading(path: str, watch: Callable[[Any], None] | None = None) -> Request:
    """Data and stat of a node."""
    return partial(_read, path, watch)


def removing(path: str) -> Request:
    return lambda client: client.delete_async(path)


def syncing(path: str) -> Request:
    """What follows in the same call sees everything that was done before it."""
    return lambda client: client.sync_async(path)


def waking(woken: Flag) -> Callable[[Any], None]:
    """The callback of a watch: wake the waiter for the flag, whatever happened."""
    return lambda event: woken.set()


def vanishing(path: str) -> ProviderUnavailable:
    """The error for a queue that is removed as often as it is created."""
    return ProviderUnavailable(f"the node {path} keeps vanishing from ZooKeeper", hint="find out who removes it")


def _read(path: str, watch: Callable[[Any], None] | None, client: Any) -> Any:
    return client.get_async(path, watch=watch)


Within = Callable[[], float]
"""How many seconds the next request may take."""

_TRIES = 5


class Waiter:
    """Waits in the queue under `path` with one node of one session, until the contender before us leaves. For one thread."""

    def __init__(self, session: ZooKeeperSession, path: str, grant: str, data: bytes, runtime: Runtime) -> None:
        self.session, self._runtime, self._epoch = session, runtime, session.epoch
        self._woken: Flag | None = None
        self.node, self.holder = None, None
        self._path, self._data, self._prefix = path, data, prefix(grant)
        self._in_doubt = False

    node: Contender | None
    """Our node, once it is known."""
    holder: Holder | None
    """Who held the lock when we last looked."""

    @property
    def is_out(self) -> bool:
        """Whether the session has ended, and our nodes with it."""
        return self.session.epoch != self._epoch

    @property
    def is_waiting(self) -> bool:
        """Whether we are queued and nothing has happened before us; a watch may be that of a later session."""
        return self._woken is not None and not self._woken.is_set() and not self.is_out

    def wait(self, at_most_s: float) -> bool:
        """Wait until a contender before us leaves, or the connection is interrupted; False if neither happens."""
        return self._woken is not None and self._woken.wait(at_most_s)

    def _is_ours(self, stat: Stat | None) -> bool:
        return stat is not None and stat.ephemeralOwner == self.session.id

    @property
    def may_be_there(self) -> bool:
        """Whether a node of ours may be in the queue."""
        return self._in_doubt or (self.node is not None and not self.is_out)

    def step(self, within: Within) -> Sight | None:
        """Go as far as possible without waiting; what was seen when we are first, None while another contender is before us."""
        for _ in range(_TRIES):
            self._woken = None
            seen = self.session.sight()
            order = in_order(self._listed(within) if self.node else self.enter(within))
            if self.is_out:
                break
            if self.node is None or self.node.name not in order:
                self.node = None  # it was removed: we go to the end of the queue
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
            # This lock was never used yet, or its node is a container, which ZooKeeper removes when it is empty.
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


_LOOK_AGAIN_S = 0.02


class ZooKeeperLease(Lease):
    """The lock, the node that stands for it, and the session that the node belongs to.

    After a broken connection (SUSPENDED) it is unknown whether the session is still alive. `ensure_active` then waits
    until the service has confirmed session and node, as long as there is time.
    """

    def __init__(
        self, provider: PollingProvider, session: ZooKeeperSession, node: Contender, seen: Sight, lease_s: float
    ) -> None:
        super().__init__(
            provider.runtime, provider.writer, grant=node.name, token=node.token, lease_s=lease_s, began_s=seen.began_s
        )
        self.session, self._renew = session, provider.renew
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
