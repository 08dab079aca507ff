"""Running a function in a transaction over several tables, again and again until nobody came between: bounded, with jitter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lakelock.errors import ConflictError, RolledBackError
from lakelock.events import EventKind
from lakelock.occ.coordinator import Coordinator
from lakelock.occ.multi_table.transaction import MultiTableTransaction
from lakelock.occ.records.commit_keys import AppTransaction
from lakelock.retry import Backoff

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
    the tables, this returns None: its transaction is in all of them or in none. Every other error passes through.
    """
    first = coordinators[0].table
    policy = first.settings.retry
    waits = Backoff(policy.attempts, policy.first_wait_s, policy.longest_wait_s).waits(first.runtime)
    for attempt in range(1, policy.attempts + 1):
        tx: MultiTableTransaction | None = None
        try:
            with MultiTableTransaction.begin(coordinators, application=application, tag=tag) as tx:
                result = function(tx)
                tx.commit()
            return result
        except (ConflictError, RolledBackError) as error:
            if application is not None and any(each.applied_by(application) is not None for each in coordinators):
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
