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
    """Return the columns of table ``samples``, by device and time; impossible values are missing."""
    done: list[dict[str, NDArray[Any]]] = []
    measured = sorted({column for _, column in parts})
    for device in sorted({device for device, _ in parts}):
        series = {column: _sum_by_time(metrics.values()) for (gpu, column), metrics in parts.items() if gpu == device}
        times = np.unique(np.concatenate([at for at, _ in series.values()]))
        columns: dict[str, NDArray[Any]] = {"device": np.full(len(times), device, np.int64), "time_ns": times}
        for column in measured:
            columns[column] = np.full(len(times), np.nan)
            if column in series:
                at, value = series[column]
                limits = BY_COLUMN[column].range
                columns[column][np.searchsorted(times, at)] = np.where(
                    (value >= limits.low) & (value <= limits.high), value, np.nan
                )
        done.append(columns)
    return {name: np.concatenate([columns[name] for columns in done]) for name in done[0]}


def _sum_by_time(metrics: Collection[list[tuple[I64, NDArray[np.float64]]]]) -> tuple[I64, NDArray[np.float64]]:
    """Return each time once, with the sum of the metrics at this time."""
    unique = [np.unique(np.concatenate([at for at, _ in pieces]), return_index=True) for pieces in metrics]
    values = [np.concatenate([value for _, value in pieces])[first] for pieces, (_, first) in zip(metrics, unique, strict=True)]
    times, index = np.unique(np.concatenate([at for at, _ in unique]), return_inverse=True)
    return times, np.asarray(np.bincount(index, weights=np.concatenate(values)), np.float64)
