"""Step time from utilization, including the dispatch time that CUPTI's kernel durations omit.

NVML counts a kernel from its dispatch to its end. So over a window of steady training, utilization × step = kernel time per step
+ dispatch time × kernels per step. A trace gives the right side, because the profiler does not change it. Utilization can be
recorded without a profiler, so the result is the step time of the unprofiled run. On 54 recordings of an H200, 90 % were within
8 %; the replay of the trace alone was within 40 %.
The formula needs a GPU that does not wait for others. NCCL kernels that wait for other ranks count as busy, so with collectives
the result is only a lower bound.
"""

from __future__ import annotations

from sawtooth.analysis.knowledge.hardware import GRAPH_DISPATCH
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, StepWork
from sawtooth.analysis.telemetry.signal.means import Mean
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.analysis.units import in_words

COUNTS_KERNELS = "util_pct"
WITHOUT_COPIES = "gr_active_pct"
# Share of busy time. With more copies, GPM is used: it does not count copies, but undercounts short bursts.
COPIES_SHARE = 0.05
# Ratio of the counters' scatters from which GPM is used. NVML updates every 0.2 s, so its values vary if the load comes in
# bursts.
STEADY_RATIO = 2.0
MIN_SAMPLES = 10  # Fewer utilization windows (1/6 to 1 s each) do not represent a run.
MIN_UTIL_PCT = 1.0  # Utilization has whole percents. Below 1 %, rounding alone changes the step time by half.
# Relative error of the step time of a GPU that never waits: the run's kernels differ from the profiled ones.
KERNEL_TIME_ERROR = 0.05
# Error as a share of the waiting time, over ENOUGH_S of training: short bursts are counted inexactly, and the host's speed drifts.
HOST_TIME_ERROR = 0.06
FREQUENT_S, ENOUGH_S = 0.25, 4.0  # Seconds between samples (5 Hz with jitter), and seconds of training.
BOUND_ERROR = 0.08  # Relative error of the lower bound for ranks that wait for each other.
ROUNDING_PCT = 0.3  # Percentage points. The driver rounds utilization to whole percents.
POWER_CAP_FACTOR = 1.08  # Under a power cap, the run's kernels may take longer than the profiled ones by this factor.
NO_COLLECTIVES = 0.01  # Share of kernel time. With less communication, waits for other ranks do not matter.
NAMES = {COUNTS_KERNELS: "NVML utilization", WITHOUT_COPIES: "GPU activity (GPM)"}


def by_telemetry(work: StepWork, sampled: DeviceTelemetry) -> StepTimeEvidence | str:
    """Return the step time evidence of a device's telemetry, or a sentence why there is none."""
    if work.kernel_ns <= 0:
        return "There is no step to compare telemetry with."
    column = _signal(work, sampled)
    if column is None or sampled.steady.start_ns is None:
        return sampled.steady.why_none or "The telemetry does not show in which share of the time the GPU works."
    mean = sampled.at_work[column]
    if mean.samples < MIN_SAMPLES:
        return f"Only {mean.samples} samples show the training outside the profile."
    if mean.value < MIN_UTIL_PCT:
        return f"{NAMES[column]} outside the profile is {mean.value:.1f} %: too low to compute a step time."
    if work.communication_ns > NO_COLLECTIVES * work.kernel_ns:
        return _bound(work, mean, column)
    in_part = work.pageable_ns + work.allocating_ns if column == COUNTS_KERNELS else 0.0
    step = (work.resident_ns + in_part / 2) / mean.value / 1e4
    low, high = interval(work, mean, sampled.period_s.get(column, 1.0), in_part)
    low, high = step * low, step * high
    notes = [
        f"Computed from telemetry: {NAMES[column]} is {mean.value:.3g} % over {mean.seconds:.1f} s outside the profile, and a step keeps the GPU busy "
        f"for {in_words(work.resident_ns / 1e6, 4)} (kernels and their dispatch)."
    ]
    if in_part > COPIES_SHARE * work.occupied_ns:
        other_work = "the pageable copies" if work.pageable_ns > work.allocating_ns else "what the driver does for new memory"
        notes.append(f"Utilization counts part of {other_work}; the part is unknown, so the interval is wider.")
    other_counter = sampled.at_work.get(WITHOUT_COPIES if column == COUNTS_KERNELS else COUNTS_KERNELS)
    # with many copies or allocations, the two counters differ by design
    if other_counter is not None and other_counter.value >= MIN_UTIL_PCT and not _beside_kernels(work):
        by_other = work.resident_ns / other_counter.value / 1e4
        if not low <= by_other <= high:
            notes.append(
                f"{NAMES[WITHOUT_COPIES if column == COUNTS_KERNELS else COUNTS_KERNELS]} gives {in_words(by_other, 4)}. The interval contains both."
            )
        low, high = min(low, by_other), max(high, by_other)
    if sampled.capped:
        high = max(high, step * (1 + ((high / step - 1) ** 2 + (POWER_CAP_FACTOR - 1) ** 2) ** 0.5))
        notes.append("The power cap lowered the clocks, so the run's kernels may take longer than the profiled ones.")
    return StepTimeEvidence("telemetry", step, low, high, tuple(notes))


