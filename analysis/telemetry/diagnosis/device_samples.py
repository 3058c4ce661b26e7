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
BUSY = ("util_pct", "gr_active_pct", "sm_active_pct")  # columns that show when the GPU works, best first for any file
USED = (
    *BUSY, "tensor_active_pct", "dram_active_pct", "mem_busy_pct", "mem_used_bytes", "mem_total_bytes", "power_w", "power_limit_w",
    "energy_j", "temp_c", "clock_sm_mhz", "clock_sm_max_mhz", "clock_event_mask", "thermal_violation_pct", "power_violation_pct",
    "pcie_gen", "pcie_max_gen", "pcie_width", "pcie_max_width", "ecc_corrected_count", "ecc_uncorrected_count", "xid_last", "process_count",
)  # fmt: skip
AT_WORK_PCT = 20.0  # a GPU that is busy for less of a window mostly waits
MOST_VALUES = 60_000_000  # 0.5 GB, of all columns: 8 GPUs for three days at one sample per second
LEAST_SAMPLES, LEAST_NS = 20, 20_000_000_000  # fewer samples or less time prove nothing of a run


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
        """The time in ns that each sample covers; a sample after a hole covers one usual period."""
        return weights_ns(self.times).astype(np.float64)

    @cached_property
    def busy(self) -> F64:
        """The signal that shows when the GPU works, percent; NaN without one."""
        column = next((c for c in BUSY if c in self.values), None)
        return self.values[column] if column is not None else np.full(len(self.times), np.nan)

    @cached_property
    def at_work(self) -> NDArray[np.bool_]:
        """Which samples are of a working GPU."""
        return np.nan_to_num(self.busy) >= AT_WORK_PCT

    @property
    def enough(self) -> bool:
        """Whether there are samples enough to say something of a run."""
        return len(self.times) >= LEAST_SAMPLES and int(self.times[-1] - self.times[0]) >= LEAST_NS

    @property
    def coverage(self) -> float:
        """The share of the recording's time that samples cover; holes are the rest."""
        whole = float(self.times[-1] - self.times[0]) + float(self.weights[0]) if len(self.times) else 0.0
        return min(float(self.weights.sum()) / whole, 1.0) if whole else 0.0

    @property
    def period_s(self) -> float:
        """The usual time between two samples of different times."""
        steps = np.diff(self.times)
        return float(np.median(steps[steps > 0])) / 1e9 if steps.any() else 0.0

    def between(self, start_ns: int, end_ns: int) -> DeviceSamples:
        """Return the samples between two times, both included."""
        inside = (self.times >= start_ns) & (self.times <= end_ns)
        values = {column: of_column[inside] for column, of_column in self.values.items()}
        known = {column: of_column for column, of_column in values.items() if np.isfinite(of_column).any()}
        return DeviceSamples(self.device, self.name, self.times[inside], known, self.host)

    def share(self, where: NDArray[np.bool_]) -> float:
        """Return the share of the sampled time."""
        total = float(self.weights.sum())
        return float(self.weights[where].sum()) / total if total else 0.0

    def seconds(self, where: NDArray[np.bool_]) -> float:
        """Return the sampled time in seconds."""
        return float(self.weights[where].sum()) / 1e9

    def mean(self, column: str, where: NDArray[np.bool_] | None = None) -> float | None:
        """Return the mean of a column, weighted by time; None without values."""
        if column not in self.values:
            return None
        values = self.values[column]
        keep = np.isfinite(values) if where is None else np.isfinite(values) & where
        total = float(self.weights[keep].sum())
        return float((values[keep] * self.weights[keep]).sum()) / total if total else None

    def windows(self, column: str | None, edges: I64) -> F64:
        """Return the mean of a column (of ``busy`` if None) between each two edges; NaN without samples."""
        values = self.busy if column is None else self.values.get(column, np.full(len(self.times), np.nan))
        keep = np.isfinite(values)
        which = np.searchsorted(edges, self.times[keep], side="right") - 1
        inside = (which >= 0) & (which < len(edges) - 1)
        weight = self.weights[keep][inside]
        sums = np.bincount(which[inside], values[keep][inside] * weight, len(edges) - 1)
        total = np.bincount(which[inside], weight, len(edges) - 1)
        return np.where(total > 0, sums / np.where(total > 0, total, 1), np.nan)


def load(recording: Recording, clock: SampleClock = AS_RECORDED, host: str | None = None) -> list[DeviceSamples]:
    """Read all GPUs of a telemetry recording with one query; dropouts of counters are NaN.

    Of a fleet with more than MOST_VALUES values, every n-th sample is read: rows lie in order of GPU and time.
    """
    there = recording.columns("samples")
    columns = [column for column in USED if column in there]
    listed = "".join(f', "{column}"::DOUBLE AS {column}' for column in columns)
    every = -(-int(recording.rows("SELECT count(*) FROM samples")[0][0]) * len(columns) // MOST_VALUES)
    table = recording.cursor.execute(
        f"SELECT device, time_ns{listed} FROM samples WHERE rowid % {max(every, 1)} = 0 ORDER BY device, time_ns"
    ).fetchnumpy()
    names = dict(recording.rows("SELECT device, any_value(name) FROM devices GROUP BY 1"))
    devices = np.asarray(table["device"], np.int64)
    return [
        _one(
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


def _one(*, recording: Recording, table: dict[str, NDArray[np.float64]], device: int, part: slice, columns: list[str], name: str | None, clock: SampleClock, host: str | None) -> DeviceSamples:  # fmt: skip
    times = np.asarray(table["time_ns"][part], np.int64)
    lost = np.isin(times, dropouts(recording, device))
    values: dict[str, F64] = {}
    for column in columns:
        of_column = np.ma.filled(np.ma.asarray(table[column][part], np.float64), np.nan)
        if lost.any() and column in COUNTERS:
            of_column = np.where(lost, np.nan, of_column)
        if np.isfinite(of_column).any():
            values[column] = held(times, of_column)
    # rows that hold no activity (such as power read more often) take the activity of the sample before them
    return DeviceSamples(device, name, clock.times(times), values, host)


def held(times: I64, values: F64) -> F64:
    """Return a column in which a value holds until the next one, for at most three periods.

    Quantities are read at different rates, and a row has only those that were read at its time.
    """
    known = np.flatnonzero(np.isfinite(values))
    if len(known) == len(values) or len(known) < 2:
        return values
    last = np.maximum.accumulate(np.where(np.isfinite(values), np.arange(len(values)), -1))
    usual = float(np.median(np.diff(times[known])))
    fresh = (last >= 0) & (times - times[np.maximum(last, 0)] <= 3 * usual)
    filled: F64 = np.where(fresh, values[np.maximum(last, 0)], np.nan)
    return filled
