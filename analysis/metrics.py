"""Every metric of the report, defined once: cards, axes, help texts, CLI, JSON and the Reference screen print these objects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Trust = Literal["ok", "caution", "unusable"]
Better = Literal["lower", "higher", "neither"]


@dataclass(frozen=True)
class Metric:
    """What a number means. ``unit`` is the report's: ms, share (0 to 1), FLOP, TFLOP/s, count, bytes, s or percent."""

    key: str
    label: str
    unit: str
    better: Better
    definition: str
    source: str


@dataclass(frozen=True)
class Reading:
    """A metric's value, or None with the reason why. ``trust`` and ``notes`` travel with the number wherever it is shown."""

    value: float | None
    why_missing: str | None = None
    trust: Trust = "ok"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.value is None and not self.why_missing:
            raise ValueError("a missing reading needs its reason")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"a reading must be finite, not {self.value}")


def missing(reason: str) -> Reading:
    """Return a reading without a value and the sentence that says why."""
    return Reading(None, reason, "unusable")


_ALL = (
    Metric("step_time_ms", "Step time, profiled", "ms", "lower",
           "Median over the counted steps of the difference of consecutive step ends on the device, as the profiler recorded them.",
           "Step ends by launch correlation: a step ends when the last GPU operation it launched ends."),
    Metric("step_time_unprofiled_est_ms", "Step time, unprofiled estimate", "ms", "lower",
           "Replay of the recorded launches, waits and GPU operations with the profiler's own cost taken off the host.",
           "Replay calibrated on this trace."),
    Metric("step_time_best_ms", "Step time", "ms", "lower",
           "The best known step time of the run: the user's stopwatch, else telemetry's, else the profile where the estimate is "
           "within 5 % of it, else the estimate.", "See step_time_source."),
    Metric("gpu_busy_share", "GPU busy", "share", "higher",
           "Union of all GPU operations in the steady window ÷ the steady window, as profiled.", "Kernels, copies and memory sets."),
    Metric("gpu_idle_share", "GPU idle", "share", "lower",
           "1 − GPU busy: the share of the steady window in which no GPU operation ran, as profiled.", "The ledger."),
    Metric("tensor_core_time_share", "Tensor-core time", "share", "higher",
           "Time owned by tensor-core kernels ÷ time owned by any compute kernel, in the steady window.",
           "Kernel names, operators and dtypes; kernel_names.toml."),
    Metric("tensor_core_unknown_share", "Tensor cores unknown", "share", "lower",
           "Time owned by kernels whose tensor-core use no rule decides ÷ time owned by any compute kernel.",
           "Shown beside the share, never folded into it."),
    Metric("flops_per_step", "FLOPs per step", "FLOP", "neither",
           "Floating-point operations of matrix products, convolutions and attention per counted step, each counted once.",
           "Recorded shapes by PyTorch's own formulas, or what the user gave."),
    Metric("flop_coverage", "FLOP coverage", "share", "higher",
           "Share of GEMM, convolution and attention kernel time whose operator shapes are known.", "Below 95 % the MFU is a lower bound."),
    Metric("mfu", "MFU", "share", "higher",
           "FLOPs per step ÷ (best step time × the device's dense 16-bit tensor peak).", "flops_per_step, step_time_best_ms, hardware.toml."),
    Metric("mfu_at_dtype", "MFU at dtype", "share", "higher",
           "As MFU, each operator's FLOPs weighed with the dense peak of its own dtype.", "Operator dtypes, hardware.toml."),
    Metric("hfu", "HFU", "share", "higher",
           "As MFU, with the FLOPs of recomputed operators (activation checkpointing) added.", "Forward operators repeated inside backward."),
    Metric("achieved_tflops", "Achieved", "TFLOP/s", "higher", "FLOPs per step ÷ best step time.", "flops_per_step, step_time_best_ms."),
    Metric("mfu_factor_busy", "Busy share of MFU", "share", "higher", "Busy time per step ÷ the step time of the MFU.", "Ledger, step time."),
    Metric("mfu_factor_flop_kernels", "FLOP-kernel share", "share", "higher",
           "Union of all GEMM, convolution and attention kernels ÷ busy time.", "Kernel categories."),
    Metric("mfu_factor_clock", "Clock share", "share", "higher",
           "Mean SM clock ÷ the clock the peak is quoted at; 1 with a note where no telemetry tells. Under a power cap the clock that NVML reports was "
           "measured 6 to 10 % above the one that the SMs ran at (H200); the difference then lies in the efficiency.", "Telemetry, hardware.toml."),
    Metric("mfu_factor_efficiency", "FLOP-kernel efficiency", "share", "higher",
           "What is left of MFU after the other three factors: how near those kernels come to the peak while they run.", "Quotient."),
    Metric("sm_efficiency", "SM efficiency", "share", "higher",
           "Σ min(blocks per SM, 1) × kernel duration ÷ the steady window, as the TensorBoard plugin defines it.", "Kernel launch sizes."),
    Metric("achieved_occupancy", "Estimated occupancy", "share", "higher",
           "Kernel-duration-weighted mean of the profiler's estimated achieved occupancy.", "Kernel arguments."),
    Metric("exposed_comm_share", "Exposed communication", "share", "lower",
           "Time in which communication kernels ran and no compute did ÷ the steady window.", "The ledger."),
    Metric("kernel_launches_per_step", "Kernels per step", "count", "lower", "Kernels of the counted steps ÷ counted steps.", "GPU operations."),
    Metric("peak_memory_bytes", "Peak memory", "bytes", "neither",
           "Largest allocated device memory seen by the allocator events; else the largest memory in use that telemetry saw.",
           "profile_memory, telemetry."),
    Metric("nvml_gpu_util_mean", "GPU utilization (NVML)", "share", "higher",
           "Time-weighted mean of NVML utilization over the run's steady telemetry; holes in sampling are left out.", "Telemetry."),
    Metric("tensor_active_measured", "Tensor pipe active, measured", "share", "higher",
           "Time-weighted mean of the measured tensor-pipe activity (GPM or DCGM). For large matrix products it lies 1 to 5 points above achieved FLOP/s ÷ "
           "(peak × the clock the SMs ran at), measured on an H200: the pipe is also counted while it waits for operands.", "Telemetry."),
    Metric("sawtooth_period_s", "Sawtooth period", "s", "neither",
           "Period of the strongest regular rise and fall of utilization, where one is found.", "Telemetry."),
)  # fmt: skip

METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}