def _beside_kernels(work: StepWork) -> bool:
    """Return whether there are many copies or allocations, which NVML counts in part and GPM does not."""
    other_ns = work.copies_ns + work.allocating_ns
    return other_ns > COPIES_SHARE * (work.occupied_ns + other_ns)


def _signal(work: StepWork, sampled: DeviceTelemetry) -> str | None:
    """Return the column that shows best in which share of the time kernels run.

    It is NVML's utilization, or GPM if there are many copies or allocations, or if GPM is far steadier.
    """
    util, activity = (sampled.at_work.get(c) for c in (COUNTS_KERNELS, WITHOUT_COPIES))
    if util is None or activity is None:
        return COUNTS_KERNELS if util is not None else WITHOUT_COPIES if activity is not None else None
    return WITHOUT_COPIES if _beside_kernels(work) or far_steadier(activity, util) else COUNTS_KERNELS


def far_steadier(activity: Mean, util: Mean) -> bool:
    """Return whether GPM scatters far less than NVML.

    GPM covers all of the time, NVML samples parts of it. If NVML scatters much more, the load has a period close to NVML's own.
    """
    return _scatter(util) > STEADY_RATIO * _scatter(activity)


def _scatter(mean: Mean) -> float:
    return (mean.high - mean.low) / mean.value if mean.value else float("inf")


def interval(
    work: StepWork, mean: Mean, period_s: float, in_part_ns: float, *, kernels: float = KERNEL_TIME_ERROR
) -> tuple[float, float]:
    """Return the ends of the 90 % interval as shares of the step time.

    Independent errors are added in quadrature. The scatter of utilization (``mean``) is measured. Two other errors do not show in
    it: ``kernels``, and the host's error, which is HOST_TIME_ERROR times the share in which the GPU waits.
    """
    resident = work.resident_ns
    seen_s = mean.seconds * min(FREQUENT_S / period_s, 1.0)
    waits = HOST_TIME_ERROR * (1 - mean.value / 100) * max(ENOUGH_S / seen_s, 1.0) ** 0.5
    copies = in_part_ns / 2 / (resident + in_part_ns / 2)
    dispatch, graphs = work.dispatched / resident, work.in_graphs / resident
    common = (kernels, waits, ROUNDING_PCT / mean.value, copies)
    lower = (
        dispatch * (work.dispatch.ns - work.dispatch.low_ns),
        graphs * (GRAPH_DISPATCH.ns - GRAPH_DISPATCH.low_ns),
        (work.occupied_ns - work.least_ns) / resident,
        1 - mean.value / max(mean.high, mean.value),
    )
    upper = (
        dispatch * (work.dispatch.high_ns - work.dispatch.ns),
        graphs * (GRAPH_DISPATCH.high_ns - GRAPH_DISPATCH.ns),
        mean.value / max(mean.low, 0.1 * mean.value) - 1,
    )
    lower_error, upper_error = (sum(part**2 for part in (*common, *parts)) ** 0.5 for parts in (lower, upper))
    return max(1 - lower_error, 0.05), 1 + upper_error


def _bound(work: StepWork, mean: Mean, column: str) -> StepTimeEvidence:
    """Return the lower bound for a GPU that waits in collectives: its own work divided by its utilization."""
    compute_ns = work.occupied_ns - work.communication_ns
    low = compute_ns / mean.value / 1e4 * (1 - BOUND_ERROR)
    note = (
        f"The GPU waits for others inside collectives, which {NAMES[column]} counts as busy: its own {in_words(compute_ns / 1e6, 4)} of a step at "
        f"{mean.value:.3g} % bound the step from below only."
    )
    return StepTimeEvidence("telemetry", None, low, None, (note,))
