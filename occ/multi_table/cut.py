"""Several tables as of one moment: no transaction over them is seen by halves.

In this order: the heads of all logs, all timelines, the outcome of each transaction whose prepare is a head and not completed,
and all heads again. If no head has moved, every view is of one moment: a transaction that was decided before its outcome was
read had all its prepares in place, so in each table it is the head, or below it and visible. `docs/adr/0021` has the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakelock.errors import InputError, SnapshotTooOld
from lakelock.occ.multi_table.locks import all_locked
from lakelock.occ.open_table import OpenTable
from lakelock.occ.publishing.settling import by_outcome, finish_head
from lakelock.occ.records.decisions import Decision, DecisionKind, LogView, Resolution
from lakelock.occ.records.outcomes import MOST_TABLES, read_outcome
from lakelock.table.instants import Instant, State
from lakelock.table.timeline import Timeline

ROUNDS = 5
"""How often the heads may move before the tables are looked at under their locks."""


def timelines_of_one_moment(tables: Sequence[OpenTable]) -> tuple[Timeline, ...]:
    """The timeline of each table, all as of one moment, in the order in which the tables are given. Writes nothing.

    A commit that has its outcome, and is still to be published somewhere, is completed in each of them. If others commit so
    often that five looks do not suffice, the tables are looked at under their commit locks. `SnapshotTooOld` if that fails.
    """
    uris = {table.storage.uri for table in tables}
    if not uris or len(uris) < len(tables) or len(tables) > MOST_TABLES:
        raise InputError("a snapshot needs different tables", hint=f"name each table once, at most {MOST_TABLES}")
    for _ in range(ROUNDS):
        found = _look(tables)
        if found is not None:
            return found
    with all_locked([(table, partial(table.locked, operation="SNAPSHOT")) for table in tables]):
        for table in tables:
            finish_head(table, table.log.look(), table.timeline())
        found = _look(tables)
    if found is None:
        raise SnapshotTooOld(f"others kept committing to {', '.join(sorted(uris))} in each look", hint="run it again")
    return found


def _look(tables: Sequence[OpenTable]) -> tuple[Timeline, ...] | None:
    """One look; None if a head has moved meanwhile."""
    views = [table.log.look() for table in tables]
    timelines = [table.timeline_of_one_moment() for table in tables]
    open_heads = {
        at: head for at, head in enumerate(map(_prepared, views)) if head and not timelines[at].is_visible(head.instant)
    }
    # Each transaction is judged once, and the same in all of its tables: between two looks it could be decided.
    committed: dict[str, bool] = {}
    for at, head in open_heads.items():
        transaction = head.transaction
        assert transaction is not None
        if transaction.id not in committed:
            outcome = read_outcome(tables[at].storage_of(transaction.home), transaction.id)
            committed[transaction.id] = by_outcome(tables[at], head, outcome).resolution is Resolution.COMMITTED
        if committed[transaction.id]:
            done = Instant(head.instant, head.action, State.COMPLETED, head.completion)
            timelines[at] = timelines[at].with_completed(done)
    heads = [table.log.look(newest=0).head for table in tables]
    return tuple(timelines) if heads == [view.head for view in views] else None


def _prepared(view: LogView) -> Decision | None:
    head = view.decisions[-1] if view.decisions else None
    return head if head is not None and head.kind is DecisionKind.PREPARE else None
