"""Metrics for Prometheus: a listener that adds events up in a registry, from which the program serves or pushes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelock.errors import InputError
from lakelock.events import Event
from lakelock.metrics.measurements import METRICS, SECONDS, Metric, measure

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


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
            metric.name: _made(prometheus_client, metric, registry or prometheus_client.REGISTRY) for metric in METRICS
        }

    def __call__(self, event: Event) -> None:
        for metric, amount, labels in measure(event):
            child = self._known[metric.name].labels(**labels)
            if metric.seconds:
                child.observe(amount)
            else:
                child.inc(amount)


def _made(client: Any, metric: Metric, registry: CollectorRegistry) -> Any:
    arguments = {"name": f"lakelock_{metric.name}", "documentation": metric.text, "labelnames": metric.all_labels}
    if metric.seconds:
        return client.Histogram(**arguments, unit=metric.unit, buckets=SECONDS, registry=registry)
    return client.Counter(**arguments, unit=metric.unit, registry=registry)
