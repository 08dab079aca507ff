"""Data locks as queues in ZooKeeper: Hive's read and write nodes, with fair order and without polling.

A request enters the queues of all its resources in one transaction and keeps its place until it is granted or gives up.
It is found again after a lost reply. Next to the commit lock's node `<lock>` is `<lock>.data`, with one node for each
resource that was ever locked and, in it, the queue of this resource:

```
<lock>.data/@table/read-<grant>-lock-0000000007                  what was asked for, and by whom
<lock>.data/month=1/read-<grant>-lock-0000000003                 empty
<lock>.data/month=1%2Fday=2/write-<grant>-lock-0000000000        empty
```

All nodes of a request are made in one transaction, so that every queue has the requests in the same order, and are
ephemeral. Every request locks the table, so the queue of the table is also the list of all requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lakelock.clock import Runtime
from lakelock.data_locks.base import (
    TABLE,
    DataLease,
    LockedData,
    LockRequest,
    Mode,
    PollingDataLocks,
    Resource,
    Waiting,
    collide,
    lock_request,
)
from lakelock.data_locks.lock_table import request_fields, request_of
from lakelock.errors import LakelockError, LockError, ProviderUnavailable
from lakelock.identity import WriterIdentity
from lakelock.parsing import JsonObject
from lakelock.providers.base import DRIFT_MARGIN_S, NO_ANSWER, Lease, Opening, granted_as
from lakelock.providers.zookeeper.queue import (
    HeldBySession,
    SessionWaiter,
    Stat,
    Within,
    ZooKeeperClient,
    checking,
    ensuring,
    in_order,
    listing,
    reading,
    removing,
    syncing,
    vanishing,
    waking,
)
from lakelock.providers.zookeeper.session import Place, Request, Sight, ZooKeeperSession, parse_place

TABLE_QUEUE = "@table"
"""No partition has this name: `@` is written as %40 in partition names."""
_SAFE = " !$&'()*+,:;="
_WORDS = {Mode.SHARED: "read", Mode.EXCLUSIVE: "write"}
_GRANT = re.compile(r"(?:read|write)-([0-9a-f-]{36})-lock-").match


def queue_name(resource: Resource) -> str:
    """The name of the node that has the queue of a resource: one path component, different for different resources."""
    return TABLE_QUEUE if resource == TABLE else quote(resource.path, safe=_SAFE)


def node_prefix(mode: Mode, grant: str) -> str:
    """The beginning of a node's name; the server adds the number. The grant finds it again when a reply was lost."""
    return f"{_WORDS[mode]}-{grant}-lock-"


def grant_of(name: str) -> str:
    """Which request a node belongs to; of a foreign node its whole name."""
    found = _GRANT(name)
    return found[1] if found else name


def _is_shared(name: str) -> bool:
    return name.startswith("read-")


@dataclass(frozen=True)
class Standing:
    """Where a request stands in one queue: its node, and the nearest one before it that is in its way."""

    node: str
    before: str | None


def standing(children: Iterable[str], grant: str) -> Standing | None:
    """None when the request is not in this queue."""
    order = in_order(children)
    place = next((place for place, name in enumerate(order) if grant_of(name) == grant), None)
    if place is None:
        return None
    node = order[place]
    in_my_way = (name for name in reversed(order[:place]) if not (_is_shared(node) and _is_shared(name)))
    return Standing(node, next(in_my_way, None))


@dataclass(frozen=True)
class Asked:
    """One node of the table's queue as it was read: a request and its writer. `writer` is None for a foreign node."""

    name: str
    request: LockRequest
    token: int
    since_ms: int
    writer: WriterIdentity | None = None
    lease_s: float | None = None

    @property
    def grant(self) -> str:
        return grant_of(self.name)

    @classmethod
    def of(cls, name: str, data: bytes, stat: Stat) -> Asked:
        """A node that cannot be read counts as a lock on the table."""
        try:
            fields = JsonObject.parse(data)
            writer = WriterIdentity.from_dict(fields.child("writer").fields)
            return cls(name, request_of(fields), stat.czxid, stat.ctime, writer, fields.integer("leaseMs", at_least=1) / 1000)
        except ValueError:
            request = lock_request(shared=[TABLE]) if _is_shared(name) else lock_request(exclusive=[TABLE])
            return cls(name, request, stat.czxid, stat.ctime)


