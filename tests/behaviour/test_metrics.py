"""Metrics and commit reports, with the real libraries: what writers did is what a scrape and an exporter see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.api import (
    ArrowEngine,
    Committed,
    Coordinator,
    Event,
    MemoryStorage,
    Storage,
    StorageLocation,
    Transaction,
    with_retries,
)
from tests.behaviour.tables import QUICK, SCHEMA, memory_table, put_file

from lakelock.errors import ConflictError, LockTimeout
from lakelock.events import Listener
from lakelock.metrics import METRICS, CommitReports, OpenTelemetryMetrics, PrometheusMetrics

prometheus_client = pytest.importorskip("prometheus_client")
metrics_sdk = pytest.importorskip("opentelemetry.sdk.metrics")


def rows(*values: tuple[str, int, str]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def writer(storage: Storage, *listeners: Listener) -> Coordinator:
    return Coordinator.open(StorageLocation(storage.uri), QUICK, listeners=listeners, storage=storage)


def work(storage: Storage, *listeners: Listener) -> None:
    """Two commits, and a conflict at commit."""
    coordinator = writer(storage, *listeners)
    engine = ArrowEngine(coordinator)
    engine.insert(rows(("a", 1, "1"), ("b", 2, "2")))
    engine.upsert(rows(("a", 5, "1"), ("c", 3, "1")))
    group = coordinator.snapshot().files[0].group
    loser, winner = coordinator.begin("UPSERT"), writer(storage).begin("UPSERT")
    with winner:
        winner.commit([put_file(winner, storage, *group, token="1-1-0")])
    with pytest.raises(ConflictError), loser:
        loser.commit([put_file(loser, storage, *group)])


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_table()


def test_a_scrape_of_prometheus_shows_what_the_writers_did(storage: MemoryStorage) -> None:
    registry = prometheus_client.CollectorRegistry()
    work(storage, PrometheusMetrics(registry))
    table = {"table": storage.uri}

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"lakelock_{name}", {**table, **labels})

    assert (value("commits_total", operation="INSERT"), value("commits_total", operation="UPSERT")) == (1, 1)
    assert (value("rows_total", change="inserted"), value("rows_total", change="updated")) == (3, 1)
    assert value("conflicts_total", rule="file-group", found="commit") == 1
    assert value("rejected_total", operation="UPSERT") == 1
    assert value("lock_hold_seconds_count") == 2
    assert (value("lock_wait_seconds_count") or 0) >= 3
    assert (value("written_bytes_total") or 0) > 1000
    assert (value("lock_requests_total") or 0) > 2
    shown = prometheus_client.generate_latest(registry).decode()
    assert all(f"# HELP lakelock_{metric.name}" in shown for metric in METRICS)


def test_a_wait_for_the_lock_that_ends_without_it_is_counted(storage: MemoryStorage) -> None:
    registry = prometheus_client.CollectorRegistry()
    hasty = replace(QUICK, lock=replace(QUICK.lock, wait_s=0.1))
    holder, listener = writer(storage), PrometheusMetrics(registry)
    waiting = Coordinator.open(StorageLocation(storage.uri), hasty, listeners=[listener], storage=storage)
    tx = waiting.begin("INSERT")
    with holder.table.locked(), pytest.raises(LockTimeout), tx:
        tx.commit([put_file(tx, storage, "month=1", "a")])
    labels = {"table": storage.uri, "operation": "INSERT"}
    assert registry.get_sample_value("lakelock_lock_timeouts_total", labels) == 1
    assert registry.get_sample_value("lakelock_rejected_total", labels) == 1


def test_the_rejected_attempts_without_the_retries_are_the_writes_that_failed(storage: MemoryStorage) -> None:
    registry = prometheus_client.CollectorRegistry()
    coordinator, other = writer(storage, PrometheusMetrics(registry)), ArrowEngine(writer(storage))
    other.insert(rows(("a", 1, "1")))

    def collides(tx: Transaction) -> Committed:
        group = tx.snapshot().files[0].group
        other.upsert(rows(("a", len(attempts), "1")))
        attempts.append(tx.instant)
        return tx.commit([put_file(tx, storage, *group)])

    attempts: list[str] = []
    with pytest.raises(ConflictError):
        with_retries(coordinator, "UPSERT", collides)
    labels = {"table": storage.uri, "operation": "UPSERT"}
    rejected, retries = (registry.get_sample_value(f"lakelock_{name}_total", labels) for name in ("rejected", "retries"))
    assert (rejected, retries) == (len(attempts), len(attempts) - 1) and len(attempts) > 1


def test_an_opentelemetry_reader_gets_the_same(storage: MemoryStorage) -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    work(storage, OpenTelemetryMetrics(metrics_sdk.MeterProvider([reader]).get_meter("test")))
    data = json.loads(reader.get_metrics_data().to_json())
    found = {m["name"]: m["data"]["data_points"] for m in data["resource_metrics"][0]["scope_metrics"][0]["metrics"]}
    commits = {point["attributes"]["operation"]: point["value"] for point in found["lakelock.commits"]}
    assert commits == {"INSERT": 1, "UPSERT": 1}
    [conflict] = found["lakelock.conflicts"]
    assert (conflict["value"], conflict["attributes"]["rule"]) == (1, "file-group")
    assert sum(point["count"] for point in found["lakelock.lock_hold"]) == 2


def test_each_commit_has_a_report_in_the_form_of_icebergs(storage: MemoryStorage) -> None:
    lines: list[str] = []
    work(storage, CommitReports(lines.append))
    first, second = map(json.loads, lines)
    instants = sorted(commit.requested for commit in writer(storage).table.timeline().commits)
    assert [first["snapshot-id"], second["snapshot-id"]] == instants[:2]
    assert (first["report-type"], first["operation"], first["sequence-number"]) == ("commit-report", "INSERT", 1)
    assert second["metrics"]["added-records"] == second["metrics"]["updated-records"] == {"unit": "count", "value": 1}
    assert second["metrics"]["total-duration"]["time-unit"] == "nanoseconds"


def test_a_listener_that_fails_fails_no_write(storage: MemoryStorage) -> None:
    def broken(event: Event) -> None:
        raise RuntimeError(event)

    assert ArrowEngine(writer(storage, broken)).insert(rows(("a", 1, "1"))).rows_inserted == 1


def test_the_page_about_metrics_has_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference-metrics.md").read_text()
    assert all(f"`{metric.name}`" in page for metric in METRICS)
