"""Dispatch time: the time a GPU counts as busy for a kernel beyond its profiled duration.

Kernels of a known duration are launched at fixed rates while NVML's utilization is read. The dispatch time of each kernel is
busy share × interval − duration. It does not depend on the kernel. The analysis uses it to turn utilization into a step time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sawtooth.ingest.errors import UsageError

INTERVALS_US = (16.0, 20.0, 25.0, 32.0)  # short: NVML's percent is then a tenth or two of a microsecond
SETTLE_S = 1.2  # NVML averages over up to 1 s: what it says before speaks of the last rate
READ_EVERY_S = 0.05
HALF_A_PERCENT = 0.005  # NVML rounds
LONGEST_US, SHORTEST_US = 10.0, 0.2  # no dispatch takes so long or so little: something else used the GPU, or nothing ran
PROFILED = 200  # launches whose durations are recorded
APART_US = 0.4  # rates that differ by more saw something else on the GPU


class Bench(Protocol):
    """A GPU that can be timed."""

    name: str

    def duration_us(self) -> float:
        """Return the duration that the profiler records of the kernel, µs."""

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        """Launch the kernel every ``interval_us``.

        Returns the real interval (µs) and NVML's mean busy share.
        """


@dataclass(frozen=True)
class Calibration:
    """Dispatch time of one GPU in µs, with the range over the rates, widened by NVML's rounding."""

    name: str
    dispatch_us: float
    low_us: float
    high_us: float


def calibrate(bench: Bench, intervals_us: Sequence[float] = INTERVALS_US, seconds: float = 3.0) -> Calibration:
    """Measure the dispatch time of a GPU at each interval for ``seconds``.

    Raises UsageError if the rates disagree, because something else runs on the GPU.
    """
    duration = bench.duration_us()
    costs, rounding = [], 0.0
    for wanted in intervals_us:
        interval, busy = bench.launch(wanted, seconds)
        costs.append(busy * interval - duration)
        rounding = max(rounding, HALF_A_PERCENT * interval)
    middle = statistics.median(costs)
    if not SHORTEST_US <= middle <= LONGEST_US or max(costs) - min(costs) > APART_US + 2 * rounding:
        seen = ", ".join(f"{d:.2f}" for d in costs)
        raise UsageError(
            f"The GPU did not answer alike at every rate ({seen} µs a kernel). Stop what else runs on it and try again."
        )
    return Calibration(bench.name, middle, max(min(costs) - rounding, 0.0), max(costs) + rounding)


class TorchBench:
    """A CUDA GPU driven through PyTorch and read through NVML."""

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
            for _ in range(PROFILED):
                self.tensor.add_(1.0)
            self.torch.cuda.synchronize(self.device)
        cuda = self.torch.autograd.DeviceType.CUDA
        durations = [
            event.time_range.elapsed_us()
            for event in profile.events()
            if event.device_type == cuda and "elementwise" in event.name
        ]
        if not durations:
            raise UsageError("The profiler recorded no kernel: it needs permission to use CUPTI.")
        return float(statistics.mean(durations))

    def launch(self, interval_us: float, seconds: float) -> tuple[float, float]:
        """Launch the addition every ``interval_us``; read the utilization for ``seconds`` after SETTLE_S."""
        begin, interval_ns = time.perf_counter_ns(), int(interval_us * 1e3)
        settled, end = begin + int(SETTLE_S * 1e9), begin + int((SETTLE_S + seconds) * 1e9)
        due, read_at, launched, counted_from = begin, settled, 0, begin
        read: list[float] = []
        while (now := time.perf_counter_ns()) < end:
            if now < due:
                continue
            self.tensor.add_(1.0)
            due, launched = max(due + interval_ns, now), launched + 1
            if now >= read_at:
                if not read:
                    counted_from, launched = now, 0
                read.append(self.nvml.nvmlDeviceGetUtilizationRates(self.handle).gpu / 100)
                read_at = now + int(READ_EVERY_S * 1e9)
        self.torch.cuda.synchronize(self.device)
        if not launched or not read:
            raise UsageError("The GPU took no kernel in the time given.")
        return (end - counted_from) / launched / 1e3, statistics.mean(read)
