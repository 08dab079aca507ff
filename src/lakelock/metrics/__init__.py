"""Metrics of writers, made from their events: listeners for Prometheus and OpenTelemetry, and a report of each commit."""

from lakelock.metrics.commit_report import CommitReports
from lakelock.metrics.opentelemetry import OpenTelemetryMetrics
from lakelock.metrics.prometheus import PrometheusMetrics

__all__ = ["CommitReports", "OpenTelemetryMetrics", "PrometheusMetrics"]
