"""Metrics of steps: step time profiled, without the profiler, and in the run; kernels per step."""

from __future__ import annotations

from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.pauses import with_doubt
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.step_time import NO_STEPS


def kernels_per_step(measured: DeviceMeasurements) -> Reading:
    """Return the number of kernels per counted step."""
    if not measured.counted:
        return missing(NO_STEPS)
    return Reading(measured.facts.kernels_in_counted_steps / measured.counted)


METRICS = (
    Metric(
        key="step_time_ms", label="Step time, profiled", unit="ms", better="lower",
        definition="Median over the counted steps of the difference of consecutive step ends on the device, as the profiler recorded them.",
        source="Launches and their GPU operations: a step ends on the device when the last GPU operation that it launched ends.",
        compute=lambda measured: measured.best.profiled,
        doubted_by=("lost_launches", "one_step"),
    ),
    Metric(
        key="step_time_unprofiled_est_ms", label="Step time without profiler, estimated", unit="ms", better="lower",
        definition="Step time in a replay of the recorded launches, waits and GPU operations, without the profiler's own cost on the host.",
        source="Replay, calibrated on this trace.",
        compute=lambda measured: measured.best.estimate,
        doubted_by=("lost_launches",),
    ),
    Metric(
        key="best_step_time_ms", label="Step time", unit="ms", better="lower",
        definition="The best known step time of the run: the user's stopwatch, else the run's own step marks, else telemetry's (kernel time and "
        "dispatch ÷ utilization), else the profile if the estimate is within 5 % of it, else the estimate. The profile comes before telemetry if the GPU "
        "limits the profiled steps and telemetry confirms them. Rare pauses between steps are not included; they are reported separately.",
        source="See step_time_source.",
        compute=lambda measured: with_doubt(measured.best.reading, measured.best.pauses),
        doubted_by=("lost_launches", "step_of_profile"),
        card=1,
        alias="step_time_best_ms",
    ),
    Metric(
        key="kernel_launches_per_step", label="Kernels per step", unit="count", better="lower",
        definition="Kernels of the counted steps ÷ counted steps.",
        source="GPU operations.",
        compute=kernels_per_step,
        doubted_by=("lost_launches",),
    ),
)  # fmt: skip
