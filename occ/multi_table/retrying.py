"""Running a function in a transaction over several tables, again and again until nobody came between: bounded, with jitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from lakelock.errors import ConflictError, InputError, RolledBackError
from lakelock.events import EventKind
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.locking.nesting import running_on
from lakelock.occ.multi_table.transaction import MultiTableTransaction
from lakelock.occ.records.commit_keys import AppTransaction, uris_over
from lakelock.retry import Backoff
from lakelock.table.archive import extra_of_write

T = TypeVar("T")


def run_over(
    coordinators: Sequence[Coordinator],
    function: Callable[[MultiTableTransaction], T],
    *,
    application: AppTransaction | None = None,
    tag: str = "",
) -> T | None:
    """Call `function` with a new transaction over the tables, and commit it; again after a conflict that a retry can resolve.

    At most `retry.attempts` times, by the settings of the first table. If the application has applied its version, in any of
    the tables, this returns None: its transaction is in all of them or in none. `InputError` if that was a transaction over
    other tables. The function may begin no other transaction on these (`TransactionStateError`). Other errors pass through.
    """
    first = coordinators[0].table
    policy = first.settings.retry
    waits = Backoff(policy.attempts, policy.first_wait_s, policy.longest_wait_s).waits(first.runtime)
    for attempt in range(1, policy.attempts + 1):
        tx: MultiTableTransaction | None = None
        try:
            with MultiTableTransaction.begin(coordinators, application=application, tag=tag) as tx:
                with ExitStack() as running:
                    for each in coordinators:
                        running.enter_context(running_on(each.table.storage.uri))
                    result = function(tx)
                tx.commit()
            return result
        except (ConflictError, RolledBackError) as error:
            if application is not None and _has_applied(coordinators, application):
                return None
            helps = not isinstance(error, ConflictError) or error.conflict.retry_helps
            if not helps or attempt == policy.attempts:
                error.details["attempts"] = attempt
                raise
            wait_s, cause = next(waits), error.message.splitlines()[0]
            first.emit(
                EventKind.RETRY, "", "TRANSACTION", attempt=attempt, of=policy.attempts, wait_s=round(wait_s, 2), cause=cause
            )
            first.runtime.sleep(wait_s)
    raise AssertionError("the last attempt returns or raises")


def _has_applied(coordinators: Sequence[Coordinator], application: AppTransaction) -> bool:
    """Whether these tables have the version already. `InputError` if it was applied by a transaction over other tables."""
    mine = [each.table.storage.uri for each in coordinators]
    for each in coordinators:
        party = each.applied_by(application)
        if party is None:
            continue
        over = uris_over(extra_of_write(each.table.storage, each.table.timeline(), party.instant))
        if over and set(over) != set(mine):
            raise InputError(
                f"{application} is applied in {each.table.storage.uri} already, by a transaction over {', '.join(over)}, and "
                f"this one is over {', '.join(mine)}: it would be taken for the same, and skipped",
                hint="write all tables in one function, or give each its own stream (its own checkpoint)",
            )
        return True
    return False
