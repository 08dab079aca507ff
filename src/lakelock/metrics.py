"""Metrics of writers, made from their events: listeners for Prometheus and OpenTelemetry, and a report of each commit.

A listener adds events up. For Prometheus it does so in a registry, from which the program serves or pushes them; for
OpenTelemetry in instruments of a meter, whose exporter the program chooses. The report of a commit is JSON in the form of
Iceberg's commit reports, for services that collect those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelock.errors import InputError
from lakelock.events import Event, EventKind

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

__all__ = ["CommitReports", "OpenTelemetryMetrics", "PrometheusMetrics"]


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
ALERTS = Metric("alerts", "problems that need attention")

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
        if fact in event.facts:  # a process that finishes the commit of a dead one does not know them
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


_UNITS = {"seconds": "s", "bytes": "By"}


class OpenTelemetryMetrics:
    """Give it to `listeners=`. Names begin with `lakelock.`; one object serves all tables of a process.

    `meter` is that of the program's meter provider by default. `InputError` without the extra `metrics`.

    >>> table = LakeTable.for_path(spark, path, listeners=[OpenTelemetryMetrics()])     # doctest: +SKIP
    """

    def __init__(self, meter: Meter | None = None) -> None:
        try:
            from opentelemetry import metrics
        except ModuleNotFoundError as error:
            raise InputError(
                "metrics for OpenTelemetry need opentelemetry-api, which is not installed",
                hint="pip install 'lakelock[metrics]'",
            ) from error
        chosen = meter or metrics.get_meter("lakelock")
        self._known: dict[str, Any] = {metric.name: _instrument(chosen, metric) for metric in METRICS}

    def __call__(self, event: Event) -> None:
        for metric, amount, labels in measure(event):
            instrument = self._known[metric.name]
            if metric.seconds:
                instrument.record(amount, labels)
            else:
                instrument.add(amount, labels)


def _instrument(meter: Meter, metric: Metric) -> Any:
    name, unit = f"lakelock.{metric.name}", _UNITS.get(metric.unit, "1")
    if metric.seconds:
        return meter.create_histogram(name, unit, metric.text, explicit_bucket_boundaries_advisory=SECONDS)
    return meter.create_counter(name, unit, metric.text)


class PrometheusMetrics:
    """Give it to `listeners=`. Names begin with `lakelock_`; one object serves all tables of a process.

    `registry` is Prometheus's own by default, which `prometheus_client.start_http_server(port)` serves. `InputError` without
    the extra `metrics`. A second object for one registry is Prometheus's `ValueError`.

    >>> table = LakeTable.for_path(spark, path, listeners=[PrometheusMetrics()])     # doctest: +SKIP
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise InputError(
                "metrics for Prometheus need prometheus_client, which is not installed", hint="pip install 'lakelock[metrics]'"
            ) from error
        self._known: dict[str, Any] = {
            metric.name: _collector(prometheus_client, metric, registry or prometheus_client.REGISTRY) for metric in METRICS
        }

    def __call__(self, event: Event) -> None:
        for metric, amount, labels in measure(event):
            child = self._known[metric.name].labels(**labels)
            if metric.seconds:
                child.observe(amount)
            else:
                child.inc(amount)


def _collector(client: Any, metric: Metric, registry: CollectorRegistry) -> Any:
    arguments = {"name": f"lakelock_{metric.name}", "documentation": metric.text, "labelnames": metric.all_labels}
    if metric.seconds:
        return client.Histogram(**arguments, unit=metric.unit, buckets=SECONDS, registry=registry)
    return client.Counter(**arguments, unit=metric.unit, registry=registry)


_COUNTS = {
    "added-data-files": "files",
    "added-records": "rows_inserted",
    "updated-records": "rows_updated",
    "removed-records": "rows_deleted",
    "lock-requests": "lock_requests",
}
_TIMES = {"total-duration": "took_s", "lock-wait-duration": "lock_wait_s", "lock-hold-duration": "lock_held_s"}


class CommitReports:
    """Give it to `listeners=`: it calls `send` with the report of each commit, one line of JSON.

    >>> reports = CommitReports(lambda line: print(line, file=log))     # doctest: +SKIP
    """

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send

    def __call__(self, event: Event) -> None:
        if event.kind is EventKind.COMMITTED:
            self._send(json.dumps(commit_report(event)))


def commit_report(event: Event) -> dict[str, Any]:
    """The report of a commit. `snapshot-id` is its instant, as a text, and `sequence-number` the number of its decision.

    Metrics that Iceberg has are named as there (`CommitMetricsResult`); updates and locks it does not know.
    """
    facts = event.facts
    metrics: dict[str, Any] = {name: {"unit": "count", "value": facts[fact]} for name, fact in _COUNTS.items() if fact in facts}
    if "size_bytes" in facts:
        metrics["added-files-size-bytes"] = {"unit": "bytes", "value": facts["size_bytes"]}
    for name, fact in _TIMES.items():
        seconds = facts.get(fact)
        if isinstance(seconds, int | float):
            metrics[name] = _timer(seconds)
    phases = facts.get("phases")
    for name, seconds in phases.items() if isinstance(phases, Mapping) else ():
        if name != "lock-wait":
            metrics[f"{name}-duration"] = _timer(seconds)
    return {
        "report-type": "commit-report",
        "table-name": event.table,
        "snapshot-id": event.instant,
        "sequence-number": facts.get("decision"),
        "operation": event.operation,
        "metrics": metrics,
        "metadata": {"engine-name": "lakelock"},
    }


def _timer(seconds: float) -> dict[str, object]:
    return {"count": 1, "time-unit": "nanoseconds", "total-duration": round(seconds * 1e9)}
