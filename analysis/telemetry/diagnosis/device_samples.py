"""Samples of one GPU as arrays, with the time that each of them covers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.signal.dropouts import COUNTERS, dropouts
from sawtooth.analysis.telemetry.signal.steady import weights_ns

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
BUSY = ("util_pct", "gr_active_pct", "sm_active_pct")  # Columns that show when the GPU works, best first for any file.
USED = (
    *BUSY, "tensor_active_pct", "dram_active_pct", "mem_busy_pct", "mem_used_bytes", "mem_total_bytes", "power_w", "power_limit_w",
    "energy_j", "temp_c", "clock_sm_mhz", "clock_sm_max_mhz", "clock_event_mask", "thermal_violation_pct", "power_violation_pct",
    "pcie_gen", "pcie_max_gen", "pcie_width", "pcie_max_width", "ecc_corrected_count", "ecc_uncorrected_count", "xid_last", "process_count",
)  # fmt: skip
AT_WORK_PCT = 20.0  # A GPU that is busy for less of a window mostly waits.
MAX_VALUES = 60_000_000  # 0.5 GB for all columns: 8 GPUs for three days at one sample per second.
# A recording with fewer samples, or less time (ns), is too short to describe a run.
MIN_SAMPLES = 20
MIN_NS = 20_000_000_000


@dataclass(frozen=True)
class DeviceSamples:
    """One GPU's samples in order of time; ``values`` has NaN where a column was not recorded."""

    device: int
    name: str | None
    times: I64
    values: dict[str, F64]
    host: str | None = None

    def __contains__(self, column: str) -> bool:
        return column in self.values

    @cached_property
    def weights(self) -> F64:
        """The time in ns that each sample covers; a sample after a telemetry gap covers one usual period."""
        return weights_ns(self.times).astype(np.float64)

    @cached_property
    def busy(self) -> F64:
        """The signal that shows when the GPU works, in percent; NaN if none was recorded."""
        column = next((c for c in BUSY if c in self.values), None)
        return self.values[column] if column is not None else np.full(len(self.times), np.nan)

    @cached_property
    def at_work(self) -> NDArray[np.bool_]:
        """A mask of the samples of a working GPU."""
        return np.nan_to_num(self.busy) >= AT_WORK_PCT

    @property
    def enough(self) -> bool:
        """Whether there are enough samples to describe a run."""
        return len(self.times) >= MIN_SAMPLES and int(self.times[-1] - self.times[0]) >= MIN_NS

    @property
    def coverage(self) -> float:
        """The share of the recording's time that samples cover, without telemetry gaps."""
        total_ns = float(self.times[-1] - self.times[0]) + float(self.weights[0]) if len(self.times) else 0.0
        return min(float(self.weights.sum()) / total_ns, 1.0) if total_ns else 0.0

    @property
    def period_s(self) -> float:
        """The usual time between two samples of different times."""
        steps = np.diff(self.times)
        return float(np.median(steps[steps > 0])) / 1e9 if steps.any() else 0.0

    def between(self, start_ns: int, end_ns: int) -> DeviceSamples:
        """Return the samples between two times, both included."""
        inside = (self.times >= start_ns) & (self.times <= end_ns)
        values = {column: of_column[inside] for column, of_column in self.values.items()}
        recorded = {column: of_column for column, of_column in values.items() if np.isfinite(of_column).any()}
        return DeviceSamples(self.device, self.name, self.times[inside], recorded, self.host)

    def share(self, mask: NDArray[np.bool_]) -> float:
        """Return the share of the sampled time that the samples in ``mask`` cover."""
        total = float(self.weights.sum())
        return float(self.weights[mask].sum()) / total if total else 0.0

    def seconds(self, mask: NDArray[np.bool_]) -> float:
        """Return the time in seconds that the samples in ``mask`` cover."""
        return float(self.weights[mask].sum()) / 1e9

    def mean(self, column: str, mask: NDArray[np.bool_] | None = None) -> float | None:
        """Return the mean of a column, weighted by time; None if there are no values."""
        if column not in self.values:
            return None
        values = self.values[column]
        counted = np.isfinite(values) if mask is None else np.isfinite(values) & mask
        total = float(self.weights[counted].sum())
        return float((values[counted] * self.weights[counted]).sum()) / total if total else None

    def windows(self, column: str | None, edges: I64) -> F64:
        """Return the mean of a column (of ``busy`` if None) between consecutive edges; NaN without samples."""
        values = self.busy if column is None else self.values.get(column, np.full(len(self.times), np.nan))
        counted = np.isfinite(values)
        window_of = np.searchsorted(edges, self.times[counted], side="right") - 1
        inside = (window_of >= 0) & (window_of < len(edges) - 1)
        weight = self.weights[counted][inside]
        sums = np.bincount(window_of[inside], values[counted][inside] * weight, len(edges) - 1)
        total = np.bincount(window_of[inside], weight, len(edges) - 1)
        return np.where(total > 0, sums / np.where(total > 0, total, 1), np.nan)


