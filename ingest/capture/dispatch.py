"""Dispatch time: the time beyond a kernel's profiled duration in which NVML counts the GPU as busy.

Kernels of a known duration are launched at fixed rates while NVML's utilization is read. The dispatch time of each kernel is
busy share × interval − duration. All kernels have the same dispatch time. The analysis uses it to turn utilization into a step time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sawtooth.ingest.errors import UsageError

INTERVALS_US = (16.0, 20.0, 25.0, 32.0)  # At these intervals, NVML's resolution of 1 % is 0.16 to 0.32 µs per kernel.
SETTLE_S = 1.2  # NVML averages over up to 1 s, so readings before this time include the previous rate.
ROUNDING_ERROR = 0.005  # NVML rounds the busy share to 1 %, so the error is at most half a percent.
MAX_DISPATCH_US = 10.0  # If the result is larger, something else used the GPU.
MIN_DISPATCH_US = 0.2  # If the result is smaller, the kernels did not run.
READ_PERIOD_S = 0.05  # Pause between two readings of NVML's utilization.
PROFILED_LAUNCHES = 200  # The mean duration of this many launches is precise enough.
MAX_DIFFERENCE_US = 0.4  # If the results at two rates differ by more, something else used the GPU.


class Bench(Protocol):
    """A GPU on which kernels can be launched and timed."""

    name: str

    def duration_us(self) -> float:
        """Return the kernel's duration in the profiler, in µs."""

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        """Launch the kernel every ``interval_us``; return the real interval (µs) and NVML's mean busy share."""


@dataclass(frozen=True)
class Calibration:
    """Dispatch time of one GPU in µs.

    ``low_us`` and ``high_us`` are its range over the launch rates, widened by NVML's rounding.
    """

    name: str
    dispatch_us: float
    low_us: float
    high_us: float


def calibrate(bench: Bench, intervals_us: Sequence[float] = INTERVALS_US, seconds: float = 3.0) -> Calibration:
    """Measure the dispatch time of a GPU at each interval for ``seconds``.

    Raises UsageError if the rates disagree or the result is implausible, because something else runs on the GPU.
    """
    duration_us = bench.duration_us()
    dispatch_us, error_us = [], 0.0
    for target_us in intervals_us:
        interval_us, busy = bench.launch(target_us, seconds)
        dispatch_us.append(busy * interval_us - duration_us)
        error_us = max(error_us, ROUNDING_ERROR * interval_us)
    median_us, low_us, high_us = statistics.median(dispatch_us), min(dispatch_us), max(dispatch_us)
    if not MIN_DISPATCH_US <= median_us <= MAX_DISPATCH_US or high_us - low_us > MAX_DIFFERENCE_US + 2 * error_us:
        values = ", ".join(f"{value:.2f}" for value in dispatch_us)
        raise UsageError(
            f"The dispatch time is not reliable: {values} µs per kernel at {len(dispatch_us)} rates. Stop other programs on the GPU and try again."
        )
    return Calibration(bench.name, median_us, max(low_us - error_us, 0.0), high_us + error_us)


class TorchBench:
    """A CUDA GPU that runs kernels of PyTorch, with its utilization from NVML."""

    def __init__(self, device: int, torch: Any, nvml: Any) -> None:
        self.torch, self.nvml = torch, nvml
        self.name: str = torch.cuda.get_device_name(device)
        self.device = torch.device("cuda", device)
        nvml.nvmlInit()
        self.handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        self.tensor = torch.zeros(32, device=self.device)

    def duration_us(self) -> float:
        """Return the mean duration of a small addition as CUPTI records it, µs."""
        profiler = self.torch.profiler
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(PROFILED_LAUNCHES):
                self.tensor.add_(1.0)
            self.torch.cuda.synchronize(self.device)
        cuda = self.torch.autograd.DeviceType.CUDA
        durations = [
            event.time_range.elapsed_us()
            for event in profile.events()
            if event.device_type == cuda and "elementwise" in event.name
        ]
        if not durations:
            raise UsageError("The profiler recorded no kernel. Allow this user to use CUPTI, and try again.")
        return float(statistics.mean(durations))

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        """Launch the addition every ``interval_us``; read the utilization for ``seconds`` after SETTLE_S."""
        start_ns, interval_ns = time.perf_counter_ns(), int(interval_us * 1e3)
        end_ns = start_ns + int((SETTLE_S + seconds) * 1e9)
        next_launch_ns, next_read_ns = start_ns, start_ns + int(SETTLE_S * 1e9)
        launches, counted_from_ns = 0, start_ns
        busy: list[float] = []
        while (now_ns := time.perf_counter_ns()) < end_ns:
            if now_ns < next_launch_ns:
                continue
            self.tensor.add_(1.0)
            next_launch_ns, launches = max(next_launch_ns + interval_ns, now_ns), launches + 1
            if now_ns >= next_read_ns:
                if not busy:
                    counted_from_ns, launches = now_ns, 0
                busy.append(self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100)
                next_read_ns = now_ns + int(READ_PERIOD_S * 1e9)
        self.torch.cuda.synchronize(self.device)
        if not launches or not busy:
            raise UsageError(f"The GPU ran no kernel in {seconds:g} s. Stop other programs on the GPU and try again.")
        return (end_ns - counted_from_ns) / launches / 1e3, statistics.mean(busy)
