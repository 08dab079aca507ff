"""Who uses a table right now, for acts that must have it to themselves."""

from __future__ import annotations

from lakelock.occ.coordinator import Coordinator
from lakelock.occ.foreign.single_writer import live_others


def live_users(coordinator: Coordinator, *, held_by_me: bool) -> tuple[str, ...]:
    """Everybody who relies on the table's lock now: running transactions, its holder and queue, data locks."""
    table = coordinator.table
    found = [str(party) for party in live_others(table, table.timeline())]
    state = table.provider.inspect() if table.provider is not None and not held_by_me else None
    if state is not None:
        found += [f"{holder}, who holds the lock" for holder in (state.holder,) if holder]
        found += [f"{holder}, waiting for the lock" for holder in state.queue]
    found += [f"{seen}, with data locks" for seen in coordinator.data.locks.inspect()]
    return tuple(found)