def load(recording: Recording, clock: SampleClock = AS_RECORDED, host: str | None = None) -> list[DeviceSamples]:
    """Read all GPUs of a telemetry recording with one query; dropouts of counters are NaN.

    If there are more than MAX_VALUES values, every n-th sample is read; rows are in order of GPU and time.
    """
    available = recording.columns("samples")
    columns = [column for column in USED if column in available]
    listed = "".join(f', "{column}"::DOUBLE AS {column}' for column in columns)
    stride = -(-int(recording.rows("SELECT count(*) FROM samples")[0][0]) * len(columns) // MAX_VALUES)
    table = recording.cursor.execute(
        f"SELECT device, time_ns{listed} FROM samples WHERE rowid % {max(stride, 1)} = 0 ORDER BY device, time_ns"
    ).fetchnumpy()
    names = dict(recording.rows("SELECT device, any_value(name) FROM devices GROUP BY 1"))
    devices = np.asarray(table["device"], np.int64)
    return [
        _device_samples(
            recording=recording,
            table=table,
            device=int(d),
            part=part,
            columns=columns,
            name=names.get(int(d)),
            clock=clock,
            host=host,
        )
        for d, part in _parts(devices)
    ]


def _parts(devices: I64) -> Iterator[tuple[int, slice]]:
    if not len(devices):
        return
    starts = np.concatenate([[0], np.flatnonzero(np.diff(devices)) + 1, [len(devices)]])
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        yield int(devices[start]), slice(start, end)


def _device_samples(*, recording: Recording, table: dict[str, NDArray[np.float64]], device: int, part: slice, columns: list[str], name: str | None, clock: SampleClock, host: str | None) -> DeviceSamples:  # fmt: skip
    times = np.asarray(table["time_ns"][part], np.int64)
    dropped = np.isin(times, dropouts(recording, device))
    values: dict[str, F64] = {}
    for column in columns:
        of_column = np.ma.filled(np.ma.asarray(table[column][part], np.float64), np.nan)
        if dropped.any() and column in COUNTERS:
            of_column = np.where(dropped, np.nan, of_column)
        if np.isfinite(of_column).any():
            values[column] = hold_values(times, of_column)
    # Rows without activity, such as power that is read more often, take the activity of the previous sample.
    return DeviceSamples(device, name, clock.times(times), values, host)


def hold_values(times: I64, values: F64) -> F64:
    """Return a column in which a value holds until the next one, for at most three periods.

    Quantities are read at different rates, and a row has only those that were read at its time.
    """
    recorded = np.flatnonzero(np.isfinite(values))
    if len(recorded) == len(values) or len(recorded) < 2:
        return values
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    median_interval = float(np.median(np.diff(times[recorded])))
    fresh = (last >= 0) & (times - times[np.maximum(last, 0)] <= 3 * median_interval)
    filled: F64 = np.where(fresh, values[np.maximum(last, 0)], np.nan)
    return filled
