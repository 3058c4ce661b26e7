"""Samples of hardware counters in the trace's own file (``nsys profile --gpu-metrics-devices``).

They are telemetry on the trace's clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, LARGEST, integers
from sawtooth.ingest.quantities.registry import BY_COLUMN, names_in
from sawtooth.ingest.trace.nsight.trace import Trace
from sawtooth.ingest.trace.source import MOST_DEVICES

GPU_BITS = 0xFF  # typeId's lowest byte is the number of the GPU; the others say that this is a GPU
UNIT = re.compile(r" \[(?P<unit>[^\]]*)\]$")  # exports use "SMs Active [Throughput %]" for what older ones call "SMs Active"
SHARES: Final = (None, "Throughput %", "%")
HERTZ_FROM = 100_000  # clocks are titled MHz, but in Hz since 2022: no GPU clock reaches 100 GHz
WRAPS = 1 << 32  # hertz values beyond 2^31 become negative
MOST_SAMPLES = 1 << 24  # values: a GPU at 10 kHz for four minutes, or eight for half a minute, with seven quantities each


Parts = dict[
    tuple[int, str], dict[tuple[int, int], list[tuple[I64, NDArray[np.float64]]]]
]  # by (device, column), then by metric


def read_samples(trace: Trace, device_of: Callable[[int], int | None]) -> dict[str, NDArray[Any]] | None:
    """Return the columns of table ``samples`` on the trace's clock; None without known quantities.

    ``device_of`` maps the host's number of a GPU to the device number of GPU operations, or to None for one that the program
    did not use. Quantities that are measured in two parts (reads and writes) are summed.
    """
    known = {
        key: (device, column) for key, column in _known(trace).items() if (device := device_of(key[0] & GPU_BITS)) is not None
    }
    parts: Parts = {}
    cells = 0
    for batch in trace.database.rows("GPU_METRICS", ("timestamp", "typeId", "metricId", "value")) if known else ():
        time, kind, metric, value = (integers([row[place] for row in batch]) for place in range(4))
        usable = (time > -LARGEST) & (time < LARGEST) & (value > -LARGEST) & (value < LARGEST)
        for key in {(int(a), int(b)) for a, b in np.unique(np.stack([kind, metric])[:, usable], axis=1).T} & known.keys():
            here = usable & (kind == key[0]) & (metric == key[1])
            cells += int(here.sum())
            pieces = parts.setdefault(known[key], {}).setdefault(key, [])
            pieces.append((time[here], _scaled(known[key][1], value[here])))
        if cells > MOST_SAMPLES:
            trace.note("samples_many", "", cells)
            return None
    return _table(parts) if parts else None


def _known(trace: Trace) -> dict[tuple[int, int], str]:
    """Return the columns of the known metrics, by (typeId, metricId)."""
    columns = {name: column for name, (column, _) in names_in("nsight_systems").items()}
    column_of: dict[tuple[int, int], str] = {}
    for batch in trace.database.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")):
        for kind, metric, name in batch:
            if not isinstance(kind, int) or not isinstance(metric, int) or not isinstance(name, str):
                continue
            column = columns.get(UNIT.sub("", name))
            unit = UNIT.search(name)
            if column and (column.startswith("clock") or (unit and unit["unit"]) in SHARES) and kind & GPU_BITS < MOST_DEVICES:
                column_of[kind, metric] = column
    return column_of


def _scaled(column: str, value: I64) -> NDArray[np.float64]:
    if not column.startswith("clock"):
        return value.astype(np.float64)
    unsigned = np.where(value < 0, value + WRAPS, value)
    return np.where(unsigned >= HERTZ_FROM, unsigned / 1e6, unsigned)


def _table(parts: Parts) -> dict[str, NDArray[Any]]:
    done: list[dict[str, NDArray[Any]]] = []
    measured = sorted({column for _, column in parts})
    for device in sorted({device for device, _ in parts}):
        series = {column: _added(metrics.values()) for (of, column), metrics in parts.items() if of == device}
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


def _added(metrics: Collection[list[tuple[I64, NDArray[np.float64]]]]) -> tuple[I64, NDArray[np.float64]]:
    """Return each time once, with the sum of its metrics."""
    each = [np.unique(np.concatenate([at for at, _ in pieces]), return_index=True) for pieces in metrics]
    values = [np.concatenate([value for _, value in pieces])[first] for pieces, (_, first) in zip(metrics, each, strict=True)]
    times, where = np.unique(np.concatenate([at for at, _ in each]), return_inverse=True)
    return times, np.asarray(np.bincount(where, weights=np.concatenate(values)), np.float64)
