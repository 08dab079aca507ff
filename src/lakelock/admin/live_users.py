"""Who uses a table right now, for acts that must have it to themselves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from lakelock.errors import LockError
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign.single_writer import live_others
from lakelock.occ.open_table import OpenTable


def live_users(coordinator: Coordinator, *, held_by_me: bool) -> tuple[str, ...]:
    """Everybody who relies on the table's lock now: running transactions, its holder and queue, data locks.

    Whoever was killed with a lock may be among them: only watching for a lease tells.
    """
    found = _running(coordinator)
    provider = coordinator.table.provider
    state = provider.inspect() if provider is not None and not held_by_me else None
    if state is not None:
        found += [f"{holder}, who holds the lock" for holder in (state.holder,) if holder]
        found += [f"{holder}, waiting for the lock" for holder in state.queue]
    return (*found, *_with_data_locks(coordinator))


def users_but_the_dead(coordinator: Coordinator) -> tuple[str, ...]:
    """Running transactions; where there are none, whoever has data locks and renews them while it is watched for one lease.

    Data locks of the dead are dropped, as any waiter would do. The lock's own holder is not looked at: whoever takes the lock
    waits for it, or replaces it.
    """
    running = _running(coordinator)
    if running:
        return tuple(running)
    locks = coordinator.data.locks
    watched: list[Callable[[], None]] = [partial(locks.break_lock, seen.token) for seen in locks.inspect()]
    coordinator.table.runtime.gather([partial(_dropped_if_dead, each) for each in watched], limit=len(watched))
    return tuple(_with_data_locks(coordinator))


def refuse_live(table: OpenTable, live: tuple[str, ...], so: str = "it is not changed") -> None:
    """`LockError` that names those who use the table, and what follows: `so`."""
    if live:
        raise LockError(
            f"{table.storage.uri} is being used, so {so}: {'; '.join(live[:5])}",
            hint="stop these writers, or wait until they have ended, and run it again",
            live=list(live[:20]),
        )


def _dropped_if_dead(drop: Callable[[], None]) -> None:
    with suppress(LockError):  # who renews is alive, and is found afterwards
        drop()


def _running(coordinator: Coordinator) -> list[str]:
    table = coordinator.table
    return [str(party) for party in live_others(table, table.timeline())]


def _with_data_locks(coordinator: Coordinator) -> list[str]:
    return [f"{seen}, with data locks" for seen in coordinator.data.locks.inspect()]
