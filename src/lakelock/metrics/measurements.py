"""What an event counts for: the metrics, and which of them an event adds to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lakelock.events import Event, EventKind

SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
"""Bounds of the buckets of a distribution of seconds."""


@dataclass(frozen=True)
class Metric:
    """A counter, or with `seconds` a distribution of durations. `name` has no prefix; every metric has the label `table`."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    seconds: bool = False

    @property
    def all_labels(self) -> tuple[str, ...]:
        return ("table", *self.labels)


class Measurement(NamedTuple):
    """An amount by which an event adds to a metric."""

    metric: Metric
    amount: float
    labels: Mapping[str, str]


COMMITS = Metric("commits", "committed transactions", ("operation",))
REJECTED = Metric("rejected", "attempts that were withdrawn; each that follows another is in retries", ("operation",))
UNKNOWN = Metric("outcomes_unknown", "commits whose outcome could not be learned", ("operation",))
CONFLICTS = Metric(
    "conflicts", "conflicts, by the rule that found them, before or after the data was written", ("rule", "found")
)
RETRIES = Metric("retries", "attempts after a conflict", ("operation",))
DURATION = Metric("commit_duration", "from the begin of a transaction to its commit", ("operation",), "seconds", seconds=True)
LOCK_WAIT = Metric("lock_wait", "waiting for the table's lock", (), "seconds", seconds=True)
LOCK_TIMEOUTS = Metric("lock_timeouts", "waits for the table's lock that ended without it", ("operation",))
LOCK_HOLD = Metric("lock_hold", "holding the table's lock, per commit", (), "seconds", seconds=True)
DATA_LOCK_WAIT = Metric("data_lock_wait", "waiting for data locks, in PESSIMISTIC mode", (), "seconds", seconds=True)
LEASES_LOST = Metric("leases_lost", "locks that were lost while they were held")
REQUESTS = Metric("lock_requests", "requests to the table's storage while its lock was held")
ROWS = Metric("rows", "rows of commits", ("change",))
FILES = Metric("files_written", "data files of commits")
BYTES = Metric("written", "size of the data files of commits", (), "bytes")
ROLLBACKS = Metric("rollbacks", "dead or rejected transactions that were rolled back")
FILES_CLEANED = Metric("files_cleaned", "old data files that were deleted")
ALERTS = Metric("alerts", "problems that somebody should look at")

METRICS = (
    COMMITS, REJECTED, UNKNOWN, CONFLICTS, RETRIES, DURATION, LOCK_WAIT, LOCK_HOLD, DATA_LOCK_WAIT, LEASES_LOST, REQUESTS, ROWS,
    FILES, BYTES, ROLLBACKS, FILES_CLEANED, ALERTS, LOCK_TIMEOUTS,
)  # fmt: skip
"""Every metric. Append only: the names are an API."""

_ONE: Mapping[EventKind, Metric] = {
    EventKind.REJECTED: REJECTED,
    EventKind.OUTCOME_UNKNOWN: UNKNOWN,
    EventKind.RETRY: RETRIES,
    EventKind.LEASE_LOST: LEASES_LOST,
    EventKind.LOCK_TIMED_OUT: LOCK_TIMEOUTS,
    EventKind.ROLLED_BACK: ROLLBACKS,
    EventKind.ALERT: ALERTS,
}
"""Events that count as one."""


def measure(event: Event) -> Iterator[Measurement]:
    """What an event adds to which metrics."""
    if event.kind in _ONE:
        yield _of(event, _ONE[event.kind], 1)
    elif event.kind in (EventKind.CONFLICT, EventKind.EARLY_CONFLICT):
        found = "early" if event.kind is EventKind.EARLY_CONFLICT else "commit"
        yield _of(event, CONFLICTS, 1, rule=str(event.facts.get("rule", "")), found=found)
    elif event.kind is EventKind.LOCKED:
        yield _of(event, LOCK_WAIT, _number(event, "waited_s"))
    elif event.kind is EventKind.DATA_LOCKED:
        yield _of(event, DATA_LOCK_WAIT, _number(event, "waited_s"))
    elif event.kind is EventKind.CLEANED:
        yield _of(event, FILES_CLEANED, _number(event, "files"))
    elif event.kind is EventKind.COMMITTED:
        yield from _of_commit(event)


def _of_commit(event: Event) -> Iterator[Measurement]:
    yield _of(event, COMMITS, 1)
    for metric, fact in (
        (DURATION, "took_s"), (LOCK_HOLD, "lock_held_s"), (REQUESTS, "lock_requests"), (FILES, "files"), (BYTES, "size_bytes"),
    ):  # fmt: skip
        if fact in event.facts:  # whoever finishes the commit of a dead process does not know them
            yield _of(event, metric, _number(event, fact))
    for change in ("inserted", "updated", "deleted"):
        if amount := _number(event, f"rows_{change}"):
            yield _of(event, ROWS, amount, change=change)


def _of(event: Event, metric: Metric, amount: float, **labels: str) -> Measurement:
    known = {"table": event.table, "operation": event.operation, **labels}
    return Measurement(metric, amount, {name: known[name] for name in metric.all_labels})


def _number(event: Event, fact: str) -> float:
    value = event.facts.get(fact)
    return float(value) if isinstance(value, int | float) else 0.0