def node_data(request: LockRequest, writer: WriterIdentity, grant: str, lease_s: float) -> bytes:
    """The content of the node in the table's queue."""
    fields = {"grant": grant, **request_fields(request), "writer": writer.as_dict(), "leaseMs": round(lease_s * 1000)}
    return json.dumps(fields, separators=(",", ":")).encode()


def shown(asked: Asked, before: Sequence[Asked] = ()) -> LockedData:
    """A request for people to see; `before` are those that came earlier."""
    in_the_way = tuple(each.token for each in before if collide(each.request, asked.request))
    return LockedData(
        token=asked.token,
        owner=asked.grant,
        request=asked.request,
        held=not in_the_way,
        writer=asked.writer,
        lease_s=asked.lease_s,
        since_ms=asked.since_ms,
        blocked_by=in_the_way,
    )


MOST_BYTES = 1_000_000
"""A server accepts requests of 1 MB (jute.maxbuffer), and closes the connection of a client that sends more."""
_HEADER_BYTES = 9
_CHUNK = 500
_UNDECIDED = ("RolledBackError", "RuntimeInconsistency")


class _Whole:
    """The result of a transaction: its answers, or the one error that undid it."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def get(self, timeout: float) -> Any:
        answers = self._result.get(timeout=timeout)
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        for error in errors:
            if type(error).__name__ not in _UNDECIDED:
                raise error
        if errors:
            raise errors[0]
        return answers


class _Unless:
    """A result where errors of some kinds are an answer: False."""

    def __init__(self, result: Any, kinds: Sequence[str]) -> None:
        self._result, self._kinds = result, kinds

    def get(self, timeout: float) -> Any:
        try:
            self._result.get(timeout=timeout)
        except Exception as error:
            if type(error).__name__ not in self._kinds:
                raise
            return False
        return True


def creating(nodes: Mapping[str, bytes], *, ephemeral: bool) -> Request:
    """Create all these nodes or none; the ephemeral ones are numbered. The answer is their paths."""

    def request(client: Any) -> Any:
        transaction = client.transaction()
        for path, data in nodes.items():
            transaction.create(path, data, ephemeral=ephemeral, sequence=ephemeral)
        size = sum(len(operation.serialize()) + _HEADER_BYTES for operation in transaction.operations)
        if size > MOST_BYTES:
            raise LockError(
                f"a request for {len(nodes)} data locks takes {size} bytes, and ZooKeeper takes 1 MB at once",
                hint="lower data_locks.escalate_above, so that a request for many partitions becomes one lock on their parent",
            )
        return _Whole(transaction.commit_async())

    return request


def deleting(paths: Iterable[str]) -> Request:
    """Delete all these nodes or none; the answer is None when one is not there."""

    def request(client: Any) -> Any:
        transaction = client.transaction()
        for path in paths:
            transaction.delete(path)
        return _Whole(transaction.commit_async())

    return request


def unless(kinds: Sequence[str], request: Request) -> Request:
    """The request; False instead of an error of these kinds."""
    return lambda client: _Unless(request(client), kinds)


def in_chunks(session: ZooKeeperSession, requests: Sequence[Request], within: Within) -> list[Any]:
    """The answers to many requests, some hundred at a time, each time within its bound."""
    answers = []
    for start in range(0, len(requests), _CHUNK):
        answers += session.ask(within(), *requests[start : start + _CHUNK])
    return answers


def remove(session: ZooKeeperSession, paths: Sequence[str], within: Within) -> None:
    """Remove all these nodes: in one transaction if all are there, otherwise those that are left."""
    if paths and session.ask(within(), deleting(paths))[0] is None:
        remove_each(session, paths, within)


def remove_each(session: ZooKeeperSession, paths: Sequence[str], within: Within) -> None:
    """Remove these nodes one by one, without a transaction; nodes that are already gone do not matter."""
    in_chunks(session, [removing(path) for path in paths], within)


def nodes_of(session: ZooKeeperSession, queues: Sequence[str], grant: str, within: Within) -> list[str]:
    """The paths of the nodes that a request has in these queues."""
    session.ask(within(), syncing(queues[0]))
    found = in_chunks(session, [listing(queue) for queue in queues], within)
    listed = zip(queues, found, strict=True)
    return [f"{queue}/{name}" for queue, names in listed for name in names or () if grant_of(name) == grant]


def all_nodes(session: ZooKeeperSession, base: str, within: Within) -> list[str]:
    """The paths of everything in every queue."""
    (names,) = session.ask(within(), listing(base))
    queues = [f"{base}/{name}" for name in names or ()]
    listed = zip(queues, in_chunks(session, [listing(queue) for queue in queues], within), strict=True)
    return [f"{queue}/{name}" for queue, found in listed for name in found or ()]


def read_requests(session: ZooKeeperSession, table_queue: str, within: Within) -> list[Asked]:
    """All requests in order of arrival, as of now."""
    _, names = session.ask(within(), syncing(table_queue), listing(table_queue))
    order = in_order(names or ())
    found = in_chunks(session, [reading(f"{table_queue}/{name}") for name in order], within)
    return [Asked.of(name, *node) for name, node in zip(order, found, strict=True) if node is not None]


_TRIES = 5
MANY_QUEUES = 10_000
"""More resources than this are not remembered: a writer that adds some removes twice as many unused ones."""


class DataWaiter(SessionWaiter):
    """Waits with one node in the queue of each resource.

    Granted once no queue has a node before ours that is in our way. Nodes before us only leave, so a queue that was clear stays
    clear. In each other queue only the nearest node in our way is watched, one queue after the other: a release wakes
    only those who waited for it.
    """

    def __init__(
        self, session: ZooKeeperSession, base: str, request: LockRequest, data: bytes, grant: str, runtime: Runtime
    ) -> None:
        super().__init__(session, runtime)
        self.grant, self.token, self.blocker, self._base, self._data = grant, 0, None, base, data
        self._queues = {lock.resource: f"{base}/{queue_name(lock.resource)}" for lock in request.locks}
        self._prefixes = {lock.resource: node_prefix(lock.mode, grant) for lock in request.locks}
        self._table_queue, self._table_order = f"{base}/{TABLE_QUEUE}", list[str]()
        self._nodes, self._in_doubt, self._unsure = list[str](), False, False
        self._to_look_at: set[Resource] = set(self._queues)
        self._before: dict[Resource, str] = {}

    token: int
    """The czxid of our nodes, once it is known."""
    blocker: Asked | None
    """One of those in our way when we last looked."""

    @property
    def may_be_there(self) -> bool:
        """Whether a node of ours may be in some queue."""
        return self._unsure or (bool(self._nodes) and not self.is_out)

    @property
    def table_node(self) -> str:
        """The path of our node in the queue of the table."""
        return next(node for node in self._nodes if node.startswith(f"{self._table_queue}/"))

    def step(self, within: Within) -> Sight | None:
        """Go as far as possible without waiting; what was seen when no request was in our way, None while one is."""
        for _ in range(_TRIES):
            self._woken = None
            if not self._nodes:
                self._enter(within)
            seen = self.session.sight()
            there = self._look(within)
            if self.is_out:
                break
            if not there:
                # Our nodes were removed: we go to the end of the queues.
                self.leave(within)
                self._nodes, self._before, self._to_look_at = [], {}, set(self._queues)
            elif not self._before:
                return seen
            elif self._watch(within):
                break
        return None

    def leave(self, within: Within) -> None:
        """Take our nodes out of all queues, even those whose creation was not confirmed."""
        if not self.may_be_there:
            return
        nodes = self._find(within) if self._unsure else self._nodes
        remove(self.session, nodes, within)

    def _find(self, within: Within) -> list[str]:
        return nodes_of(self.session, list(self._queues.values()), self.grant, within)

    def _enter(self, within: Within) -> None:
        """Create all our nodes in one transaction, unless an earlier try has done so."""
        if self._in_doubt:
            self._nodes, self._in_doubt = self._found_again(within), False
        paths = {f"{self._queues[resource]}/{prefix}": b"" for resource, prefix in self._prefixes.items()}
        paths[next(path for path in paths if path.startswith(f"{self._table_queue}/"))] = self._data
        for _ in range(_TRIES):
            if self._nodes:
                return
            if self._create(paths, within) is None:
                self._make_queues(within)
        if not self._nodes:
            raise vanishing(self._base)

    def _found_again(self, within: Within) -> list[str]:
        """Our nodes whose creation was not confirmed; none unless there is one in every queue."""
        for _ in range(2):
            found = self._find(within)
            if not found or len(found) >= len(self._queues):
                return found
            # They were created while we listed the queues, so only the queues listed later show them.
        remove_each(self.session, found, within)
        return []

    def _create(self, paths: dict[str, bytes], within: Within) -> list[str] | None:
        unsure, self._in_doubt, self._unsure = self._unsure, True, True
        try:
            (made,) = self.session.ask(within(), creating(paths, ephemeral=True))
        except LakelockError as error:
            if not isinstance(error, ProviderUnavailable):  # a definite no
                self._in_doubt, self._unsure = False, unsure
            raise
        # While we waited for a connection, another session may have begun, and the nodes are then that session's.
        self._in_doubt, self._unsure = False, unsure or self.is_out
        self._nodes = list(made or ())
        return None if made is None else self._nodes

    def _make_queues(self, within: Within) -> None:
        """Create the nodes that hold the queues, where they are missing; another writer may do the same."""
        (names,) = self.session.ask(within(), listing(self._base))
        if names is None:
            self.session.ask(within(), ensuring(self._base, self.session.acl))
        there, mine = set(names or ()), {queue.rpartition("/")[2] for queue in self._queues.values()}
        missing = {f"{self._base}/{name}": b"" for name in mine - there}
        if missing:
            self.session.ask(within(), unless(("NodeExistsError",), creating(missing, ephemeral=False)))
        if len(there) > MANY_QUEUES:
            # Only queues without nodes can be removed; a request that needs one just then creates it again.
            unused = sorted(there - mine)
            first = int(self._runtime.random() * len(unused))
            chosen = (unused + unused)[first : first + 2 * len(missing)]
            requests = [unless(("NotEmptyError", "NoNodeError"), removing(f"{self._base}/{name}")) for name in chosen]
            in_chunks(self.session, requests, within)

    def _look(self, within: Within) -> bool:
        """Learn who is in our way; False when our node is gone."""
        mine = self.table_node
        requests = (syncing(self._table_queue), checking(mine), listing(self._table_queue))
        _, stat, names = self.session.ask(within(), *requests)
        if not self._is_ours(stat):
            return False
        self.token, self._table_order = stat.czxid, in_order(names or ())
        first = next(iter(self._table_order), None)
        if first is None:
            return False
        if grant_of(first) == self.grant:
            # Every request is in this queue, so none is before us in any other.
            self._before, self._to_look_at = {}, set()
            return True
        wanted = sorted(self._to_look_at)
        found = in_chunks(self.session, [listing(self._queues[resource]) for resource in wanted], within)
        for resource, children in zip(wanted, found, strict=True):
            place = standing(children or (), self.grant)
            if place is None:
                return False
            self._before.pop(resource, None)
            if place.before is not None:
                self._before[resource] = place.before
        self._to_look_at = set()
        return True

    def _watch(self, within: Within) -> bool:
        """Arrange to be woken when the one in our way leaves, and learn who it is; False if it has already left."""
        resource, name = min(self._before.items())
        woken = self._runtime.flag()
        grant = grant_of(name)
        # All nodes of a request go at once, so once this one has gone, these are the queues to look at again.
        self._to_look_at = {each for each, before in self._before.items() if grant_of(before) == grant}
        requests = [reading(f"{self._queues[resource]}/{name}", waking(woken))]
        asked = next((each for each in self._table_order if grant_of(each) == grant), None)
        if asked is not None and (self.blocker is None or self.blocker.grant != grant):
            requests.append(reading(f"{self._table_queue}/{asked}"))
        found = self.session.ask(within(), *requests)
        if asked is not None and len(found) > 1 and found[1] is not None:
            self.blocker = Asked.of(asked, *found[1])
        if found[0] is None:
            return False
        self._woken = woken
        return True


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
