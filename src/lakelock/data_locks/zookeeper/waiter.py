"""One request for data locks in ZooKeeper's queues: entered as a whole, watched, left, and found again after a lost reply."""

from __future__ import annotations

from lakelock.clock import Runtime
from lakelock.data_locks.request import LockRequest, Resource
from lakelock.data_locks.zookeeper.nodes import TABLE_QUEUE, Asked, grant_of, node_prefix, queue_name, standing
from lakelock.data_locks.zookeeper.requests import creating, in_chunks, nodes_of, remove, remove_each, unless
from lakelock.errors import LakelockError, ProviderUnavailable
from lakelock.providers.zookeeper.queue import in_order
from lakelock.providers.zookeeper.requests import checking, ensuring, listing, reading, removing, syncing, vanishing, waking
from lakelock.providers.zookeeper.session import Sight, ZooKeeperSession
from lakelock.providers.zookeeper.waiter import SessionWaiter, Within

_TRIES = 5
MANY_QUEUES = 10_000
"""More resources than this are not remembered: a writer that adds some removes twice as many that nobody uses."""


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
        """Go as far as possible without waiting; what was seen when nobody was in our way, None while somebody is."""
        for _ in range(_TRIES):
            self._woken = None
            if not self._nodes:
                self._enter(within)
            seen = self.session.sight()
            there = self._look(within)
            if self.is_out:
                break
            if not there:
                # Somebody removed us: we go to the end of the queues.
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
            # Only queues without nodes can be removed; whoever needs one just then creates it again.
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
            # Every request is in this queue, so nobody is before us in any other.
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
