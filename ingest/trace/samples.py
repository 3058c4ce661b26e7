"""Build the columns of table ``samples`` from the values of a trace's own telemetry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64
from sawtooth.ingest.quantities.registry import BY_COLUMN

# By (device, column), then by metric: times and values. The metrics of one column are summed.
SampleParts = dict[tuple[int, str], dict[Any, list[tuple[I64, NDArray[np.float64]]]]]


def sample_table(parts: SampleParts) -> dict[str, NDArray[Any]]:
    """Return the columns of table ``samples``, ordered by device and time. Impossible values are NaN."""
    tables: list[dict[str, NDArray[Any]]] = []
    measured = sorted({column for _, column in parts})
    for device in sorted({device for device, _ in parts}):
        series = {column: _sum_by_time(metrics.values()) for (gpu, column), metrics in parts.items() if gpu == device}
        device_times = np.unique(np.concatenate([times for times, _ in series.values()]))
        columns: dict[str, NDArray[Any]] = {"device": np.full(len(device_times), device, np.int64), "time_ns": device_times}
        for column in measured:
            columns[column] = np.full(len(device_times), np.nan)
            if column in series:
                times, values = series[column]
                limits = BY_COLUMN[column].range
                is_possible = (values >= limits.low) & (values <= limits.high)
                columns[column][np.searchsorted(device_times, times)] = np.where(is_possible, values, np.nan)
        tables.append(columns)
    return {name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]}


def _sum_by_time(metrics: Collection[list[tuple[I64, NDArray[np.float64]]]]) -> tuple[I64, NDArray[np.float64]]:
    """Return each time once, with the sum of the metrics at this time."""
    metric_times, metric_values = [], []
    for pieces in metrics:  # A metric counts once at each time.
        times, first = np.unique(np.concatenate([times for times, _ in pieces]), return_index=True)
        metric_times.append(times)
        metric_values.append(np.concatenate([values for _, values in pieces])[first])
    all_times, index = np.unique(np.concatenate(metric_times), return_inverse=True)
    return all_times, np.asarray(np.bincount(index, weights=np.concatenate(metric_values)), np.float64)
