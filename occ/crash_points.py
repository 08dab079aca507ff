"""Named steps of a transaction, so that tests can kill a process exactly there.

`reached(step)` does nothing unless the environment variable `LAKELOCK_CRASH_AT` names the step (`decided`, or `decided:2` for
the second time it is reached): then the process dies by SIGKILL, or stops by SIGSTOP with `LAKELOCK_STOP_AT`. Only tests and
the demo set them, before the process begins: they are read once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Step(str, Enum):
    """Each step is named after what has just happened. The order is that of a transaction's life."""

    HEARTBEAT_STARTED = "heartbeat-started"
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    FINISHED_FOR_ANOTHER = "finished-for-another"
    ABORTED_FOR_ANOTHER = "aborted-for-another"
    GIVEN_UP = "given-up"
    BEGUN = "begun"
    CLAIMED = "claimed"
    MARKED = "marked"
    FILE_OPENED = "file-opened"
    FILE_WRITTEN = "file-written"
    DATA_WRITTEN = "data-written"
    RECONCILED = "reconciled"
    LOCKED = "locked"
    SET_ASIDE = "set-aside"
    RESERVED = "reserved"
    VALIDATED = "validated"
    PREPARED = "prepared"
    OUTCOME_PUT = "outcome-put"
    DECIDED = "decided"
    METADATA_LOGGED = "metadata-logged"
    METADATA_KEPT = "metadata-kept"
    PUBLISHED = "published"
    UNLOCKED = "unlocked"
    CLEANED = "cleaned"
    ROLLBACK_DECIDED = "rollback-decided"
    ROLLBACK_DATA_DELETED = "rollback-data-deleted"
    ROLLBACK_MARKERS_DELETED = "rollback-markers-deleted"
    ROLLBACK_INFLIGHT_DELETED = "rollback-inflight-deleted"
    ROLLBACK_PENDING_DELETED = "rollback-pending-deleted"
    ROLLBACK_PLANNED = "rollback-planned"
    ROLLBACK_RECORDED = "rollback-recorded"
    BOUNDARY_RAISED = "boundary-raised"
    COLLECTED = "collected"
    CLEAN_PLANNED = "clean-planned"
    CLEAN_DELETED = "clean-deleted"
    CLEAN_COMPLETED = "clean-completed"
    SAVEPOINT_SHOWN = "savepoint-shown"
    SAVEPOINT_TAKEN = "savepoint-taken"
    METADATA_PLANNED = "metadata-planned"
    METADATA_COMPACTED = "metadata-compacted"
    HISTORY_WRITTEN = "history-written"
    HISTORY_SHOWN = "history-shown"
    ARCHIVED = "archived"


_hook: Callable[[Step], object] | None = None


def at_each_step(hook: Callable[[Step], object]) -> None:
    """Have `hook` called at each step that this process reaches from now on, and nothing else."""
    global _hook
    _hook = hook


def reached(step: Step) -> None:
    """Mark that this process has reached `step`."""
    if _hook is not None:
        _hook(step)
