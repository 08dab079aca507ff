"""Requests to ZooKeeper about one node. A session sends several of them in one round trip."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from lakelock.clock import Flag
from lakelock.errors import ProviderUnavailable
from lakelock.providers.zookeeper.session import Request

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
    """The callback of a watch: wake whoever waits for the flag, whatever happened."""
    return lambda event: woken.set()


def vanishing(path: str) -> ProviderUnavailable:
    """The error for a queue that is removed as often as it is created."""
    return ProviderUnavailable(f"the node {path} keeps vanishing from ZooKeeper", hint="find out who removes it")


def _read(path: str, watch: Callable[[Any], None] | None, client: Any) -> Any:
    return client.get_async(path, watch=watch)
