"""The host during GPU training: means of cores, loader workers, memory and disks over the steady part."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np

from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.telemetry.clock import AS_RECORDED, SampleClock
from sawtooth.analysis.telemetry.signal.steady import SteadyPart
from sawtooth.analysis.units import in_number
from sawtooth.ingest.quantities.registry import HOST_COLUMNS

MIN_SAMPLES = 5  # Seconds. Fewer samples do not represent the run.

CORES_FULL_PCT = 90.0  # Utilization of all cores. Above this value, no core is really free.
WORKER_FULL_PCT = 80.0  # Utilization of one core. A worker that always computes also needs time to hand over batches.
WORKER_WAITS_PCT = 50.0  # Utilization of one core. Below it, a worker waits more than it computes.
BLOCKED_PCT, DISK_FULL_PCT, IO_WAIT_PCT = 20.0, 50.0, 10.0  # From any of these on, the workers wait for a disk.

PRESSURE_PCT = 10.0  # Percent of the time in which a task waited for a core. Less is usual on a host with busy cores.

Limit = Literal["cores", "worker", "disk", "elsewhere"]


@dataclass(frozen=True)
class HostLoad:
    """Means by HOST_COLUMNS over ``seconds`` samples of the steady part (if there is none, of all)."""

    means: dict[str, float]
    peaks: dict[str, float]
    seconds: int

    def evidence(self, *columns: str) -> list[dict[str, str | float]]:
        """Return a row of evidence for each of ``columns`` that was sampled."""
        return [{"quantity": column, "mean": self.means[column]} for column in columns if column in self.means]

    @property
    def cpu_pct(self) -> float | None:
        """Utilization of the cores that the training may use, in percent.

        It covers the complete host if the recording does not separate these cores.
        """
        return self.means.get("cpu_usable_pct", self.means.get("cpu_pct"))

    @property
    def has_no_free_core(self) -> bool:
        """Return whether all cores were busy and tasks waited for one."""
        cpu, cores, queue = self.cpu_pct, self.means.get("cores"), self.means.get("run_queue")
        if cpu is None or cpu < CORES_FULL_PCT:
            return False
        waits = max(self.means.get(column, 0.0) for column in ("main_waits_pct", "cpu_pressure_pct"))
        return waits >= PRESSURE_PCT or (cores is not None and queue is not None and queue >= cores + 1)

    def without_a_free_core(self) -> str | None:
        """Return a clause if no core is free: "2 cores are busy 99 % of the time, and 5.1 tasks want one"."""
        if not self.has_no_free_core:
            return None
        cores, queue = self.means.get("cores"), self.means.get("run_queue")
        waiting_in_words = (
            f", and {queue:.1f} tasks want one" if queue is not None and cores is not None and queue >= cores + 1 else ""
        )
        subject = in_number(cores, "core is", "cores are") if cores is not None else "its cores are"
        return f"this host has no free core: {subject} busy {self.cpu_pct:.0f} % of the time{waiting_in_words}"

    def limit_of_loader(self) -> Limit | None:
        """Return the limit of a loader for which the GPU waits.

        ``cores``: all cores that the training may use are busy. ``worker``: each worker keeps a core busy, and other cores are free.
        ``disk`` and ``elsewhere`` (for example a network file system): workers wait most of the time. None if the workers were not
        sampled or if none of these applies.
        """
        cpu, worker = self.cpu_pct, self.means.get("workers_cpu_pct")
        if cpu is None or worker is None or self.means.get("workers", 0) < 1:
            return None
        if cpu >= CORES_FULL_PCT:
            return "cores"
        if worker >= WORKER_FULL_PCT:
            return "worker"
        if worker >= WORKER_WAITS_PCT:
            return None
        signs = (("workers_blocked_pct", BLOCKED_PCT), ("disk_busy_pct", DISK_FULL_PCT), ("cpu_io_wait_pct", IO_WAIT_PCT))
        return "disk" if any(self.means.get(column, 0.0) >= threshold for column, threshold in signs) else "elsewhere"


def host_load(recording: Recording, steady: SteadyPart | None, clock: SampleClock = AS_RECORDED) -> HostLoad | None:
    """Return the means of a telemetry recording's host; None if it has none.

    Older recordings have no table for them.
    """
    with contextlib.suppress(duckdb.CatalogException):
        frame = recording.frame(
            f"SELECT time_ns, {recording.select_list('host_samples', HOST_COLUMNS)} FROM host_samples ORDER BY time_ns"
        )
        if steady is not None and steady.start_ns is not None:
            frame = frame[steady.mask(clock.times(frame["time_ns"].to_numpy(np.int64)))]
        if len(frame) < MIN_SAMPLES:
            return None
        values = frame[list(HOST_COLUMNS)].astype("float64")
        means, peaks = values.mean().dropna(), values.max().dropna()
        return HostLoad({str(k): float(v) for k, v in means.items()}, {str(k): float(v) for k, v in peaks.items()}, len(frame))
    return None
