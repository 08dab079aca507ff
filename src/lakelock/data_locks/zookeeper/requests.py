"""Requests to ZooKeeper that concern many nodes: transactions, and removals that find some nodes gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakelock.data_locks.zookeeper.nodes import Asked, grant_of
from lakelock.errors import LockError
from lakelock.providers.zookeeper.queue import in_order
from lakelock.providers.zookeeper.requests import listing, reading, removing, syncing
from lakelock.providers.zookeeper.session import Request, ZooKeeperSession
from lakelock.providers.zookeeper.waiter import Within

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
