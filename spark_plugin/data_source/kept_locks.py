"""Data locks of a write through `format("lakelock")`: held by a keeper, because no Python process of Spark lives that long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lakelock.data_locks import Resource
from lakelock.data_locks.keeper import KeeperOrder, Keeping, KeptLocks, SignOfLife, keeping
from lakelock.events import Event, EventKind, Events
from lakelock.markers.heartbeat import HeartbeatRecord
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.data_locking import lost_locks
from lakelock.table import layout


@contextmanager
def locked(table: Coordinator, operation: str, targets: tuple[Resource, ...], *, tag: str = "") -> Iterator[Keeping | None]:
    """In PESSIMISTIC mode wait for the operation's locks, and have them kept; `LockTimeout` names who is in the way.

    Call this where Spark plans the write. If the block ends before the locks are handed over, they are given back.
    """
    if not table.data.for_writes:
        yield None
        return
    table.ensure_same_provider(record=False)
    request = table.data.request_of_write(operation, targets, tag=tag)
    # The process above is Spark's daemon for Python workers, which ends with the JVM, or the JVM itself.
    opened = table.table
    order = KeeperOrder(opened.location, opened.settings, request, opened.writer, above=os.getppid())
    with keeping(order) as kept:
        facts: dict[str, object] = {"waited_s": kept.locks.waited_s, "token": kept.locks.token, "locks": str(request)}
        opened.emit(EventKind.DATA_LOCKED, "", request.about, **facts)
        yield kept


def sign_of_life(heartbeat: HeartbeatRecord) -> SignOfLife:
    """How the keeper sees that the transaction with this heartbeat has ended."""
    return SignOfLife(layout.heartbeat(heartbeat.instant), heartbeat.limit_s)


@contextmanager
def given_back(locks: KeptLocks | None, table: str, instant: str, operation: str) -> Iterator[None]:
    """Give the locks back however the block ends; send an alert if they were lost before."""
    try:
        yield
    finally:
        lost = locks.release() if locks is not None else ""
        if lost:
            Events().emit(Event(EventKind.ALERT, table, instant, operation, {"problem": lost_locks(lost)}))
