"""A report of each commit as JSON, in the form of Iceberg's commit reports, for whoever collects those."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lakelock.events import Event, EventKind

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
