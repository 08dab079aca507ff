"""The locks of several tables: the commit locks for the end of a transaction, and data locks for the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.data_locking import holding_together
from lakelock.occ.open_table import OpenTable
from lakelock.providers.base import Lease

Taking = Callable[[], AbstractContextManager[Lease | None]]


@contextmanager
def all_locked(wanted: Sequence[tuple[OpenTable, Taking]]) -> Iterator[dict[str, Lease | None]]:
    """Hold the commit locks of all these tables while the block runs; the lease that guards each table, by its URI.

    They are taken in one order, that of their names, so that no two writers hold each other up. Tables that share one lock have
    one lease: whoever asked for it twice would wait for itself. `LockTimeout` after `lock.wait_s` for one of them.
    """
    leases: dict[str, Lease | None] = {}
    by_name: dict[str, Lease | None] = {}
    with ExitStack() as held:
        for table, take in sorted(wanted, key=lambda one: _name(one[0])):
            name = _name(table)
            if name not in by_name:
                by_name[name] = held.enter_context(take())
            leases[table.storage.uri] = by_name[name]
        yield leases


def _name(table: OpenTable) -> str:
    return table.storage.uri if table.provider is None else table.provider.lock_name


def locked_for_writes(coordinators: Sequence[Coordinator]) -> AbstractContextManager[None]:
    """In PESSIMISTIC mode the data locks of all tables, taken together, for everything that the block does; else none.

    `LockTimeout` names whoever was in the way.
    """
    if not any(each.data.for_writes for each in coordinators):
        return nullcontext()
    for each in coordinators:
        each.ensure_same_provider()
    return holding_together([(each.data, each.data.request_of_write("UPSERT", ())) for each in coordinators])
