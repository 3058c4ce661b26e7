"""Samples of hardware counters in the trace's file (``nsys profile --gpu-metrics-devices``).

The samples are telemetry on the trace's clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, MAX_TIME_NS, integers
from sawtooth.ingest.quantities.registry import names_in
from sawtooth.ingest.trace.nsight.trace import NsightTrace
from sawtooth.ingest.trace.samples import SampleParts, sample_table
from sawtooth.ingest.trace.source import MAX_DEVICES

GPU_MASK = 0xFF  # The lowest byte of typeId is the number of the GPU.
UNIT = re.compile(r" \[(?P<unit>[^\]]*)\]$")  # Matches the unit in "SMs Active [Throughput %]". Older exports write no unit.
PERCENT_UNITS: Final = (None, "Throughput %", "%")
MIN_HERTZ = 100_000  # Larger values of clocks are in Hz, others in MHz. The title says MHz, but exports since 2022 have Hz.
WRAP_HZ = 1 << 32  # This number is added to negative values, because exports store 2^31 Hz and more as negative numbers.
# Seven metrics at 10 kHz have this number of values after four minutes of one GPU, or half a minute of eight GPUs.
MAX_SAMPLES = 1 << 24


def read_samples(trace: NsightTrace, device_of: Callable[[int], int | None]) -> dict[str, NDArray[Any]] | None:
    """Return the columns of table ``samples`` on the trace's clock; None without samples or with too many.

    ``device_of`` maps the host's number of a GPU to the device number of GPU operations, or to None if the program did not use
    the GPU. Quantities that are measured in two parts (reads and writes) are summed.
    """
    metric_of = {
        key: (device, column)
        for key, column in _known_columns(trace).items()
        if (device := device_of(key[0] & GPU_MASK)) is not None
    }
    parts: SampleParts = {}
    cells = 0
    for batch in trace.database.rows("GPU_METRICS", ("timestamp", "typeId", "metricId", "value")) if metric_of else ():
        time, kind, metric, value = (integers([row[index] for row in batch]) for index in range(4))
        usable = (time > -MAX_TIME_NS) & (time < MAX_TIME_NS) & (value > -MAX_TIME_NS) & (value < MAX_TIME_NS)
        for key in {(int(a), int(b)) for a, b in np.unique(np.stack([kind, metric])[:, usable], axis=1).T} & metric_of.keys():
            rows = usable & (kind == key[0]) & (metric == key[1])
            cells += int(rows.sum())
            pieces = parts.setdefault(metric_of[key], {}).setdefault(key, [])
            pieces.append((time[rows], _scale(metric_of[key][1], value[rows])))
        if cells > MAX_SAMPLES:
            trace.note("samples_many", "", cells)
            return None
    return sample_table(parts) if parts else None


def _known_columns(trace: NsightTrace) -> dict[tuple[int, int], str]:
    """Return the columns of the known metrics, by (typeId, metricId)."""
    columns = {name: column for name, (column, _) in names_in("nsight_systems").items()}
    columns_by_metric: dict[tuple[int, int], str] = {}
    for batch in trace.database.rows("TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")):
        for kind, metric, name in batch:
            if not isinstance(kind, int) or not isinstance(metric, int) or not isinstance(name, str):
                continue
            column = columns.get(UNIT.sub("", name))
            unit = UNIT.search(name)
            is_known = column and (column.startswith("clock") or (unit and unit["unit"]) in PERCENT_UNITS)
            if column and is_known and kind & GPU_MASK < MAX_DEVICES:
                columns_by_metric[kind, metric] = column
    return columns_by_metric


def _scale(column: str, value: I64) -> NDArray[np.float64]:
    if not column.startswith("clock"):
        return value.astype(np.float64)
    unsigned = np.where(value < 0, value + WRAP_HZ, value)
    return np.where(unsigned >= MIN_HERTZ, unsigned / 1e6, unsigned)
