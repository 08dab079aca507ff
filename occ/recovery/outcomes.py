"""Collecting the outcomes of transactions over several tables that nobody needs any more."""

from __future__ import annotations

from lakelock.errors import LakelockError
from lakelock.events import EventKind
from lakelock.occ.open_table import OpenTable
from lakelock.occ.records.outcomes import OutcomeRecord, TableInstant, read_outcome
from lakelock.table import layout
from lakelock.table.instants import State
from lakelock.table.timeline import Timeline

MOST_AT_ONCE = 100
"""How many outcomes one run looks at, oldest first."""


def collect_outcomes(table: OpenTable, *, dry_run: bool = False) -> int:
    """Delete the outcomes in this home table whose transactions have ended in all of their tables; how many.

    The timelines are listed after the outcome was read. One whose tables cannot all be seen stays: a table that was moved away
    may still need it. Costs one listing where there is none.
    """
    found = sorted(item.key for item in table.storage.list(layout.OUTCOMES))[:MOST_AT_ONCE]
    gone = [key for key in found if _is_over(table, key.rpartition("/")[2])]
    if not dry_run:
        table.storage.delete(gone)
    return len(gone)


def _is_over(table: OpenTable, transaction: str) -> bool:
    try:
        outcome = read_outcome(table.storage, transaction)
        return outcome is not None and not pending_in(table, outcome)
    except LakelockError as error:
        problem = f"the outcome of the transaction {transaction} stays: {error.message}"
        table.emit(EventKind.ALERT, problem=problem)
        return False


def pending_in(table: OpenTable, outcome: OutcomeRecord) -> list[TableInstant]:
    """In which tables the transaction is still pending, or may be: those that are not where they were."""
    return [each for each in outcome.name.tables if _may_be_pending(table, each)]


def _may_be_pending(table: OpenTable, where: TableInstant) -> bool:
    storage = table.storage_of(where.uri)
    if all(storage.get(key) is None for key in (layout.PROPERTIES, layout.PROPERTIES_BACKUP)):
        return True
    state = Timeline.from_listing(storage.list(layout.TIMELINE)).state_of(where.instant)
    return state is not None and state is not State.COMPLETED
