"""The host's samples next to the GPUs': disks, loader workers and memory."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import duckdb
import numpy as np

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import SampleClock
from sawtooth.analysis.telemetry.diagnosis.device_samples import F64, I64

COLUMNS = ("disk_write_bps", "disk_read_bps", "workers_cpu_pct", "swap_in_bps", "memory_pressure_pct", "ram_used_bytes", "ram_total_bytes")  # fmt: skip


@dataclass(frozen=True)
class HostSeries:
    """Times, and values by column of ``host_samples``; columns without any value are left out."""

    times: I64
    values: dict[str, F64]

    def between(self, start_ns: int, end_ns: int) -> HostSeries:
        """Return the samples between two times, both included."""
        inside = (self.times >= start_ns) & (self.times <= end_ns)
        return HostSeries(self.times[inside], {column: values[inside] for column, values in self.values.items()})


def load_host(recording: Recording, clock: SampleClock) -> HostSeries | None:
    """Read the host's samples of a telemetry recording; None if there are none."""
    with contextlib.suppress(duckdb.CatalogException):  # Older recordings have no table for the host.
        table = recording.frame(
            f"SELECT time_ns, {recording.select_list('host_samples', COLUMNS)} FROM host_samples ORDER BY time_ns"
        )
        if len(table):
            values = {column: table[column].to_numpy(np.float64, na_value=np.nan) for column in COLUMNS}
            sampled = {column: of_column for column, of_column in values.items() if np.isfinite(of_column).any()}
            return HostSeries(clock.times(table["time_ns"].to_numpy(np.int64)), sampled)
    return None
