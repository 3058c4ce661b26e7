"""All metrics, and their readings for one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from sawtooth.analysis.metrics import device_time, mfu, mfu_factors, steps, telemetry_metrics
from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.reading import NotFiniteError, Reading, missing

if TYPE_CHECKING:
    from sawtooth.analysis.telemetry.summary import DeviceTelemetry

T = TypeVar("T")
WRONG_INPUTS = "its inputs are damaged or wrong"
ROUNDING = 1e-6  # Tolerance of a metric's range for rounding errors of floats. No printed number shows it.

METRICS: dict[str, Metric] = {
    metric.key: metric for group in (steps, device_time, mfu, mfu_factors, telemetry_metrics) for metric in group.METRICS
}
ALIASES: dict[str, str] = {metric.alias: metric.key for metric in METRICS.values() if metric.alias}
CARDS: tuple[Metric, ...] = tuple(sorted((m for m in METRICS.values() if m.card is not None), key=lambda m: m.card or 0))


def readings_of(measured: DeviceMeasurements) -> dict[str, Reading]:
    """Return the readings of all metrics of a device, by key."""
    return {key: possible_reading(metric, measured) for key, metric in METRICS.items()}


def readings_without_trace(telemetry: DeviceTelemetry | None, reason: str) -> dict[str, Reading]:
    """Return all readings of a device without a trace; those not from telemetry are missing."""
    measurements = DeviceMeasurements(sampled=telemetry) if telemetry is not None else None
    return {
        key: possible_reading(metric, measurements) if measurements is not None and metric.from_telemetry else missing(reason)
        for key, metric in METRICS.items()
    }


def possible_reading(metric: Metric, measured: DeviceMeasurements) -> Reading:
    """Return the reading of a metric; missing if its value is impossible."""
    try:
        return check_range(metric, metric.compute(measured))
    except (ArithmeticError, NotFiniteError):  # The value may divide by zero or overflow.
        return missing(f"It could not be computed, because {WRONG_INPUTS}.")


def check_range(metric: Metric, reading: Reading) -> Reading:
    """Return ``reading``; missing if its value is outside the metric's range."""
    value, high = reading.value, metric.high
    if value is None or (value >= metric.low - ROUNDING and (high is None or value <= high + ROUNDING)):
        return reading
    limit = f"below {metric.low:g}" if value < metric.low else f"above {high:g}"
    return missing(f"The computed value is {value:.4g}. A value {limit} is impossible, so {WRONG_INPUTS}.")


def with_aliases(values: Mapping[str, T]) -> dict[str, T]:
    """Return ``values`` by key, with a second entry for each metric that has an alias, as in JSON."""
    return {**values, **{alias: values[key] for alias, key in ALIASES.items() if key in values}}
