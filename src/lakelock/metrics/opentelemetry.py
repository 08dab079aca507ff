"""Metrics for OpenTelemetry: a listener that adds events up in instruments of a meter; the program chooses the exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelock.errors import InputError
from lakelock.events import Event
from lakelock.metrics.measurements import METRICS, SECONDS, Metric, measure

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

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
        self._known: dict[str, Any] = {metric.name: _made(chosen, metric) for metric in METRICS}

    def __call__(self, event: Event) -> None:
        for metric, amount, labels in measure(event):
            instrument = self._known[metric.name]
            if metric.seconds:
                instrument.record(amount, labels)
            else:
                instrument.add(amount, labels)


def _made(meter: Meter, metric: Metric) -> Any:
    name, unit = f"lakelock.{metric.name}", _UNITS.get(metric.unit, "1")
    if metric.seconds:
        return meter.create_histogram(name, unit, metric.text, explicit_bucket_boundaries_advisory=SECONDS)
    return meter.create_counter(name, unit, metric.text)
